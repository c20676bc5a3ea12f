#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "kernels/execute/world/world.hpp"

namespace tidemark::execute {

/// Says to people why a run is over.
using TellFailure = std::function<void(const RunFailure&)>;

/// The ranks that mpirun started. Made once in a process; a single process without mpirun is a world of one. A run that
/// is over early throws no RunFailure here: messages are on their way from memory that unwinding would free. The teller
/// tells, and every process leaves from where it is, with exit code 3.
/// Throws std::runtime_error where this build has no MPI.
[[nodiscard]] std::unique_ptr<World> mpi_world(std::chrono::seconds time_limit, TellFailure tell);

/// "Open MPI v4.1.4 …", or empty where this build has none.
[[nodiscard]] std::string mpi_version();

}  // namespace tidemark::execute
