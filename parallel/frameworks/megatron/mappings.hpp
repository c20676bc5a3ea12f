#pragma once

#include "parallel/frameworks/megatron/worker.hpp"

// core/tensor_parallel/mappings.py: collectives along the first dimension, as operations of autograd. Nothing happens
// in a group of one.

namespace tidemark::parallel::megatron {

/// A group of that many ranks.
struct RankGroup {
  CommSlot comm;
  std::int64_t size = 1;
};
/// Whether what is gathered lies in a tensor, or in the buffer that is never given back.
enum class Into : std::uint8_t { Tensor, GlobalBuffer };

/// gather_from_sequence_parallel_region: the gradient is reduced and scattered.
[[nodiscard]] Tensor gather_rows(Worker& w, const Name& name, std::string_view use, const RankGroup& group,
                                 const Tensor& x, Into into = Into::Tensor);
/// reduce_scatter_to_sequence_parallel_region: the gradient is gathered.
[[nodiscard]] Tensor reduce_scatter_rows(Worker& w, const Name& name, std::string_view use, const RankGroup& group,
                                         const Tensor& x);

}  // namespace tidemark::parallel::megatron
