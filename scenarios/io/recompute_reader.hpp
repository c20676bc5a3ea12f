#pragma once

#include "parallel/train.hpp"
#include "scenarios/io/toml_reader.hpp"

namespace tidemark::scenarios {

/// The keys recompute, recompute_method, recompute_layers and recompute_modules of [train].
[[nodiscard]] Recomputation read_recomputation(TomlReader& table);

}  // namespace tidemark::scenarios
