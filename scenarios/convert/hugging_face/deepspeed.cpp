#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/hugging_face/parts.hpp"
#include "scenarios/formats/json_table.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/scenario/zero_keys.hpp"

namespace tidemark::scenarios {

using namespace hugging_face;

namespace {

// zero/config.py takes fields by their names and their aliases. In groups of no elements each parameter is one
// (stage3.py _create_fp16_sub_groups); stages 1 and 2 read no offload_param.
std::vector<TomlKey> with_aliases(std::vector<TomlKey> keys, Draft& draft) {
  const auto found = std::ranges::find(keys, "zero_optimization", &TomlKey::name);
  auto* const zero = found == keys.end() ? nullptr : std::get_if<TomlTable>(&found->value.value);
  if (zero == nullptr) return keys;
  for (TomlKey& key : zero->keys) {
    for (const std::string_view name : {"max_live_parameters", "max_reuse_distance", "prefetch_bucket_size",
                                        "param_persistence_threshold", "model_persistence_threshold"})
      if (key.name == name) key.name = fmt::format("stage3_{}", name);
    if (key.name == "sub_group_size" && scenarios::text(key.value) == "0") key.value.value = std::int64_t{1};
  }
  const auto stage = std::ranges::find(zero->keys, "stage", &TomlKey::name);
  const std::string its = stage == zero->keys.end() ? "" : scenarios::text(stage->value);
  if (its == "1" || its == "2")
    std::erase_if(zero->keys, [&](const TomlKey& key) {
      if (key.name != "offload_param") return false;
      draft.remark(RemarkKind::NoMatter, "zero_optimization.offload_param",
                   "stages 1 and 2 do not read it, and keep parameters on the device", key.place);
      return true;
    });
  return keys;
}

}  // namespace

void read_deepspeed(Given& given, Draft& draft) {
  Given config(with_aliases(given.keys(), draft), "", draft);
  draft.set("runtime.name", std::string("deepspeed"));
  const auto set_integer = [&](std::string_view name, std::string_view path) {
    if (const auto value = config.integer(name)) draft.set(path, *value, config.place(name));
  };
  set_integer("train_micro_batch_size_per_gpu", "train.micro_batch");
  set_integer("train_batch_size", "train.global_batch");
  if (const auto steps = config.integer("gradient_accumulation_steps")) draft.accumulation = *steps;
  copy(config, "gradient_clipping", "runtime.switches.gradient_clipping");
  Given bf16 = config.table("bf16"), fp16 = config.table("fp16"), types = config.table("data_types");
  if (bf16.flag("enabled").value_or(false)) draft.set("train.precision", std::string("bf16"), bf16.place("enabled"));
  if (fp16.flag("enabled").value_or(false)) {
    draft.set("train.precision", std::string("fp16"), fp16.place("enabled"));
    copy(fp16, "initial_scale_power", "runtime.switches.initial_scale_power");
  }
  if (bf16.left_to_others("enabled")) draft.automatic.emplace("bf16");
  if (fp16.left_to_others("enabled")) draft.automatic.emplace("fp16");
  copy(types, "grad_accum_dtype", "runtime.switches.grad_accum_dtype");
  Given zero = config.table("zero_optimization");
  if (const auto stage = zero.integer("stage"); stage && *stage >= 1 && *stage <= 3)
    draft.set("layout.sharding", fmt::format("zero{}", *stage), zero.place("stage"));
  else
    draft.remark(RemarkKind::NotExpressed, "zero_optimization.stage",
                 not_modelled("DeepSpeed without ZeRO is not modelled"), config.place("zero_optimization"));
  for (const std::string_view name : zero_switches()) copy(zero, name, fmt::format("runtime.switches.{}", name));
  for (const std::string_view name :
       {"reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"})
    if (zero.left_to_others(name)) draft.automatic.emplace(name);
  if (config.left_to_others("gradient_clipping")) draft.automatic.emplace("gradient_clipping");
  for (const std::string_view name : {"offload_optimizer", "offload_param"})
    copy(zero, name, fmt::format("runtime.switches.{}", name));
  for (const auto& [old, now] : {std::pair{"cpu_offload", "offload_optimizer"}, {"cpu_offload_param", "offload_param"}})
    if (zero.flag(old).value_or(false))
      draft.set(fmt::format("runtime.switches.{}.device", now), std::string("cpu"), zero.place(old));
  for (const std::string_view name : {"aio", "activation_checkpointing"})
    copy(config, name, fmt::format("runtime.switches.{}", name));
  copy(config, "zero_force_ds_cpu_optimizer", "runtime.switches.zero_force_ds_cpu_optimizer");
  Given optimizer = config.table("optimizer");
  if (!optimizer.keys().empty()) {
    Given parameters = optimizer.table("params");
    const bool plain = parameters.flag("torch_adam").value_or(false);
    copy(parameters, "weight_decay", "runtime.switches.weight_decay");
    // An Adam that DeepSpeed makes itself is one kernel (DeepSpeedEngine._configure_basic_optimizer).
    if (!plain && draft.find("runtime.switches.offload_optimizer") == nullptr)
      draft.set("runtime.switches.fused", true);
  }
  // What its reader does not take is said in its words; all else it passes over.
  try {
    (void)parse_ds_config(deepspeed_text(config.keys()), draft.file);
  } catch (const InputError& error) {
    for (const Problem& problem : error.problems())
      draft.remark(RemarkKind::NotExpressed, problem.message, {problem.hint, problem.kind});
  }
}

void hugging_face::read_deepspeed_file(Given& given, std::string_view key, const std::string& name) {
  Draft& draft = given.draft();
  const std::filesystem::path path = named_beside(draft.folder, name);
  if (const std::optional<DeepspeedPreset> preset = deepspeed_preset(name); preset && !is_there(path)) {
    given.tell(RemarkKind::Assumed, key, fmt::format("is not there: taken as {} ships it", preset->tool));
    Given config(parse_json_table(preset->json, draft.file, Automatic::Kept).keys, "", draft);
    return read_deepspeed(config, draft);
  }
  if (!is_there(path)) {
    given.tell(RemarkKind::NotExpressed, key,
               fmt::format("there is no {}: give it as a file, too", in_quotes(path.string())));
    draft.set("runtime.name", std::string("deepspeed"), given.place(key));
    return;
  }
  const std::string before = std::exchange(draft.file, path.string());
  const TomlTable document = parse_json_table(read_text(path), path.string(), Automatic::Kept);
  Given config(document.keys, "", draft);
  read_deepspeed(config, draft);
  draft.file = before;
}

void hugging_face::read_deepspeed_argument(Given& given) {
  Draft& draft = given.draft();
  const TomlValue* const value = given.take("deepspeed");
  if (value == nullptr) return;
  if (const auto* table = std::get_if<TomlTable>(&value->value)) {
    Given config(table->keys, "deepspeed.", draft);
    read_deepspeed(config, draft);
  } else if (const auto* name = std::get_if<std::string>(&value->value); name != nullptr && name->starts_with('{')) {
    // training_args.py: a text that is a JSON object is the configuration itself.
    Given config(parse_json_table(*name, draft.file, Automatic::Kept).keys, "deepspeed.", draft);
    read_deepspeed(config, draft);
  } else if (name != nullptr) {
    read_deepspeed_file(given, "deepspeed", *name);
  } else {
    given.tell(
        RemarkKind::NotExpressed, "deepspeed",
        std::holds_alternative<bool>(value->value)
            ? not_modelled("names no file: the program makes DeepSpeed's configuration itself, which is not modelled")
            : "takes a file's name or a table");
  }
}

}  // namespace tidemark::scenarios
