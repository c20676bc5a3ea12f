#pragma once

#include "scenarios/model_config/moe_reader.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// The ds_config.json that [runtime] names, if it does.
void read_ds_config(TomlReader& runtime, const LoadsFiles& files, ZeroRequest& into);

/// [offload], which says the same as offload_optimizer and offload_param, and has to agree; told after these.
void read_zero_offload(TomlReader table, ZeroRequest& zero);
/// Whether an optimizer of PyTorch's runs on the host.
[[nodiscard]] bool updates_on_host(const ZeroRequest& zero);

/// What DeepSpeed is told comes to habits, and to the layout's sharding; what contradicts itself is a problem.
void settle_zero(Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
