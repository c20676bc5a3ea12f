#pragma once

#include <chrono>
#include <memory>

#include "kernels/execute/world.hpp"

namespace tidemark::execute {

/// The ranks that mpirun started. Made once in a process; a single process without mpirun is a world of one.
/// Throws std::runtime_error where this build has no MPI.
[[nodiscard]] std::unique_ptr<World> mpi_world(std::chrono::seconds time_limit);

/// "Open MPI v4.1.4 …", or empty where this build has none.
[[nodiscard]] std::string mpi_version();

}  // namespace tidemark::execute
