#include <gtest/gtest.h>

#include "kernels/math/philox.hpp"
#include "tests/kernels/math_numbers.hpp"

namespace tidemark::tests::math_random_test {
namespace {

using math::Storage;

TEST(MathRandom, PhiloxGivesTheKnownAnswers) {
  // Random123 1.14, tests/kat_vectors.
  using Words = std::array<std::uint32_t, 4>;
  const std::uint32_t all = 0xffffffff;
  EXPECT_EQ(math::philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(math::philox({all, all, all, all}, {all, all}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(math::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(MathRandom, WhatIsDroppedDependsOnKeyAndPlaceAlone) {
  const Numbers x = Draw()({100, 100});
  const Tensors out{zeros({100, 100}), zeros({100, 100}, DType::BOOL)};
  const auto mask = [&](std::uint64_t key, Storage storage = Storage::Wide) {
    return run(Operation::Dropout, {0.3}, {x}, out, {storage, MatrixLayout::SideBySide, {}, {.key = key}})[1].values;
  };
  double kept = 0;
  for (const double k : mask(1)) kept += k;
  EXPECT_NEAR(kept / 10'000, 0.7, 0.015);
  EXPECT_EQ(mask(1), mask(1, Storage::Native));
  EXPECT_NE(mask(1), mask(2));
  // A rank that has the second half of the rows, or the third quarter of the columns, drops what one rank would.
  const std::vector<double> whole = mask(1);
  const auto of_part = [](const Shape& sizes, const math::PartOfWhole& drawn) {
    return run(Operation::Dropout, {0.3}, {zeros(sizes)}, {zeros(sizes), zeros(sizes, DType::BOOL)},
               {.setting = {.key = 1, .drawn = drawn}})[1]
        .values;
  };
  const Shape rows{50, 100}, columns{100, 25};
  EXPECT_EQ(of_part(rows, math::part_of_whole(rows, {{0, 1, 2}})), std::vector(whole.begin() + 5'000, whole.end()));
  std::vector<double> third;
  for (int row = 0; row < 100; ++row)
    third.insert(third.end(), whole.begin() + row * 100 + 50, whole.begin() + row * 100 + 75);
  EXPECT_EQ(of_part(columns, math::part_of_whole(columns, {{1, 2, 4}})), third);
}

TEST(MathRandom, WhoRunsAKernelMaySayWhatIsInitialized) {
  math::Setting setting;
  setting.initial = [](std::size_t output, std::int64_t element) {
    return static_cast<double>(100 * static_cast<std::int64_t>(output) + element);
  };
  const Tensors made = run(Operation::Initialize, {}, {}, {zeros({2}), zeros({3}, DType::INT64)}, {.setting = setting});
  EXPECT_EQ(made[0].values, (std::vector<double>{0, 1}));
  EXPECT_EQ(made[1].values, (std::vector<double>{100, 101, 102}));
}

}  // namespace
}  // namespace tidemark::tests::math_random_test
