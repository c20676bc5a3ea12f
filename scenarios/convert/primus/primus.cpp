#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/megatron/model.hpp"
#include "scenarios/convert/yaml_table.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"

// Primus (AMD-AGI/Primus): an experiment names a trainer's file and a model's, each of which extends others, and
// overrides what they say. Under "megatron" a key is an argument of Megatron-LM's by the name of its variable, under
// "torchtitan" a key of torchtitan's configuration.

namespace tidemark::scenarios {
namespace {

constexpr std::string_view trainer_key = "pre_trainer";

const TomlKey* key_in(const TomlTable& table, std::string_view name) {
  const auto found = std::ranges::find(table.keys, name, &TomlKey::name);
  return found == table.keys.end() ? nullptr : &*found;
}
const TomlTable* table_in(const TomlTable& table, std::string_view name) {
  const TomlKey* const key = key_in(table, name);
  return key == nullptr ? nullptr : std::get_if<TomlTable>(&key->value.value);
}
std::string text_in(const TomlTable& table, std::string_view name) {
  const TomlKey* const key = key_in(table, name);
  const auto* const text = key == nullptr ? nullptr : std::get_if<std::string>(&key->value.value);
  return text == nullptr ? std::string() : *text;
}
bool is_on(const TomlTable& table, std::string_view name) {
  const TomlKey* const key = key_in(table, name);
  const auto* const on = key == nullptr ? nullptr : std::get_if<bool>(&key->value.value);
  return on != nullptr && *on;
}

// Tables within tables, key by key; what `over` says counts.
void merge(TomlTable& into, const TomlTable& over) {
  for (const TomlKey& key : over.keys) {
    const auto found = std::ranges::find(into.keys, key.name, &TomlKey::name);
    if (found == into.keys.end()) {
      into.keys.push_back(key);
      continue;
    }
    auto* const inner = std::get_if<TomlTable>(&found->value.value);
    const auto* const its = std::get_if<TomlTable>(&key.value.value);
    if (inner != nullptr && its != nullptr)
      merge(*inner, *its);
    else
      *found = key;
  }
}

// "${PRIMUS_TP:1}" is what the environment says, or 1 (primus/core/utils/yaml_utils.py).
class Environment {
 public:
  Environment(const std::map<std::string, std::string>& given, Draft& draft) : given_(given), draft_(draft) {}

  void settle(TomlTable& table) const {
    for (TomlKey& key : table.keys) settle(key.value);
    std::erase_if(table.keys, [](const TomlKey& key) {
      const auto* const text = std::get_if<std::string>(&key.value.value);
      return text != nullptr && (text->empty() || *text == "null");
    });
  }

 private:
  void settle(TomlValue& value) const {
    if (auto* const inner = std::get_if<TomlTable>(&value.value)) return settle(*inner);
    if (auto* const list = std::get_if<std::vector<TomlValue>>(&value.value))
      for (TomlValue& one : *list) settle(one);
    auto* const text = std::get_if<std::string>(&value.value);
    if (text == nullptr || text->find("${") == std::string::npos) return;
    std::string made;
    for (std::size_t at = 0; at < text->size();) {
      const std::size_t begin = text->find("${", at), end = text->find('}', std::min(begin, text->size()));
      made += text->substr(at, std::min(begin, text->size()) - at);
      if (begin == std::string::npos || end == std::string::npos) break;
      const std::string inside = text->substr(begin + 2, end - begin - 2);
      const std::size_t sign = inside.find(':');
      const std::string name = inside.substr(0, sign);
      const auto given = given_.find(name);
      if (given == given_.end() && sign == std::string::npos)
        throw InputError(Problem{draft_.file, value.place.line, value.place.column,
                                 fmt::format("${{{}}} is of the environment, which does not say it", name),
                                 fmt::format("say it with --set {}=VALUE", name)});
      made += given != given_.end() ? given->second : inside.substr(sign + 1);
      at = end + 1;
    }
    value.value = typed(made);
  }

  const std::map<std::string, std::string>& given_;
  Draft& draft_;
};

/// What the files say that an experiment names.
struct Chain {
  TomlTable base;   ///< what trainers and models begin with: defaults, most of which ask for nothing
  TomlTable given;  ///< what the model's own files say
};

class PrimusExperiment {
 public:
  PrimusExperiment(const TomlTable& document, const std::map<std::string, std::string>& variables,
                   const ShippedModels& models, Draft& draft)
      : environment_(variables, draft), models_(models), draft_(draft) {
    const TomlTable* const modules = table_in(document, "modules");
    const TomlTable* const trainer = modules == nullptr ? nullptr : table_in(*modules, trainer_key);
    if (trainer == nullptr)
      throw InputError(Problem{.file = draft.file,
                               .line = 1,
                               .column = 1,
                               .message = "is a configuration of Primus without a pre_trainer: other modules are not "
                                          "modelled",
                               .hint = "modules.pre_trainer with framework, config, model and overrides",
                               .kind = ProblemKind::NotModelled});
    trainer_ = *trainer;
    environment_.settle(trainer_);
    framework_ = text_in(trainer_, "framework");
    const TomlKey* const key = key_in(trainer_, "framework");
    place_ = key == nullptr ? Place{1, 1} : key->place;
    if (framework_ != "megatron" && framework_ != "torchtitan")
      throw InputError(Problem{draft.file, place_.line, place_.column,
                               fmt::format("framework = {} of Primus is not modelled", in_quotes(framework_)),
                               "megatron and torchtitan are", ProblemKind::NotModelled});
    if (const TomlTable* const its = table_in(trainer_, "overrides")) overrides_ = *its;
  }

  [[nodiscard]] bool of_titan() const { return framework_ == "torchtitan"; }

  TomlTable titan_document() {
    TomlTable all;
    for (const char* part : {"config", "model"}) {
      const Chain its = chain(part);
      merge(all, its.base), merge(all, its.given);
    }
    merge(all, overrides_);
    for (const char* name : {"sink_level", "file_sink_level", "stderr_sink_level", "trainable", "quantize"})
      std::erase_if(all.keys, [&](const TomlKey& key) { return key.name == name; });
    take_turbo(all);
    // Nothing of those is said by their default.
    for (TomlKey& table : all.keys)
      if (auto* const its = std::get_if<TomlTable>(&table.value.value)) drop_defaults(table.name, *its);
    return all;
  }

  // As the tables of Megatron-Bridge, which names things likewise.
  TomlTable megatron_document() {
    Chain trainer = chain("config"), model = chain("model");
    merge(trainer.base, model.base);
    TomlTable given = std::move(model.given);
    merge(given, trainer.given), merge(given, overrides_);
    take_turbo(given);
    TomlTable document;
    document.keys.push_back(masks_of_loader(given));
    if (key_in(given, "hidden_size") == nullptr) name_model();
    drop_of_no_matter(given);
    TomlTable all = defaults(trainer.base, given);
    merge(all, given);
    rename(all, "activation_func", "activation");
    for (TomlKey& key : all.keys)  // which Python takes for true and false
      if (const auto* const number = std::get_if<std::int64_t>(&key.value.value);
          number != nullptr && (*number == 0 || *number == 1) && key.name == "sequence_parallel")
        key.value.value = *number == 1;
    document.keys.push_back({"model", place_, {std::move(all), place_}});
    return document;
  }

 private:
  // trainer_base.yaml's create_attention_mask_in_dataloader is true; Megatron-Bridge says the opposite.
  [[nodiscard]] TomlKey masks_of_loader(TomlTable& given) const {
    constexpr std::string_view name = "create_attention_mask_in_dataloader";
    const TomlKey* const key = key_in(given, name);
    const bool makes = key == nullptr || is_on(given, name);
    const Place place = key == nullptr ? place_ : key->place;
    std::erase_if(given.keys, [&](const TomlKey& its) { return its.name == name; });
    TomlTable dataset;
    dataset.keys.push_back({"skip_getting_attention_mask_from_dataset", place, {!makes, place}});
    return {"dataset", place, {std::move(dataset), place}};
  }

  // The file that the experiment names, with those that it extends; those are defaults that begin no model.
  Chain chain(const char* part) {
    const std::string name = text_in(trainer_, part);
    Chain made;
    if (name.empty()) return made;
    const std::string folder = part == std::string_view("model") ? "models" : "modules";
    const std::filesystem::path path =
        named_beside(draft_.folder, fmt::format("primus/configs/{}/{}/{}", folder, framework_, name));
    if (is_there(path)) {
      read(path, made);
      return made;
    }
    if (folder == "modules")
      draft_.remark(RemarkKind::Assumed, name, "is not there: the trainer's defaults are Primus' own", place_);
    return made;
  }

  void read(const std::filesystem::path& path, Chain& into) {
    constexpr int most_files = 64;
    if (++files_ > most_files)
      throw InputError(Problem{.file = draft_.file,
                               .line = place_.line,
                               .column = place_.column,
                               .message = fmt::format("extends more than {} files, the last of them {}", most_files,
                                                      path.filename().string()),
                               .hint = "one of them extends itself, or one that extends it"});
    TomlTable its = parse_yaml_table(read_text(path), path.string());
    environment_.settle(its);
    const TomlKey* const extends = key_in(its, "extends");
    const auto* const list = extends == nullptr ? nullptr : std::get_if<std::vector<TomlValue>>(&extends->value.value);
    for (const TomlValue& one : list == nullptr ? std::vector<TomlValue>{} : *list) {
      const auto* const name = std::get_if<std::string>(&one.value);
      if (name == nullptr) continue;
      if (const std::filesystem::path extended = path.parent_path() / *name; is_there(extended))
        read(extended, into);
      else if (!begins_every_file(extended))
        draft_.remark(RemarkKind::NotJudged, *name,
                      fmt::format("{} extends it, and it is not there", path.filename().string()), place_);
    }
    std::erase_if(its.keys, [](const TomlKey& key) { return key.name == "extends"; });
    for (TomlKey& key : its.keys) forget_places(key);  // which are none of the experiment's
    merge(begins_every_file(path) ? into.base : into.given, its);
  }

  static bool begins_every_file(const std::filesystem::path& path) {
    const std::string stem = path.stem().string();
    const bool of_model = path.string().find("/models/") != std::string::npos;
    return !of_model || stem == "language_model" || stem == "primus_megatron_model";
  }

  static void forget_places(TomlKey& key) {
    key.place = key.value.place = {};
    if (auto* const inner = std::get_if<TomlTable>(&key.value.value))
      for (TomlKey& its : inner->keys) forget_places(its);
  }

  void name_model() {
    const std::string stem = std::filesystem::path(text_in(trainer_, "model")).stem().string();
    const TomlKey* const key = key_in(trainer_, "model");
    if (!stem.empty() && key != nullptr) name_checkpoint(models_, stem, "model", key->place, draft_);
  }

  // Of what every trainer and model begins with, what says more than Megatron-LM's own defaults
  // (primus/configs/modules/megatron/pre_trainer.yaml, trainer_base.yaml; models/megatron/language_model.yaml).
  TomlTable defaults(const TomlTable& base, const TomlTable& given) const {
    struct Usual {
      std::string_view key;
      Content value;
    };
    static const std::array<Usual, 6> usual{{{"micro_batch_size", std::int64_t{2}},
                                             {"global_batch_size", std::int64_t{16}},
                                             {"seq_length", std::int64_t{1024}},
                                             {"bf16", true},
                                             {"use_distributed_optimizer", true},
                                             {"sequence_parallel", true}}};
    const TomlKey* const experts = key_in(given, "num_experts");
    const bool latent = is_on(given, "multi_latent_attention");
    TomlTable made;
    for (const Usual& its : usual) {
      const TomlKey* const said = key_in(base, its.key);
      if (key_in(given, its.key) == nullptr)
        made.keys.push_back(said != nullptr ? *said : TomlKey{std::string(its.key), {}, {its.value, {}}});
    }
    for (const TomlKey& key : base.keys) {
      std::string flag = key.name;
      std::ranges::replace(flag, '_', '-');
      const auto known = std::ranges::find(model_flags(), std::string_view(flag), &ModelFlag::flag);
      const bool bias = key.name == "add_bias_linear";
      if ((known == model_flags().end() && !bias) || key_in(given, key.name) != nullptr) continue;
      if (!bias && ((known->of_experts && experts == nullptr) || (known->of_latent && !latent) || known->of_hybrid))
        continue;
      made.keys.push_back(key);
    }
    if (experts != nullptr)
      for (const char* name : {"moe_token_dispatcher_type", "moe_router_load_balancing_type", "moe_aux_loss_coeff"})
        if (const TomlKey* const its = key_in(base, name); its != nullptr && key_in(given, name) == nullptr)
          made.keys.push_back(*its);
    for (const char* name :
         {"hidden_dropout", "attention_dropout", "transformer_impl", "accumulate_allreduce_grads_in_fp32"})
      if (const TomlKey* const its = key_in(base, name); its != nullptr && key_in(given, name) == nullptr)
        made.keys.push_back(*its);
    return made;
  }

  // Primus' own arguments that change nothing, and Megatron-LM's variables that no flag is called after.
  void drop_of_no_matter(TomlTable& table) const {
    constexpr auto names = std::to_array<std::string_view>({"stderr_sink_level",
                                                            "sink_level",
                                                            "file_sink_level",
                                                            "log_avg_skip_iterations",
                                                            "log_avg_reset_interval",
                                                            "disable_wandb",
                                                            "disable_tensorboard",
                                                            "disable_mlflow",
                                                            "disable_last_saving",
                                                            "auto_continue_train",
                                                            "mock_data",
                                                            "train_data_path",
                                                            "valid_data_path",
                                                            "test_data_path",
                                                            "use_rocm_mem_info",
                                                            "use_rocm_mem_info_iters",
                                                            "pp_warmup",
                                                            "dump_pp_data",
                                                            "wall_clock_step_timer",
                                                            "disable_profiler_activity_cpu",
                                                            "torch_profiler_record_shapes",
                                                            "torch_profiler_with_stack",
                                                            "torch_profiler_use_gzip",
                                                            "disable_compile_dependencies",
                                                            "trainable",
                                                            "mock_dataset",
                                                            "data_sharding",
                                                            "enable_experimental",
                                                            "use_pytorch_profiler",
                                                            "moe_router_force_load_balancing_type",
                                                            "no_fp8_weight_transpose_cache",
                                                            "tokenizer_type",
                                                            "model_type",
                                                            "original_max_position_embeddings",
                                                            "clone_scatter_output_in_embedding",
                                                            "check_for_nan_in_loss_and_grad",
                                                            "overlap_p2p_comm",
                                                            "enable_gloo_process_groups",
                                                            "perform_initialization",
                                                            "params_dtype",
                                                            "barrier_with_L1_time",
                                                            "disable_primus_topk_router"});
    if (is_on(table, "moe_router_force_load_balancing"))
      draft_.remark(RemarkKind::Assumed, "moe_router_force_load_balancing",
                    "experts get as many tokens each, as simulated: Primus' router is made even",
                    key_in(table, "moe_router_force_load_balancing")->place);
    std::erase_if(table.keys, [](const TomlKey& key) { return key.name == "moe_router_force_load_balancing"; });
    std::erase_if(table.keys, [&](const TomlKey& key) {
      const bool is_one = std::ranges::find(names, std::string_view(key.name)) != names.end();
      if (is_one && key.place.line > 0)
        draft_.remark(RemarkKind::NoMatter, fmt::format("overrides.{}", key.name), "changes neither memory nor time",
                      key.place);
      return is_one;
    });
  }

  static void rename(TomlTable& table, std::string_view from, std::string_view to) {
    for (TomlKey& key : table.keys)
      if (key.name == from) key.name = to;
  }

  // Primus-Turbo (primus/backends/megatron/core/extensions/primus_turbo.py): kernels in place of TransformerEngine's.
  void take_turbo(TomlTable& table) {
    const TomlTable* const own = table_in(table, "primus_turbo");
    const TomlTable its = own == nullptr ? table : *own;
    const bool on = is_on(its, "enable_primus_turbo");
    // They save what the others save: queries, keys, values, the result and its sums; inputs and weights.
    constexpr auto alike = std::to_array<std::string_view>(
        {"use_turbo_attention", "use_turbo_grouped_gemm", "use_turbo_grouped_mlp", "use_turbo_gemm",
         "use_turbo_parallel_linear", "use_turbo_rms_norm", "moe_use_fused_router_with_aux_score",
         "turbo_deepep_num_cu", "turbo_deepep_use_comm_stream", "use_turbo_autotune"});
    for (const TomlKey& key : its.keys) {
      const bool is_turbo = key.name.find("turbo") != std::string::npos || own != nullptr ||
                            key.name == "moe_use_fused_router_with_aux_score";
      if (!is_turbo || key.name == "enable_primus_turbo") continue;
      const auto* const flag = std::get_if<bool>(&key.value.value);
      const auto* const number = std::get_if<std::int64_t>(&key.value.value);
      const bool nothing = !on || (flag != nullptr && !*flag) || (number != nullptr && *number == 0);
      if (nothing)
        draft_.remark(RemarkKind::NoMatter, key.name, "asks for nothing", key.place);
      else if (std::ranges::find(alike, std::string_view(key.name)) != alike.end())
        draft_.remark(RemarkKind::Assumed, key.name,
                      "Primus-Turbo's kernels keep what TransformerEngine's and PyTorch's do, whose times these are",
                      key.place);
      else
        draft_.remark(RemarkKind::NotJudged, fmt::format("{} = {}", key.name, scenarios::text(key.value)),
                      "is of Primus-Turbo, and is not modelled", key.place);
    }
    std::erase_if(table.keys, [](const TomlKey& key) {
      return key.name.find("turbo") != std::string::npos || key.name == "moe_use_fused_router_with_aux_score";
    });
  }

  // Keys of torchtitan's that Primus writes out with their defaults.
  static void drop_defaults(const std::string& name, TomlTable& table) {
    const auto drop = [&](std::string_view key, std::string_view value) {
      std::erase_if(table.keys, [&](const TomlKey& its) {
        return its.name == key && its.place.line == 0 && scenarios::text(its.value) == value;
      });
    };
    if (name == "training") {
      drop("global_batch_size", "-1");
      std::erase_if(table.keys, [](const TomlKey& its) { return its.name == "mock_data"; });
    }
    if (name == "model")
      for (TomlKey& key : table.keys)
        if (auto* const list = std::get_if<std::vector<TomlValue>>(&key.value.value);
            key.name == "converters" && list != nullptr)
          std::erase_if(*list, [](const TomlValue& one) { return scenarios::text(one) == "\"primus_turbo\""; });
    if (name == "experimental") table.keys.clear();
    if (name == "parallelism")
      for (const char* key :
           {"pipeline_parallel_schedule", "pipeline_parallel_schedule_csv", "pipeline_parallel_microbatch_size",
            "pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers"})
        std::erase_if(table.keys, [&](const TomlKey& its) {
          return its.name == key && its.place.line == 0 && key_in(table, "pipeline_parallel_degree") != nullptr &&
                 scenarios::text(key_in(table, "pipeline_parallel_degree")->value) == "1";
        });
    if (name == "activation_checkpoint")
      std::erase_if(table.keys, [](const TomlKey& its) {
        return its.name == "per_op_sac_force_recompute_mm_shapes_by_fqns" && its.place.line == 0;
      });
  }

  Environment environment_;
  const ShippedModels& models_;
  Draft& draft_;
  TomlTable trainer_, overrides_;
  std::string framework_;
  Place place_;
  int files_ = 0;  // read so far
};

}  // namespace

PrimusTraining primus_training(const TomlTable& document, const std::map<std::string, std::string>& variables,
                               const ShippedModels& models, Draft& draft) {
  PrimusExperiment experiment(document, variables, models, draft);
  if (experiment.of_titan()) return {true, experiment.titan_document()};
  return {false, experiment.megatron_document()};
}

}  // namespace tidemark::scenarios
