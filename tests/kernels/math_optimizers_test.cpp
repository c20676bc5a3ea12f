#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/math_cases.hpp"

namespace tidemark::tests {
namespace {

// Adam as its paper has it (Kingma and Ba, arXiv 1412.6980, algorithm 1), weights decaying by themselves (arXiv
// 1711.05101) or with gradients: p, g, m, v of step `step`.
Tensors by_adam(const Tensors& in, Tensors out, double rate, double decay, double of_gradient, double step) {
  for (std::size_t i = 0; i < in[0].values.size(); ++i) {
    const double g = in[1].values[i] + of_gradient * in[0].values[i];
    const double m = 0.9 * in[2].values[i] + 0.1 * g, v = 0.999 * in[3].values[i] + 0.001 * g * g;
    double second = v;
    if (in[4].there) out[3].values[i] = second = std::max(v, in[4].values[i]);
    const double update = m / (1 - std::pow(0.9, step)) / (std::sqrt(second / (1 - std::pow(0.999, step))) + 1e-8);
    out[0].values[i] = in[0].values[i] * (1 - rate * decay) - rate * update;
    out[1].values[i] = m, out[2].values[i] = v;
  }
  if (in[5].there) out[4].values[0] = step;
  return out;
}

}  // namespace

std::vector<MathCase> optimizer_cases() {
  Draw draw;
  using enum Operation;
  std::vector<MathCase> all;
  const Shape shape{3, 4};
  Numbers counted = zeros({});
  counted.values[0] = 6;
  all.push_back({Adam,
                 {0.01, 0, 0.2},
                 {draw(shape), draw(shape), draw(shape), draw(shape, 0, 1), absent, absent},
                 {zeros(shape), zeros(shape), zeros(shape), absent, absent},
                 [](const Tensors& in, const Tensors& out) { return by_adam(in, out, 0.01, 0, 0.2, 1); }});
  all.push_back({Adam,
                 {0.01, 0.1},
                 {draw(shape), draw(shape), draw(shape), draw(shape, 0, 1), draw(shape, 0, 1), counted},
                 {zeros(shape), zeros(shape), zeros(shape), zeros(shape), counted},
                 [](const Tensors& in, const Tensors& out) { return by_adam(in, out, 0.01, 0.1, 0, 7); }});
  all.push_back({Sgd,
                 {0.1, 0.9, 0.3},
                 {draw(shape), draw(shape), absent},
                 {zeros(shape), absent},
                 [](const Tensors& in, Tensors out) {
                   for (std::size_t i = 0; i < 12; ++i)
                     out[0].values[i] = in[0].values[i] - 0.1 * (in[1].values[i] + 0.3 * in[0].values[i]);
                   return out;
                 }});
  all.push_back({Sgd,
                 {0.1, 0.9, 0.3},
                 {draw(shape), draw(shape), draw(shape)},
                 {zeros(shape), zeros(shape)},
                 [](const Tensors& in, Tensors out) {
                   for (std::size_t i = 0; i < 12; ++i) {
                     out[1].values[i] = 0.9 * in[2].values[i] + in[1].values[i] + 0.3 * in[0].values[i];
                     out[0].values[i] = in[0].values[i] - 0.1 * out[1].values[i];
                   }
                   return out;
                 }});
  Numbers upper = draw(shape), lower = zeros(shape);
  for (double& x : upper.values) x = std::round(64 * x);
  lower.dtype = DType::INT16;
  Numbers some = lower;
  upper.values[0] = 5, some.values[0] = 3;
  all.push_back({JoinBits, {}, {upper, some}, {zeros(shape)}, [](const Tensors& in, Tensors out) {
                   for (std::size_t i = 0; i < in[0].values.size(); ++i)
                     out[0].values[i] = in[0].values[i] + in[1].values[i] * 0x1p-21;  // between 4 and 8
                   return out;
                 }});
  all.push_back({SplitBits, {}, {upper}, {zeros(shape), lower}, [](const Tensors& in, Tensors out) {
                   out[0].values = in[0].values;
                   return out;
                 }});
  return all;
}

TEST(MathOptimizers, AnFp32NumberIsABf16OneAndWhatItHasBesides) {
  Numbers x = zeros({5}), upper = zeros({5}), lower = zeros({5});
  x.values = {0.1, -0.1, 1.0 + 0x1p-8, -3.14159265, 0};
  for (double& value : x.values) value = static_cast<float>(value);
  x.dtype = DType::FP32, upper.dtype = DType::BF16, lower.dtype = DType::INT16;
  const RunOptions native{.storage = math::Storage::Native};
  const Tensors parts = run(Operation::SplitBits, {}, {x}, {upper, lower}, native);
  EXPECT_EQ(parts[0].values[2], 1.0 + 0x1p-7);  // half way: up
  EXPECT_EQ(run(Operation::JoinBits, {}, parts, {x}, native)[0].values, x.values);
}

TEST(MathOptimizers, StepsThatTheHostCountsCorrectTheMoments) {
  Draw draw;
  const Tensors in{draw({4}), draw({4}), draw({4}), draw({4}, 0, 1), absent, absent};
  const Tensors out{zeros({4}), zeros({4}), zeros({4}), absent, absent};
  for (const std::int64_t step : {1, 2, 100})
    EXPECT_LT(difference(run(Operation::Adam, {0.01}, in, out, {.setting = {.step = step}})[0],
                         by_adam(in, out, 0.01, 0, 0, static_cast<double>(step))[0]),
              1e-12);
}

}  // namespace tidemark::tests
