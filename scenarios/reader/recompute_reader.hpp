#pragma once

#include "parallel/job/train.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// The keys recompute, recompute_method, recompute_layers and recompute_modules of [train].
[[nodiscard]] Recomputation read_recomputation(TomlReader& table);
/// What is wrong with them together.
void check_recomputation(TomlReader& table, const Recomputation& requested);
/// That the model has what is to run again.
void check_recomputed_modules(const Scenario& scenario, ScenarioTables& tables);
/// Whether a job has such modules, so that running them again changes something.
[[nodiscard]] bool has_module(const Scenario& scenario, RecomputedModule module);

}  // namespace tidemark::scenarios
