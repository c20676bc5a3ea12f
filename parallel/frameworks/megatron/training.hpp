#pragma once

#include <cstdint>
#include <vector>

#include "parallel/job.hpp"
#include "parallel/mesh.hpp"

namespace tidemark::parallel::megatron {

/// The program of the rank at that place, with so many micro-batches in each step. Those that stand elsewhere among its
/// tensor-parallel ranks do the same on other rows of the vocabulary and of the sequence: numbers and offsets differ,
/// and nothing else. So do data-parallel ones that hold like pieces of the optimizer's state.
[[nodiscard]] Program lower_training(const LoweringInput& input, const Coordinates& place,
                                     const std::vector<std::int64_t>& micro_batches);

}  // namespace tidemark::parallel::megatron
