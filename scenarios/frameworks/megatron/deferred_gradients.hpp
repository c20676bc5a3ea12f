#pragma once

#include <array>
#include <string_view>

#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Megatron's flags by which weight gradients of the head come after a step's passes.
inline constexpr std::array<std::string_view, 2> deferral_switches{"defer-embedding-wgrad-compute",
                                                                   "wgrad-deferral-limit"};
/// Of how many micro-batches they do; 0: none.
[[nodiscard]] std::int64_t read_deferral(TomlReader& switches);
/// What is wrong with them and the rest of the scenario together.
void check_deferral(TomlReader& switches, const Scenario& requested, const ScenarioTables& tables);

}  // namespace tidemark::scenarios
