#pragma once

#include "scenarios/io/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Judges `[runtime.switches]`: Megatron-LM's own flags, without their dashes. A flag that repeats something `asked`
/// says elsewhere has to agree with it; one that does not touch memory passes; any other is a problem.
void check_megatron_switches(TomlReader switches, const Scenario& asked, const ScenarioTables& tables);

/// Reads the flags that nothing else in a scenario says; one that is left out has Megatron's default.
void read_own_switches(TomlReader& switches, RuntimeChoice& runtime);

}  // namespace tidemark::scenarios
