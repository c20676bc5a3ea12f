#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// generate_llm_fqn_per_model_part: layers of each stage; nothing where an end would have no place.
[[nodiscard]] std::vector<std::int32_t> titan_stage_layers(std::int64_t layers, std::int64_t stages,
                                                           const TitanSettings& titan);

/// Keys of a pipeline among torchtitan's.
void read_titan_pipeline(TomlReader& switches, TitanSettings& titan);

/// Chunks, layers of stages and groups of micro-batches of torchtitan's pipelines, where they are left open; what
/// cannot be, or is not modelled, is a problem. Before schedules are checked.
void settle_titan_pipeline(Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
