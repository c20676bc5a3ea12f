#pragma once

#include <optional>

#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// What a scenario's [rollout] asks for; nothing where there is no such table.
[[nodiscard]] std::optional<Rollout> read_rollout(TomlReader& table);

/// Fills in what it leaves to layout and device, and reports what does not go with them.
void settle_rollout(TomlReader& table, Scenario& scenario, const ScenarioTables& tables);

}  // namespace tidemark::scenarios
