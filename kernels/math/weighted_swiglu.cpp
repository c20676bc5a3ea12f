#include <vector>

#include "kernels/math/elementwise.hpp"
#include "kernels/math/families.hpp"

// SwiGLU of rows, each times the probability with which a token chose its expert (Megatron-LM
// core/fusions/fused_bias_swiglu.py weighted_bias_swiglu_impl).

namespace tidemark::math {
namespace {

// The halves of a row, with the bias added.
template <class Real>
struct Gated {
  Gated(const Call& c, std::size_t input)
      : x(c.read<Real>(input)), width(rows_of(c.sizes_in(input)).width / 2), rows(rows_of(c.sizes_in(input)).count) {
    const std::vector<Real> bias = c.read<Real>(input + 1, c.sizes_in(input));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += bias[i];
  }
  [[nodiscard]] std::size_t gate(std::int64_t r, std::int64_t i) const { return index(2 * r * width + i); }
  [[nodiscard]] std::size_t up(std::int64_t r, std::int64_t i) const { return gate(r, i) + index(width); }

  std::vector<Real> x;
  std::int64_t width, rows;
};

}  // namespace

template <class Real>
void WeightedSwiGlus<Real>::weighted_swiglu(const Call& c) {
  const Gated<Real> of(c, 0);
  const std::vector<Real> probs = c.read<Real>(2);
  ensure(std::ssize(probs) == of.rows, "each row has its probability");
  std::vector<Real> y;
  y.reserve(of.x.size() / 2);
  for (std::int64_t r = 0; r < of.rows; ++r)
    for (std::int64_t i = 0; i < of.width; ++i)
      y.push_back(silu(of.x[of.gate(r, i)]) * of.x[of.up(r, i)] * probs[index(r)]);
  c.write(0, y);
}

template <class Real>
void WeightedSwiGlus<Real>::weighted_swiglu_backward(const Call& c) {
  const Gated<Real> of(c, 1);
  const std::vector<Real> dy = c.read<Real>(0), probs = c.read<Real>(3);
  ensure(std::ssize(probs) == of.rows, "each row has its probability");
  std::vector<Real> dx(of.x.size());
  std::vector<double> dprobs(probs.size());
  for (std::int64_t r = 0; r < of.rows; ++r)
    for (std::int64_t i = 0; i < of.width; ++i) {
      const Real gate = of.x[of.gate(r, i)], up = of.x[of.up(r, i)], g = dy[index(r * of.width + i)];
      dx[of.gate(r, i)] = g * probs[index(r)] * up * silu_slope(gate);
      dx[of.up(r, i)] = g * probs[index(r)] * silu(gate);
      dprobs[index(r)] += static_cast<double>(g) * static_cast<double>(silu(gate) * up);
    }
  c.write(0, dx);
  c.write(1, dprobs);
}

template struct WeightedSwiGlus<float>;
template struct WeightedSwiGlus<double>;

}  // namespace tidemark::math
