#pragma once

#include <cstdint>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/torch/ops/aten.hpp"

// Context parallelism as PyTorch has it and torchtitan takes it: each rank has a part of every sequence, and
// attention's keys and values come round.
//
// Read in PyTorch 2.15: torch/distributed/tensor/experimental/_context_parallel/_attention.py, _load_balancer.py.

namespace tidemark::parallel::torchtitan {

/// Ranks that hold the parts of one sequence.
struct ContextGroup {
  CommSlot comm;
  std::int64_t ranks = 1, rank = 0;
  /// A part is two chunks, one from the beginning and the one as far from the end (_HeadTailLoadBalancer); or one.
  bool balanced = true;
};

/// The rank's part of [batch, sequence] (_context_parallel_buffers).
[[nodiscard]] Tensor part_of_sequence(Session& s, const ContextGroup& group, const Tensor& whole);

/// Causal FlashAttention over the sequence of which each rank has a part: [batch, heads, tokens, width].
[[nodiscard]] Tensor ring_attention(Session& s, const ContextGroup& group, const Tensor& query, const Tensor& key,
                                    const Tensor& value);

}  // namespace tidemark::parallel::torchtitan
