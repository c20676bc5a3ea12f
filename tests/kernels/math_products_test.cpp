#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/math_cases.hpp"

namespace tidemark::tests::math_products_test {
namespace {

Tensors product(const Tensors& in, Tensors out, double scale) {
  const std::size_t n = static_cast<std::size_t>(in[1].sizes.back()), k = static_cast<std::size_t>(in[0].sizes.back());
  const std::size_t m = static_cast<std::size_t>(in[0].sizes[in[0].sizes.size() - 2]);
  for (std::size_t i = 0; i < out[0].values.size(); ++i) {
    const std::size_t row = i / n, batch = in[1].sizes.size() > 2 ? row / m : 0;
    double sum = 0;
    for (std::size_t j = 0; j < k; ++j) sum += in[0].values[row * k + j] * in[1].values[(batch * k + j) * n + i % n];
    out[0].values[i] = scale * sum + seen(in[2], out[0].sizes, i) + seen(in[3], out[0].sizes, i);
  }
  return out;
}

struct At {
  std::size_t batch, place, head, element;
};
double at(const Numbers& x, const At& a) {
  const auto size = [&](std::size_t d) { return static_cast<std::size_t>(x.sizes[d]); };
  return x.values[((a.batch * size(1) + a.place) * size(2) + a.head) * size(3) + a.element];
}

// Attention without dropout, query by query: of causal attention, of the last `causal` keys where that is more than 1.
Tensors attended(const Tensors& in, Tensors out, double scale, int causal) {
  const Numbers &q = in[0], &k = in[1], &v = in[2];
  const auto size = [](const Numbers& x, std::size_t d) { return static_cast<std::size_t>(x.sizes[d]); };
  const std::size_t heads = size(q, 2), queries = size(q, 1), keys = size(k, 1), shared = heads / size(k, 2);
  const Shape scores{q.sizes[0], q.sizes[2], q.sizes[1], k.sizes[1]};
  for (std::size_t b = 0; b < size(q, 0); ++b)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t i = 0; i < queries; ++i) {
        std::vector<double> weights(causal > 0 ? i + 1 : keys);
        const auto window = static_cast<std::size_t>(causal);
        double sum = 0;
        for (std::size_t j = causal > 1 && i >= window ? i + 1 - window : 0; j < weights.size(); ++j) {
          double score = 0;
          for (std::size_t e = 0; e < size(q, 3); ++e) score += at(q, {b, i, h, e}) * at(k, {b, j, h / shared, e});
          sum += weights[j] = std::exp(scale * score + seen(in[3], scores, ((b * heads + h) * queries + i) * keys + j));
        }
        for (std::size_t e = 0; e < size(v, 3); ++e) {
          double y = 0;
          for (std::size_t j = 0; j < weights.size(); ++j) y += weights[j] / sum * at(v, {b, j, h / shared, e});
          out[0].values[((b * queries + i) * heads + h) * size(v, 3) + e] = y;
        }
        if (out[1].there) out[1].values[(b * heads + h) * queries + i] = std::log(sum);
      }
  return out;
}

const Numbers word = zeros({1}, DType::INT64);

}  // namespace

std::vector<MathCase> product_cases() {
  Draw draw;
  using enum Operation;
  std::vector<MathCase> all;
  const auto multiply = [&](Shape a, Shape b, Shape c, double scale, Numbers bias, Numbers added) {
    all.push_back(
        {Matmul, {scale}, {draw(a), draw(b), bias, added}, {zeros(c)}, [=](const Tensors& in, const Tensors& out) {
           return product(in, out, scale);
         }});
  };
  multiply({4, 6}, {6, 5}, {4, 5}, 1, absent, absent);
  multiply({4, 6}, {6, 5}, {4, 5}, 0.5, draw({5}), draw({4, 5}));
  multiply({2, 3, 6}, {6, 5}, {2, 3, 5}, 1, draw({5}), absent);
  multiply({2, 3, 4, 6}, {2, 3, 6, 5}, {2, 3, 4, 5}, 2, absent, draw({4, 5}));
  multiply({1, 6}, {6, 1}, {1, 1}, 1, absent, draw({1, 1}));
  const Shape q{2, 4, 4, 3}, k{2, 4, 2, 3}, lse{2, 4, 4};
  for (const int causal : {0, 1, 2, 3})
    all.push_back({Attention,
                   {0.6, static_cast<double>(causal), 0},
                   {draw(q), draw(k), draw(k), absent},
                   {zeros(q), zeros(lse), absent, absent},
                   [=](const Tensors& in, const Tensors& out) { return attended(in, out, 0.6, causal); }});
  all.push_back({Attention,
                 {0.6, 0, 0},
                 {draw({2, 5, 4, 3}), draw(k), draw({2, 4, 2, 6}), draw({2, 1, 5, 4})},
                 {zeros({2, 5, 4, 6}), absent, word, word},
                 [](const Tensors& in, const Tensors& out) { return attended(in, out, 0.6, 0); }});
  return all;
}

std::vector<GradientCase> attention_gradients() {
  Draw draw;
  using enum Operation;
  const Shape q{2, 4, 4, 3}, k{2, 4, 2, 3}, lse{2, 4, 4};
  std::vector<GradientCase> all;
  const auto add = [&](Attributes attributes, const Shape& values, Numbers bias) {
    Shape result = q;
    result[3] = values[3];
    all.push_back({AttentionBackward,
                   {draw(q), draw(k), draw(values), bias},
                   [=](const Tensors& in) {
                     return run(Attention, attributes, in, {zeros(result), zeros(lse), zeros({2}, DType::INT64), word},
                                {.setting = {.key = 77}});
                   },
                   0,
                   [=](const Numbers& dy, const Tensors& in, const Tensors& made) {
                     return run(AttentionBackward, attributes,
                                {dy, in[0], in[1], in[2], made[0], made[1], made[2], made[3], in[3]},
                                {zeros(q), zeros(k), zeros(values)}, {.setting = {.key = 1}});
                   },
                   {0, 1, 2}});
  };
  add({0.6, 0, 0}, k, absent);
  add({0.6, 1, 0}, k, absent);
  add({0.6, 1, 0.3}, k, absent);
  add({0.6, 2, 0}, k, absent);
  add({0.6, 0, 0.5}, {2, 4, 2, 5}, draw({2, 1, 4, 4}));
  return all;
}

TEST(MathAttention, DropoutLeavesWeightsScaledAndBackwardDrawsThemAgainFromTheSeed) {
  Draw draw;
  // Values are the identity: what comes out are the weights.
  Numbers eye = zeros({1, 64, 1, 64});
  for (std::size_t i = 0; i < 64; ++i) eye.values[i * 65] = 1;
  const Numbers q = draw({1, 64, 1, 3}), k = draw({1, 64, 1, 3});
  const Tensors out{zeros({1, 64, 1, 64}), absent, word, word};
  const auto weights = [&](double dropout, std::uint64_t key) {
    return run(Operation::Attention, {0.6, 0, dropout}, {q, k, eye, absent}, out, {.setting = {.key = key}});
  };
  const Tensors all = weights(0, 5), some = weights(0.25, 5), others = weights(0.25, 6);
  EXPECT_EQ(some[2].values[0], 5);
  double left = 0;
  for (std::size_t i = 0; i < 64 * 64; ++i) {
    if (some[0].values[i] == 0) continue;
    ++left;
    EXPECT_NEAR(some[0].values[i], all[0].values[i] / 0.75, 1e-12);
  }
  EXPECT_NEAR(left / (64 * 64), 0.75, 0.03);
  EXPECT_NE(some[0].values, others[0].values);
}

TEST(MathAttention, AQueryThatSeesNoKeyGivesNothing) {
  Draw draw;
  const Numbers q = draw({1, 2, 1, 3}), k = draw({1, 2, 1, 3});
  Numbers bias = zeros({1, 1, 2, 2});
  bias.values = {-INFINITY, -INFINITY, 0, 0};
  const Tensors made = run(Operation::Attention, {1, 0, 0}, {q, k, k, bias}, {q, zeros({1, 1, 2}), absent, absent});
  EXPECT_EQ(made[0].values[0], 0);
  const Tensors gradients =
      run(Operation::AttentionBackward, {1, 0, 0}, {q, q, k, k, made[0], made[1], absent, absent, bias}, {q, k, k});
  EXPECT_EQ(gradients[0].values[0], 0);
  for (const Numbers& gradient : gradients)
    for (const double value : gradient.values) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace tidemark::tests::math_products_test
