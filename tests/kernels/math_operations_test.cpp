#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/program/kernel_checks.hpp"
#include "tests/kernels/math_cases.hpp"

namespace tidemark::tests::math_operations_test {
namespace {

using math::Storage;

const std::vector<GradientCase>& gradients() {
  static const std::vector<GradientCase> all = [] {
    std::vector<GradientCase> joined;
    for (auto* family : {math_elementwise_test::elementwise_gradients, math_rows_test::row_gradients,
                         math_losses_test::loss_gradients, math_products_test::attention_gradients,
                         math_routing_test::routing_gradients, math_scans_test::scan_gradients})
      for (GradientCase& one : family()) joined.push_back(std::move(one));
    return joined;
  }();
  return all;
}

TEST(MathOperations, EachHasATest) {
  std::set<Operation> tried;
  for (const MathCase& one : all_math_cases()) tried.insert(one.operation);
  for (std::size_t o = 0; o < all_operations().size(); ++o)
    EXPECT_TRUE(tried.contains(static_cast<Operation>(o))) << all_operations()[o].name;
}

TEST(MathOperations, EachBackwardOneHasFiniteDifferences) {
  std::set<std::string_view> differed;
  for (const GradientCase& one : gradients()) differed.insert(name(one.backward));
  for (const OperationFacts& facts : all_operations())
    EXPECT_TRUE(!facts.name.ends_with("_backward") || differed.contains(facts.name)) << facts.name;
}

TEST(MathOperations, CasesAreSoundKernels) {
  for (const MathCase& one : all_math_cases()) {
    Program program;
    Kernel kernel{one.operation, one.attributes, {}, {}};
    for (const auto& [list, views] : {std::pair(&one.inputs, &kernel.inputs), std::pair(&one.outputs, &kernel.outputs)})
      for (const Numbers& x : *list) {
        views->push_back(x.there ? ViewId{static_cast<std::int32_t>(program.views.size())} : ViewId{});
        if (x.there) program.views.push_back({x.dtype, x.sizes, contiguous_strides(x.sizes)});
      }
    EXPECT_EQ(problem_of(program, kernel).value_or(""), "") << name(one.operation);
  }
}

TEST(MathOperations, InFloat64TheyAreTheirFormulas) {
  for (const MathCase& one : all_math_cases()) {
    const Tensors made = run(one.operation, one.attributes, one.inputs, one.outputs);
    if (!one.expected) continue;
    const Tensors expected = one.expected(one.inputs, made);
    for (std::size_t o = 0; o < made.size(); ++o)
      EXPECT_LT(difference(made[o], expected[o]), 1e-13) << name(one.operation) << ' ' << o;
  }
}

TEST(MathOperations, WrittenIsWhatTheOutputsViewsShowAndNothingElse) {
  for (const MathCase& one : all_math_cases())
    for (const Storage storage : {Storage::Wide, Storage::Native}) {
      Tensors side_by_side;
      for (const MatrixLayout layout : layouts) {
        std::int64_t strays = 0;
        const Tensors made = run(one.operation, one.attributes, one.inputs, one.outputs, {storage, layout}, &strays);
        EXPECT_EQ(strays, 0) << name(one.operation);
        if (layout == MatrixLayout::SideBySide) side_by_side = made;
        for (std::size_t o = 0; o < made.size(); ++o)
          EXPECT_LT(difference(made[o], side_by_side[o]), 1e-6) << name(one.operation) << ' ' << o;
      }
    }
}

// Rounded once at the end, and computed with in fp32: a few of its roundings may add up.
TEST(MathOperations, InTheirTypesTheyAreAsCloseAsThoseCanBe) {
  constexpr double roundings = 16;
  for (const DType dtype : {DType::FP64, DType::FP32, DType::BF16, DType::FP16})
    for (const MathCase& one : all_math_cases()) {
      const Tensors in = as(dtype, one.inputs), out = as(dtype, one.outputs);
      for (const MatrixLayout layout : layouts) {
        const Tensors made = run(one.operation, one.attributes, in, out, {Storage::Native, layout});
        const Tensors expected = run(one.operation, one.attributes, in, out);
        for (std::size_t o = 0; o < made.size(); ++o)
          EXPECT_LE(difference(made[o], expected[o]),
                    bound(out[o].dtype) + roundings * bound(dtype == DType::FP64 ? dtype : DType::FP32))
              << name(one.operation) << ' ' << name(dtype) << ' ' << o;
      }
    }
}

TEST(MathOperations, AnOutputMayLieOnAnInput) {
  std::set<Operation> in_place;
  for (const MathCase& one : all_math_cases())
    for (std::size_t o = 0; o < one.outputs.size(); ++o)
      for (std::size_t i = 0; i < one.inputs.size(); ++i) {
        const Numbers &in = one.inputs[i], &out = one.outputs[o];
        if (!in.there || !out.there || in.sizes != out.sizes || in.dtype != out.dtype) continue;
        in_place.insert(one.operation);
        const Tensors apart = run(one.operation, one.attributes, one.inputs, one.outputs);
        const Tensors on = run(one.operation, one.attributes, one.inputs, one.outputs, {.in_place = InPlace{i, o}});
        for (std::size_t e = 0; e < apart.size(); ++e)
          EXPECT_EQ(difference(on[e], apart[e]), 0) << name(one.operation) << ' ' << i << ' ' << o;
      }
  for (const Operation needed :
       {Operation::Add, Operation::Matmul, Operation::Softmax, Operation::SoftmaxBackward, Operation::Adam,
        Operation::CrossEntropyFromStatistics, Operation::ShiftedExponentials})
    EXPECT_TRUE(in_place.contains(needed)) << name(needed);
}

TEST(MathOperations, BackwardIsTheDerivativeOfForward) {
  constexpr double step = 1e-5;
  for (const GradientCase& one : gradients()) {
    const Tensors made = one.forward(one.inputs);
    Numbers dy = Draw()(made[one.result].sizes);
    const auto loss = [&](const Tensors& in) {
      const Tensors out = one.forward(in);
      double sum = 0;
      for (std::size_t i = 0; i < dy.values.size(); ++i) sum += dy.values[i] * out[one.result].values[i];
      return sum;
    };
    const Tensors found = one.gradients(dy, one.inputs, made);
    ASSERT_EQ(found.size(), one.of.size()) << name(one.backward);
    for (std::size_t g = 0; g < found.size(); ++g) {
      Tensors in = one.inputs;
      Numbers expected = in[one.of[g]];
      for (std::size_t i = 0; i < expected.values.size(); ++i) {
        double& x = in[one.of[g]].values[i];
        const double before = x;
        x = before + step;
        const double above = loss(in);
        x = before - step;
        expected.values[i] = (above - loss(in)) / (2 * step);
        x = before;
      }
      EXPECT_LT(difference(found[g], expected), 1e-6) << name(one.backward) << ' ' << g;
    }
  }
}

// Other values of the same kind: of numbers, truths and places in a table.
Numbers changed(Numbers x) {
  if (is_floating(x.dtype))
    std::ranges::reverse(x.values);
  else if (x.dtype == DType::BOOL)
    for (double& value : x.values) value = 1 - value;
  else if (x.values.size() > 1)
    std::ranges::rotate(x.values, x.values.begin() + 1);
  else
    x.values.front() += 1;
  if (is_floating(x.dtype) && x.values.size() == 1) x.values.front() *= 1.5;
  return x;
}

// What is named as an operand and read by no arithmetic would be kept in memory for nothing.
TEST(MathOperations, EachOperandMattersToAnOutput) {
  std::set<std::pair<Operation, std::string_view>> matter;
  for (const MathCase& one : all_math_cases()) {
    const std::vector<OperandFacts>& operands = facts_of(one.operation).inputs;
    const bool many = std::ranges::any_of(operands, &OperandFacts::many);
    const Tensors before = run(one.operation, one.attributes, one.inputs, one.outputs);
    for (std::size_t i = 0; i < one.inputs.size(); ++i) {
      if (!one.inputs[i].there) continue;
      Tensors inputs = one.inputs;
      inputs[i] = changed(inputs[i]);
      const std::string_view operand = operands[many ? std::min(i, operands.size() - 1) : i % operands.size()].name;
      try {
        const Tensors after = run(one.operation, one.attributes, inputs, one.outputs);
        for (std::size_t o = 0; o < before.size(); ++o)
          if (before[o].values != after[o].values) matter.insert({one.operation, operand});
      } catch (const math::WrongIndex&) {  // of a mask, another number of elements
        matter.insert({one.operation, operand});
      }
    }
  }
  for (std::size_t o = 0; o < all_operations().size(); ++o)
    for (const OperandFacts& operand : all_operations()[o].inputs)
      EXPECT_TRUE(matter.contains({static_cast<Operation>(o), operand.name}))
          << all_operations()[o].name << ' ' << operand.name;
}

TEST(MathOperations, BackwardReadsWhatIsSavedAndNotWhatCouldBeComputedAgain) {
  Draw draw;
  const Numbers x = draw({3, 4}), dy = draw({3, 4}), weight = draw({4}), mean = draw({3}), rstd = draw({3}, 0.5, 1);
  const auto gradient = [&](const Numbers& statistic) {
    return run(Operation::LayerNormBackward, {0}, {dy, x, mean, statistic, weight}, {x, absent, absent})[0].values;
  };
  EXPECT_NE(gradient(rstd), gradient(draw({3}, 0.5, 1)));
  const Numbers q = draw({1, 3, 1, 2}), y = draw({1, 3, 1, 2}), lse = draw({1, 1, 3});
  const auto of_query = [&](const Numbers& out, const Numbers& sums) {
    return run(Operation::AttentionBackward, {1, 1, 0}, {q, q, q, q, out, sums, absent, absent, absent}, {q, q, q})[0]
        .values;
  };
  EXPECT_NE(of_query(y, lse), of_query(draw({1, 3, 1, 2}), lse));
  EXPECT_NE(of_query(y, lse), of_query(y, draw({1, 1, 3})));
}

TEST(MathOperations, GroupsFollowOneAnother) {
  // The second group reads what the first one wrote.
  Numbers x = zeros({3});
  x.values = {1, 2, 3};
  Laid memory(x, Storage::Native, MatrixLayout::SideBySide);
  const math::Array array = memory.array();
  const math::Array in[] = {array, array}, out[] = {array, array};
  math::compute(Operation::Scale, {3}, in, out);
  EXPECT_EQ(memory.numbers().values, (std::vector<double>{9, 18, 27}));
  // Pieces of several tensors into one: a concatenation.
  Numbers whole = zeros({2, 5});
  Laid a({DType::FP32, {2, 2}, {1, 2, 3, 4}}, Storage::Wide, MatrixLayout::SideBySide);
  Laid b({DType::BF16, {2, 3}, {5, 6, 7, 8, 9, 10}}, Storage::Wide, MatrixLayout::FirstInnermost);
  Laid joined(whole, Storage::Wide, MatrixLayout::SideBySide);
  math::Array left = joined.array(), right = left;
  left.view.sizes = {2, 2}, right.view.sizes = {2, 3};
  right.first += 2 * 4 * 4;
  const math::Array pieces[] = {a.array(), b.array()}, places[] = {left, right};
  math::compute(Operation::Copy, {}, pieces, places, {.storage = Storage::Wide});
  EXPECT_EQ(joined.numbers().values, (std::vector<double>{1, 2, 5, 6, 7, 3, 4, 8, 9, 10}));
}

TEST(MathOperations, AnExpandedDimensionIsReadAgainAndAgain) {
  Laid memory({DType::FP32, {3}, {1, 2, 3}}, Storage::Native, MatrixLayout::SideBySide);
  math::Array expanded = memory.array();
  expanded.view = {DType::FP32, {2, 3, 2}, {0, 1, 0}};
  Laid sum(zeros({}), Storage::Native, MatrixLayout::SideBySide);
  const math::Array in[] = {expanded}, out[] = {sum.array()};
  math::compute(Operation::Sum, {}, in, out);
  EXPECT_EQ(sum.numbers().values[0], 24);
}

TEST(MathOperations, LargeIntegersAreCopiedExactly) {
  constexpr std::int64_t seed = 0x7123456789abcdef;
  std::int64_t from = seed, to = 0;
  const View view{DType::INT64, {1}, {1}};
  const math::Array in[] = {{reinterpret_cast<std::byte*>(&from), view}},
                    out[] = {{reinterpret_cast<std::byte*>(&to), view}};
  math::compute(Operation::Copy, {}, in, out);
  EXPECT_EQ(to, seed);
}

TEST(MathOperations, AnIndexOutsideIsReported) {
  Draw draw;
  Numbers ids = draw.ids({4}, 6);
  ids.values[2] = 6;
  EXPECT_THROW(run(Operation::Embedding, {}, {ids, draw({6, 3})}, {zeros({4, 3})}), math::WrongIndex);
  ids.values[2] = -1;
  EXPECT_THROW(run(Operation::NllLoss, {}, {draw({4, 6}), ids}, {zeros({}), zeros({})}), math::WrongIndex);
}

TEST(MathOperations, WhatIsNotANumberGoesThrough) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Numbers x = zeros({4});
  x.values = {1, nan, -1, 2};
  for (const Operation operation : {Operation::Relu, Operation::Clamp, Operation::Largest, Operation::Softmax,
                                    Operation::Maximum, Operation::SquaredRelu}) {
    Tensors in{x};
    if (facts_of(operation).inputs.size() > 1) in.push_back(operation == Operation::Maximum ? zeros({4}) : absent);
    for (const Storage storage : {Storage::Native, Storage::Wide}) {
      const std::size_t place = operation == Operation::Largest ? 0 : 1;
      const Tensors out{zeros(operation == Operation::Largest ? Shape{} : Shape{4})};
      EXPECT_TRUE(std::isnan(run(operation, {1}, in, out, {storage})[0].values[place])) << name(operation);
    }
  }
}

TEST(MathOperations, ALaunchOfAProgramIsCarriedOut) {
  Program program;
  program.views = {{DType::FP32, {2, 2}, {2, 1}}, {DType::FP32, {2, 2}, {1, 2}}};
  program.offsets = {Bytes{16}};
  program.kernels = {{Operation::Matmul, {1}, {ViewId{0}, ViewId{1}, {}, ViewId{0}}, {ViewId{0}}}};
  program.operands = {{BufferId{0}}, {BufferId{0}, OffsetId{0}}, {BufferId{1}}, {BufferId{1}}};
  const Launch launch{StreamId{0}, KernelId{0}, {0, 3}, {3, 1}, {}};
  std::vector<float> first{1, 2, 3, 4, 5, 6, 7, 8}, second{100, 200, 300, 400};
  const math::Operands operands = math::operands_of(
      program, launch,
      [&](BufferId buffer) {
        return reinterpret_cast<std::byte*>(buffer == BufferId{0} ? first.data() : second.data());
      },
      Storage::Native);
  math::compute(Operation::Matmul, {1}, operands.in, operands.out);
  // [1 2; 3 4] times the transposed [5 6; 7 8], added to what was there.
  EXPECT_EQ(second, (std::vector<float>{117, 223, 339, 453}));
}

}  // namespace
}  // namespace tidemark::tests::math_operations_test
