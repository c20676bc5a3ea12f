#pragma once

#include <optional>

#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// The models that a scenario's [rollout] wants beside the trained one: before the rest of it is read.
[[nodiscard]] FrozenModels read_frozen_models(TomlReader& table);
/// What else it asks for; nothing where there is no such table.
[[nodiscard]] std::optional<Rollout> read_rollout(TomlReader& table);

/// Fills in what it leaves to layout and device, and reports what does not go with them.
void settle_rollout(TomlReader& table, Scenario& scenario, const ScenarioTables& tables);

}  // namespace tidemark::scenarios
