#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/math/half.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::math_half_test {
namespace {

TEST(MathHalves, AreRoundedToNearestEven) {
  const auto bf16 = [](float x) { return math::from_bf16(math::to_bf16(x)); };
  EXPECT_EQ(bf16(1 + 0x1p-8F), 1);  // half way: to even
  EXPECT_EQ(bf16(1 + 3 * 0x1p-8F), 1 + 0x1p-6F);
  EXPECT_EQ(bf16(1 + 0x1p-8F + 0x1p-20F), 1 + 0x1p-7F);
  EXPECT_EQ(bf16(-0x1.fffp127F), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(bf16(std::bit_cast<float>(0x7f800001U))));
  const auto fp16 = [](float x) { return math::from_fp16(math::to_fp16(x)); };
  EXPECT_EQ(fp16(1 + 0x1p-11F), 1);
  EXPECT_EQ(fp16(1 + 3 * 0x1p-11F), 1 + 0x1p-9F);
  EXPECT_EQ(fp16(65519), 65504);
  EXPECT_EQ(fp16(65520), std::numeric_limits<float>::infinity());
  EXPECT_EQ(fp16(-0x1p-24F), -0x1p-24F);
  EXPECT_EQ(fp16(0x1p-25F), 0);
  EXPECT_TRUE(std::isnan(fp16(std::numeric_limits<float>::quiet_NaN())));
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {  // each stays what it is
    const auto half = static_cast<std::uint16_t>(bits);
    if (!std::isnan(math::from_fp16(half))) {
      EXPECT_EQ(math::to_fp16(math::from_fp16(half)), half);
    }
    if (!std::isnan(math::from_bf16(half))) {
      EXPECT_EQ(math::to_bf16(math::from_bf16(half)), half);
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::math_half_test
