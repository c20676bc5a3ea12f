#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "parallel/runtime/runtime.hpp"
#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Megatron's flags by which tensor-parallel communication goes beside products, through Userbuffers.
inline constexpr std::array<std::string_view, 5> tensor_overlap_switches{
    "tp-comm-overlap", "disable-tp-comm-overlap-ag", "disable-tp-comm-overlap-rs", "disable-tp-comm-bulk-dgrad",
    "disable-tp-comm-bulk-wgrad"};
[[nodiscard]] std::optional<TensorOverlap> read_tensor_overlap(TomlReader& switches);
/// What is wrong with them and the rest of the scenario together.
void check_tensor_overlap(TomlReader& switches, const Scenario& requested, const ScenarioTables& tables);

}  // namespace tidemark::scenarios
