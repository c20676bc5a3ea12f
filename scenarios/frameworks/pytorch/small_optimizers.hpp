#pragma once

#include <optional>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

// Optimizers that keep less than AdamW: plain PyTorch's, transformers' and bitsandbytes'.

namespace tidemark::scenarios {

/// `[train] optimizer`; names of others' that mean one of ours are told so.
[[nodiscard]] std::optional<Optimizer> read_optimizer(TomlReader& train);
/// Arguments of their constructors, among `[runtime.switches]`.
[[nodiscard]] SmallOptimizerSettings read_small_optimizer(TomlReader& switches);
/// What of them the runtime does not know, or does not go with the rest of the scenario, is a problem.
void check_small_optimizer(const Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
