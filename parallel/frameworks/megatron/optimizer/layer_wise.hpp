#pragma once

#include <cstdint>
#include <vector>

#include "parallel/job/sizes.hpp"

// Megatron-LM's core/optimizer/layer_wise_optimizer.py: ranks that hold the same parameters share out whole ones,
// because an optimizer has to see them whole.

namespace tidemark::parallel {

/// Of buffers that nobody shares out (core/optimizer/layer_wise_optimizer.py _shard_params_ping_pong): which of a
/// rank's parameters it updates. From the smallest on they are dealt out, forth and back.
[[nodiscard]] std::vector<ParameterId> ping_pong_rank(const BuiltModel& built, std::vector<ParameterId> parameters,
                                                      const Sizes& sizes, ReplicaPlace to);

/// A buffer in which matrices stay whole within a share (_compute_per_buffer_param_layout).
[[nodiscard]] BufferLayout layer_wise_layout(const BuiltModel& built, const std::vector<ParameterId>& parameters,
                                             const Sizes& sizes, const Runtime& runtime, const Stage& stage,
                                             const Layout& layout, std::int32_t shards);

}  // namespace tidemark::parallel
