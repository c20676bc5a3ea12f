#pragma once

#include <functional>
#include <vector>

#include "parallel/torch/session.hpp"

// torch.utils.checkpoint: regions that keep only their input, and run forward once more in the backward pass.

namespace tidemark::parallel::torch {

using Region = std::function<Tensor(const Tensor&)>;
/// One that gives more than what goes on from it.
using WideRegion = std::function<std::vector<Tensor>(const Tensor&)>;

/// A policy of selective checkpointing for one run of a region: asked once for each operation, in their order, whether
/// what it makes is kept.
using KeepsResult = std::function<bool(Dispatched)>;

/// Arguments of torch.utils.checkpoint.
struct CheckpointOptions {
  /// Of each run of the region a policy of its own (context_fn, create_selective_checkpoint_contexts); without one all
  /// operations run again.
  std::function<KeepsResult()> policy = nullptr;
  bool early_stop = true;  ///< a region runs again only until the last tensor that is asked for is there
};

/// use_reentrant=False: what the region saves is packed as a place in it, and made again when the first is asked for.
[[nodiscard]] Tensor checkpoint(Session& s, const Tensor& input, Region region, CheckpointOptions options);
[[nodiscard]] Tensor checkpoint(Session& s, const Tensor& input, Region region);
[[nodiscard]] std::vector<Tensor> checkpoint(Session& s, const Tensor& input, WideRegion region,
                                             CheckpointOptions options);

/// use_reentrant=True: an autograd function of its own, whose backward function runs one within the other's.
[[nodiscard]] Tensor checkpoint_reentrant(Session& s, const Tensor& input, Region region);
/// Where nobody asks for a gradient of what it gives, zeros come back for it.
[[nodiscard]] std::vector<Tensor> checkpoint_reentrant(Session& s, const Tensor& input, WideRegion region);

}  // namespace tidemark::parallel::torch
