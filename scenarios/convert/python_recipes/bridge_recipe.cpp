#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/other_tools.hpp"
#include "scenarios/convert/python_recipes/python_statements.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"

// Megatron-Bridge's recipes (src/megatron/bridge/recipes): a function makes a ConfigContainer, begins with one of
// common.py's, and sets literal values, "cfg.model.seq_length = 4096". They are read, and nothing is run.

namespace tidemark::scenarios {
namespace {

struct Usual {
  std::string_view path, value;  ///< as Python writes it
};
// recipes/common.py _pretrain_common, with recipes/utils/optimizer_utils.py.
constexpr auto usual_pretraining = std::to_array<Usual>({{"train.global_batch_size", "32"},
                                                         {"train.micro_batch_size", "2"},
                                                         {"ddp.grad_reduce_in_fp32", "True"},
                                                         {"ddp.overlap_grad_reduce", "True"},
                                                         {"ddp.overlap_param_gather", "True"},
                                                         {"ddp.use_distributed_optimizer", "True"},
                                                         {"model.seq_length", "4096"},
                                                         {"mixed_precision", "\"bf16_mixed\""}});
// _sft_common: DistributedDataParallelConfig of Bridge's own shares the optimizer out (training/config.py).
constexpr auto usual_fine_tuning = std::to_array<Usual>({{"train.global_batch_size", "128"},
                                                         {"train.micro_batch_size", "1"},
                                                         {"ddp.grad_reduce_in_fp32", "True"},
                                                         {"ddp.use_distributed_optimizer", "True"},
                                                         {"model.seq_length", "2048"},
                                                         {"mixed_precision", "\"bf16_mixed\""}});
// What says nothing of memory under these settings: CUDA graphs, FSDP and offloading have switches of their own.
constexpr auto asks_for_nothing = std::to_array<Usual>({{"model.cuda_graph_impl", "\"none\""},
                                                        {"model.fine_grained_activation_offloading", "False"},
                                                        {"optimizer.use_precision_aware_optimizer", "False"},
                                                        {"model.moe_flex_dispatcher_backend", "\"deepep\""},
                                                        {"ddp.use_megatron_fsdp", "False"}});
constexpr auto of_others = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"model.cuda_graph_scope", "model.cuda_graph_impl"},
     {"model.cuda_graph_warmup_steps", "model.cuda_graph_impl"},
     {"model.moe_hybridep_num_sms", "model.moe_flex_dispatcher_backend"},
     {"model.offload_modules", "model.fine_grained_activation_offloading"},
     {"optimizer.main_grads_dtype", "optimizer.use_precision_aware_optimizer"},
     {"optimizer.main_params_dtype", "optimizer.use_precision_aware_optimizer"},
     {"optimizer.exp_avg_dtype", "optimizer.use_precision_aware_optimizer"},
     {"optimizer.exp_avg_sq_dtype", "optimizer.use_precision_aware_optimizer"},
     {"ddp.data_parallel_sharding_strategy", "ddp.use_megatron_fsdp"}});

class BridgeRecipe {
 public:
  BridgeRecipe(const PythonFile& file, const ShippedModels& models, Draft& draft)
      : file_(file), models_(models), draft_(draft) {}

  TomlTable settings(const std::string& named) {
    for (const PythonLine& line : file_.top)
      if (const auto its = assignment_in(line)) constants_[its->target] = its->value;
    const auto of_olmo = [](const PythonLine& line) { return line.text.find("olmo_core") != std::string::npos; };
    if (std::ranges::any_of(file_.top, of_olmo))
      fail({1, 1}, not_modelled("is a script of OLMo-core's, which is not modelled"),
           std::string(instead_of_other_tools));
    if (std::ranges::none_of(file_.functions, is_recipe))
      if (std::optional<TomlTable> its = settings_elsewhere(named)) return *std::move(its);
    const PythonFunction& recipe = chosen(named);
    draft_.remark(RemarkKind::Assumed, recipe.name, "is the recipe that is read", recipe.place);
    follow(recipe, 0);
    if (flex_.line > 0) apply_flex_dispatcher();
    if (adapted_)
      draft_.remark_bounded("cfg.peft", std::string(figures_of_all_weights), fmt::format("lora-on-megatron:{}", rank_),
                            *adapted_);
    constexpr std::size_t most = 5000;
    if (values_.size() > most)
      fail(recipe.place, fmt::format("sets more than {} values", most), "no recipe has so many");
    drop_what_is_off();
    take_devices(recipe);
    return table();
  }

 private:
  [[noreturn]] void fail(Place place, ProblemText message, std::string hint) const {
    throw InputError(
        Problem{draft_.file, place.line, place.column, std::move(message.text), std::move(hint), message.kind});
  }

  static bool is_recipe(const PythonFunction& its) {
    return std::ranges::any_of(its.lines, [](const PythonLine& line) {
      return line.text.starts_with("cfg = ") || line.text.starts_with("config = ");
    });
  }

  // "from megatron.bridge.recipes.llama.h100.llama3 import (a as b)": a file of other names for recipes of another.
  std::optional<TomlTable> settings_elsewhere(const std::string& named) {
    std::vector<PythonImport> recipes;
    for (const PythonLine& line : file_.top)
      for (PythonImport& its : imports_in(line))
        if (its.module.starts_with("megatron.bridge.recipes.") && its.name.ends_with("_config"))
          recipes.push_back(std::move(its));
    if (recipes.empty()) return std::nullopt;
    std::vector<std::string> names;
    const PythonImport* found = nullptr;
    for (const PythonImport& its : recipes) {
      if (its.as == named || (named.empty() && recipes.size() == 1)) found = &its;
      names.push_back(its.as);
    }
    if (found == nullptr)
      fail({1, 1},
           named.empty() ? fmt::format("has {} recipes, and a scenario is of one", names.size())
                         : fmt::format("has no recipe {}", in_quotes(named)),
           fmt::format("--set recipe={} takes one of {}", names.front(), fmt::join(names, ", ")));
    std::string file = found->module;
    std::ranges::replace(file, '.', '/');
    const std::filesystem::path path = named_beside(draft_.folder, file + ".py");
    constexpr int deepest = 4;
    if (!is_there(path) || depth_ >= deepest)
      fail(found->place, fmt::format("{} is of {}.py, which is not there", found->as, file),
           "give that file, or keep the repository's folders around this one");
    draft_.remark(RemarkKind::Assumed, found->as, fmt::format("is {} of {}.py", found->name, file), found->place);
    draft_.file = path.string(), draft_.folder = path.parent_path();
    const PythonFile other = parse_python(read_text(path));
    BridgeRecipe recipe(other, models_, draft_);
    recipe.depth_ = depth_ + 1;
    return recipe.settings(found->name);
  }

  const PythonFunction& chosen(const std::string& named) const {
    std::vector<std::string> names;
    const PythonFunction* found = nullptr;
    for (const PythonFunction& its : file_.functions) {
      if (!is_recipe(its)) continue;
      if (named.empty() || its.name == named) found = &its;
      names.push_back(its.name);
    }
    if (names.empty())
      fail({1, 1},
           not_modelled("is Python that is not modelled: no function in it makes a configuration of Megatron-Bridge"),
           "a script that starts it, or a recipe of Megatron-Bridge's; tidemark dry-run -- torchrun ... runs a "
           "training of "
           "your own without a GPU");
    if (!named.empty() && found == nullptr)
      fail({1, 1}, fmt::format("has no recipe {}", in_quotes(named)), fmt::format("{}", fmt::join(names, ", ")));
    if (named.empty() && names.size() > 1)
      fail({1, 1}, fmt::format("has {} recipes, and a scenario is of one", names.size()),
           fmt::format("--set recipe={} takes one of {}", names.front(), fmt::join(names, ", ")));
    return *found;
  }

  void set_rank(const std::string& value, Place place) {
    const std::optional<Content> said = literal_in(value, place);
    if (const auto* const rank = said ? std::get_if<std::int64_t>(&*said) : nullptr; rank != nullptr) rank_ = *rank;
  }

  void set(std::string path, std::string value, Place place) { values_[std::move(path)] = {std::move(value), place}; }

  void follow(const PythonFunction& recipe, int depth) {
    for (std::size_t i = 0; i < recipe.lines.size(); ++i) {
      const PythonLine& line = recipe.lines[i];
      const std::optional<PythonAssignment> its = assignment_in(line);
      const std::string_view text = line.text;
      // A condition on nothing but how rows are padded, or what adapters are like, which are LoRA's.
      const std::string_view next = i + 1 < recipe.lines.size() ? recipe.lines[i + 1].text : std::string_view();
      const bool of_rows = text.starts_with("if ") && text.ends_with(':') &&
                           (next.starts_with("cfg.dataset.offline_packing_specs.pad_") ||
                            (next.starts_with("peft_cfg.") && text.find("peft_scheme") != text.npos));
      const bool whole = text == "return cfg" || text == "return config";
      const bool aside = text.starts_with('"') || whole || text.starts_with("'");
      if (aside || of_rows) continue;
      if (its && (its->target == "cfg" || its->target == "config")) {
        begin(*its, line, depth + 1);
      } else if (its && its->target.starts_with("peft_cfg.")) {
        assign("peft." + its->target.substr(9), its->value, line.place);
      } else if (its && its->target.starts_with("cfg.")) {
        assign(its->target.substr(4), its->value, line.place);
      } else if (its && its->target.find('.') == std::string::npos && !hands_over_settings(its->value)) {
        constants_[its->target] = its->value;
      } else if (text.starts_with("apply_flex_dispatcher_backend(cfg.model,") &&
                 values_.contains("model.moe_flex_dispatcher_backend")) {
        flex_ = line.place;
      } else {
        not_read_.push_back(line);
      }
    }
    if (depth > 0) return;
    for (const PythonLine& line : not_read_) tell_not_read(line);
  }

  // "helper(cfg)", "helper(cfg.model)": what is called may change the settings.
  static bool hands_over_settings(std::string_view value) {
    const std::optional<PythonCall> call = call_in(value);
    return call && std::ranges::any_of(call->arguments, [](const std::string& argument) {
             const std::string its = argument.substr(argument.find('=') == argument.npos ? 0 : argument.find('=') + 1);
             return its == "cfg" || its == "config" || its == "cfg.model" || its == "cfg.ddp" ||
                    its == "cfg.optimizer" || its == "cfg.train";
           });
  }

  // "cfg = _pretrain_common()", or another recipe of this file.
  void begin(const PythonAssignment& its, const PythonLine& line, int depth) {
    const std::optional<PythonCall> call = call_in(its.value);
    const std::string name = call ? call->function : its.value;
    const auto take = [&](const auto& usual) {
      for (const auto& [path, value] : usual) set(std::string(path), std::string(value), line.place);
    };
    if (name == "_pretrain_common") return take(usual_pretraining);
    if (name == "_sft_common") return take(usual_fine_tuning);
    if (name == "_peft_common") {
      adapted_ = line.place;
      return take(usual_fine_tuning);
    }
    constexpr int deepest = 8, most = 64;  // recipes that begin with each other would be followed without end
    const auto other = std::ranges::find(file_.functions, name, &PythonFunction::name);
    if (depth < deepest && ++begun_ < most && other != file_.functions.end() && is_recipe(*other))
      return follow(*other, depth);
    not_read_.push_back(line);
  }

  void assign(const std::string& path, const std::string& value, Place place) {
    constexpr std::ptrdiff_t deepest = 8;
    if (std::ranges::count(path, '.') > deepest) {
      draft_.remark(RemarkKind::NotJudged, fmt::format("cfg.{}", path.substr(0, 60)), "is Python that is not read",
                    place);
      return;
    }
    const std::optional<PythonCall> call = call_in(value);
    if (path == "model") {
      if (!call || call->function != "AutoBridge.from_hf_pretrained" || call->arguments.empty()) {
        if (draft_.find("model") != nullptr)
          return draft_.remark(RemarkKind::NotJudged, fmt::format("cfg.model = {}", value.substr(0, 60)),
                               "is Python that is not read", place);
        return draft_.remark(RemarkKind::NotExpressed, fmt::format("cfg.model = {}", value),
                             "is a model that only running it would tell: --model names one", place);
      }
      const std::string checkpoint = resolved(call->arguments.front());
      if (const auto name = literal_in(checkpoint, place); name && std::holds_alternative<std::string>(*name))
        if (const auto its = name_checkpoint(models_, std::get<std::string>(*name), "cfg.model", place, draft_))
          take_usual_of_bridges(its->model, place);
      return;
    }
    if (path == "env_vars") return read_variables(value, place);
    if (path == "peft" && (value == "None" || value.find("DoRA") != std::string::npos))
      fail(place, not_modelled(fmt::format("cfg.peft = {}: is not modelled: LoRA is", value)), "leave it out");
    if (path == "peft") return void(adapted_ = place);
    if (path == "peft.dim") return set_rank(value, place);
    if (path.starts_with("peft."))
      return draft_.remark(RemarkKind::NoMatter, fmt::format("cfg.{}", path), "is within the bound of adapters", place);
    // "cfg.mixed_precision = get_mixed_precision_config("bf16_mixed")", and of what it is already.
    if (call && path == "mixed_precision" && call->function == "get_mixed_precision_config" &&
        call->arguments.size() == 1)
      return resolved(call->arguments.front()) == "cfg.mixed_precision" ? void() : set(path, call->arguments[0], place);
    // "cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)".
    if (call && call->function.ends_with("Config")) {
      if (path == "mixed_precision") set_precision_by_fields(*call, place);
      for (const std::string& argument : call->arguments)
        if (const auto its = assignment_in({0, argument, place}))
          assign(path + '.' + its->target, its->value, place);
        else
          draft_.remark(RemarkKind::NotJudged, fmt::format("cfg.{} = {}", path, value.substr(0, 60)),
                        "is Python that is not read", place);
      return;
    }
    if (call && path == "mixed_precision" && call->arguments.empty())
      return set(path, in_quotes(call->function), place);
    set(path, value, place);
  }

  // MixedPrecisionConfig(bf16=True): no precision that has a name any more.
  void set_precision_by_fields(const PythonCall& made, Place place) {
    std::erase_if(values_, [](const auto& its) { return its.first.starts_with("mixed_precision"); });
    if (made.function != "MixedPrecisionConfig")
      draft_.remark(RemarkKind::NotJudged, fmt::format("cfg.mixed_precision = {}(...)", made.function),
                    "is Python that is not read", place);
  }

  // Those that recipes share are of kernels and of communication that is not simulated (environment_utils.py).
  void read_variables(const std::string& value, Place place) {
    draft_.remark(RemarkKind::Assumed, "cfg.env_vars",
                  value.find(':') == std::string::npos ? "the variables that recipes share are taken as usual"
                                                       : "variables of the environment are taken as usual",
                  place);
  }

  [[nodiscard]] std::string resolved(std::string value) const {
    for (int times = 0; times < 4; ++times) {
      const auto constant = constants_.find(value);
      if (constant == constants_.end()) break;
      value = constant->second;
    }
    return value;
  }

  // training/flex_dispatcher_backend.py: on Ampere, Hopper, B200 and B300. None of its names changes nothing.
  void apply_flex_dispatcher() {
    const std::string backend = resolved(values_.at("model.moe_flex_dispatcher_backend").first);
    if (backend != "\"deepep\"" && backend != "\"hybridep\"") return;
    set("model.moe_token_dispatcher_type", "\"flex\"", flex_);
    set("model.moe_shared_expert_overlap", "False", flex_);
    draft_.remark(RemarkKind::Assumed, "apply_flex_dispatcher_backend",
                  fmt::format("finds devices that {} is for, so that it exchanges the tokens of experts", backend),
                  flex_);
  }

  // Keys of what another key turns off.
  void drop_what_is_off() {
    const auto is_off = [&](std::string_view path) {
      const auto its = values_.find(path);
      const auto* const known = std::ranges::find(asks_for_nothing, path, &Usual::path);
      return its == values_.end() || its->second.first == known->value || its->second.first == "None";
    };
    for (const auto& [path, by] : of_others)
      if (const auto its = values_.find(path); its != values_.end() && is_off(by)) {
        draft_.remark(RemarkKind::NoMatter, fmt::format("cfg.{}", path), fmt::format("{} asks for nothing", by),
                      its->second.second);
        values_.erase(its);
      }
    for (const auto& [path, value] : asks_for_nothing)
      if (const auto its = values_.find(path); its != values_.end() && its->second.first == value) values_.erase(its);
    if (const auto its = values_.find("dataset.seq_length");
        its != values_.end() && values_.contains("model.seq_length"))
      values_.erase(its);
  }

  // "llama3_8b_pretrain_8gpu_h100_bf16_config".
  void take_devices(const PythonFunction& recipe) {
    if (draft_.find("gpus") != nullptr) return;
    const std::size_t end = recipe.name.find("gpu_");
    std::size_t begin = end == std::string::npos ? 0 : end;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(recipe.name[begin - 1])) != 0) --begin;
    std::int64_t number = 0;
    if (end == std::string::npos || begin == end) return;
    const auto [rest, error] = std::from_chars(recipe.name.data() + begin, recipe.name.data() + end, number);
    constexpr std::int64_t most = std::int64_t{1} << 20;
    if (error != std::errc() || rest != recipe.name.data() + end || number < 1 || number > most) return;
    draft_.set("gpus", number, recipe.place);
    draft_.remark(RemarkKind::Assumed, "gpus", fmt::format("{}, as the recipe's name says", number), recipe.place);
  }

  // What changes nothing that is simulated, or is said by literals too.
  void tell_not_read(const PythonLine& line) {
    constexpr auto harmless = std::to_array<std::string_view>({"del ", "pass", "logger.", "warnings.", "print("});
    if (std::ranges::any_of(harmless, [&](std::string_view its) { return line.text.starts_with(its); })) return;
    draft_.remark(RemarkKind::NotJudged, line.text.substr(0, 80), "is Python that is not read", line.place);
  }

  // What Bridge's models of a checkpoint have where TransformerConfig has others (models/*/*_bridge.py,
  // models/gpt_provider.py). Configurations of published checkpoints drop nothing in attention.
  void take_usual_of_bridges(const Model& model, Place place) {
    const auto usual = [&](std::string_view path, std::string_view value) {
      values_.try_emplace(std::string(path), std::string(value), place);
    };
    usual("model.hidden_dropout", "0.0");
    usual("model.attention_dropout", "0.0");
    usual("model.cross_entropy_loss_fusion", "True");
    if (model.latent()) usual("model.cross_entropy_fusion_impl", "\"te\"");
  }

  void put(TomlTable& table, std::string_view path, TomlValue value) const {
    const std::size_t dot = path.find('.');
    if (dot == std::string_view::npos) {
      const Place place = value.place;
      table.keys.push_back({std::string(path), place, std::move(value)});
      return;
    }
    const std::string name(path.substr(0, dot));
    auto its = std::ranges::find(table.keys, name, &TomlKey::name);
    if (its == table.keys.end()) its = table.keys.insert(its, {name, value.place, {TomlTable{}, value.place}});
    if (auto* inner = std::get_if<TomlTable>(&its->value.value)) put(*inner, path.substr(dot + 1), std::move(value));
  }

  TomlTable table() {
    TomlTable all;
    // A name of a precision, and fields of it.
    const auto fields = values_.lower_bound("mixed_precision.");
    if (const auto named = values_.find("mixed_precision");
        named != values_.end() && fields != values_.end() && fields->first.starts_with("mixed_precision.")) {
      values_.emplace("mixed_precision.mixed_precision", named->second);
      values_.erase(named);
    }
    std::erase_if(values_, [](const auto& its) {  // of the types that bf16 and fp16 say
      return its.first.starts_with("mixed_precision.") && its.first.ends_with("_dtype");
    });
    for (const auto& [path, its] : values_) {
      const std::string value = resolved(its.first);
      if (value == "None") continue;
      if (auto literal = literal_in(value, its.second))
        put(all, path, {std::move(*literal), its.second});
      else if (!path.starts_with("dataset") && !path.starts_with("tokenizer") && !path.starts_with("checkpoint") &&
               !path.starts_with("logger"))
        draft_.remark(RemarkKind::NotJudged, fmt::format("cfg.{} = {}", path, value.substr(0, 60)),
                      "is Python that is not read", its.second);
    }
    return all;
  }

  const PythonFile& file_;
  const ShippedModels& models_;
  Draft& draft_;
  std::map<std::string, std::string> constants_;
  std::map<std::string, std::pair<std::string, Place>, std::less<>> values_;  // by path, the last one
  std::vector<PythonLine> not_read_;
  std::optional<Place> adapted_;  ///< where adapters are asked for
  std::int64_t rank_ = 32;        ///< of them: src/megatron/bridge/peft/lora.py LoRA.dim
  Place flex_;                    // of what sets experts' dispatcher at the end
  int begun_ = 0;                 // with another recipe
  int depth_ = 0;                 // of files of other names
};

}  // namespace

TomlTable bridge_recipe(std::string_view text, const std::string& named, const ShippedModels& models, Draft& draft) {
  return BridgeRecipe(parse_python(text), models, draft).settings(named);
}

}  // namespace tidemark::scenarios
