#pragma once

#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// The table [quantization]; nothing where there is none.
[[nodiscard]] std::optional<Quantization> read_quantization(TomlReader& table);

/// Fills in what follows from the rest, and reports what quantized bases do not go with.
void settle_quantization(Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
