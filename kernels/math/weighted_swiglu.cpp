#include "kernels/math/elementwise.hpp"
#include "kernels/math/engine.hpp"
#include "kernels/math/families.hpp"

// SwiGLU of rows, each times the probability with which a token chose its expert (Megatron-LM
// core/fusions/fused_bias_swiglu.py weighted_bias_swiglu_impl).

namespace tidemark::math {

template <class Call>
void WeightedSwiGlus<Call>::weighted_swiglu(const Call& c) {
  const Values<Real> x = c.read(0), bias = c.read(1, c.sizes_in(0)), probs = c.read(2), y = c.room_for(0);
  const Rows rows = rows_of(c.sizes_out(0));
  ensure(probs.count == rows.count, "each row has its probability");
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    for (std::int64_t i = 0; i < rows.width; ++i) {
      const std::int64_t gate = 2 * r * rows.width + i, up = gate + rows.width;
      y[r * rows.width + i] = silu(x[gate] + bias[gate]) * (x[up] + bias[up]) * probs[r];
    }
  });
  c.write(0, y);
}

template <class Call>
void WeightedSwiGlus<Call>::weighted_swiglu_backward(const Call& c) {
  const Values<Real> dy = c.read(0), x = c.read(1), bias = c.read(2, c.sizes_in(1)), probs = c.read(3);
  const Rows rows = rows_of(c.sizes_in(0));
  ensure(probs.count == rows.count, "each row has its probability");
  const Values<Real> dx = c.room_for(0);
  const Values<double> dprobs = c.sums(rows.count);
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    double sum = 0;
    for (std::int64_t i = 0; i < rows.width; ++i) {
      const std::int64_t gate = 2 * r * rows.width + i, up = gate + rows.width;
      const Real g = dy[r * rows.width + i], at = x[gate] + bias[gate], times = x[up] + bias[up];
      dx[gate] = g * probs[r] * times * silu_slope(at);
      dx[up] = g * probs[r] * silu(at);
      sum += static_cast<double>(g) * static_cast<double>(silu(at) * times);
    }
    dprobs[r] = sum;
  });
  c.write(0, dx);
  c.write(1, dprobs);
}

template struct WeightedSwiGlus<FloatCall>;
template struct WeightedSwiGlus<DoubleCall>;

}  // namespace tidemark::math
