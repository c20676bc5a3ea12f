#pragma once

#include <array>
#include <string_view>

#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario_files.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Where the table [moe] finds a file, and who hears what is wrong with that.
struct LoadsFiles {
  const ScenarioFolders& folders;
  const ScenarioFiles& read_before;
  Problems& problems;
};

/// The table [moe]: what is stated of how tokens choose experts. `model`: nothing where that is not known.
[[nodiscard]] ExpertRouting read_routing(TomlReader& table, const Model* model, const LoadsFiles& files);

/// Megatron's flags that say how its experts go about it, and nothing else does.
inline constexpr std::array<std::string_view, 7> expert_switches{
    "moe-grouped-gemm",   "moe-permute-fusion", "moe-router-dtype",  "moe-router-load-balancing-type",
    "moe-aux-loss-coeff", "moe-z-loss-coeff",   "moe-deepep-num-sms"};
[[nodiscard]] ExpertBehavior read_expert_behavior(TomlReader& switches);

/// Whether model, layout and routing go together, as far as each is sound.
void check_experts(const Scenario& scenario, ScenarioTables& tables);

}  // namespace tidemark::scenarios
