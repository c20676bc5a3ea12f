#pragma once

#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// What layers that lack a branch, or have MLPs of widths of their own, do not go with: what Megatron-LM asserts of
/// models with --heterogeneous-layers-config-path, and what is not modelled of them.
void check_heterogeneous(const Scenario& scenario, ScenarioTables& tables);

}  // namespace tidemark::scenarios
