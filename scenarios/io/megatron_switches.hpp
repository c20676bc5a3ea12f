#pragma once

#include "scenarios/io/scenario_tables.hpp"

namespace tidemark {

/// Judges `[runtime.switches]`: Megatron-LM's own flags, without their dashes. A flag that repeats something `asked`
/// says elsewhere has to agree with it; one that does not touch memory passes; any other is a problem.
void check_megatron_switches(TomlReader switches, const Scenario& asked, const ScenarioTables& tables);

/// Whether the data loader makes attention masks: it does unless the flag no-create-attention-mask-in-dataloader is
/// set.
[[nodiscard]] bool read_attention_mask(TomlReader switches);

}  // namespace tidemark
