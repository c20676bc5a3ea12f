#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/kernels/math_cases.hpp"

namespace tidemark::tests::math_rows_test {
namespace {

using Row = std::span<const double>;

// Folds an input to the output that it broadcasts from.
std::function<Tensors(const Tensors&, const Tensors&)> reduced(double start, double (*fold)(double, double),
                                                               bool mean = false) {
  return [=](const Tensors& in, Tensors out) {
    Numbers& y = out[0];
    y.values.assign(y.values.size(), start);
    for (std::size_t i = 0; i < in[0].values.size(); ++i) {
      double product = in[0].values[i];
      for (std::size_t f = 1; f < in.size(); ++f) product *= seen(in[f], in[0].sizes, i);
      double& place = y.values[broadcast_place(y.sizes, in[0].sizes, i)];
      place = fold(place, product);
    }
    const double count = static_cast<double>(in[0].values.size() / y.values.size());
    for (double& value : y.values) value /= mean ? count : 1;
    return out;
  };
}
double plus(double a, double b) { return a + b; }
double more(double a, double b) { return std::max(a, b); }

// Of each row by itself; `f` is handed its number.
std::function<Tensors(const Tensors&, const Tensors&)> by_row(std::function<std::vector<double>(Row, std::size_t)> f) {
  return [=](const Tensors& in, Tensors out) {
    out[0].values.clear();
    std::size_t number = 0;
    for (const Row row : rows_of(in[0]))
      for (const double value : f(row, number++)) out[0].values.push_back(value);
    return out;
  };
}

std::vector<double> softmax(Row x, double scale, std::size_t keys) {
  std::vector<double> y(x.size());
  double sum = 0;
  for (std::size_t i = 0; i < keys; ++i) sum += y[i] = std::exp(scale * x[i]);
  for (double& value : y) value /= sum;
  return y;
}

double mean_of(Row x) { return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()); }

Tensors layer_normed(const Tensors& in, Tensors out, double epsilon, double offset) {
  std::size_t r = 0;
  for (const Row x : rows_of(in[0])) {
    const double mean = mean_of(x);
    double variance = 0;
    for (const double value : x) variance += (value - mean) * (value - mean) / static_cast<double>(x.size());
    out[1].values[r] = mean, out[2].values[r] = 1 / std::sqrt(variance + epsilon);
    for (std::size_t i = 0; i < x.size(); ++i)
      out[0].values[r * x.size() + i] =
          (x[i] - mean) / std::sqrt(variance + epsilon) * (in[1].values[i] + offset) + in[2].values[i];
    ++r;
  }
  return out;
}

Tensors rms_normed(const Tensors& in, Tensors out, double epsilon, double offset) {
  const auto width = static_cast<std::int64_t>(in[1].values.size());
  std::size_t r = 0;
  for (const Row x : rows_of(in[0], width)) {
    double squares = 0;
    for (const double value : x) squares += value * value / static_cast<double>(width);
    if (in[2].there) squares = in[2].values[r];
    out[1].values[r] = 1 / std::sqrt(squares + epsilon);
    for (std::size_t i = 0; i < x.size(); ++i)
      out[0].values[r * x.size() + i] = x[i] * out[1].values[r] * (in[1].values[i] + offset);
    ++r;
  }
  return out;
}

}  // namespace

std::vector<MathCase> row_cases() {
  Draw draw;
  using enum Operation;
  const Shape shape{2, 3, 5}, square{2, 4, 4};
  std::vector<MathCase> all;
  for (const Shape& to :
       {Shape{3, 5}, Shape{2, 1, 5}, Shape{5}, Shape{}, Shape{2, 3, 1}, Shape{1, 3, 1}, Shape{2, 3, 5}}) {
    all.push_back({Sum, {}, {draw(shape)}, {zeros(to)}, reduced(0, plus)});
    all.push_back({Mean, {}, {draw(shape)}, {zeros(to)}, reduced(0, plus, true)});
    all.push_back({Largest, {}, {draw(shape)}, {zeros(to)}, reduced(-1e30, more)});
  }
  all.push_back(
      {MeanOfProducts, {}, {draw(shape), draw(shape), draw({5})}, {zeros({2, 3, 1})}, reduced(0, plus, true)});
  // How many tokens chose each expert.
  all.push_back({Sum, {}, {draw.truths({50, 4})}, {zeros({4}, DType::INT64)}, reduced(0, plus)});
  all.push_back({Largest, {}, {draw.ids({6}, 9)}, {zeros({1}, DType::INT64)}, reduced(-1, more)});
  all.push_back({CumulativeSum, {}, {draw.ids(shape, 9)}, {zeros(shape, DType::INT64)}, by_row([](Row x, std::size_t) {
                   std::vector<double> y(x.size());
                   std::partial_sum(x.begin(), x.end(), y.begin());
                   return y;
                 })});
  all.push_back({Norm, {}, {draw(shape), draw({7}), draw({1})}, {zeros({})}, [](const Tensors& in, Tensors out) {
                   double squares = 0;
                   for (const Numbers& x : in)
                     for (const double value : x.values) squares += value * value;
                   out[0].values[0] = std::sqrt(squares);
                   return out;
                 }});
  all.push_back({CausalMask, {-10'000}, {draw(square)}, {zeros(square)}, by_row([](Row x, std::size_t r) {
                   std::vector<double> y(x.begin(), x.end());
                   for (std::size_t key = r % 4 + 1; key < 4; ++key) y[key] = -10'000;
                   return y;
                 })});
  all.push_back({Softmax, {1, 0}, {draw(shape)}, {zeros(shape)}, by_row([](Row x, std::size_t) {
                   return softmax(x, 1, x.size());
                 })});
  all.push_back({Softmax, {0.5, 1}, {draw(square)}, {zeros(square)}, by_row([](Row x, std::size_t r) {
                   return softmax(x, 0.5, r % 4 + 1);
                 })});
  all.push_back({LogSoftmax, {}, {draw(shape)}, {zeros(shape)}, by_row([](Row x, std::size_t) {
                   std::vector<double> y = softmax(x, 1, x.size());
                   for (double& value : y) value = std::log(value);
                   return y;
                 })});
  for (const double offset : {0.0, 1.0}) {
    all.push_back({LayerNorm,
                   {1e-5, offset},
                   {draw(shape), draw({5}), draw({5})},
                   {zeros(shape), zeros({2, 3}), zeros({2, 3})},
                   [=](const Tensors& in, const Tensors& out) { return layer_normed(in, out, 1e-5, offset); }});
    for (const Numbers& squares : {absent, draw({2, 3, 1}, 1, 2)})
      all.push_back({RmsNorm,
                     {1e-5, offset},
                     {draw(shape), draw({5}), squares},
                     {zeros(shape), zeros({2, 3, 1})},
                     [=](const Tensors& in, const Tensors& out) { return rms_normed(in, out, 1e-5, offset); }});
  }
  // A weight for all heads of a token together.
  all.push_back({RmsNorm,
                 {1e-5, 0},
                 {draw({2, 3, 2, 4}), draw({8}), absent},
                 {zeros({2, 3, 2, 4}), zeros({2, 3})},
                 [](const Tensors& in, const Tensors& out) { return rms_normed(in, out, 1e-5, 0); }});
  return all;
}

std::vector<GradientCase> row_gradients() {
  Draw draw;
  using enum Operation;
  const Shape shape{2, 3, 5}, square{2, 4, 4};
  std::vector<GradientCase> all;
  for (const double causal : {0.0, 1.0})
    all.push_back({SoftmaxBackward,
                   {draw(square)},
                   [=](const Tensors& x) {
                     return run(Softmax, {0.7, causal}, x, {zeros(square)});
                   },
                   0,
                   [=](const Numbers& dy, const Tensors&, const Tensors& y) {
                     return run(SoftmaxBackward, {0.7}, {dy, y[0]}, {zeros(square)});
                   }});
  all.push_back({LogSoftmaxBackward,
                 {draw(shape)},
                 [=](const Tensors& x) { return run(LogSoftmax, {}, x, {zeros(shape)}); },
                 0,
                 [=](const Numbers& dy, const Tensors&, const Tensors& y) {
                   return run(LogSoftmaxBackward, {}, {dy, y[0]}, {zeros(shape)});
                 }});
  for (const double offset : {0.0, 1.0}) {
    all.push_back({LayerNormBackward,
                   {draw(shape), draw({5}), draw({5})},
                   [=](const Tensors& in) {
                     return run(LayerNorm, {1e-5, offset}, in, {zeros(shape), zeros({2, 3}), zeros({2, 3})});
                   },
                   0,
                   [=](const Numbers& dy, const Tensors& in, const Tensors& made) {
                     return run(LayerNormBackward, {offset}, {dy, in[0], made[1], made[2], in[1]},
                                {zeros(shape), zeros({5}), zeros({5})});
                   },
                   {0, 1, 2}});
    all.push_back(
        {RmsNormBackward,
         {draw(shape), draw({5})},
         [=](const Tensors& in) {
           return run(RmsNorm, {1e-5, offset}, {in[0], in[1], absent}, {zeros(shape), zeros({2, 3})});
         },
         0,
         [=](const Numbers& dy, const Tensors& in, const Tensors& made) {
           return run(RmsNormBackward, {offset}, {dy, in[0], made[1], in[1], absent}, {zeros(shape), zeros({5})});
         },
         {0, 1}});
  }
  // Heads on two ranks, normalized together: means of squares, and of products, are averaged between.
  const Shape means{2, 3, 1};
  const auto averaged = [=](const Tensors& a, const Tensors& b) {
    return run(Lerp, {0.5},
               {run(MeanOfProducts, {}, a, {zeros(means)})[0], run(MeanOfProducts, {}, b, {zeros(means)})[0]},
               {zeros(means)})[0];
  };
  all.push_back({RmsNormBackward,
                 {draw(shape), draw(shape), draw({5}), draw({5})},
                 [=](const Tensors& in) {
                   const Numbers squares = averaged({in[0], in[0]}, {in[1], in[1]});
                   const Tensors a = run(RmsNorm, {1e-5, 0}, {in[0], in[2], squares}, {zeros(shape), zeros(means)});
                   const Tensors b = run(RmsNorm, {1e-5, 0}, {in[1], in[3], squares}, {zeros(shape), zeros(means)});
                   return Tensors{run(Add, {}, {a[0], b[0]}, {zeros(shape)})[0], a[1], b[1]};
                 },
                 0,
                 [=](const Numbers& dy, const Tensors& in, const Tensors& made) {
                   const Numbers products = averaged({dy, in[0], in[2]}, {dy, in[1], in[3]});
                   const Tensors out{zeros(shape), zeros({5})};
                   const Tensors a = run(RmsNormBackward, {0}, {dy, in[0], made[1], in[2], products}, out);
                   const Tensors b = run(RmsNormBackward, {0}, {dy, in[1], made[2], in[3], products}, out);
                   return Tensors{a[0], b[0], a[1], b[1]};
                 },
                 {0, 1, 2, 3}});
  all.push_back({EmbeddingBackward,
                 {draw({6, 3}), draw.ids({2, 4}, 6)},
                 [=](const Tensors& in) {
                   return run(Embedding, {}, {in[1], in[0]}, {zeros({2, 4, 3})});
                 },
                 0,
                 [=](const Numbers& dy, const Tensors& in, const Tensors&) {
                   return run(EmbeddingBackward, {}, {dy, in[1]}, {zeros({6, 3})});
                 }});
  return all;
}

}  // namespace tidemark::tests::math_rows_test
