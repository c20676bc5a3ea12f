#pragma once

#include <chrono>
#include <string>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "kernels/execute/detail/check_cuda.hpp"
#include "kernels/execute/world/host_collectives.hpp"
#include "kernels/execute/world/world.hpp"

namespace tidemark::execute {

/// Throws std::runtime_error with NCCL's words for what went wrong.
void check_nccl(ncclResult_t code, const char* call);

/// All members together, who tell each other through the world.
[[nodiscard]] ncclComm_t make_communicator(World& world, const Group& group);

/// Waits without losing sight of the other ranks.
void wait_for(World& world, cudaEvent_t event, std::chrono::seconds time_limit, const std::string& doing);

}  // namespace tidemark::execute
