#pragma once

#include "sim/program/program.hpp"

namespace tidemark::sim {

/// The program with every free computed: each buffer is freed right after its last use and its last binding, as
/// reference counting would. A buffer that a name still holds at the end is never freed. `program` holds no frees.
[[nodiscard]] Program with_frees(Program program);

/// The program as it was written, before frees were computed.
[[nodiscard]] Program without_frees(Program program);

}  // namespace tidemark::sim
