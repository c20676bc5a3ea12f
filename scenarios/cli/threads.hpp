#pragma once

#include <cstddef>

#include "scenarios/cli/namespace.hpp"

namespace tidemark::cli {

/// How many threads work at once: one a core, or fewer where a limit of address space (`ulimit -v`) has no room for
/// their stacks and heaps. A thread that cannot be started would end the program.
[[nodiscard]] std::size_t working_threads();

}  // namespace tidemark::cli
