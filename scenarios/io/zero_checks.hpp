#pragma once

#include "scenarios/io/moe_reader.hpp"
#include "scenarios/io/scenario_tables.hpp"

namespace tidemark::scenarios {

/// The ds_config.json that [runtime] names, if it does.
void read_ds_config(TomlReader& runtime, const LoadsFiles& files, ZeroAsked& into);

/// What DeepSpeed is told comes to habits, and to the layout's sharding; what contradicts itself is a problem.
void settle_zero(Scenario& asked, ScenarioTables& tables);

}  // namespace tidemark::scenarios
