#include "parallel/stages.hpp"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tidemark {
namespace {

// "E 0-3 | 4-7 H": embedding, layers, head.
std::string stages(std::int32_t layers, const Layout& layout) {
  std::string out;
  for (const Stage& s : split_into_stages(layers, layout))
    out += fmt::format("{}{}{}-{}{}", out.empty() ? "" : " | ", s.embedding ? "E " : "", s.first, s.last - 1,
                       s.head ? " H" : "");
  return out;
}

TEST(Stages, LayersAreSharedEqually) {
  EXPECT_EQ(stages(8, {}), "E 0-7 H");
  EXPECT_EQ(stages(8, {.pipeline = 2}), "E 0-3 | 4-7 H");
  EXPECT_EQ(stages(8, {.pipeline = 4}), "E 0-1 | 2-3 | 4-5 | 6-7 H");
}

TEST(Stages, EmbeddingAndLossMayTakeALayersPlace) {
  EXPECT_EQ(stages(6, {.pipeline = 2, .count_embedding = true, .count_loss = true}), "E 0-2 | 3-5 H");
  EXPECT_EQ(stages(6, {.pipeline = 4, .count_embedding = true, .count_loss = true}), "E 0-0 | 1-2 | 3-4 | 5-5 H");
  EXPECT_EQ(stages(7, {.pipeline = 4, .count_embedding = true}), "E 0-0 | 1-2 | 3-4 | 5-6 H");
  EXPECT_EQ(stages(7, {.pipeline = 4, .count_loss = true}), "E 0-1 | 2-3 | 4-5 | 6-6 H");
}

TEST(Stages, Llama405bOnSixteenStages) {
  const std::vector<Stage> found =
      split_into_stages(126, {.pipeline = 16, .count_embedding = true, .count_loss = true});
  ASSERT_EQ(found.size(), 16u);
  EXPECT_EQ(found.front(), (Stage{.first = 0, .last = 7, .embedding = true, .head = false}));
  EXPECT_EQ(found.back(), (Stage{.first = 119, .last = 126, .embedding = false, .head = true}));
  for (std::size_t s = 1; s < 15; ++s) {
    EXPECT_EQ(found[s].layers(), 8);
    EXPECT_EQ(found[s].first, found[s - 1].last);
  }
}

TEST(Stages, AStageHoldsItsLayersAndTheEndsBelongToTheEnds) {
  const std::vector<Stage> found = split_into_stages(4, {.pipeline = 2});
  const auto held = [&](std::size_t s) {
    std::string out;
    for (std::int32_t layer = -1; layer <= 4; ++layer) out += found[s].holds(layer, 4) ? 'x' : '.';
    return out;
  };
  EXPECT_EQ(held(0), "xxx...");
  EXPECT_EQ(held(1), "...xxx");
}

TEST(StagesDeathTest, WhatDoesNotDivideNeverGetsHere) {
  EXPECT_DEATH((void)split_into_stages(7, {.pipeline = 2}), "equal stages");
}

}  // namespace
}  // namespace tidemark
