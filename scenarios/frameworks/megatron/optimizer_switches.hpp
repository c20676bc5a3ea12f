#pragma once

#include <array>
#include <string_view>

#include "scenarios/scenario/scenario_tables.hpp"
#include "scenarios/formats/toml_reader.hpp"

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
[[nodiscard]] OptimizerHabits read_optimizer_habits(TomlReader& switches);
/// Of how many layers what is saved goes to the host.
[[nodiscard]] std::int32_t read_offloaded_layers(TomlReader& switches);
/// What is wrong with them and the rest of the scenario together.
void check_optimizer_habits(const Scenario& asked, ScenarioTables& tables);

}  // namespace tidemark::scenarios
