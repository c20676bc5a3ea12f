#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include "kernels/math/call.hpp"

// What is computed element by element: functions of numbers, and how they are mapped over tensors.

namespace tidemark::math {

/// f of an element of its inputs, of which it takes one, two or three.
template <class Real, class Function>
TIDEMARK_EVERYWHERE Real at(std::int64_t i, const Function& f, Values<Real> a, Values<Real> b, Values<Real> c) {
  if constexpr (std::is_invocable_v<Function, Real>)
    return static_cast<Real>(f(a[i]));
  else if constexpr (std::is_invocable_v<Function, Real, Real>)
    return static_cast<Real>(f(a[i], b[i]));
  else
    return static_cast<Real>(f(a[i], b[i], c[i]));
}

/// y = f(inputs...), element by element.
template <class Call, class Function>
void map(const Call& c, Function f) {
  using Real = typename Call::Real;
  const Shape& sizes = c.sizes_out(0);
  const Values<Real> x = c.read(0, sizes);
  Values<Real> second, third;
  if (!std::is_invocable_v<Function, Real>) second = c.read(1, sizes);
  if (std::is_invocable_v<Function, Real, Real, Real>) third = c.read(2, sizes);
  c.each(x.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { x[i] = at(i, f, x, second, third); });
  c.write(0, x);
}

/// The sum of inputs, however many there are.
template <class Call>
void add(const Call& c) {
  using Real = typename Call::Real;
  const Values<Real> y = c.read(0, c.sizes_out(0));
  for (std::size_t i = 1; i < c.in.size(); ++i) {
    const Values<Real> x = c.read(i, c.sizes_out(0));
    c.each(y.count, [=] TIDEMARK_EVERYWHERE(std::int64_t e) { y[e] += x[e]; });
  }
  c.write(0, y);
}

/// Converts and broadcasts; int64 stays exact.
template <class Call>
void copy(const Call& c) {
  if (c.in[0].view.dtype == DType::INT64 && c.out[0].view.dtype == DType::INT64)
    return c.write(0, c.integers(0, c.sizes_out(0)));
  c.write(0, c.read(0, c.sizes_out(0)));
}

// ATen/native/cuda/PowKernel.cu: usual exponents have operations of their own.
template <class Real>
TIDEMARK_EVERYWHERE Real power(Real x, Real exponent) {
  if (exponent == Real(2)) return x * x;
  if (exponent == Real(0.5)) return std::sqrt(x);
  if (exponent == Real(-0.5)) return 1 / std::sqrt(x);
  if (exponent == Real(-1)) return 1 / x;
  return std::pow(x, exponent);
}

// ---- activations and their slopes ----------------------------------------------------------------------------------

template <class Real>
TIDEMARK_EVERYWHERE Real sigmoid(Real x) {
  return 1 / (1 + std::exp(-x));
}

template <class Real>
TIDEMARK_EVERYWHERE Real silu(Real x) {
  return x * sigmoid(x);
}
template <class Real>
TIDEMARK_EVERYWHERE Real silu_slope(Real x) {
  const Real s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

/// How GELU is computed. PyTorch's kernel has either; Megatron's fused ones (core/fusions/fused_bias_gelu.py,
/// fused_bias_geglu.py) go by the hyperbolic tangent, with sqrt(2 / pi) written to eight digits.
enum class Gelu { ByErrorFunction, ByTanh };
inline Gelu gelu_kind(double tanh) { return tanh != 0 ? Gelu::ByTanh : Gelu::ByErrorFunction; }

constexpr double gelu_root = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
constexpr double gelu_cubic = 0.044715;

template <class Real>
TIDEMARK_EVERYWHERE Real gelu(Gelu kind, Real x) {
  if (kind == Gelu::ByErrorFunction) return x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<Real>));
  return x / 2 * (1 + std::tanh(Real(gelu_root) * x * (1 + Real(gelu_cubic) * x * x)));
}
template <class Real>
TIDEMARK_EVERYWHERE Real gelu_slope(Gelu kind, Real x) {
  if (kind == Gelu::ByErrorFunction)
    return (1 + std::erf(x / std::numbers::sqrt2_v<Real>)) / 2 + x * Real(gelu_root) / 2 * std::exp(-x * x / 2);
  const Real t = std::tanh(Real(gelu_root) * x * (1 + Real(gelu_cubic) * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * Real(gelu_root) * (1 + 3 * Real(gelu_cubic) * x * x);
}

// ATen/native/cuda/ActivationThresholdKernel.cu: NaN goes through.
template <class Real>
TIDEMARK_EVERYWHERE Real relu(Real x) {
  return x <= 0 ? 0 : x;
}

// ---- gated activations ---------------------------------------------------------------------------------------------

/// What a gate goes through.
struct GatedBySilu {
  TIDEMARK_EVERYWHERE static auto value(auto x) { return silu(x); }
  TIDEMARK_EVERYWHERE static auto slope(auto x) { return silu_slope(x); }
};
struct GatedByGelu {
  TIDEMARK_EVERYWHERE static auto value(auto x) { return gelu(Gelu::ByTanh, x); }
  TIDEMARK_EVERYWHERE static auto slope(auto x) { return gelu_slope(Gelu::ByTanh, x); }
};

/// y = value(gate) * up of x + bias: the first half of the last dimension is the gate, the second is up.
template <class Activation, class Call>
void gated(const Call& c) {
  using Real = typename Call::Real;
  const Values<Real> x = c.read(0), bias = c.read(1, c.sizes_in(0)), y = c.room_for(0);
  const Rows rows = rows_of(c.sizes_out(0));
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    for (std::int64_t i = 0; i < rows.width; ++i) {
      const std::int64_t gate = 2 * r * rows.width + i, up = gate + rows.width;
      y[r * rows.width + i] = Activation::value(x[gate] + bias[gate]) * (x[up] + bias[up]);
    }
  });
  c.write(0, y);
}

template <class Activation, class Call>
void gated_backward(const Call& c) {
  using Real = typename Call::Real;
  const Values<Real> dy = c.read(0), x = c.read(1), bias = c.read(2, c.sizes_in(1)), dx = c.room(x.count);
  const Rows rows = rows_of(c.sizes_in(0));
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    for (std::int64_t i = 0; i < rows.width; ++i) {
      const std::int64_t gate = 2 * r * rows.width + i, up = gate + rows.width;
      const Real g = dy[r * rows.width + i], at = x[gate] + bias[gate];
      dx[gate] = g * (x[up] + bias[up]) * Activation::slope(at);
      dx[up] = g * Activation::value(at);
    }
  });
  c.write(0, dx);
}

}  // namespace tidemark::math
