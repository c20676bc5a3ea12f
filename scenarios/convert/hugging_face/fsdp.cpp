#include <algorithm>
#include <array>
#include <sstream>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/hugging_face/parts.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {

namespace hugging_face {
namespace {

// "full_shard auto_wrap offload", or a list of those, or true.
std::string fsdp_words(Given& given) {
  const TomlValue* value = given.take("fsdp");
  if (value == nullptr) return {};
  if (const auto* list = std::get_if<std::vector<TomlValue>>(&value->value)) {
    std::string words;
    for (const TomlValue& v : *list)
      if (const auto* text = std::get_if<std::string>(&v.value)) words += (words.empty() ? "" : " ") + *text;
    return words;
  }
  if (const auto* flag = std::get_if<bool>(&value->value)) return *flag ? "full_shard auto_wrap" : "";
  if (const auto* text = std::get_if<std::string>(&value->value)) return *text;
  given.tell(RemarkKind::NotExpressed, "fsdp", "takes true or a text such as \"full_shard auto_wrap\"");
  return "";
}

// training_args.py: each is a member of FSDPOption.
void check_fsdp_words(Given& given, const std::string& words) {
  static constexpr auto known = std::to_array<std::string_view>(
      {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2", "offload", "auto_wrap"});
  std::istringstream each(words);
  for (std::string word; each >> word;)
    if (std::ranges::find(known, word) == known.end())
      given.tell(RemarkKind::NotExpressed, "fsdp",
                 fmt::format("{} is none of transformers' options: {}", in_quotes(word), fmt::join(known, ", ")));
}

// FSDP's strategy, by its name or its number (torch.distributed.fsdp.ShardingStrategy).
void set_strategy(Given& given, std::string_view key, std::string strategy, std::int64_t devices_per_node) {
  Draft& draft = given.draft();
  const Place place = given.place(key);
  constexpr std::array<std::string_view, 5> numbered{"full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
                                                     "hybrid_shard_zero2"};
  strategy = lower(strategy);
  if (strategy.size() == 1 && strategy[0] >= '1' && strategy[0] <= '5')
    strategy = numbered.at(static_cast<std::size_t>(strategy[0] - '1'));
  const bool hybrid = strategy.starts_with("hybrid_shard");
  if (strategy == "full_shard" || strategy == "hybrid_shard")
    draft.set("layout.sharding", std::string("zero3"), place);
  else if (strategy == "shard_grad_op" || strategy.starts_with("hybrid_shard_zero2") ||
           strategy == "_hybrid_shard_zero2")
    draft.set("layout.sharding", std::string("zero2"), place);
  else if (strategy == "no_shard")
    draft.set("layout.sharding", std::string("none"), place);
  else
    given.tell(RemarkKind::NotExpressed, key, "is no strategy of FullyShardedDataParallel's");
  if (!hybrid) return;
  if (devices_per_node > 0)
    draft.set("layout.shard_group", devices_per_node, place);
  else
    given.tell(RemarkKind::NotExpressed, key, "shards within a node, and how many devices one has is not said");
}

}  // namespace

// Keys of an fsdp_config, with or without their prefix.
void read_fsdp_config(Given config, const BesideFsdpConfig& beside) {
  const auto& [mixed, precision, wraps, devices_per_node] = beside;
  Draft& draft = config.draft();
  const auto either = [&](std::string_view name) {
    return config.has(fmt::format("fsdp_{}", name)) ? fmt::format("fsdp_{}", name) : std::string(name);
  };
  const auto flag = [&](std::string_view name) { return config.flag(either(name)); };
  const std::int64_t version = config.integer(either("version")).value_or(1);
  if (version != 1 && version != 2)
    config.tell(RemarkKind::NotExpressed, either("version"), "FullyShardedDataParallel is 1, fully_shard is 2");
  const bool second = version == 2 || draft.text("runtime.name") == "fsdp2";
  draft.set("runtime.name", std::string(second ? "fsdp2" : "fsdp"), config.place(either("version")));
  const std::string strategy = either("sharding_strategy"), reshard = either("reshard_after_forward");
  if (const TomlValue* value = config.take(reshard)) {
    const auto* truth = std::get_if<bool>(&value->value);
    if (truth != nullptr)
      draft.set("layout.sharding", std::string(*truth ? "zero3" : "zero2"), value->place);
    else if (const auto text = config.text(reshard))
      set_strategy(config, reshard,
                   *text == "true"    ? "full_shard"
                   : *text == "false" ? "shard_grad_op"
                                      : *text,
                   devices_per_node);
  }
  if (!second) {
    if (const auto text = config.text(strategy)) set_strategy(config, strategy, *text, devices_per_node);
    const std::string prefetch = lower(config.text(either("backward_prefetch")).value_or("no_prefetch"));
    draft.set("runtime.switches.backward_prefetch", std::string(prefetch == "no_prefetch" ? "none" : prefetch),
              config.place(either("backward_prefetch")));
    for (const char* its : {"forward_prefetch", "use_orig_params", "sync_module_states", "limit_all_gathers"})
      if (const auto on = flag(its); on)
        draft.set(fmt::format("runtime.switches.{}", its), *on, config.place(either(its)));
    if (mixed) {
      // accelerator.py prepare_model: autocast round a model whose shards are fp32, and what is gathered is narrow.
      draft.set("runtime.switches.autocast", true);
      draft.set("runtime.switches.buffer_dtype", precision);
    }
  } else {
    if (mixed) draft.set("runtime.switches.reduce_dtype", precision);
    for (const char* its :
         {"sharding_strategy", "backward_prefetch", "forward_prefetch", "use_orig_params", "sync_module_states"})
      if (config.has(either(its))) config.tell(RemarkKind::NoMatter, either(its), "means nothing with fully_shard");
  }
  if (flag("offload_params").value_or(false))
    draft.set("offload.parameters", std::string("cpu"), config.place(either("offload_params")));
  if (flag("activation_checkpointing").value_or(false)) {
    draft.fsdp_checkpoints = config.place(either("activation_checkpointing"));
    draft.set("train.recompute", std::string("full"), *draft.fsdp_checkpoints);
    draft.set("runtime.switches.use_reentrant", false);  // checkpoint_wrapper, CheckpointImpl.NO_REENTRANT
  }
  const std::string policy = either("auto_wrap_policy");
  const std::optional<std::string> wraps_by_policy = config.text(policy);
  if (wraps_by_policy && lower(*wraps_by_policy) != "transformer_based_wrap")
    config.tell(RemarkKind::NotExpressed, policy, not_modelled("other units than layers are not modelled yet"));
  else if (!wraps && !wraps_by_policy)
    draft.remark(RemarkKind::NotExpressed, policy,
                 not_modelled("without it the model is one unit, which is not modelled yet"));
  for (const char* its : {"min_num_params", "cpu_offload_pin_memory"})
    if (config.has(either(its)) && config.text(either(its)) != "0" && config.text(either(its)) != "true")
      config.tell(RemarkKind::NotExpressed, either(its), not_modelled("other units than layers are not modelled yet"));
  for (const char* its : {"transformer_layer_cls_to_wrap", "state_dict_type", "cpu_ram_efficient_loading",
                          "auto_wrap_policy", "min_num_params", "cpu_offload_pin_memory", "activation_cpu_offload"})
    config.no_matter(std::array{std::string_view(either(its))});
  config.refuse("xla", "XLA is", {"false"});
  config.refuse_the_rest("is no key of an fsdp_config that is known here");
}

// transformers' `fsdp` and `fsdp_config`.
void read_fsdp(Given& given) {
  Draft& draft = given.draft();
  const std::string precision = draft.text("train.precision").value_or("fp32");
  const std::string words = fsdp_words(given);
  if (!words.empty()) {
    draft.set("runtime.name", std::string("fsdp"), given.place("fsdp"));
    const TomlTable config = table_or_text(given, "fsdp_config");
    for (const std::string_view strategy :
         {"hybrid_shard_zero2", "hybrid_shard", "full_shard", "shard_grad_op", "no_shard"})
      if (words.find(strategy) != std::string::npos) {
        set_strategy(given, "fsdp", std::string(strategy), devices_per_node(draft, 1));
        break;
      }
    // training_args.py: it is true unless the config says otherwise.
    draft.set("runtime.switches.use_orig_params", true);
    if (words.find("offload") != std::string::npos)
      draft.set("offload.parameters", std::string("cpu"), given.place("fsdp"));
    check_fsdp_words(given, words);
    read_fsdp_config(Given(config.keys, "fsdp_config.", draft), {.mixed = draft.mixed_precision,
                                                                 .precision = precision,
                                                                 .wraps = words.find("auto_wrap") != std::string::npos,
                                                                 .devices_per_node = devices_per_node(draft, 1)});
    if (draft.text("runtime.name") == "fsdp2") draft.erase("runtime.switches.use_orig_params");
  } else if (given.has("fsdp_config")) {
    given.tell(RemarkKind::NoMatter, "fsdp_config", "fsdp does not ask for it");
  }
}

}  // namespace hugging_face

}  // namespace tidemark::scenarios
