#pragma once

#include "scenarios/scenario/scenario.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Of a model with experts, what transformers' own modules do not do, or is not modelled of them.
void check_hub_experts(const Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
