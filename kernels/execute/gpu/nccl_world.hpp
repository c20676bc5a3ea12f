#pragma once

#include <chrono>
#include <memory>

#include "kernels/execute/world/world.hpp"

namespace tidemark::execute {

/// Messages between the memories of GPUs, each rank's its current one, by NCCL; all else goes by the world it is made
/// of, on all ranks together. A message waits until the other side takes it.
[[nodiscard]] std::unique_ptr<World> nccl_world(World& world, std::chrono::seconds time_limit);

}  // namespace tidemark::execute
