#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/math_cases.hpp"

namespace tidemark::tests::math_optimizers_test {
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

// Lion (Chen et al., arXiv 2302.06675, algorithm 2).
double by_lion(const Tensors& in, std::size_t i, double m) {
  const double to = 0.9 * m + 0.1 * in[1].values[i], sign = to > 0 ? 1 : to < 0 ? -1 : 0;
  return in[0].values[i] * (1 - 0.01 * 0.1) - 0.01 * sign;
}

// bitsandbytes' create_dynamic_map, as it appends and sorts.
std::vector<double> dynamic_map(bool both_signs) {
  std::vector<double> all{0, 1};
  for (int i = 0; i < 7; ++i) {
    const int items = 1 << (both_signs ? i : i + 1);
    for (int k = 0; k < items; ++k) {
      const double low = 0.1 + 0.9 * k / items, high = 0.1 + 0.9 * (k + 1) / items;
      const double value = std::pow(10, i - 6) * (low + high) / 2;
      all.push_back(value);
      if (both_signs) all.push_back(-value);
    }
  }
  std::ranges::sort(all);
  return all;
}

Numbers map_of(bool both_signs) {
  Numbers map = zeros({256});
  map.values = dynamic_map(both_signs);
  for (double& value : map.values) value = static_cast<float>(value);
  return map;
}

Numbers codes(Numbers numbers) {
  numbers.dtype = DType::UINT8;
  return numbers;
}

// The code whose value is nearest among those of x's sign.
double code_of(double x, const Numbers& map, bool both_signs) {
  std::size_t best = both_signs && x < 0 ? 0 : both_signs ? 127 : 0;
  for (std::size_t c = 0; c < 256; ++c) {
    if (both_signs && std::signbit(map.values[c]) != std::signbit(x)) continue;
    if (std::abs(map.values[c] - x) < std::abs(map.values[best] - x)) best = c;
  }
  return static_cast<double>(best);
}

double value_at(const Numbers& codes, std::size_t i, const Numbers& map, const Numbers& scales) {
  return map.values[static_cast<std::size_t>(codes.values[i])] * scales.values[i / 5];
}

// Keeps numbers as codes and the scales of their blocks of five.
void keep(const std::vector<double>& numbers, const Numbers& map, bool both_signs, Numbers& codes, Numbers& scales) {
  for (std::size_t i = 0; i < numbers.size(); ++i)
    scales.values[i / 5] = std::max(scales.values[i / 5], std::abs(numbers[i]));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    codes.values[i] = code_of(numbers[i] / scales.values[i / 5], map, both_signs);
}

Tensors adam_by_blocks(const Tensors& in, Tensors out) {
  std::vector<double> m, v;
  for (std::size_t i = 0; i < 7; ++i) {
    const double g = in[1].values[i];
    m.push_back(0.9 * value_at(in[2], i, in[6], in[4]) + 0.1 * g);
    v.push_back(0.999 * value_at(in[3], i, in[7], in[5]) + 0.001 * g * g);
    const double update = m[i] / (1 - 0.9) / (std::sqrt(v[i] / (1 - 0.999)) + 1e-8);
    out[0].values[i] = (in[0].values[i] - 0.01 * update) * (1 - 0.01 * 0.1);
  }
  keep(m, in[6], true, out[1], out[3]);
  keep(v, in[7], false, out[2], out[4]);
  return out;
}

Tensors lion_by_blocks(const Tensors& in, Tensors out) {
  std::vector<double> m;
  for (std::size_t i = 0; i < 7; ++i) {
    const double before = value_at(in[2], i, in[4], in[3]);
    out[0].values[i] = by_lion(in, i, before);
    m.push_back(0.99 * before + 0.01 * in[1].values[i]);
  }
  keep(m, in[4], true, out[1], out[2]);
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
  all.push_back({Lion,
                 {0.01, 0.1},
                 {draw(shape), draw(shape), draw(shape)},
                 {zeros(shape), zeros(shape)},
                 [](const Tensors& in, Tensors out) {
                   for (std::size_t i = 0; i < 12; ++i) out[0].values[i] = by_lion(in, i, in[2].values[i]);
                   for (std::size_t i = 0; i < 12; ++i)
                     out[1].values[i] = 0.99 * in[2].values[i] + 0.01 * in[1].values[i];
                   return out;
                 }});
  all.push_back({DynamicMap, {1}, {}, {zeros({256})}, [](const Tensors&, Tensors out) {
                   out[0].values = dynamic_map(true);
                   return out;
                 }});
  all.push_back({DynamicMap, {0}, {}, {zeros({256})}, [](const Tensors&, Tensors out) {
                   out[0].values = dynamic_map(false);
                   return out;
                 }});
  // Two blocks of five, of which the second has two.
  const Shape row{7}, scales{2};
  const Numbers m = codes(draw.ids(row, 256)), v = codes(draw.ids(row, 256)), signs = map_of(true), one = map_of(false);
  all.push_back({AdamBlockwise,
                 {0.01, 0.1, 5},
                 {draw(row), draw(row), m, v, draw(scales, 0.1, 1), draw(scales, 0.1, 1), signs, one},
                 {zeros(row), codes(zeros(row)), codes(zeros(row)), zeros(scales), zeros(scales)},
                 adam_by_blocks});
  all.push_back({LionBlockwise,
                 {0.01, 0.1, 5},
                 {draw(row), draw(row), m, draw(scales, 0.1, 1), signs},
                 {zeros(row), codes(zeros(row)), zeros(scales)},
                 lion_by_blocks});
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

}  // namespace tidemark::tests::math_optimizers_test
