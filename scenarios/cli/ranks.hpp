#pragma once

#include <cstdint>
#include <functional>

#include "kernels/execute/world/world.hpp"
#include "scenarios/cli/namespace.hpp"

namespace tidemark::cli {

/// The exit code of `work` on this rank of the mpirun that the process is part of, or on the only one. Whatever goes
/// wrong on one rank, or a rank that waits longer than that many seconds for another, ends all of them.
[[nodiscard]] int on_ranks(std::int64_t time_limit, const std::function<int(World&)>& work);

}  // namespace tidemark::cli
