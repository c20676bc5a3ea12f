#pragma once

#include <cstdint>

#include "parallel/namespace.hpp"
#include "parallel/torch/tensor.hpp"
#include "sim/base/units.hpp"

namespace tidemark::parallel::torch {

/// What PyTorch's reduction kernel takes besides its result where several blocks of threads share an output: their
/// partial sums, and a counter for each column of blocks. Both 0 where none do.
struct ReductionScratch {
  Bytes partial_sums, counters;
};

/// Of a sum over the dimensions in which `sizes` are smaller, in fp32, on a device that runs so many threads at once
/// (aten/src/ATen/native/cuda/Reduce.cuh setReduceConfig).
[[nodiscard]] ReductionScratch sum_scratch(const Tensor& x, const Shape& sizes, std::int64_t device_threads);

}  // namespace tidemark::parallel::torch
