#pragma once

#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Reports what packed sequences do not go with.
void check_packed_sequences(const Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
