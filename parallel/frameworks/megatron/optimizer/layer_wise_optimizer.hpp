#pragma once

#include <vector>

#include "parallel/frameworks/megatron/worker.hpp"

// core/optimizer/layer_wise_optimizer.py without a layout of its own: every rank holds all parameters and gradients,
// and updates the whole parameters that are dealt to it.

namespace tidemark::parallel::megatron {

/// Of all chunks of a pipeline rank.
[[nodiscard]] std::vector<ParameterId> updated_by(const BuiltModel& built, const Layout& layout, const Sizes& sizes,
                                                  const Coordinates& rank);
/// allgather_params: each rank's go to the others, one after another in one tensor.
void gather_ping_pong_parameters(Worker& worker);

}  // namespace tidemark::parallel::megatron
