#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Megatron's flags on Muon that change memory or time.
inline constexpr std::array<std::string_view, 7> muon_switches{
    "no-use-layer-wise-param-layout", "muon-nesterov", "muon-no-split-qkv",
    "muon-fp32-matmul-prec",          "muon-tp-mode",  "muon-num-ns-steps",
    "muon-scalar-optimizer"};
/// None where no flag of Muon's is given.
[[nodiscard]] std::optional<MuonBehavior> read_muon(TomlReader& switches);
/// Muon's habits go with optimizer = "muon"; what is wrong with that and the rest of the scenario.
void settle_muon(Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
