#pragma once

#include "scenarios/frameworks/pytorch/offload_reader.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Reads `[runtime.switches]` of torchtitan: keys of its configuration, under their own names. Any other key is a
/// problem.
[[nodiscard]] EagerSettings read_titan_switches(TomlReader& switches, const OffloadRequest& offloaded);

/// What of a scenario torchtitan cannot do, or is not modelled in it, is a problem; what it leaves open gets
/// torchtitan's default. `asked` has been read and not settled.
void settle_titan(Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
