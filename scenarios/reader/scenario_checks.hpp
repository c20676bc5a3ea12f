#pragma once

#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Fills in what follows from the rest (`data`, `global_batch`) and reports what cannot go together: degrees that do
/// not divide, batches that do not add up, settings that Megatron refuses.
void settle(Scenario& scenario, ScenarioTables& tables);

}  // namespace tidemark::scenarios
