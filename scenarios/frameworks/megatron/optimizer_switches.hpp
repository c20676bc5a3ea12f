#pragma once

#include <array>
#include <string_view>

#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Megatron's flags on where its optimizer keeps its state, and as what, that nothing else says.
inline constexpr std::array<std::string_view, 8> optimizer_switches{"cpu-offloading-num-layers",
                                                                    "use-precision-aware-optimizer",
                                                                    "main-params-dtype",
                                                                    "exp-avg-dtype",
                                                                    "exp-avg-sq-dtype",
                                                                    "store-param-remainders",
                                                                    "overlap-cpu-optimizer-d2h-h2d",
                                                                    "no-pin-cpu-grads"};
[[nodiscard]] OptimizerBehavior read_optimizer_behavior(TomlReader& switches);
/// Of how many layers what is saved goes to the host.
[[nodiscard]] std::int32_t read_offloaded_layers(TomlReader& switches);
/// What is wrong with them and the rest of the scenario together.
void check_optimizer_behavior(const Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
