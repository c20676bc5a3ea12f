#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/kernels/math_cases.hpp"

namespace tidemark::tests::math_routing_test {
namespace {

// Five tokens, three experts: the example of TransformerEngine's make_row_id_map.
const Numbers chosen{DType::BOOL, {5, 3}, {1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0}};
constexpr std::int64_t tokens = 5, experts = 3, rows = 7, width = 4;

struct Row {
  std::size_t token, expert;
};
// Expert by expert, and of each one token by token.
std::vector<Row> chosen_rows() {
  std::vector<Row> all;
  for (std::size_t expert = 0; expert < experts; ++expert)
    for (std::size_t token = 0; token < tokens; ++token)
      if (chosen.values[token * experts + expert] != 0) all.push_back({token, expert});
  return all;
}

Numbers map_of_rows() {
  return run(Operation::TokenMap, {}, {chosen}, {zeros({tokens, 2 * experts + 1}, DType::INT32)})[0];
}

Tensors permuted(const Tensors& in, Tensors out) {
  const std::vector<Row> all = chosen_rows();
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::copy_n(&in[0].values[all[r].token * width], width, &out[0].values[r * width]);
    if (in[2].there) out[1].values[r] = in[2].values[all[r].token * experts + all[r].expert];
  }
  return out;
}

Tensors unpermuted(const Tensors& in, Tensors out) {
  for (Numbers& y : out) std::ranges::fill(y.values, 0);
  const std::vector<Row> all = chosen_rows();
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::size_t pair = all[r].token * experts + all[r].expert;
    for (std::size_t i = 0; i < width; ++i)
      out[0].values[all[r].token * width + i] += in[0].values[r * width + i] * (in[2].there ? in[2].values[pair] : 1);
    if (in[3].there) out[1].values[pair] = in[3].values[r];
  }
  return out;
}

// Largest first, by sorting all of a row.
Tensors top(const Tensors& in, Tensors out) {
  const std::size_t count = static_cast<std::size_t>(out[0].sizes.back());
  for (Numbers& y : out) y.values.clear();
  for (const std::span<const double> row : rows_of(in[0])) {
    std::vector<std::size_t> order(row.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return row[a] > row[b]; });
    for (std::size_t i = 0; i < count; ++i) {
      out[0].values.push_back(row[order[i]]);
      out[1].values.push_back(static_cast<double>(order[i]));
    }
  }
  return out;
}

// Different ids in each row.
Numbers choices(Draw& draw, std::int64_t of_rows, std::int64_t count, std::int64_t of) {
  return run(Operation::TopK, {static_cast<double>(count), 0}, {draw({of_rows, of})},
             {zeros({of_rows, count}), zeros({of_rows, count}, DType::INT64)})[1];
}

std::function<Tensors(const Tensors&, const Tensors&)> scattered(double number) {
  return [=](const Tensors& in, Tensors out) {
    Numbers& y = out[0];
    for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] = in[0].there ? in[0].values[i] : 0;
    const std::size_t count = static_cast<std::size_t>(in[1].sizes.back());
    for (std::size_t i = 0; i < in[1].values.size(); ++i)
      y.values[i / count * static_cast<std::size_t>(y.sizes.back()) + static_cast<std::size_t>(in[1].values[i])] =
          in[2].there ? in[2].values[i] : number;
    return out;
  };
}

// Gated rows times their probabilities.
Tensors weighted(const Tensors& in, Tensors out, double slope, double offset) {
  const std::size_t half = static_cast<std::size_t>(out[0].sizes.back());
  for (std::size_t i = 0; i < out[0].values.size(); ++i) {
    const std::size_t gate = i / half * 2 * half + i % half;
    const double g = in[0].values[gate] + seen(in[1], in[0].sizes, gate);
    const double up = in[0].values[gate + half] + seen(in[1], in[0].sizes, gate + half) + offset;
    out[0].values[i] = g / (1 + std::exp(-slope * g)) * up * in[2].values[i / half];
  }
  return out;
}

// Chunks of 2, 0, 3 and 1 rows; the third then comes first.
const Numbers chunk_sizes{DType::INT64, {4}, {2, 0, 3, 1}};
const Numbers chunk_order{DType::INT64, {4}, {2, 0, 3, 1}};
const Numbers sorting{DType::INT32, {6}, {3, 4, 0, 1, 2, 5}};

Tensors sorted(const Tensors& in, Tensors out, bool back) {
  for (std::size_t r = 0; r < 6; ++r) {
    const auto other = static_cast<std::size_t>(sorting.values[r]);
    const std::size_t from = back ? other : r, to = back ? r : other;
    std::copy_n(&in[0].values[from * width], width, &out[0].values[to * width]);
    if (in[2].there) out[1].values[to] = in[2].values[from];
  }
  return out;
}

}  // namespace

std::vector<MathCase> routing_cases() {
  Draw draw;
  using enum Operation;
  std::vector<MathCase> all;
  for (const std::int64_t count : {1, 3, 6})
    all.push_back({TopK,
                   {static_cast<double>(count), 1},
                   {draw({5, 6})},
                   {zeros({5, count}), zeros({5, count}, DType::INT64)},
                   top});
  all.push_back({TopK, {2, 0}, {draw({2, 3, 6})}, {zeros({2, 3, 2}), zeros({2, 3, 2}, DType::INT64)}, top});
  all.push_back({TopK,  // a stable sort
                 {8, 0},
                 {draw.truths({3, 8})},
                 {zeros({3, 8}, DType::BOOL), zeros({3, 8}, DType::INT64)},
                 top});
  const Numbers ids = choices(draw, 5, 2, 6);
  for (const Numbers& x : {draw({5, 6}), absent})
    for (const Numbers& values : {draw({5, 2}), absent})
      all.push_back({Scatter, {0.25}, {x, ids, values}, {zeros({5, 6})}, scattered(0.25)});
  for (const DType dtype : {DType::BOOL, DType::INT32})
    all.push_back({Scatter, {1}, {absent, ids, absent}, {zeros({5, 6}, dtype)}, scattered(1)});
  const auto selected = [](const Tensors& in, Tensors out) {
    out[0].values.clear();
    for (std::size_t i = 0; i < in[0].values.size(); ++i)
      if (in[1].values[i] != 0) out[0].values.push_back(in[0].values[i]);
    return out;
  };
  all.push_back({MaskedSelect, {}, {draw({5, 3}), chosen}, {zeros({rows})}, selected});
  all.push_back({MaskedSelect, {}, {draw.ids({5, 3}, 9), chosen}, {zeros({rows}, DType::INT64)}, selected});
  all.push_back({MaskedSelectBackward, {}, {draw({rows}), chosen}, {zeros({5, 3})}});

  const Numbers map = map_of_rows();
  const Numbers x = draw({tokens, width}), y = draw({rows, width}), probs = draw({tokens, experts}, 0.1, 1);
  all.push_back({TokenMap, {}, {chosen}, {zeros(map.sizes, DType::INT32)}, [=](const Tensors&, Tensors out) {
                   // What TransformerEngine says of its example; -1 where it says nothing.
                   out[0].values = {3,  0,  -1, 1, 0, -1, 2, 5, 1,  -1, 2,  0,  -1, 2,  6,  -1, -1, 2,
                                    -1, -1, 1,  4, 2, -1, 1, 0, -1, 2,  -1, -1, -1, -1, -1, -1, 0};
                   return out;
                 }});
  all.push_back({PermuteRows, {}, {x, map, probs}, {zeros({rows, width}), zeros({rows})}, permuted});
  all.push_back({PermuteRows, {}, {x, map, absent}, {zeros({rows, width}), absent}, permuted});
  for (const Numbers& weights : {probs, absent})
    for (const Numbers& permuted_probs : {draw({rows}), absent})
      all.push_back({UnpermuteRows,
                     {},
                     {y, map, weights, permuted_probs},
                     {zeros({tokens, width}), permuted_probs.there ? zeros({tokens, experts}) : absent},
                     unpermuted});
  all.push_back({UnpermuteRowsBackward, {}, {x, map, y, probs}, {zeros({rows, width}), zeros({tokens, experts})}});
  all.push_back(
      {ChunkMap, {}, {chunk_sizes, chunk_order}, {zeros({6}, DType::INT32)}, [](const Tensors&, const Tensors&) {
         return Tensors{sorting};
       }});
  for (const bool back : {false, true})
    for (const Numbers& of_rows : {draw({6}), absent})
      all.push_back({SortRows,
                     {back ? 1.0 : 0.0},
                     {draw({6, width}), sorting, of_rows},
                     {zeros({6, width}), of_rows.there ? zeros({6}) : absent},
                     [=](const Tensors& in, const Tensors& out) { return sorted(in, out, back); }});
  for (const Numbers& bias : {draw({8}), absent})
    for (const Shape& of_rows : {Shape{rows}, Shape{rows, 1}}) {
      const double slope = bias.there ? 1 : 1.702, offset = bias.there ? 0 : 1;
      all.push_back({WeightedSwiGlu,
                     {slope, offset},
                     {draw({rows, 8}), bias, draw(of_rows, 0, 1)},
                     {zeros({rows, 4})},
                     [=](const Tensors& in, const Tensors& out) { return weighted(in, out, slope, offset); }});
      all.push_back({WeightedSwiGluBackward,
                     {slope, offset},
                     {draw({rows, 4}), draw({rows, 8}), bias, draw(of_rows, 0, 1)},
                     {zeros({rows, 8}), zeros(of_rows)}});
    }
  return all;
}

std::vector<GradientCase> routing_gradients() {
  Draw draw;
  using enum Operation;
  const Tensors chosen_of{zeros({5, 2}), zeros({5, 2}, DType::INT64)};
  const Numbers ids = choices(draw, 5, 2, 6), map = map_of_rows();
  const Tensors to_rows{zeros({rows, width}), zeros({rows})}, to_tokens{zeros({tokens, width})};
  std::vector<GradientCase> all;
  all.push_back({Scatter,  // of what was chosen
                 {draw({5, 6})},
                 [=](const Tensors& x) {
                   return run(TopK, {2, 1}, x, chosen_of);
                 },
                 0,
                 [=](const Numbers& dy, const Tensors&, const Tensors& made) {
                   return run(Scatter, {0}, {absent, made[1], dy}, {zeros({5, 6})});
                 }});
  all.push_back({Gather,  // of what was scattered
                 {draw({5, 2})},
                 [=](const Tensors& x) {
                   return run(Scatter, {0}, {absent, ids, x[0]}, {zeros({5, 6})});
                 },
                 0,
                 [=](const Numbers& dy, const Tensors&, const Tensors&) {
                   return run(Gather, {}, {dy, ids}, {zeros({5, 2})});
                 }});
  all.push_back({MaskedSelectBackward,
                 {draw({5, 3})},
                 [=](const Tensors& x) {
                   return run(MaskedSelect, {}, {x[0], chosen}, {zeros({rows})});
                 },
                 0,
                 [=](const Numbers& dy, const Tensors&, const Tensors&) {
                   return run(MaskedSelectBackward, {}, {dy, chosen}, {zeros({5, 3})});
                 }});
  for (const std::size_t result : {0U, 1U})  // of permuting tokens, and their probabilities
    all.push_back({UnpermuteRows,
                   {draw({tokens, width}), draw({tokens, experts}, 0.1, 1)},
                   [=](const Tensors& x) {
                     return run(PermuteRows, {}, {x[0], map, x[1]}, to_rows);
                   },
                   result,
                   [=](const Numbers& dy, const Tensors&, const Tensors&) {
                     const Tensors given = result == 0 ? Tensors{dy, zeros({rows})} : Tensors{zeros({rows, width}), dy};
                     return run(UnpermuteRows, {}, {given[0], map, absent, given[1]},
                                {zeros({tokens, width}), zeros({tokens, experts})});
                   },
                   {0, 1}});
  all.push_back({PermuteRows,  // of unpermuting without weights
                 {draw({rows, width})},
                 [=](const Tensors& x) {
                   return run(UnpermuteRows, {}, {x[0], map, absent, absent}, {to_tokens[0], absent});
                 },
                 0,
                 [=](const Numbers& dy, const Tensors&, const Tensors&) {
                   return Tensors{run(PermuteRows, {}, {dy, map, absent}, {to_rows[0], absent})[0]};
                 }});
  all.push_back({UnpermuteRowsBackward,
                 {draw({rows, width}), draw({tokens, experts})},
                 [=](const Tensors& x) {
                   return run(UnpermuteRows, {}, {x[0], map, x[1], absent}, {to_tokens[0], absent});
                 },
                 0,
                 [=](const Numbers& dy, const Tensors& x, const Tensors&) {
                   return run(UnpermuteRowsBackward, {}, {dy, map, x[0], x[1]}, {x[0], x[1]});
                 },
                 {0, 1}});
  all.push_back({SortRows,
                 {draw({6, width})},
                 [=](const Tensors& x) {
                   return run(SortRows, {0}, {x[0], sorting, absent}, {zeros({6, width}), absent});
                 },
                 0,
                 [=](const Numbers& dy, const Tensors&, const Tensors&) {
                   return Tensors{run(SortRows, {1}, {dy, sorting, absent}, {zeros({6, width}), absent})[0]};
                 }});
  for (const Numbers& bias : {draw({8}), absent}) {
    const math::Attributes gate = bias.there ? math::Attributes{1, 0} : math::Attributes{1.702, 1};
    all.push_back({WeightedSwiGluBackward,
                   {draw({rows, 8}), bias, draw({rows}, 0, 1)},
                   [=](const Tensors& in) {
                     return run(WeightedSwiGlu, gate, in, {zeros({rows, 4})});
                   },
                   0,
                   [=](const Numbers& dy, const Tensors& in, const Tensors&) {
                     return run(WeightedSwiGluBackward, gate, {dy, in[0], in[1], in[2]}, {in[0], in[2]});
                   },
                   {0, 2}});
  }
  return all;
}

namespace {

TEST(MathRouting, EqualScoresAreChosenInOrderAndNoNumberFirst) {
  Numbers x{DType::FP32, {2, 5}, {1, 3, 3, 1, 3, 2, -INFINITY, std::nan(""), 2, 7}};
  const Tensors made = run(Operation::TopK, {4, 0}, {x}, {zeros({2, 4}), zeros({2, 4}, DType::INT64)});
  EXPECT_EQ(made[1].values, (std::vector<double>{1, 2, 4, 0, 2, 4, 0, 3}));
}

// A capacity's tokens: those with the largest probabilities, expert by expert.
TEST(MathRouting, TheLargestOfColumnsAreChosenByViewsThatSwapDimensions) {
  Laid probs({DType::FP32, {3, 2}, {0.1, 0.6, 0.3, 0.2, 0.2, 0.4}}, math::Storage::Native, MatrixLayout::SideBySide);
  Laid values(zeros({2, 2}), math::Storage::Native, MatrixLayout::SideBySide);
  Laid ids(zeros({2, 2}, DType::INT64), math::Storage::Native, MatrixLayout::SideBySide);
  std::vector<math::Array> in{probs.array()}, out{values.array(), ids.array()};
  for (std::vector<math::Array>* arrays : {&in, &out})
    for (math::Array& array : *arrays) {
      std::ranges::reverse(array.view.sizes);
      std::ranges::reverse(array.view.strides);
    }
  math::compute(Operation::TopK, {2, 0}, in, out);
  EXPECT_EQ(ids.numbers().values, (std::vector<double>{1, 0, 2, 2}));
}

TEST(MathRouting, ToldExpertsAreTakenWithTheScoresThatTheyHave) {
  const Numbers x{DType::FP32, {2, 3}, {1, 3, 2, 6, 5, 4}};
  const Tensors out{zeros({2, 2}), zeros({2, 2}, DType::INT64)};
  RunOptions reported;
  reported.setting.route = [](std::int64_t token, std::int64_t choice) { return (token + choice) % 3; };
  const Tensors routed = run(Operation::TopK, {2, 1}, {x}, out, reported);
  EXPECT_EQ(routed[1].values, (std::vector<double>{0, 1, 1, 2}));
  EXPECT_EQ(routed[0].values, (std::vector<double>{1, 3, 5, 4}));
  const Tensors others = run(Operation::TopK, {2, 0}, {x}, out, reported);
  EXPECT_EQ(others[1].values, (std::vector<double>{1, 2, 0, 1}));
  reported.setting.route = [](std::int64_t, std::int64_t) { return 3; };
  EXPECT_THROW(run(Operation::TopK, {2, 1}, {x}, out, reported), math::WrongIndex);
}

TEST(MathRouting, GroupsAreThoseOfToldExperts) {
  // Scores of four groups of two experts. The first token's experts are of two groups, the second one's of one.
  const Numbers x{DType::FP32, {2, 4}, {1, 3, 2, 6, 5, 4, 8, 7}};
  const Tensors out{zeros({2, 2}), zeros({2, 2}, DType::INT64)};
  RunOptions reported;
  reported.setting.route = [](std::int64_t token, std::int64_t choice) {
    return token == 0 ? 7 - 5 * choice : 4 + choice;
  };
  const Tensors groups = run(Operation::TopK, {2, 2, 2}, {x}, out, reported);
  EXPECT_EQ(groups[1].values, (std::vector<double>{3, 1, 2, 0}));
  EXPECT_EQ(groups[0].values, (std::vector<double>{6, 3, 8, 5}));
  reported.setting.route = [](std::int64_t, std::int64_t choice) { return 3 * choice; };
  EXPECT_THROW(run(Operation::TopK, {2, 3, 2}, {x}, out, reported), math::WrongIndex);  // of three groups
}

TEST(MathRouting, ARowWithoutProbabilityIsZero) {
  Draw draw;
  Numbers probs = draw({tokens, experts}, 0.1, 1);
  probs.values[0] = 0;  // the first row's
  const Tensors made = run(Operation::PermuteRows, {}, {draw({tokens, width}), map_of_rows(), probs},
                           {zeros({rows, width}), zeros({rows})});
  for (std::size_t i = 0; i < rows * width; ++i) EXPECT_EQ(made[0].values[i] == 0, i < width);
}

// One token more or less than the program has room for.
TEST(MathRouting, RowsThatAreNotAsManyAsThereIsRoomForAreReported) {
  Draw draw;
  const Numbers map = map_of_rows(), x = draw({tokens, width});
  for (const std::int64_t wrong : {rows - 1, rows + 1}) {
    const Numbers y = zeros({wrong, width}), one = zeros({wrong});
    const auto reports = [&](Operation operation, Attributes attributes, const Tensors& in, const Tensors& out) {
      EXPECT_THROW(run(operation, attributes, in, out), math::WrongIndex) << name(operation) << ' ' << wrong;
    };
    reports(Operation::MaskedSelect, {}, {draw({5, 3}), chosen}, {one});
    reports(Operation::MaskedSelectBackward, {}, {draw({wrong}), chosen}, {zeros({5, 3})});
    reports(Operation::PermuteRows, {}, {x, map, absent}, {y, absent});
    reports(Operation::UnpermuteRows, {}, {draw({wrong, width}), map, absent, absent}, {x, absent});
    reports(Operation::UnpermuteRowsBackward, {}, {x, map, draw({wrong, width}), draw({tokens, experts})},
            {y, zeros({tokens, experts})});
    reports(Operation::ChunkMap, {}, {chunk_sizes, chunk_order}, {zeros({wrong - 1}, DType::INT32)});
    reports(Operation::SortRows, {0}, {draw({wrong - 1, width}), sorting, absent}, {zeros({wrong - 1, width}), absent});
  }
  Numbers twice = map;
  twice.values[7] = 3;  // the second token's row is the first one's too
  EXPECT_THROW(run(Operation::PermuteRows, {}, {x, twice, absent}, {zeros({rows, width}), absent}), math::WrongIndex);
}

// Of an expert that nobody chose.
TEST(MathRouting, NoRowsAreNothing) {
  Draw draw;
  EXPECT_TRUE(
      run(Operation::Matmul, {1}, {zeros({0, 4}), draw({4, 3}), absent, absent}, {zeros({0, 3})})[0].values.empty());
  const Numbers gradient = draw({4, 3});
  EXPECT_EQ(run(Operation::Matmul, {1}, {zeros({4, 0}), zeros({0, 3}), absent, gradient}, {zeros({4, 3})})[0].values,
            gradient.values);
  const Tensors activated = run(Operation::WeightedSwiGluBackward, {1, 0},
                                {zeros({0, 4}), zeros({0, 8}), absent, zeros({0})}, {zeros({0, 8}), zeros({0})});
  EXPECT_TRUE(activated[1].values.empty());
  const Numbers nobody = zeros({5, 3}, DType::BOOL);
  const Tensors map = run(Operation::TokenMap, {}, {nobody}, {zeros({5, 7}, DType::INT32)});
  const Tensors tokens_of_none =
      run(Operation::UnpermuteRows, {}, {zeros({0, 2}), map[0], absent, absent}, {draw({5, 2}), absent});
  EXPECT_EQ(tokens_of_none[0].values, std::vector<double>(10));
}

}  // namespace
}  // namespace tidemark::tests::math_routing_test
