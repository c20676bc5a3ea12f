#pragma once

#include "parallel/frameworks/torchtitan/tensor_parallel.hpp"
#include "parallel/frameworks/transformers/modules.hpp"

namespace tidemark::parallel::torchtitan {

/// FeedForward of torchtitan's models, of a whole rank or of its part: w2(silu(w1(x)) * w3(x)).
struct FeedForward {
  Linear gate, down, up;  ///< w1, w2, w3

  /// What w2 is given.
  Tensor gated(Session& s, const Tensor& x) const {
    const Tensor activated = silu(s, gate(s, x));
    const Tensor linear = up(s, x);
    return mul(s, activated, linear);
  }
  /// Of what all ranks have and local tensors hold: each of the two products asks for the whole gradient of it.
  Tensor in_parts(Session& s, const TensorGroup& group, const Tensor& x) const {
    const auto gated_parts = [&] {
      const Tensor activated = silu(s, gate(s, read_in_parts(s, group, x)));
      const Tensor linear = up(s, read_in_parts(s, group, x));
      return mul(s, activated, linear);
    };
    const Tensor inner = gated_parts();
    return down(s, inner);
  }
};

}  // namespace tidemark::parallel::torchtitan
