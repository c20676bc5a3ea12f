#include "sim/base/units.hpp"

#include <concepts>
#include <type_traits>
#include <unordered_set>

#include <gtest/gtest.h>

#include "sim/base/category.hpp"
#include "sim/base/dtype.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::units_test {
namespace {

using namespace literals;

struct OtherUnit;
using Other = Quantity<OtherUnit>;

template <class A, class B>
concept Adds = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Subtracts = requires(A a, B b) {
  a - b;
};
template <class A, class B>
concept Multiplies = requires(A a, B b) {
  a* b;
};
template <class A, class B>
concept Compares = requires(A a, B b) {
  a < b;
};
template <class A, class B>
concept Equals = requires(A a, B b) {
  a == b;
};

// What may be combined …
static_assert(Adds<Bytes, Bytes> && Subtracts<Bytes, Bytes> && Compares<Bytes, Bytes>);
static_assert(Multiplies<Bytes, std::int64_t> && Multiplies<std::int64_t, Bytes>);
static_assert(std::same_as<decltype(1_GiB / 1_MiB), std::int64_t>);
static_assert(std::same_as<decltype(1_GiB / 2), Bytes>);
static_assert(Compares<Rank, Rank> && Equals<BufferId, BufferId>);
// … and what may not.
static_assert(!Adds<Bytes, Other> && !Subtracts<Bytes, Other> && !Compares<Bytes, Other> && !Equals<Bytes, Other>);
static_assert(!Adds<Bytes, std::int64_t> && !Adds<std::int64_t, Bytes> && !Equals<Bytes, std::int64_t>);
static_assert(!Multiplies<Bytes, Bytes>);
static_assert(!Adds<Rank, Rank> && !Adds<Rank, int> && !Adds<Bytes, Rank>);
static_assert(!Compares<Rank, StreamId> && !Equals<Rank, StreamId> && !Equals<BufferId, std::int32_t>);
static_assert(!std::convertible_to<std::int64_t, Bytes> && !std::convertible_to<Bytes, std::int64_t>);
static_assert(!std::convertible_to<Rank, std::int32_t> && !std::convertible_to<Rank, StreamId>);

TEST(Units, QuantitiesAreWholeNumbersWithArithmetic) {
  EXPECT_EQ(1_KiB, 1024_B);
  EXPECT_EQ(1_MiB, 1024 * 1_KiB);
  EXPECT_EQ(3_GiB, 1_GiB + 1_GiB * 2);
  EXPECT_EQ((10_B / 4).count(), 2);
  EXPECT_EQ(10_B / 4_B, 2);
  EXPECT_EQ(10_B % 4_B, 2_B);
  EXPECT_EQ(-(1_B), 4_B - 5_B);
  Bytes sum;
  EXPECT_EQ(sum, 0_B);
  sum += 5_B;
  sum -= 7_B;
  EXPECT_EQ(sum, Bytes{-2});  // differences are safe
}

TEST(Units, LargeSizesDoNotOverflow) { EXPECT_EQ((9'000'000 * 1_GiB).count(), 9'663'676'416'000'000); }

TEST(Units, RoundingUpGoesToTheNextMultiple) {
  EXPECT_EQ(round_up(0_B, 512_B), 0_B);
  EXPECT_EQ(round_up(1_B, 512_B), 512_B);
  EXPECT_EQ(round_up(512_B, 512_B), 512_B);
  EXPECT_EQ(round_up(513_B, 512_B), 1024_B);
  EXPECT_EQ(round_up(128257, 128), 128384);
}

TEST(Units, IdsAreInvalidUntilGiven) {
  EXPECT_FALSE(Rank{}.valid());
  EXPECT_TRUE(Rank{0}.valid());
  EXPECT_EQ(Rank{3}.index(), 3u);
  const std::unordered_set<Rank> ranks{Rank{1}, Rank{2}, Rank{1}};
  EXPECT_EQ(ranks.size(), 2u);
}

TEST(Units, ElementTypesHaveTheirSizes) {
  EXPECT_EQ(size_of(DType::BF16), 2_B);
  EXPECT_EQ(size_of(DType::FP16), 2_B);
  EXPECT_EQ(size_of(DType::FP32), 4_B);
  EXPECT_EQ(size_of(DType::INT32), 4_B);
  EXPECT_EQ(size_of(DType::INT64), 8_B);
  EXPECT_EQ(size_of(DType::BOOL), 1_B);
}

TEST(Units, CategoriesAreFoundByTheirNames) {
  for (std::size_t c = 0; c < category_count; ++c) {
    const auto category = static_cast<Category>(c);
    EXPECT_EQ(category_of(name(category)), category);
  }
  EXPECT_EQ(name(Category::Fragmentation), "fragmentation");  // the last one: no name is missing
  EXPECT_EQ(category_of("lunch"), std::nullopt);
}

TEST(Units, ACompositionSumsToItsTotal) {
  Composition parts;
  EXPECT_EQ(parts.total(), 0_B);
  parts[Category::Parameters] = 5_B;
  parts[Category::Fragmentation] += 7_B;
  EXPECT_EQ(parts.total(), 12_B);
}

}  // namespace
}  // namespace tidemark::tests::units_test
