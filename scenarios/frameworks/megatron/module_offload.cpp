#include "scenarios/frameworks/megatron/module_offload.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::string_view flag = module_offload_switches[0], modules_key = module_offload_switches[1],
                           smallest_key = module_offload_switches[2], fraction_key = module_offload_switches[3],
                           in_flight_key = module_offload_switches[4];

OffloadedModules read_modules(TomlReader& switches) {
  const TomlValue* const given = switches.raw(modules_key);
  if (given == nullptr) return {};
  std::vector<std::string_view> all;
  for (const Named<OffloadedModule>& named : offloaded_module_names) all.push_back(named.text);
  const std::string hint = fmt::format("\"{}\" can", fmt::join(all, "\", \""));
  const auto* const list = std::get_if<std::vector<TomlValue>>(&given->value);
  if (list == nullptr) {
    switches.problem(modules_key, fmt::format("{} takes a list of names, not {}", modules_key, text(*given)), hint);
    return {};
  }
  OffloadedModules modules;
  for (const TomlValue& entry : *list) {
    const auto* const name = std::get_if<std::string>(&entry.value);
    const auto is_it = [&](std::string_view its) { return name != nullptr && *name == its; };
    const auto* const module = std::ranges::find_if(offloaded_module_names, is_it, &Named<OffloadedModule>::text);
    if (module != offloaded_module_names.end())
      modules.add(module->value);
    else if (is_it("fused_group_mlp"))
      switches.problem(modules_key,
                       not_modelled("fused_group_mlp: experts as one fused operation are not modelled yet"), hint);
    else
      switches.problem(modules_key, fmt::format("{} is not a module that can be offloaded", text(entry)), hint);
  }
  return modules;
}

}  // namespace

// Megatron-LM core/transformer/transformer_config.py.
ModuleOffloadBehavior read_module_offload(TomlReader& switches) {
  constexpr IntegerRange elements{0, std::numeric_limits<std::int64_t>::max()}, groups{0, 1 << 20};
  const bool requested = switches.boolean(flag).value_or(false);
  ModuleOffloadBehavior behavior;
  behavior.modules = read_modules(switches);
  behavior.smallest = switches.integer(smallest_key, elements).value_or(behavior.smallest);
  if (const std::optional<std::int64_t> most = switches.integer(in_flight_key, groups))
    behavior.in_flight = static_cast<std::int32_t>(*most);
  if (const std::optional<Ratio> part = switches.ratio(fraction_key, Ratio{}, one))
    behavior.fraction = static_cast<double>(part->count()) / static_cast<double>(one.count());
  if (!switches.sound(flag) || !switches.sound(modules_key)) return {};
  if (requested && !behavior.any())
    switches.problem(flag, fmt::format("{}: the modules are not given", flag),
                     fmt::format("{} = [\"core_attn\"]", modules_key));
  if (requested) return behavior;
  for (const std::string_view key : {modules_key, smallest_key, fraction_key, in_flight_key})
    if (const TomlValue* const given = switches.raw(key); given != nullptr && text(*given) != "[]")
      switches.problem(key, fmt::format("{} = {}: no module is offloaded", key, text(*given)),
                       fmt::format("leave it out, or set {} = true", flag));
  return {};
}

// core/transformer/transformer_config.py __post_init__, training/arguments.py.
void check_module_offload(const Scenario& requested, ScenarioTables& tables) {
  const ModuleOffloadBehavior& behavior = requested.runtime.module_offload;
  if (!behavior.any()) return;
  using enum OffloadedModule;
  const auto wrong = [&](std::string_view key, const ProblemText& why, const char* hint) {
    tables.runtime.problem("switches", ProblemText(fmt::format("{}: {}", key, why.text), why.kind), hint);
  };
  const Version release = requested.runtime.versions.megatron;
  const auto from = [&](Version first, std::string_view key, const char* hint) {
    if (release < first)
      wrong(key, fmt::format("Megatron-LM core has it from {}.{} on", first.major, first.minor), hint);
  };
  from({0, 16}, flag, "megatron = \"0.16\" in [runtime.versions]");
  if (behavior.in_flight) from({0, 18}, in_flight_key, "megatron = \"0.18\" in [runtime.versions]");
  if (behavior.fraction < 1) from({0, 19}, fraction_key, "megatron = \"0.19\" in [runtime.versions]");
  if (behavior.fraction == 0)
    wrong(fraction_key, "nothing is offloaded, which Megatron-LM's schedule does not support", "leave the offload out");
  if (requested.runtime.offloaded_layers > 0)
    wrong(flag, "layers are offloaded already", "leave cpu-offloading-num-layers out");
  if (behavior.modules.has(AttentionProjection) && !behavior.modules.has(CoreAttention))
    wrong(modules_key, "attn_proj's input is core_attn's output, which core_attn's backward pass needs",
          "name core_attn, too");
  if (requested.train.attention == AttentionKernel::Local)
    wrong(flag, "TransformerEngine's layers have it only", "another attention than \"local\"");
  const Recomputation& again = requested.train.recompute;
  if (again.kind == Recompute::Full)
    wrong(flag, not_modelled("with whole layers that run again it is not modelled yet"),
          "recompute = \"selective\" or \"none\"");
  if (again.selects(RecomputedModule::Experts) &&
      (behavior.modules.has(ExpertFc1) || behavior.modules.has(ExpertActivation)))
    wrong(modules_key, "recomputed experts have nothing to offload", "leave moe out of recompute_modules");
  if (requested.layout.context > 1 && tables.layout.sound("context"))
    wrong(flag, not_modelled("under context parallelism it is not modelled yet"), "context = 1");
  if (tables.model_sound && !requested.model.further.empty())
    wrong(flag, not_modelled("with further tokens' layers it is not modelled yet"),
          "num_nextn_predict_layers = 0 in [model_override]");
  if (tables.model_sound && requested.model.parallel_residual && requested.model.experts() &&
      behavior.modules.has(MlpNorm))
    wrong(modules_key, not_modelled("mlp_norm beside a parallel residual is not modelled yet"), "leave mlp_norm out");
}

// training/arguments.py: modules are offloaded by TransformerEngine's older way; layers here by the newer one.
void check_offload_variable(const RuntimeChoice& requested, const Environment& environment, TomlReader& table) {
  if (!environment.older_offload) return;
  if (*environment.older_offload && requested.offloaded_layers > 0)
    table.problem("environment",
                  not_modelled("NVTE_CPU_OFFLOAD_V1 = \"1\": layers offloaded that way are not modelled yet"),
                  "leave it out");
  if (!*environment.older_offload && requested.module_offload.any() &&
      requested.versions.transformer_engine >= Version{2, 10})
    table.problem("environment", "NVTE_CPU_OFFLOAD_V1 = \"0\": Megatron-LM offloads modules with \"1\" only",
                  "leave it out");
}

}  // namespace tidemark::scenarios
