#pragma once

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
  Tensor operator()(Session& s, const Tensor& x) const { return down(s, gated(s, x)); }
};

}  // namespace tidemark::parallel::torchtitan
