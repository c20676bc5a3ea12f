#pragma once

#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Families whose layers transformers alone builds here (Model::transformers_alone) under what does not.
void check_transformers_alone(const Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
