#pragma once

#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// What a hybrid of Mamba, attention and MLP layers does not go with: what Megatron-LM's stack of them
/// (core/ssm/mamba_block.py) refuses or does not do, and what is not modelled of it.
void check_hybrid(const Scenario& scenario, ScenarioTables& tables);

}  // namespace tidemark::scenarios
