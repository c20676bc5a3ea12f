#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/python_recipes/python_values.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"

// NeMo 2's recipes (nemo/collections/llm/recipes): a function makes run.Partial(pretrain, model=…, trainer=…, data=…,
// optim=…). It is evaluated with the functions and dataclasses that its file and the files beside it define, and its
// settings become tables of Megatron-Bridge's kind.

namespace tidemark::scenarios {
namespace {

using Fields = std::map<std::string, PythonValue, std::less<>>;

// What TransformerConfig has where a NeMo class says nothing, and Megatron-LM's flags have otherwise
// (megatron/core/transformer/transformer_config.py, model_parallel_config.py).
constexpr auto of_core = std::to_array<std::pair<std::string_view, bool>>({{"bias_activation_fusion", false},
                                                                           {"bias_dropout_fusion", false},
                                                                           {"apply_rope_fusion", false},
                                                                           {"masked_softmax_fusion", false},
                                                                           {"attention_softmax_in_fp32", true}});
// Fields that shape nothing, whatever they say.
constexpr auto of_no_matter = std::to_array<std::string_view>({"parallel_output",
                                                               "deallocate_pipeline_outputs",
                                                               "scatter_embedding_sequence_parallel",
                                                               "tp_only_amax_red",
                                                               "use_transformer_engine_full_layer_spec",
                                                               "fp16_lm_cross_entropy",
                                                               "seq_length",
                                                               "bias_dropout_add_fusion",
                                                               "gradient_accumulation_fusion",
                                                               "params_dtype",
                                                               "pipeline_dtype",
                                                               "autocast_dtype",
                                                               "bf16",
                                                               "fp16",
                                                               "rotary_base",
                                                               "rotary_scaling",
                                                               "scale_factor",
                                                               "low_freq_factor",
                                                               "high_freq_factor",
                                                               "old_context_len",
                                                               "init_method_std",
                                                               "seq_len_interpolation_factor",
                                                               "is_hf_config",
                                                               "embedding_init_method_std",
                                                               "use_transformer_engine_op_fuser",
                                                               "rope_scaling",
                                                               "rope_scaling_factor",
                                                               "persist_layer_norm"});

class NemoRecipe {
 public:
  NemoRecipe(std::string_view text, const std::map<std::string, std::string>& variables, Draft& draft)
      : draft_(draft),
        variables_(variables),
        python_(draft.file, text, [this](const PythonLine& line) { tell_not_read(line); }) {}

  TomlTable settings() {
    const PythonFunction& recipe = chosen();
    Fields named;
    for (const std::string& parameter : PythonEvaluation::parameters_of(recipe))
      if (const auto its = variables_.find(parameter); its != variables_.end())
        named[parameter] = python_.expression(is_literal(its->second) ? its->second : '"' + its->second + '"',
                                              python_.module(), recipe.place);
    const PythonValue made = python_.call({&python_.module(), &recipe}, {}, named);
    const PythonObject* const all = made.object();
    const PythonObject* const model = all == nullptr ? nullptr : all->field("model").object();
    const PythonObject* const trainer = all == nullptr ? nullptr : all->field("trainer").object();
    if (model == nullptr || trainer == nullptr || trainer->name() != "Trainer")
      fail(recipe.place,
           not_modelled(fmt::format("{} makes no model and trainer that can be read without running it", recipe.name)),
           "a recipe of nemo/collections/llm/recipes would do, with the repository around it");
    const auto scheme = variables_.find("peft_scheme");
    const bool lora = scheme == variables_.end() || scheme->second == "lora";
    if (!all->field("peft").none() && lora) {
      constexpr std::int64_t usual = 32;  // nemo/collections/llm/peft/lora.py LoRA.dim
      const PythonValue peft = all->field("peft");
      const PythonValue dim = peft.object() == nullptr ? PythonValue{} : peft.object()->field("dim");
      const auto* const said = std::get_if<std::int64_t>(&dim.is);
      draft_.remark_bounded("peft_scheme = \"lora\"", std::string(figures_of_all_weights),
                            fmt::format("lora-on-megatron:{}", said == nullptr ? usual : *said), recipe.place);
    } else if (!all->field("peft").none())
      fail(recipe.place, not_modelled(fmt::format("{}: adapters on Megatron-LM are not modelled", recipe.name)),
           "--set peft_scheme=none asks for full fine-tuning");
    take_model(*model, recipe.place);
    take_trainer(*trainer);
    const PythonObject* const data = object_in(*all, "data", {});
    // nemo/collections/llm/gpt/data/mock.py and pre_training.py make no masks unless told.
    if (data != nullptr && (data->name() == "MockDataModule" || data->name() == "PreTrainingDataModule"))
      put("data", "create_attention_mask", truth_of(data->field("create_attention_mask")) == true);
    if (data != nullptr) take_data(*data, all->field("resume"));
    if (const PythonObject* const optim = object_in(*all, "optim", {})) take_optimizer(*optim);
    TomlTable document;
    for (auto& [name, table] : tables_) document.keys.push_back({name, recipe.place, {std::move(table), recipe.place}});
    return document;
  }

 private:
  [[noreturn]] void fail(Place place, ProblemText message, std::string hint) const {
    throw InputError(
        Problem{draft_.file, place.line, place.column, std::move(message.text), std::move(hint), message.kind});
  }

  static bool is_literal(const std::string& word) {
    return word == "None" || !std::holds_alternative<std::string>(typed(word));
  }

  const PythonFunction& chosen() const {
    const auto named = variables_.find("recipe");
    const std::string name = named == variables_.end() ? "pretrain_recipe" : named->second;
    std::vector<std::string> names;
    const PythonFunction* found = nullptr;
    for (const PythonFunction& its : python_.module().file.functions) {
      if (its.name.find("recipe") == std::string::npos) continue;
      names.push_back(its.name);
      if (its.name == name || (named == variables_.end() && found == nullptr && its.name == "finetune_recipe"))
        found = &its;
    }
    if (found == nullptr)
      throw InputError(Problem{draft_.file, 1, 1, fmt::format("has no recipe {}", in_quotes(name)),
                               names.empty()
                                   ? "a file of nemo/collections/llm/recipes has some"
                                   : fmt::format("--set recipe=NAME takes one of {}", fmt::join(names, ", "))});
    draft_.remark(RemarkKind::Assumed, found->name, "is the recipe that is read: --set recipe=NAME takes another one",
                  found->place);
    return *found;
  }

  void tell_not_read(const PythonLine& line) {
    draft_.remark(RemarkKind::NotJudged, line.text.substr(0, 80), "is Python that is not read", line.place);
  }

  void tell_not_evaluated(std::string_view name, Place place) {
    draft_.remark(RemarkKind::NotJudged, std::string(name), "is Python that is not read", place);
  }

  // The object of that field, of one of these classes; nothing where it is left out or None. Any other is not judged:
  // what only running the recipe would tell is none that was left out.
  const PythonObject* object_in(const PythonObject& of, std::string_view name,
                                std::initializer_list<std::string_view> classes) {
    const PythonValue value = of.field(name);
    if (value.none()) return nullptr;
    const PythonObject* const its = value.object();
    const bool known =
        its != nullptr && (classes.size() == 0 ? its->name().ends_with("Module")
                                               : std::ranges::find(classes, its->name()) != classes.end());
    if (!known)
      tell_not_evaluated(
          its == nullptr || its->name().empty() ? std::string(name) : fmt::format("{} = {}", name, its->name()),
          value.place);
    return known ? kept_.emplace_back(std::get<std::shared_ptr<PythonObject>>(value.is)).get() : nullptr;
  }

  void put_field(const std::string& table, const PythonObject& of, const char* name) {
    const PythonValue value = of.field(name);
    if (std::optional<Content> its = content_of(value))
      put(table, name, *std::move(its), value.place);
    else if (!value.none())
      tell_not_evaluated(name, value.place);
  }

  void put(const std::string& table, std::string name, Content content, Place place = {}) {
    std::vector<TomlKey>& keys = tables_[table].keys;
    std::erase_if(keys, [&](const TomlKey& key) { return key.name == name; });
    keys.push_back({std::move(name), place, {std::move(content), place}});
  }

  // As NeMo 1 has it: a kind of tokenizer, or the checkpoint that it is of.
  void put_tokenizer(std::string type) {
    TomlTable its;
    its.keys.push_back({"type", {}, {std::move(type), {}}});
    put("model", "tokenizer", std::move(its));
  }

  // torch.bfloat16, AttnBackend.flash.
  static std::optional<Content> content_of_name(const std::string& text) {
    constexpr auto types = std::to_array<std::pair<std::string_view, std::string_view>>({{"torch.bfloat16", "bf16"},
                                                                                         {"torch.float16", "fp16"},
                                                                                         {"torch.half", "fp16"},
                                                                                         {"torch.float32", "fp32"},
                                                                                         {"torch.float", "fp32"},
                                                                                         {"torch.uint8", "fp8"}});
    for (const auto& [theirs, ours] : types)
      if (text == theirs) return std::string(ours);
    const bool backend = text.find("AttnBackend.") != std::string::npos;
    return backend ? std::optional<Content>(text.substr(text.rfind('.') + 1)) : std::nullopt;
  }

  // Numbers, switches and words; nothing of what is left out or is a function.
  static std::optional<Content> content_of(const PythonValue& value) {
    if (const auto* const its = std::get_if<bool>(&value.is)) return *its;
    if (const auto* const its = std::get_if<std::int64_t>(&value.is)) return *its;
    if (const auto* const its = std::get_if<double>(&value.is)) return *its;
    if (const auto* const its = std::get_if<std::string>(&value.is)) return *its;
    if (const auto* const symbol = std::get_if<PythonSymbol>(&value.is)) return content_of_name(symbol->text);
    if (const auto* const list = std::get_if<std::shared_ptr<PythonList>>(&value.is)) {
      std::vector<TomlValue> made;
      for (const PythonValue& one : **list) {
        std::optional<Content> its = content_of(one);
        if (!its) return std::nullopt;
        made.push_back({*std::move(its), value.place});
      }
      return made;
    }
    return std::nullopt;
  }

  // Of classes' own fields there are many that nobody reads; of a recipe's, none but functions and what NeMo makes.
  static bool says_something(const std::string& name) {
    constexpr auto counts = std::to_array<std::string_view>({"num_moe_experts", "num_query_groups", "vocab_size"});
    std::string flag = name;
    std::ranges::replace(flag, '_', '-');
    return megatron_flag(flag) || std::ranges::find(counts, std::string_view(name)) != counts.end();
  }

  void take(const std::string& table, const Fields& fields, bool of_recipe = false) {
    for (const auto& [name, value] : fields) {
      if (std::ranges::find(of_no_matter, name) != of_no_matter.end() || name == "activation_func") continue;
      if (std::optional<Content> its = content_of(value)) {
        put(table, name, *std::move(its), value.place);
      } else if (!value.none() && (of_recipe || says_something(name))) {
        tell_not_evaluated(name, value.place);
      }
    }
  }

  void take_model(const PythonObject& model, Place place) {
    const PythonObject* const config = model.field("config").object();
    const PythonClassOf* const type = config == nullptr ? nullptr : std::get_if<PythonClassOf>(&config->type.is);
    if (type == nullptr)
      fail(place,
           not_modelled(
               fmt::format("the model's configuration{} is in no file that is there, so that it is not modelled",
                           config == nullptr ? "" : " " + config->name())),
           "keep the repository's folders around this file: nemo/collections/llm/gpt/model");
    Fields fields;
    if (!python_.fields_of(*type, fields))
      draft_.remark(RemarkKind::NotJudged, type->type->name, "is of classes that are not there", place);
    for (const auto& [name, usual] : of_core)
      if (!fields.contains(name)) fields[std::string(name)] = {usual, {}};
    for (const auto& [name, value] : config->fields) fields.insert_or_assign(name, value);
    const PythonValue gated = fields["gated_linear_unit"];
    if (const auto* const act = std::get_if<PythonSymbol>(&fields["activation_func"].is)) {
      const std::string name = act->text.substr(act->text.rfind('.') + 1);
      const bool is_gated = truth_of(gated) == true;
      if (is_gated || name != "gelu")
        put("model", "activation",
            name == "silu" && is_gated ? std::string("fast-swiglu")
            : name == "squared_relu"   ? std::string("squared-relu")
            : is_gated                 ? "gated " + name
                                       : name,
            place);
    } else if (const auto* const own = std::get_if<PythonFunctionOf>(&fields["activation_func"].is)) {
      const bool is_gated = truth_of(gated) == true;
      put("model", "activation",
          !is_gated && own->function->name == "squared_relu" ? std::string("squared-relu")
                                                             : (is_gated ? "gated " : "") + own->function->name,
          place);
    }
    fields.erase("gated_linear_unit");
    take("model", fields);
  }

  void take_trainer(const PythonObject& trainer) {
    for (const char* name : {"devices", "num_nodes"}) put_field("trainer", trainer, name);
    const PythonObject* const strategy = object_in(trainer, "strategy", {"MegatronStrategy"});
    if (strategy != nullptr) {
      Fields fields = strategy->fields;
      std::erase_if(fields, [](const auto& its) {
        return its.first.starts_with("ckpt_") || its.first == "ddp" || its.first == "gradient_as_bucket_view" ||
               its.first == "find_unused_parameters" || its.first == "progress_interval" ||
               its.first == "save_ckpt_format" || its.first == "expert_tensor_model_parallel_size";
      });
      take("model", fields, true);
      if (const PythonObject* const ddp = object_in(*strategy, "ddp", {"DistributedDataParallelConfig"}))
        take("ddp", ddp->fields, true);
    }
    take_precision(trainer.field("plugins"));
    const PythonValue callbacks = trainer.field("callbacks");
    const auto* const list = std::get_if<std::shared_ptr<PythonList>>(&callbacks.is);
    if (list == nullptr && !callbacks.none()) tell_not_evaluated("callbacks", callbacks.place);
    for (const PythonValue& one : list == nullptr ? PythonList{} : **list)
      if (const PythonObject* const its = one.object())
        take_callback(*its, one.place, strategy);
      else if (!one.none())
        tell_not_evaluated("callbacks", one.place);
  }

  // nemo/lightning/pytorch/plugins/mixed_precision.py: its types count over the model's and DDP's.
  void take_precision(PythonValue plugins) {
    if (const auto* const list = std::get_if<std::shared_ptr<PythonList>>(&plugins.is);
        list != nullptr && !(*list)->empty())
      plugins = (*list)->front();
    if (plugins.none()) return;
    const PythonObject* const plugin = plugins.object();
    if (plugin == nullptr || plugin->name() != "MegatronMixedPrecision")
      return tell_not_evaluated("plugins", plugins.place);
    put_field("trainer", *plugin, "precision");
    const PythonValue precision = plugin->field("precision"), wide = plugin->field("grad_reduce_in_fp32");
    const auto* const type = std::get_if<std::string>(&precision.is);
    const bool fp16 = type != nullptr && type->starts_with("16");
    if (!wide.none() && !truth_of(wide)) tell_not_evaluated("grad_reduce_in_fp32", wide.place);
    // Where they are not fp32, gradients are of the type that is trained in.
    std::erase_if(tables_["ddp"].keys, [](const TomlKey& key) { return key.name == "grad_reduce_in_fp32"; });
    if (const bool is_wide = wide.none() || truth_of(wide) == true; is_wide || !fp16)
      put("ddp", "grad_reduce_in_fp32", is_wide);
    Fields eighth;
    for (const auto& [name, value] : plugin->fields)
      if (name.starts_with("fp8") || name == "first_last_layers_bf16" || name.starts_with("num_layers_at_"))
        eighth.emplace(name, value);
    take("model", eighth);
  }

  // nemo/lightning/pytorch/callbacks: those that change settings.
  void take_callback(const PythonObject& callback, Place place, const PythonObject* strategy) {
    const std::string name = callback.name();
    constexpr auto aside = std::to_array<std::string_view>(
        {"TimingCallback", "GarbageCollectionCallback", "NsysCallback", "FLOPsMeasurementCallback", "ModelCheckpoint",
         "MemoryProfileCallback", "PreemptionCallback", "LearningRateMonitor"});
    if (std::ranges::find(aside, name) != aside.end()) return;
    if (name != "MegatronCommOverlapCallback")
      return draft_.remark(RemarkKind::NotJudged, name, "is a callback that is not modelled", place);
    // _get_optimizer_overlap_cfgs, with the shared optimizer that recipes have.
    put("ddp", "overlap_grad_reduce", true), put("ddp", "overlap_param_gather", true);
    constexpr std::int64_t bucket = 134'217'728;  // 128 Mi elements
    put("ddp", "ddp_bucket_size", bucket);
    const auto more_than_one = [&](std::string_view degree) {
      const PythonValue its = strategy == nullptr ? PythonValue{} : strategy->field(degree);
      const auto* const number = std::get_if<std::int64_t>(&its.is);
      return number != nullptr && *number > 1;
    };
    Fields fields = callback.fields;
    std::erase_if(fields, [](const auto& its) { return its.first == "tp_comm_overlap_cfg" || its.second.none(); });
    if (!more_than_one("tensor_model_parallel_size") || strategy == nullptr ||
        truth_of(strategy->field("sequence_parallel")) != true)
      fields.erase("tp_comm_overlap");
    if (const auto own = fields.find("bucket_size"); own != fields.end()) {
      if (std::optional<Content> its = content_of(own->second)) put("ddp", "ddp_bucket_size", *std::move(its));
      fields.erase(own);
    }
    take("model", fields);
  }

  void take_data(const PythonObject& data, const PythonValue& resume) {
    for (const auto& [theirs, table] :
         {std::pair{"seq_length", "model"}, {"global_batch_size", "train"}, {"micro_batch_size", "train"}})
      put_field(table, data, theirs);
    if (!data.field("packed_sequence_specs").none())
      draft_.remark_bounded("packed_sequence_specs",
                            "the figures are of whole sequences of that length, which packed ones fill at most",
                            "packed-sequences", data.field("packed_sequence_specs").place);
    const bool says =
        std::ranges::any_of(tables_["model"].keys, [](const TomlKey& key) { return key.name == "vocab_size"; });
    if (says) return;
    // nemo/collections/llm/gpt/data/mock.py: GPT-2's tokenizer where none is given.
    if (data.name() == "MockDataModule" && data.field("tokenizer").none()) {
      put_tokenizer("GPT2BPETokenizer");
      draft_.remark(RemarkKind::Assumed, "vocab_size", "50257: mock data comes with GPT-2's tokenizer");
      return;
    }
    // "nemo://meta-llama/Llama-2-7b-hf": the checkpoint, whose tokenizer is taken.
    const PythonObject* const restored =
        resume.object() == nullptr ? nullptr : resume.object()->field("restore_config").object();
    const PythonValue path = restored == nullptr ? PythonValue{} : restored->field("path");
    if (const auto* const text = std::get_if<std::string>(&path.is)) {
      constexpr std::string_view scheme = "nemo://";
      put_tokenizer(text->starts_with(scheme) ? text->substr(scheme.size()) : *text);
    }
  }

  void take_optimizer(const PythonObject& optim) {
    const PythonObject* const config = optim.field("config").object();
    if (config == nullptr || config->name() != "OptimizerConfig")
      return draft_.remark(RemarkKind::NotJudged, optim.name(),
                           "is no optimizer of Megatron core's: the figures are of its Adam");
    constexpr auto read = std::to_array<std::string_view>(
        {"optimizer", "use_distributed_optimizer", "use_precision_aware_optimizer", "main_params_dtype",
         "main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype", "clip_grad", "optimizer_cpu_offload",
         "optimizer_offload_fraction", "overlap_cpu_optimizer_d2h_h2d"});
    Fields fields;
    for (const std::string_view name : read)
      if (const PythonValue its = config->field(name); !its.none()) fields.emplace(name, its);
    take("optimizer", fields);
  }

  Draft& draft_;
  const std::map<std::string, std::string>& variables_;
  PythonEvaluation python_;
  std::map<std::string, TomlTable> tables_;
  std::vector<std::shared_ptr<PythonObject>> kept_;  // whose fields are read
};

}  // namespace

bool is_nemo_recipe(std::string_view text) {
  return text.find("import nemo_run") != std::string_view::npos ||
         text.find("nemo.collections.llm") != std::string_view::npos;
}

TomlTable nemo_recipe(std::string_view text, const std::map<std::string, std::string>& variables, Draft& draft) {
  return NemoRecipe(text, variables, draft).settings();
}

}  // namespace tidemark::scenarios
