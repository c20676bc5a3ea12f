#pragma once

#include <chrono>
#include <functional>

#include "kernels/execute/world/world.hpp"

namespace tidemark::execute {

/// Runs `body` on so many ranks, each a process of its own that this one forks, with no launcher and no library: for
/// machines without MPI. Only small messages: they go through pipes of the system. Returns the highest exit code;
/// a rank that dies ends the others within the time limit.
[[nodiscard]] int run_forked(std::int32_t ranks, std::chrono::seconds time_limit,
                             const std::function<int(World&)>& body);

}  // namespace tidemark::execute
