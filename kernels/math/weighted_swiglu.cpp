#include "kernels/math/elementwise.hpp"
#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"

// Gated rows, each times the probability with which a token chose its expert: gate * sigmoid(slope * gate) *
// (up + offset). Megatron-LM core/fusions/fused_bias_swiglu.py weighted_bias_swiglu_impl, with a slope of 1, and
// fused_bias_geglu.py weighted_bias_quick_geglu_impl, with one of 1.702.

namespace tidemark::math {

template <class Call>
void WeightedSwiGlus<Call>::weighted_swiglu(const Call& c) {
  const Values<Real> x = c.read(0), bias = c.read(1, c.sizes_in(0)), probs = c.read(2), y = c.room_for(0);
  const Rows rows = rows_of(c.sizes_out(0));
  ensure(probs.count == rows.count, "each row has its probability");
  const Real slope = static_cast<Real>(c.attributes[0]), offset = static_cast<Real>(c.attributes[1]);
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    for (std::int64_t i = 0; i < rows.width; ++i) {
      const std::int64_t gate = 2 * r * rows.width + i, up = gate + rows.width;
      const Real at = x[gate] + bias[gate], times = x[up] + bias[up] + offset;
      y[r * rows.width + i] = silu(slope * at) / slope * times * probs[r];
    }
  });
  c.write(0, y);
}

template <class Call>
void WeightedSwiGlus<Call>::weighted_swiglu_backward(const Call& c) {
  const Values<Real> dy = c.read(0), x = c.read(1), bias = c.read(2, c.sizes_in(1)), probs = c.read(3);
  const Rows rows = rows_of(c.sizes_in(0));
  ensure(probs.count == rows.count, "each row has its probability");
  const Real slope = static_cast<Real>(c.attributes[0]), offset = static_cast<Real>(c.attributes[1]);
  const Values<Real> dx = c.room_for(0);
  const Values<double> dprobs = c.sums(rows.count);
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    double sum = 0;
    for (std::int64_t i = 0; i < rows.width; ++i) {
      const std::int64_t gate = 2 * r * rows.width + i, up = gate + rows.width;
      const Real g = dy[r * rows.width + i], at = slope * (x[gate] + bias[gate]), times = x[up] + bias[up] + offset;
      dx[gate] = g * probs[r] * times * silu_slope(at);
      dx[up] = g * probs[r] * silu(at) / slope;
      sum += static_cast<double>(g) * static_cast<double>(silu(at) / slope * times);
    }
    dprobs[r] = sum;
  });
  c.write(0, dx);
  c.write(1, dprobs);
}

template struct WeightedSwiGlus<FloatCall>;
template struct WeightedSwiGlus<DoubleCall>;

}  // namespace tidemark::math
