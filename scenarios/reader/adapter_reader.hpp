#pragma once

#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// The table [adapter]; nothing where there is none.
[[nodiscard]] std::optional<Adapter> read_adapter(TomlReader& table);

/// Of the model that is adapted.
[[nodiscard]] DType base_dtype(const Scenario& scenario);

/// Fills in what follows from the rest, and reports modules that the model does not have, and runtimes that train no
/// adapters.
void settle_adapter(Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
