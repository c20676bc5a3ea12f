#include "scenarios/reader/recompute_reader.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

constexpr IntegerRange layers_again{0, 1 << 16};

void read_modules(TomlReader& table, Recomputation& requested) {
  constexpr std::string_view key = "recompute_modules";
  const TomlValue* given = table.raw(key);
  if (given == nullptr) {
    if (requested.kind == Recompute::Selective) requested.modules.add(RecomputedModule::CoreAttention);
    return;
  }
  std::vector<std::string_view> all;
  for (const Named<RecomputedModule>& named : recomputed_module_names) all.push_back(named.text);
  const std::string hint = fmt::format("\"{}\" can", fmt::join(all, "\", \""));
  const auto* list = std::get_if<std::vector<TomlValue>>(&given->value);
  if (list == nullptr)
    return table.problem(key, fmt::format("{} takes a list of names, not {}", key, text(*given)), hint);
  for (const TomlValue& entry : *list) {
    const auto* name = std::get_if<std::string>(&entry.value);
    const auto is_it = [&](std::string_view its) { return name != nullptr && *name == its; };
    const auto* module = std::ranges::find_if(recomputed_module_names, is_it, &Named<RecomputedModule>::text);
    if (module != recomputed_module_names.end()) {
      requested.modules.add(module->value);
      continue;
    }
    table.problem(key, fmt::format("{} is not a module that can be recomputed", text(entry)), hint);
  }
}

}  // namespace

Recomputation read_recomputation(TomlReader& table) {
  Recomputation requested;
  requested.kind = read_name(table, "recompute", recompute_names).value_or(Recompute::None);
  const std::optional<RecomputeMethod> method = read_name(table, "recompute_method", recompute_method_names);
  const std::optional<std::int64_t> layers = table.integer("recompute_layers", layers_again);
  read_modules(table, requested);
  if (requested.kind != Recompute::Full) return requested;
  requested.method = method.value_or(RecomputeMethod::Uniform);
  requested.layers = static_cast<std::int32_t>(layers.value_or(1));
  return requested;
}

void check_recomputation(TomlReader& table, const Recomputation& requested) {
  if (!table.sound("recompute")) return;
  const TomlValue* modules = table.sound("recompute_modules") ? table.raw("recompute_modules") : nullptr;
  if (modules != nullptr) {
    const bool none = std::get<std::vector<TomlValue>>(modules->value).empty();
    if (requested.kind == Recompute::Selective && none)
      table.problem("recompute_modules", "recompute = \"selective\" with nothing to recompute",
                    "name modules, or set recompute = \"none\"");
    if (requested.kind != Recompute::Selective && !none)
      table.problem("recompute_modules", "recompute_modules is for recompute = \"selective\"",
                    "leave it out, or set recompute = \"selective\"");
  }
  if (requested.kind == Recompute::Full) {
    if (requested.layers == 0)
      table.problem("recompute_layers", "recompute_layers = 0 recomputes nothing",
                    "at least 1, or recompute = \"none\"");
    return;
  }
  const std::string hint = "leave it out, or set recompute = \"full\"";
  if (table.has("recompute_method") && table.sound("recompute_method"))
    table.problem("recompute_method", "recompute_method is for recompute = \"full\"", hint);
  if (table.sound("recompute_layers") && table.integer("recompute_layers", layers_again).value_or(0) != 0)
    table.problem("recompute_layers", "recompute_layers is for recompute = \"full\"", hint);
}

bool has_module(const Scenario& scenario, RecomputedModule module) {
  const Model& m = scenario.model;
  switch (module) {
    case RecomputedModule::CoreAttention:
      return true;
    case RecomputedModule::Mlp:
      for (std::int64_t layer = 0; layer < m.layers.size(); ++layer)
        if (!m.has_experts(layer)) return true;
      return false;
    case RecomputedModule::LayerNorm:  // others are in one function with the linear behind them
      return m.latent() || m.experts() || scenario.train.attention == AttentionKernel::Local;
    case RecomputedModule::LatentUp:
      return m.latent() != nullptr;
    case RecomputedModule::Experts:
    case RecomputedModule::ExpertActivation:
      return m.experts() != nullptr;
    case RecomputedModule::SharedExperts:
      return m.experts() && m.experts()->shared_ffn > 0;
  }
  return false;
}

// "mlp" and "layernorm" may stand in recipes of all models. Of the others transformer_config.py refuses some, and some
// do nothing.
void check_recomputed_modules(const Scenario& scenario, ScenarioTables& tables) {
  if (!tables.model_sound) return;
  const Recomputation& requested = scenario.train.recompute;
  if (!scenario.model.further.empty() && requested.kind == Recompute::Full &&
      requested.method == RecomputeMethod::Uniform && requested.layers > 1 && tables.train.sound("recompute_layers"))
    tables.train.problem("recompute_layers",
                         "modules that predict further tokens (num_nextn_predict_layers) run again one by one only",
                         "recompute_layers = 1");
  if (!tables.train.sound("recompute_modules")) return;
  const auto missing = [&](RecomputedModule module, std::string_view what) {
    if (scenario.train.recompute.selects(module) && !has_module(scenario, module))
      tables.train.problem("recompute_modules",
                           fmt::format("\"{}\": the model has no {}", word(recomputed_module_names, module), what),
                           "leave it out");
  };
  missing(RecomputedModule::LatentUp, "latent attention");
  missing(RecomputedModule::Experts, "experts");
  missing(RecomputedModule::ExpertActivation, "experts");
  missing(RecomputedModule::SharedExperts, scenario.model.experts() ? "shared experts" : "experts");
}

}  // namespace tidemark::scenarios
