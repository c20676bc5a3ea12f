#pragma once

#include <array>
#include <string_view>

#include "scenarios/environment/environment.hpp"
#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Megatron's flags on modules whose saved tensors go to the host.
inline constexpr std::array<std::string_view, 5> module_offload_switches{
    "fine-grained-activation-offloading", "offload-modules", "min-offloaded-tensor-size", "activation-offload-fraction",
    "fine-grained-offloading-max-inflight-offloads"};
[[nodiscard]] ModuleOffloadBehavior read_module_offload(TomlReader& switches);
/// What is wrong with them and the rest of the scenario together.
void check_module_offload(const Scenario& requested, ScenarioTables& tables);
/// NVTE_CPU_OFFLOAD_V1: by which of TransformerEngine's ways.
void check_offload_variable(const RuntimeChoice& requested, const Environment& environment, TomlReader& table);

}  // namespace tidemark::scenarios
