#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "kernels/execute/world/world.hpp"

namespace tidemark::execute {

/// Runs `body` on so many ranks: mpirun's, where it started this program, or processes that it forks. No CUDA call may
/// come before: a context does not survive a fork. Whatever goes wrong on one rank ends all of them with one message,
/// which `program` begins. Returns the exit code.
[[nodiscard]] int run_device_ranks(const char* program, std::int32_t ranks, std::chrono::seconds time_limit,
                                   const std::function<int(World&)>& body);

}  // namespace tidemark::execute
