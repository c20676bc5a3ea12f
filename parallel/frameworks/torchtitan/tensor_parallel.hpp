#pragma once

#include <array>
#include <cstdint>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/torch/ops/aten.hpp"

// DTensor over one dimension of a mesh, where torchtitan's plans place tensors (parallelize.py apply_tp of Llama,
// apply_non_moe_tp of DeepSeek-V3): what redistribution makes, and what runs where a dimension is cut. Sequences are
// the second dimension of three.
//
// Read in PyTorch 2.15: torch/distributed/tensor/placement_types.py, _dispatch.py, parallel/loss.py,
// _functional_collectives.py.

namespace tidemark::parallel::torchtitan {

/// Ranks that hold a part of every linear, and of the sequence between them.
struct TensorGroup {
  CommSlot comm;
  std::int64_t ranks = 1, rank = 0;
};

/// Shard(1) to Replicate; the gradient is summed and cut again.
[[nodiscard]] Tensor gathered(Session& s, const TensorGroup& group, const Tensor& x);
/// The same where gradients are whole on every rank: each keeps its part (PrepareModuleInput with use_local_output).
[[nodiscard]] Tensor gathered_alike(Session& s, const TensorGroup& group, const Tensor& x);
/// Replicate, read by what makes Partial of it: the gradient is summed over the ranks.
[[nodiscard]] Tensor read_in_parts(Session& s, const TensorGroup& group, const Tensor& x);
/// What a module that all ranks run alike makes of `x`, read by what makes Partial of it: the gradient is summed over
/// the ranks as that module's backward pass begins.
[[nodiscard]] Tensor summed_before(Session& s, const TensorGroup& group, const Tensor& made);
/// A piece of a tensor that was split, read by what gives it a whole gradient while those of others are parts: each
/// rank takes its share of it as the pieces are put together.
[[nodiscard]] Tensor shared_out_before(Session& s, const TensorGroup& group, const Tensor& piece);
/// Read by what makes parts of a gradient, and by what makes a whole one (the second): of this ranks have equal shares.
[[nodiscard]] std::array<Tensor, 2> read_in_parts_and_whole(Session& s, const TensorGroup& group, const Tensor& x);
/// Partial to Shard(1); the gradient is gathered.
[[nodiscard]] Tensor scattered(Session& s, const TensorGroup& group, const Tensor& x);

/// Of a weight of which a rank has some rows, and no others: Partial. Its gradient is of all rows, on every rank.
[[nodiscard]] Tensor embedding(Session& s, const TensorGroup& group, const Tensor& ids, const Tensor& weight);
/// loss_parallel: the mean over rows of logits of which a rank has some columns.
[[nodiscard]] Tensor cross_entropy(Session& s, const TensorGroup& group, const Tensor& logits, const Tensor& labels);
/// Shard(-1) to Replicate, of logits.
[[nodiscard]] Tensor whole_last(Session& s, const TensorGroup& group, const Tensor& x);

}  // namespace tidemark::parallel::torchtitan
