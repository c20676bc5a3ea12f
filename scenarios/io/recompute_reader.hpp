#pragma once

#include "parallel/train.hpp"
#include "scenarios/io/toml_reader.hpp"

namespace tidemark::scenarios {

/// The keys recompute, recompute_method, recompute_layers and recompute_modules of [train].
[[nodiscard]] Recomputation read_recomputation(TomlReader& table);
/// What is wrong with them together.
void check_recomputation(TomlReader& table, const Recomputation& asked);

}  // namespace tidemark::scenarios
