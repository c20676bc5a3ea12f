#include "parallel/frameworks/pytorch/fsdp/flat_parameter.hpp"

#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tidemark::tests::flat_parameter_test {
namespace {

using parallel::pytorch::FlatLayout;

// "begin+elements", padding in brackets.
std::string text(const FlatLayout& layout) {
  std::string out;
  for (const FlatLayout::Part& part : layout.parts()) {
    const std::string its = fmt::format("{}+{}", part.begin, part.elements);
    out += (out.empty() ? "" : " ") + (part.padding ? "[" + its + "]" : its);
  }
  return out;
}

TEST(FlatLayout, FollowsTheParameters) {
  const FlatLayout layout({10, 3, 6}, {}, 4);
  EXPECT_EQ(text(layout), "0+10 10+3 13+6");
  EXPECT_EQ(layout.of_rank(), 5);  // the last one's has an element of padding
}

TEST(FlatLayout, PadsEachToItsAlignmentAndAllToTheRanks) {
  const FlatLayout layout({10, 3, 6}, {.each = 8, .all = 5}, 5);
  EXPECT_EQ(text(layout), "0+10 [10+6] 16+3 [19+5] 24+6");
  EXPECT_EQ(text(FlatLayout({10, 3}, {.each = 8, .all = 5}, 5)), "0+10 [10+6] 16+3 [19+1]");
}

TEST(FlatLayout, ShardsHoldEveryElementOnce) {
  const std::vector<std::int64_t> sizes{17, 1, 64, 5};
  for (const std::int64_t ranks : {1, 2, 3, 7, 40}) {
    const FlatLayout layout(sizes, {.each = 4, .all = ranks}, ranks);
    for (const FlatLayout::Part& part : layout.parts()) {
      std::int64_t next = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const FlatLayout::Overlap its = layout.in_shard(part, rank);
        if (its.elements == 0) continue;
        EXPECT_EQ(its.in_part, next);
        EXPECT_LE(its.in_shard + its.elements, layout.of_rank());
        next += its.elements;
      }
      EXPECT_EQ(next, part.elements);
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::flat_parameter_test
