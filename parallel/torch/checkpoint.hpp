#pragma once

#include <functional>

#include "parallel/torch/session.hpp"

// torch.utils.checkpoint: regions that keep only their input, and run forward once more in the backward pass.

namespace tidemark::parallel::torch {

using Region = std::function<Tensor(const Tensor&)>;

/// use_reentrant=False: what the region saves is packed as a place in it, and made again when the first is asked for.
[[nodiscard]] Tensor checkpoint(Session& s, const Tensor& input, Region region);

/// use_reentrant=True: an autograd function of its own, whose backward function runs one within the other's.
[[nodiscard]] Tensor checkpoint_reentrant(Session& s, const Tensor& input, Region region);

}  // namespace tidemark::parallel::torch
