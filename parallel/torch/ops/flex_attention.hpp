#pragma once

#include <vector>

#include "parallel/torch/session.hpp"

// torch.nn.attention.flex_attention as torch.compile runs it: a kernel of Triton's with a mask of blocks.

namespace tidemark::parallel::torch {

/// create_block_mask of a mask of causal attention within documents, compiled: for blocks of queries, and for blocks of
/// keys, how many blocks of the others are seen in part and whole, and which; and each token's document.
[[nodiscard]] std::vector<Tensor> block_mask(Session& s, std::int64_t batch, std::int64_t sequence);

/// What masks of so many parts of it, of `batch` sequences each, have of their own, whose blocks of queries are parts
/// of its (BlockMask.from_kv_blocks): what is seen by blocks of keys, once more.
[[nodiscard]] std::vector<Tensor> block_mask_parts(Session& s, std::int64_t parts, std::int64_t batch,
                                                   std::int64_t sequence);

/// Batch, heads, sequence, width of a head, which may be another one of values. A query sees keys up to its own, as if
/// documents were as long as sequences.
[[nodiscard]] Tensor flex_attention(Session& s, const Tensor& q, const Tensor& k, const Tensor& v);

}  // namespace tidemark::parallel::torch
