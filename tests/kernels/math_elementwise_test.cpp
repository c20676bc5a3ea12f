#include <cmath>
#include <complex>

#include <gtest/gtest.h>

#include "tests/kernels/math_cases.hpp"

namespace tidemark::tests::math_elementwise_test {
namespace {

double normal_distribution(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }
double gelu_by_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}
double swish(double x) { return x / (1 + std::exp(-x)); }

// y of both halves of a row.
Tensors of_halves(const Tensors& in, const Tensors& out, double (*activation)(double)) {
  Tensors expected = out;
  const std::size_t n = static_cast<std::size_t>(out[0].sizes.back());
  for (std::size_t i = 0; i < out[0].values.size(); ++i) {
    const std::size_t gate = i / n * 2 * n + i % n, up = gate + n;
    const auto x = [&](std::size_t e) { return in[0].values[e] + seen(in[1], in[0].sizes, e); };
    expected[0].values[i] = activation(x(gate)) * x(up);
  }
  return expected;
}

Tensors of_dropout(const Tensors& in, const Tensors& out, double probability) {
  Tensors expected = out;
  for (std::size_t i = 0; i < out[0].values.size(); ++i)
    expected[0].values[i] = in[0].values[i] * out[1].values[i] / (1 - probability);
  return expected;
}

// Neighbours as complex numbers, times cos + i sin.
void turn_pairs(const double* x, const Numbers& cos, const Numbers& sin, std::size_t token, double* y) {
  const std::size_t width = static_cast<std::size_t>(cos.sizes.back()), half = width / 2;
  const double* const c = &cos.values[token * width];
  const double* const s = &sin.values[token * width];
  for (std::size_t i = 0; i < half; ++i) {
    y[i] = x[2 * i] * c[i] - x[2 * i + 1] * s[i];
    y[half + i] = x[2 * i + 1] * c[half + i] + x[2 * i] * s[half + i];
  }
}

// x [3, 2, 2, 4], of three places.
Tensors pairs_turned(const Tensors& in, const Tensors& out) {
  Tensors expected = out;
  for (std::size_t row = 0; row < 12; ++row)
    turn_pairs(&in[0].values[row * 4], in[1], in[2], row / 4, &expected[0].values[row * 4]);
  return expected;
}

// Heads [3, 2, 2, 5 + 3] and positions [3, 2, 1, 4] as keys of 5 + 4 and values of 3.
Tensors keys_of_latents(const Tensors& in, const Tensors& out) {
  Tensors expected = out;
  for (std::size_t row = 0; row < 12; ++row) {
    for (std::size_t i = 0; i < 5; ++i) expected[0].values[row * 9 + i] = in[0].values[row * 8 + i];
    for (std::size_t i = 0; i < 3; ++i) expected[1].values[row * 3 + i] = in[0].values[row * 8 + 5 + i];
    turn_pairs(&in[1].values[row / 2 * 4], in[2], in[3], row / 4, &expected[0].values[row * 9 + 5]);
  }
  return expected;
}

// x [tokens, 1 or batch, heads, width] turned, pair by pair, as complex numbers times e^(i angle).
Tensors turned(const Tensors& in, const Tensors& out) {
  Tensors expected{in[0]};
  const std::size_t width = static_cast<std::size_t>(in[0].sizes.back());
  const std::size_t angles = static_cast<std::size_t>(in[1].sizes.back()), half = angles / 2;
  const std::size_t rows = in[0].values.size() / width;
  const std::size_t of_token = rows / static_cast<std::size_t>(in[0].sizes[0]);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < half; ++i) {
      const double* const x = &in[0].values[r * width];
      const double a = in[1].values[r / of_token * angles + i], b = in[1].values[r / of_token * angles + half + i];
      expected[0].values[r * width + i] = x[i] * std::cos(a) - x[half + i] * std::sin(a);
      expected[0].values[r * width + half + i] = x[half + i] * std::cos(b) + x[i] * std::sin(b);
    }
  (void)out;
  return expected;
}

using Elements = const std::vector<double>&;

}  // namespace

std::vector<MathCase> elementwise_cases() {
  Draw draw;
  using enum Operation;
  const Shape shape{3, 4, 5}, matrix{4, 6};
  std::vector<MathCase> all;
  const auto add = [&](Operation operation, Attributes attributes, Tensors in, std::function<double(Elements)> f,
                       DType dtype = DType::FP32) {
    const Shape sizes = in.front().sizes;
    all.push_back({operation, attributes, std::move(in), {zeros(sizes, dtype)}, by_element(std::move(f))});
  };
  add(
      Fill, {-100}, {zeros(shape, DType::INT64)}, [](Elements) { return -100; }, DType::INT64);
  all.back().inputs.clear();
  add(Fill, {0.3f}, {zeros(shape)}, [](Elements) { return 0.3f; });
  all.back().inputs.clear();
  all.push_back({Arange, {5}, {}, {zeros({7}, DType::INT64)}, [](const Tensors&, Tensors y) {
                   for (std::size_t i = 0; i < 7; ++i) y[0].values[i] = 5 + static_cast<double>(i);
                   return y;
                 }});
  all.push_back({RotaryTable, {10'000}, {}, {zeros({6, 4})}, [](const Tensors&, Tensors y) {
                   for (std::size_t i = 0; i < 24; ++i)
                     y[0].values[i] = static_cast<double>(i / 4) * std::pow(10'000, -static_cast<double>(i % 4) / 4);
                   return y;
                 }});
  all.push_back({RotaryTable, {100}, {}, {zeros({4})}, [](const Tensors&, Tensors y) {
                   for (std::size_t i = 0; i < 4; ++i) y[0].values[i] = std::pow(100, -static_cast<double>(i) / 4);
                   return y;
                 }});
  all.push_back({Initialize, {}, {}, {zeros({30'000})}, [](const Tensors&, const Tensors& y) {
                   double sum = 0, squares = 0;
                   for (const double x : y[0].values) sum += x, squares += x * x;
                   EXPECT_NEAR(sum / 30'000, 0, 0.0005);
                   EXPECT_NEAR(squares / 30'000, 0.0004, 0.00001);
                   return y;
                 }});

  add(Copy, {}, {draw(shape)}, [](Elements x) { return x[0]; });
  add(Copy, {}, {draw.ids(shape, 1'000)}, [](Elements x) { return x[0]; });
  add(
      Copy, {}, {draw.truths(shape)}, [](Elements x) { return x[0]; }, DType::INT64);
  add(
      Copy, {}, {draw.ids(shape, 1'000)}, [](Elements x) { return x[0]; }, DType::INT32);
  add(
      Copy, {}, {draw.ids(shape, 3)}, [](Elements x) { return x[0] != 0; }, DType::BOOL);
  all.push_back({Copy, {}, {draw({4, 1})}, {zeros(shape)}, by_element([](Elements x) { return x[0]; })});
  add(Add, {}, {draw(shape), draw({5}), draw({4, 1})}, [](Elements x) { return x[0] + x[1] + x[2]; });
  add(Add, {}, {draw(shape)}, [](Elements x) { return x[0]; });
  add(AddScaled, {0.5}, {draw(shape), draw({1, 5})}, [](Elements x) { return x[0] + 0.5 * x[1]; });
  add(
      AddScaled, {-1}, {draw.ids(shape, 50), draw.ids(shape, 50)}, [](Elements x) { return x[0] - x[1]; },
      DType::INT64);
  add(Multiply, {}, {draw(shape), draw({})}, [](Elements x) { return x[0] * x[1]; });
  add(Divide, {}, {draw(shape), draw(shape, 0.5, 2)}, [](Elements x) { return x[0] / x[1]; });
  add(Scale, {0.125}, {draw(shape)}, [](Elements x) { return x[0] / 8; });
  add(
      AddNumber, {3}, {draw.ids(shape, 9)}, [](Elements x) { return x[0] + 3; }, DType::INT64);
  add(
      Remainder, {4}, {draw.ids(shape, 30)}, [](Elements x) { return std::fmod(x[0], 4); }, DType::INT64);
  for (const double exponent : {-1.0, -0.5, 0.5, 2.0, 3.0, 1.7})
    add(Power, {exponent}, {draw(shape, 0.25, 3)}, [=](Elements x) { return std::pow(x[0], exponent); });
  add(Cosine, {}, {draw(shape)}, [](Elements x) { return std::cos(x[0]); });
  add(Sine, {}, {draw(shape)}, [](Elements x) { return std::sin(x[0]); });
  add(Exponential, {}, {draw(shape)}, [](Elements x) { return std::exp(x[0]); });
  add(Logarithm, {}, {draw(shape, 0.25, 3)}, [](Elements x) { return std::log(x[0]); });
  add(Absolute, {}, {draw(shape)}, [](Elements x) { return std::max(x[0], -x[0]); });
  const auto sign = [](Elements x) { return x[0] == 0 ? 0 : std::copysign(1, x[0]); };
  for (const Numbers& x : {draw(shape), zeros(shape)}) add(Sign, {}, {x}, sign);
  add(
      Equals, {2}, {draw.ids(shape, 4, DType::INT32)}, [](Elements x) { return x[0] == 2; }, DType::BOOL);
  add(
      Equals, {0}, {draw.truths(shape)}, [](Elements x) { return 1 - x[0]; }, DType::BOOL);
  add(Maximum, {}, {draw(shape), draw(shape)}, [](Elements x) { return std::max(x[0], x[1]); });
  add(LogAddExp, {}, {draw(shape), draw(shape)}, [](Elements x) { return std::log(std::exp(x[0]) + std::exp(x[1])); });
  add(SoftmaxCorrection, {}, {draw(shape), draw({3, 4, 1}), draw({3, 4, 1}), draw(shape)},
      [](Elements x) { return x[0] * std::exp(x[1]) / std::exp(x[2]) + x[3]; });
  add(Clamp, {-0.5, 0.25}, {draw(shape)}, [](Elements x) { return std::clamp(x[0], -0.5, 0.25); });
  add(Clamp, {-INFINITY, 0.25}, {draw(shape)}, [](Elements x) { return std::min(x[0], 0.25); });
  add(
      Differs, {}, {draw.ids(shape, 3), draw.ids({5}, 3)}, [](Elements x) { return x[0] != x[1]; }, DType::BOOL);
  add(
      LessEqual, {}, {draw.ids(shape, 3), draw.ids({5}, 3)}, [](Elements x) { return x[0] <= x[1]; }, DType::BOOL);
  add(
      And, {}, {draw.truths(shape), draw.truths(shape)}, [](Elements x) { return x[0] * x[1]; }, DType::BOOL);
  all.push_back({Where, {}, {draw.truths({4, 5}), draw(shape), draw({})}, {zeros(shape)}, by_element([](Elements x) {
                   return x[0] != 0 ? x[1] : x[2];
                 })});
  add(MaskedFill, {-7}, {draw(shape), draw.truths({4, 1})}, [](Elements x) { return x[1] != 0 ? -7 : x[0]; });
  add(Tanh, {}, {draw(shape)}, [](Elements x) { return std::tanh(x[0]); });
  add(Sigmoid, {}, {draw(shape)}, [](Elements x) { return 0.5 + 0.5 * std::tanh(x[0] / 2); });
  add(Silu, {}, {draw(shape)}, [](Elements x) { return swish(x[0]); });
  add(Gelu, {0}, {draw(shape), absent}, [](Elements x) { return x[0] * normal_distribution(x[0]); });
  add(Gelu, {1}, {draw(shape), draw({5})}, [](Elements x) { return gelu_by_tanh(x[0] + x[1]); });
  add(Relu, {}, {draw(shape)}, [](Elements x) { return std::max(x[0], 0.0); });
  add(SquaredRelu, {}, {draw(shape), draw({5})}, [](Elements x) { return std::pow(std::max(x[0] + x[1], 0.0), 2); });
  for (const Numbers& bias : {draw({6}), absent}) {
    const auto halves = [](double (*activation)(double)) {
      return [=](const Tensors& in, const Tensors& out) { return of_halves(in, out, activation); };
    };
    all.push_back({SwiGlu, {}, {draw(matrix), bias}, {zeros({4, 3})}, halves(swish)});
    all.push_back({GeGlu, {}, {draw(matrix), bias}, {zeros({4, 3})}, halves(gelu_by_tanh)});
  }
  all.push_back({Dropout,
                 {0.3},
                 {draw(shape)},
                 {zeros(shape), zeros(shape, DType::BOOL)},
                 [](const Tensors& in, const Tensors& out) { return of_dropout(in, out, 0.3); }});
  all.push_back({BiasDropoutAdd,
                 {0.25},
                 {draw(shape), draw(shape), draw({5})},
                 {zeros(shape), zeros(shape, DType::BOOL)},
                 [](const Tensors& in, Tensors out) {
                   for (std::size_t i = 0; i < out[0].values.size(); ++i)
                     out[0].values[i] =
                         in[0].values[i] + (in[1].values[i] + seen(in[2], in[1].sizes, i)) * out[1].values[i] / 0.75;
                   return out;
                 }});
  add(BiasDropoutAdd, {0}, {draw(shape), draw(shape), absent}, [](Elements x) { return x[0] + x[1]; });
  all.back().outputs.push_back(absent);
  all.push_back({Rotary, {}, {draw({3, 2, 2, 6}), draw({3, 1, 1, 4})}, {zeros({3, 2, 2, 6})}, turned});
  const Numbers cosines = draw({3, 1, 1, 4}), sines = draw({3, 1, 1, 4});
  all.push_back({RotaryPairs, {}, {draw({3, 2, 2, 4}), cosines, sines}, {zeros({3, 2, 2, 4})}, pairs_turned});
  for (const double conjugate : {0.0, 1.0})
    all.push_back({ComplexMultiply,
                   {conjugate},
                   {draw({2, 3, 2}), draw({3, 2})},
                   {zeros({2, 3, 2})},
                   [=](const Tensors& in, Tensors out) {
                     for (std::size_t i = 0; i < 6; ++i) {
                       const auto number = [](const Numbers& of, std::size_t at) {
                         return std::complex<double>(of.values[2 * at], of.values[2 * at + 1]);
                       };
                       const std::complex<double> y = number(in[1], i % 3);
                       const std::complex<double> z = number(in[0], i) * (conjugate != 0 ? std::conj(y) : y);
                       out[0].values[2 * i] = z.real(), out[0].values[2 * i + 1] = z.imag();
                     }
                     return out;
                   }});
  all.push_back({LatentKeys,
                 {},
                 {draw({3, 2, 2, 8}), draw({3, 2, 1, 4}), cosines, sines},
                 {zeros({3, 2, 2, 9}), zeros({3, 2, 2, 3})},
                 keys_of_latents});
  all.push_back({VocabularyMask,
                 {4, 8},
                 {draw.ids({3, 5}, 12)},
                 {zeros({3, 5}, DType::BOOL), zeros({3, 5}, DType::INT64)},
                 [](const Tensors& in, Tensors out) {
                   for (std::size_t i = 0; i < 15; ++i) {
                     const double id = in[0].values[i];
                     const bool inside = id >= 4 && id < 8;
                     out[0].values[i] = !inside, out[1].values[i] = inside ? id - 4 : 0;
                   }
                   return out;
                 }});
  add(Lerp, {0.1}, {draw(shape), draw(shape)}, [](Elements x) { return 0.9 * x[0] + 0.1 * x[1]; });
  add(AddProduct, {0.2}, {draw(shape), draw(shape), draw(shape)}, [](Elements x) { return x[0] + 0.2 * x[1] * x[2]; });
  add(AddQuotient, {-0.2}, {draw(shape), draw(shape), draw(shape, 1, 2)},
      [](Elements x) { return x[0] - 0.2 * x[1] / x[2]; });
  return all;
}

std::vector<GradientCase> elementwise_gradients() {
  Draw draw;
  using enum Operation;
  const Shape shape{3, 4}, halves{3, 8};
  std::vector<GradientCase> all;
  // Of an operation on x, and of its backward operation on dy and x or y.
  enum class Reads { Input, Output };
  const auto add = [&](Operation forward, Operation backward, Attributes attributes, Reads reads, Tensors in) {
    Shape sizes = in.front().sizes;
    if (facts_of(forward).sizes == OperandSizes::Halves) sizes.back() /= 2;
    all.push_back({backward, in, [=](const Tensors& x) { return run(forward, attributes, x, {zeros(sizes)}); }, 0,
                   [=](const Numbers& dy, const Tensors& x, const Tensors& y) {
                     Tensors operands{dy, reads == Reads::Input ? x[0] : y[0]};
                     operands.insert(operands.end(), x.begin() + 1, x.end());
                     return run(backward, attributes, operands, {x[0]});
                   }});
  };
  add(Tanh, TanhBackward, {}, Reads::Output, {draw(shape)});
  add(Sigmoid, SigmoidBackward, {}, Reads::Output, {draw(shape)});
  add(Silu, SiluBackward, {}, Reads::Input, {draw(shape)});
  add(Relu, ReluBackward, {}, Reads::Output, {draw(shape)});
  for (const Numbers& bias : {draw({4}), absent}) {
    add(Gelu, GeluBackward, {0}, Reads::Input, {draw(shape), bias});
    add(Gelu, GeluBackward, {1}, Reads::Input, {draw(shape), bias});
    add(SquaredRelu, SquaredReluBackward, {}, Reads::Input, {draw(shape), bias});
  }
  for (const Numbers& bias : {draw({8}), absent}) {
    add(SwiGlu, SwiGluBackward, {}, Reads::Input, {draw(halves), bias});
    add(GeGlu, GeGluBackward, {}, Reads::Input, {draw(halves), bias});
  }
  all.push_back({DropoutBackward,
                 {draw(shape)},
                 [=](const Tensors& x) {
                   return run(Dropout, {0.4}, x, {zeros(shape), zeros(shape, DType::BOOL)});
                 },
                 0,
                 [=](const Numbers& dy, const Tensors&, const Tensors& y) {
                   return run(DropoutBackward, {0.4}, {dy, y[1]}, {zeros(shape)});
                 }});
  const Shape tokens{3, 2, 2, 6};
  all.push_back({RotaryBackward,
                 {draw(tokens), draw({3, 1, 1, 4})},
                 [=](const Tensors& x) { return run(Rotary, {}, x, {zeros(tokens)}); },
                 0,
                 [=](const Numbers& dy, const Tensors& x, const Tensors&) {
                   return run(RotaryBackward, {}, {dy, x[1]}, {zeros(tokens)});
                 }});
  const Numbers cosines = draw({3, 1, 1, 4}), sines = draw({3, 1, 1, 4});
  const Shape pairs{3, 2, 2, 4}, heads{3, 2, 2, 8}, positions{3, 2, 1, 4}, keys{3, 2, 2, 9}, values{3, 2, 2, 3};
  all.push_back({RotaryPairsBackward,
                 {draw(pairs), cosines, sines},
                 [=](const Tensors& x) { return run(RotaryPairs, {}, x, {zeros(pairs)}); },
                 0,
                 [=](const Numbers& dy, const Tensors& x, const Tensors&) {
                   return run(RotaryPairsBackward, {}, {dy, x[1], x[2]}, {zeros(pairs)});
                 }});
  for (const std::size_t result : {std::size_t{0}, std::size_t{1}})  // the other one's gradient is nothing
    all.push_back({LatentKeysBackward,
                   {draw(heads), draw(positions), cosines, sines},
                   [=](const Tensors& x) {
                     return run(LatentKeys, {}, x, {zeros(keys), zeros(values)});
                   },
                   result,
                   [=](const Numbers& dy, const Tensors& x, const Tensors&) {
                     const Tensors gradients = result == 0 ? Tensors{dy, zeros(values)} : Tensors{zeros(keys), dy};
                     return run(LatentKeysBackward, {}, {gradients[0], gradients[1], x[2], x[3]},
                                {zeros(heads), zeros(positions)});
                   },
                   {0, 1}});
  return all;
}

}  // namespace tidemark::tests::math_elementwise_test
