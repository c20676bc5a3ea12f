#pragma once

#include <cstdint>

#include "parallel/namespace.hpp"
#include "sim/units.hpp"

namespace tidemark::parallel::eager {

/// What PyTorch's reduction kernel takes besides its result where several blocks of threads share an output: their
/// partial sums, and a counter for each column of blocks. Both 0 where none do.
struct ReductionScratch {
  Bytes partial_sums, counters;
};

/// Of a sum over the rows of a contiguous matrix, in fp32, on a device that runs so many threads at once
/// (aten/src/ATen/native/cuda/Reduce.cuh setReduceConfig).
[[nodiscard]] ReductionScratch row_sum_scratch(std::int64_t rows, std::int64_t columns, std::int64_t device_threads);

}  // namespace tidemark::parallel::eager
