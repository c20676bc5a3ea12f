#pragma once

#include <array>
#include <string_view>

#include "scenarios/io/scenario_tables.hpp"
#include "scenarios/io/toml_reader.hpp"

namespace tidemark::scenarios {

/// Megatron's flags on where its optimizer keeps its state, and as what, that nothing else says.
inline constexpr std::array<std::string_view, 7> optimizer_switches{
    "use-precision-aware-optimizer", "main-params-dtype", "exp-avg-dtype", "exp-avg-sq-dtype", "store-param-remainders",
    "overlap-cpu-optimizer-d2h-h2d", "no-pin-cpu-grads"};
[[nodiscard]] OptimizerHabits read_optimizer_habits(TomlReader& switches);
/// What is wrong with them and the rest of the scenario together.
void check_optimizer_habits(const Scenario& asked, ScenarioTables& tables);

}  // namespace tidemark::scenarios
