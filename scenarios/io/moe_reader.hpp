#pragma once

#include <array>
#include <string_view>

#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/io/scenario_tables.hpp"
#include "scenarios/io/toml_reader.hpp"

namespace tidemark::scenarios {

/// Where the table [moe] finds a file, and who hears what is wrong with that.
struct LoadsFiles {
  const ScenarioFolders& folders;
  const ScenarioFiles& read_before;
  Problems& problems;
};

/// The table [moe]: what is stated of how tokens choose experts. `model`: nothing where that is not known.
[[nodiscard]] ExpertRouting read_routing(TomlReader& table, const Model* model, const LoadsFiles& files);

/// Why there is no such dispatcher here: core/transformer/moe/token_dispatcher.py MoEFlexTokenDispatcher.
inline constexpr std::string_view flex_dispatcher =
    "Megatron's flex dispatcher runs with DeepEP (moe-enable-deepep) only, which is not modelled yet";

/// Megatron's flags that say how its experts go about it, and nothing else does.
inline constexpr std::array<std::string_view, 6> expert_switches{"moe-grouped-gemm",   "moe-permute-fusion",
                                                                 "moe-router-dtype",   "moe-router-load-balancing-type",
                                                                 "moe-aux-loss-coeff", "moe-z-loss-coeff"};
[[nodiscard]] ExpertHabits read_expert_habits(TomlReader& switches);

/// Whether model, layout and routing go together, as far as each is sound.
void check_experts(const Scenario& scenario, ScenarioTables& tables);

}  // namespace tidemark::scenarios
