#pragma once

#include <string>

#include "kernels/execute/namespace.hpp"
#include "sim/base/units.hpp"

namespace tidemark::execute {

/// What the operating system says of this process (Linux /proc). Throws std::runtime_error where it says nothing.

/// Anonymous memory that is resident now: every page counted (smaps_rollup).
[[nodiscard]] Bytes resident_anonymous();
/// Resident memory by kind, and the highest sum of them since the last reset (status).
struct ResidentByKind {
  Bytes all;
  Bytes file;    ///< pages of programs and libraries
  Bytes shared;  ///< with other processes
  Bytes peak;
};
[[nodiscard]] ResidentByKind resident_by_kind();
void reset_resident_peak();
/// "AMD EPYC …, 2 cores, Linux 6.1.0".
[[nodiscard]] std::string machine_description();

/// What processes may still take (MemAvailable).
[[nodiscard]] Bytes available_memory();
/// What this process may still take: of that, what its limit of address space (ulimit -v) and its control group (a
/// container, a job of Slurm's) leave.
[[nodiscard]] Bytes memory_left();

}  // namespace tidemark::execute
