#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/math_cases.hpp"

namespace tidemark::tests::math_losses_test {
namespace {

constexpr double no_label = -100;

double log_of_sum(std::span<const double> x) {
  double sum = 0;
  for (const double value : x) sum += std::exp(value);
  return std::log(sum);
}

// Columns of a matrix.
Numbers part_of(const Numbers& x, std::size_t begin, std::size_t size) {
  Numbers part = zeros({x.sizes[0], static_cast<std::int64_t>(size)});
  const std::size_t width = static_cast<std::size_t>(x.sizes[1]);
  for (std::size_t i = 0; i < part.values.size(); ++i) part.values[i] = x.values[i / size * width + begin + i % size];
  return part;
}

Numbers side_by_side(const Numbers& a, const Numbers& b) {
  Numbers whole = zeros({a.sizes[0], a.sizes[1] + b.sizes[1]});
  whole.values.clear();
  for (std::size_t r = 0; r < rows_of(a).size(); ++r)
    for (const Numbers* part : {&a, &b})
      whole.values.insert(whole.values.end(), rows_of(*part)[r].begin(), rows_of(*part)[r].end());
  return whole;
}

Numbers summed(const Numbers& a, const Numbers& b) { return run(Operation::Add, {}, {a, b}, {a})[0]; }

}  // namespace

std::vector<MathCase> loss_cases() {
  Draw draw;
  using enum Operation;
  std::vector<MathCase> all;
  all.push_back(
      {Embedding, {}, {draw.ids({2, 4}, 6), draw({6, 3})}, {zeros({2, 4, 3})}, [](const Tensors& in, Tensors out) {
         for (std::size_t i = 0; i < out[0].values.size(); ++i)
           out[0].values[i] = in[1].values[static_cast<std::size_t>(in[0].values[i / 3]) * 3 + i % 3];
         return out;
       }});
  all.push_back({Gather, {}, {draw({4, 6}), draw.ids({4, 2}, 6)}, {zeros({4, 2})}, [](const Tensors& in, Tensors out) {
                   for (std::size_t i = 0; i < 8; ++i)
                     out[0].values[i] = in[0].values[i / 2 * 6 + static_cast<std::size_t>(in[1].values[i])];
                   return out;
                 }});
  Numbers labels = draw.ids({5}, 7);
  labels.values[2] = no_label;
  all.push_back({NllLoss, {}, {draw({5, 7}), labels}, {zeros({}), zeros({})}, [](const Tensors& in, Tensors out) {
                   double sum = 0;
                   for (std::size_t t : {0U, 1U, 3U, 4U})
                     sum += in[0].values[t * 7 + static_cast<std::size_t>(in[1].values[t])];
                   out[0].values[0] = -sum / 4, out[1].values[0] = 4;
                   return out;
                 }});
  // Of a vocabulary of 12 the rank has 7 from the fifth on.
  all.push_back({CrossEntropyStatistics,
                 {5},
                 {draw({6, 7}), draw.ids({6}, 12)},
                 {zeros({6, 3})},
                 [](const Tensors& in, Tensors out) {
                   for (std::size_t t = 0; t < 6; ++t) {
                     const std::span<const double> x = rows_of(in[0])[t];
                     const double most = *std::max_element(x.begin(), x.end()), label = in[1].values[t] - 5;
                     double* const s = &out[0].values[t * 3];
                     s[0] = most, s[1] = std::exp(log_of_sum(x) - most);
                     s[2] = label >= 0 ? x[static_cast<std::size_t>(label)] : -INFINITY;
                   }
                   return out;
                 }});
  Numbers some = draw.ids({6}, 7);
  some.values[4] = no_label;
  const Numbers logits = draw({6, 7});
  const Tensors statistics = run(CrossEntropyStatistics, {0}, {logits, some}, {zeros({1, 6, 3})});
  all.push_back({CrossEntropyFromStatistics,
                 {0},
                 {logits, some, statistics[0]},
                 {zeros({6, 7}), zeros({6})},
                 [](const Tensors& in, Tensors out) {
                   for (std::size_t t = 0; t < 6; ++t) {
                     const std::span<const double> x = rows_of(in[0])[t];
                     const bool counts = in[1].values[t] >= 0;
                     const std::size_t label = counts ? static_cast<std::size_t>(in[1].values[t]) : 0;
                     out[1].values[t] = counts ? log_of_sum(x) - x[label] : 0;
                     for (std::size_t i = 0; i < 7; ++i)
                       out[0].values[t * 7 + i] = counts ? std::exp(x[i] - log_of_sum(x)) - (i == label) : 0;
                   }
                   return out;
                 }});
  const auto exponentials = [](const Tensors& in, Tensors out) {
    for (std::size_t t = 0; t < 5; ++t) {
      out[1].values[t] = 0;
      for (std::size_t i = 0; i < 7; ++i)
        out[1].values[t] += out[0].values[t * 7 + i] = std::exp(in[0].values[t * 7 + i] - in[1].values[t]);
      if (in[2].there)
        out[2].values[t] = in[3].values[t] != 0
                               ? 0
                               : in[0].values[t * 7 + static_cast<std::size_t>(in[2].values[t])] - in[1].values[t];
    }
    return out;
  };
  all.push_back({ShiftedExponentials,
                 {},
                 {draw({5, 7}), draw({5}), absent, absent},
                 {zeros({5, 7}), zeros({5}), absent},
                 exponentials});
  all.push_back({ShiftedExponentials,
                 {},
                 {draw({5, 7}), draw({5}), draw.ids({5}, 7), draw.truths({5})},
                 {zeros({5, 7}), zeros({5}), zeros({5})},
                 exponentials});
  all.push_back({VocabularyLoss,
                 {},
                 {draw({5, 7}, 0.1, 1), draw({5}, 1, 5), draw({5})},
                 {zeros({5, 7}), zeros({5})},
                 [](const Tensors& in, Tensors out) {
                   for (std::size_t i = 0; i < 35; ++i) out[0].values[i] = in[0].values[i] / in[1].values[i / 7];
                   for (std::size_t t = 0; t < 5; ++t) out[1].values[t] = std::log(in[1].values[t]) - in[2].values[t];
                   return out;
                 }});
  return all;
}

std::vector<GradientCase> loss_gradients() {
  Draw draw;
  using enum Operation;
  std::vector<GradientCase> all;
  Numbers labels = draw.ids({5}, 7);
  labels.values[2] = no_label;
  all.push_back({NllLossBackward,
                 {draw({5, 7}), labels},
                 [](const Tensors& in) {
                   return run(NllLoss, {}, in, {zeros({}), zeros({})});
                 },
                 0,
                 [](const Numbers& dy, const Tensors& in, const Tensors& made) {
                   return run(NllLossBackward, {}, {dy, in[1], made[1]}, {zeros({5, 7})});
                 }});
  // A vocabulary of 7 on two ranks, 4 and 3 of it. Each token's loss counts the same: the gradient is its own.
  constexpr double factor = 0.2;
  const Numbers within = draw.ids({5}, 7);
  const auto parts = [](const Tensors& in) { return std::pair(part_of(in[0], 0, 4), part_of(in[0], 4, 3)); };
  struct Rank {
    Numbers outside, ids, exponentials, sums, targets;
  };
  const auto rank = [](const Numbers& logits, const Numbers& ids, const Numbers& maximum, double first) {
    const double end = first + static_cast<double>(logits.sizes[1]);
    const Tensors mask = run(VocabularyMask, {first, end}, {ids}, {zeros({5}, DType::BOOL), zeros({5}, DType::INT64)});
    const Tensors made =
        run(ShiftedExponentials, {}, {logits, maximum, mask[1], mask[0]}, {logits, zeros({5}), zeros({5})});
    return Rank{mask[0], mask[1], made[0], made[1], made[2]};
  };
  const auto losses = [=](const Tensors& in) {
    const auto [a, b] = parts(in);
    const Tensors largest = run(Largest, {}, {in[0]}, {zeros({5, 1})});
    const Numbers maximum{DType::FP32, {5}, largest[0].values};
    const Rank x = rank(a, in[1], maximum, 0), y = rank(b, in[1], maximum, 4);
    const Numbers sums = summed(x.sums, y.sums), targets = summed(x.targets, y.targets);
    const Tensors of_x = run(VocabularyLoss, {}, {x.exponentials, sums, targets}, {x.exponentials, zeros({5})});
    const Tensors of_y = run(VocabularyLoss, {}, {y.exponentials, sums, targets}, {y.exponentials, zeros({5})});
    return Tensors{run(Scale, {factor}, {run(Sum, {}, {of_x[1]}, {zeros({})})[0]}, {zeros({})})[0],
                   of_x[0],
                   x.ids,
                   x.outside,
                   of_y[0],
                   y.ids,
                   y.outside};
  };
  all.push_back({VocabularyLossBackward,
                 {draw({5, 7}), within},
                 losses,
                 0,
                 [=](const Numbers& dy, const Tensors&, const Tensors& made) {
                   const Attributes scale{factor * dy.values[0]};
                   const Tensors a = run(VocabularyLossBackward, scale, {made[1], made[2], made[3]}, {made[1]});
                   const Tensors b = run(VocabularyLossBackward, scale, {made[4], made[5], made[6]}, {made[4]});
                   return Tensors{side_by_side(a[0], b[0])};
                 }});
  // TransformerEngine's statistics of the two, one of which is ignored.
  Numbers some = within;
  some.values[3] = no_label;
  const auto of_statistics = [=](const Tensors& in) {
    const auto [a, b] = parts(in);
    Numbers both = zeros({2, 5, 3});
    both.values = run(CrossEntropyStatistics, {0}, {a, in[1]}, {zeros({5, 3})})[0].values;
    const Tensors second = run(CrossEntropyStatistics, {4}, {b, in[1]}, {zeros({5, 3})});
    both.values.insert(both.values.end(), second[0].values.begin(), second[0].values.end());
    const Tensors of_a = run(CrossEntropyFromStatistics, {0}, {a, in[1], both}, {a, zeros({5})});
    const Tensors of_b = run(CrossEntropyFromStatistics, {4}, {b, in[1], both}, {b, zeros({5})});
    EXPECT_EQ(of_a[1].values, of_b[1].values);
    return Tensors{run(Sum, {}, {of_a[1]}, {zeros({})})[0], side_by_side(of_a[0], of_b[0])};
  };
  all.push_back({CrossEntropyFromStatistics,
                 {draw({5, 7}), some},
                 of_statistics,
                 0,
                 [=](const Numbers& dy, const Tensors&, const Tensors& made) {
                   return run(Scale, {dy.values[0]}, {made[1]}, {made[1]});
                 }});
  return all;
}

}  // namespace tidemark::tests::math_losses_test
