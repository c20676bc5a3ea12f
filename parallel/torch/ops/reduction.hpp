#pragma once

#include <cstdint>
#include <vector>

#include "parallel/namespace.hpp"
#include "parallel/torch/tensor.hpp"
#include "sim/base/units.hpp"

namespace tidemark::parallel::torch {

/// What PyTorch's reduction kernel takes besides its result where several blocks of threads share an output: their
/// partial sums, and a counter for each column of blocks. Both 0 where none do.
struct ReductionScratch {
  Bytes partial_sums, counters;
};

/// Of a sum over the dimensions in which `sizes` are smaller, whose partial sums are of so many bytes each, on a device
/// that runs so many threads at once (aten/src/ATen/native/cuda/Reduce.cuh setReduceConfig).
inline constexpr Bytes fp32_sum{4}, fp64_sum{8};
[[nodiscard]] ReductionScratch sum_scratch(const Tensor& x, const Shape& sizes, std::int64_t device_threads,
                                           Bytes of_sum = fp32_sum);
/// The same as tensors, in the order in which the kernel asks for them. Those that come last are given up first.
[[nodiscard]] std::vector<Tensor> reduction_scratch(Session& session, const Tensor& x, const Shape& sizes,
                                                    Bytes of_sum = fp32_sum);

}  // namespace tidemark::parallel::torch
