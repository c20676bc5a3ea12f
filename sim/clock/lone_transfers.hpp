#pragma once

#include <optional>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/clock/timed_program.hpp"

// A collective that meets no other transfer on any of its links takes as long each time, as a kernel does. Most are
// such ones: only ranks that take part in a transfer load their links, and each rank does one thing after another.

namespace tidemark::sim {

/// Which of a program's calls may be under way at the same time as which: those between which no event says that one is
/// over before the other begins. Calls are numbered as TimedProgram's collectives, and after them its exchanges.
using Overlaps = std::vector<std::vector<bool>>;
[[nodiscard]] Overlaps overlaps(const TimedProgram& program);

/// The program with those collectives as kernels that have a duration here, latency included; by index into
/// TimedProgram::collectives. Each counts as two events, its bytes' start and end.
[[nodiscard]] TimedProgram with_known(const TimedProgram& program,
                                      const std::vector<std::optional<Duration>>& durations);

}  // namespace tidemark::sim
