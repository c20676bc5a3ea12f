#pragma once

#include <array>
#include <string_view>

#include "parallel/runtime/runtime.hpp"
#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Megatron's flags by which data-parallel communication goes beside the passes.
inline constexpr std::array<std::string_view, 5> overlap_switches{
    "overlap-grad-reduce", "overlap-param-gather", "no-align-grad-reduce", "no-align-param-gather", "ddp-bucket-size"};
[[nodiscard]] DataOverlap read_overlap(TomlReader& switches);
/// What is wrong with them and the rest of the scenario together.
void check_overlap(TomlReader& switches, const Scenario& requested, const ScenarioTables& tables);

}  // namespace tidemark::scenarios
