#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/math/call.hpp"

// What is computed element by element: functions of numbers, and how they are mapped over tensors.

namespace tidemark::math {

/// y = f(inputs...), element by element.
template <class Real, class Function, std::size_t... inputs>
void map_over(const Call& c, Function f, std::index_sequence<inputs...>) {
  const std::array of{c.read<Real>(inputs, c.sizes_out(0))...};
  std::vector<Real> y(of[0].size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<Real>(f(of[inputs][i]...));
  c.write(0, y);
}
template <class Real, class Function>
void map(const Call& c, Function f) {
  if constexpr (std::is_invocable_v<Function, Real>)
    map_over<Real>(c, f, std::make_index_sequence<1>());
  else if constexpr (std::is_invocable_v<Function, Real, Real>)
    map_over<Real>(c, f, std::make_index_sequence<2>());
  else if constexpr (std::is_invocable_v<Function, Real, Real, Real>)
    map_over<Real>(c, f, std::make_index_sequence<3>());
  else
    map_over<Real>(c, f, std::make_index_sequence<4>());
}

/// log(e^x + e^other).
template <class Real>
Real log_add_exp(Real x, Real other) {
  const Real most = larger(x, other);
  return most + std::log1p(std::exp(std::min(x, other) - most));
}

/// The sum of inputs, however many there are.
template <class Real>
void add(const Call& c) {
  std::vector<Real> y = c.read<Real>(0, c.sizes_out(0));
  for (std::size_t i = 1; i < c.in.size(); ++i) {
    const std::vector<Real> x = c.read<Real>(i, c.sizes_out(0));
    for (std::size_t e = 0; e < y.size(); ++e) y[e] += x[e];
  }
  c.write(0, y);
}

/// Converts and broadcasts; int64 stays exact.
template <class Real>
void copy(const Call& c) {
  if (c.in[0].view.dtype == DType::INT64 && c.out[0].view.dtype == DType::INT64)
    return c.write(0, c.read<std::int64_t>(0, c.sizes_out(0)));
  c.write(0, c.read<Real>(0, c.sizes_out(0)));
}

// ATen/native/cuda/PowKernel.cu: usual exponents have operations of their own.
template <class Real>
Real power(Real x, Real exponent) {
  if (exponent == Real(2)) return x * x;
  if (exponent == Real(0.5)) return std::sqrt(x);
  if (exponent == Real(-0.5)) return 1 / std::sqrt(x);
  if (exponent == Real(-1)) return 1 / x;
  return std::pow(x, exponent);
}

// ---- activations and their slopes ----------------------------------------------------------------------------------

template <class Real>
Real sigmoid(Real x) {
  return 1 / (1 + std::exp(-x));
}

template <class Real>
Real silu(Real x) {
  return x * sigmoid(x);
}
template <class Real>
Real silu_slope(Real x) {
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
Real gelu(Gelu kind, Real x) {
  if (kind == Gelu::ByErrorFunction) return x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<Real>));
  return x / 2 * (1 + std::tanh(Real(gelu_root) * x * (1 + Real(gelu_cubic) * x * x)));
}
template <class Real>
Real gelu_slope(Gelu kind, Real x) {
  if (kind == Gelu::ByErrorFunction)
    return (1 + std::erf(x / std::numbers::sqrt2_v<Real>)) / 2 + x * Real(gelu_root) / 2 * std::exp(-x * x / 2);
  const Real t = std::tanh(Real(gelu_root) * x * (1 + Real(gelu_cubic) * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * Real(gelu_root) * (1 + 3 * Real(gelu_cubic) * x * x);
}

// ATen/native/cuda/ActivationThresholdKernel.cu: NaN goes through.
template <class Real>
Real relu(Real x) {
  return x <= 0 ? 0 : x;
}

// ---- gated activations ---------------------------------------------------------------------------------------------

/// y = activated(gate) * up of x + bias: the first half of the last dimension is the gate, the second is up.
template <class Real, class Activation>
void gated(const Call& c, Activation activated) {
  const Shape& sizes = c.sizes_in(0);
  const std::vector<Real> x = c.read<Real>(0), bias = c.read<Real>(1, sizes);
  const Rows rows = rows_of(c.sizes_out(0));
  std::vector<Real> y(index(rows.count * rows.width));
  for (std::int64_t r = 0; r < rows.count; ++r)
    for (std::int64_t i = 0; i < rows.width; ++i) {
      const std::size_t gate = index(2 * r * rows.width + i), up = gate + index(rows.width);
      y[index(r * rows.width + i)] = activated(x[gate] + bias[gate]) * (x[up] + bias[up]);
    }
  c.write(0, y);
}

template <class Real, class Activation, class Slope>
void gated_backward(const Call& c, Activation activated, Slope slope) {
  const std::vector<Real> dy = c.read<Real>(0), x = c.read<Real>(1), bias = c.read<Real>(2, c.sizes_in(1));
  const Rows rows = rows_of(c.sizes_in(0));
  std::vector<Real> dx(x.size());
  for (std::int64_t r = 0; r < rows.count; ++r)
    for (std::int64_t i = 0; i < rows.width; ++i) {
      const std::size_t gate = index(2 * r * rows.width + i), up = gate + index(rows.width);
      const Real g = dy[index(r * rows.width + i)], at = x[gate] + bias[gate];
      dx[gate] = g * (x[up] + bias[up]) * slope(at);
      dx[up] = g * activated(at);
    }
  c.write(0, dx);
}

}  // namespace tidemark::math
