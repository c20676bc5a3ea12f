#pragma once

#include <cstdint>
#include <vector>

#include "parallel/job.hpp"

namespace tidemark::parallel::megatron {

/// The program of the ranks that stand at that place of the pipeline and hold that data-parallel rank's shard, with so
/// many micro-batches in each step.
[[nodiscard]] Program lower_training(const LoweringInput& input, std::int32_t pipeline, std::int32_t shard,
                                     const std::vector<std::int64_t>& micro_batches);

}  // namespace tidemark::parallel::megatron
