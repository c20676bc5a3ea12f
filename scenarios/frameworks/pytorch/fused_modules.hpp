#pragma once

#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

// Fused kernels in place of transformers' modules.

namespace tidemark::scenarios {

/// `use_liger_kernel`, `liger_kernel_config` and `neftune_noise_alpha`, TrainingArguments' own, and `fast_kernels`,
/// fms-acceleration's.
void read_fused_modules(TomlReader& switches, EagerSettings& settings);
/// What of them there is not, or is not modelled, of the model and the rest of the scenario.
void check_fused_modules(const Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
