#include <gtest/gtest.h>

#include "tests/kernels/math_cases.hpp"
#include "tests/kernels/strict_calculator.hpp"

namespace tidemark::tests::math_strict_test {
namespace {

using math::Storage;

// To the bit: no kernel goes by the order of its elements, nor looks at numbers from outside.
TEST(MathStrict, EachOperationIsTheHosts) {
  StrictCalculator strict;
  for (const MathCase& one : all_math_cases()) {
    const auto compare = [&](const Tensors& in, const Tensors& out, Storage storage, MatrixLayout layout) {
      std::int64_t strays = 0;
      const Tensors expected = run(one.operation, one.attributes, in, out, {storage, layout});
      const Tensors made = run(one.operation, one.attributes, in, out,
                               {.storage = storage, .layout = layout, .calculator = &strict}, &strays);
      EXPECT_EQ(strays, 0) << name(one.operation);
      for (std::size_t o = 0; o < made.size(); ++o)
        EXPECT_EQ(difference(made[o], expected[o]), 0) << name(one.operation) << ' ' << o;
    };
    compare(one.inputs, one.outputs, Storage::Wide, MatrixLayout::SideBySide);
    for (const DType dtype : {DType::FP32, DType::BF16, DType::FP16})
      compare(as(dtype, one.inputs), as(dtype, one.outputs), Storage::Native, MatrixLayout::FirstInnermostApart);
  }
}

TEST(MathStrict, AnIndexOutsideIsReported) {
  StrictCalculator strict;
  Draw draw;
  Numbers ids = draw.ids({4}, 6);
  ids.values[2] = 6;
  EXPECT_THROW(run(Operation::Embedding, {}, {ids, draw({6, 3})}, {zeros({4, 3})}, {.calculator = &strict}),
               math::WrongIndex);
}

TEST(MathStrictDeathTest, WhoTouchesItsMemoryIsCaught) {
  StrictCalculator strict;
  const math::Memory memory = math::memory_of(strict, 8);
  EXPECT_DEATH(*memory = std::byte{1}, "");
}

}  // namespace
}  // namespace tidemark::tests::math_strict_test
