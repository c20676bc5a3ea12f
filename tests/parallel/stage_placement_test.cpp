#include "parallel/schedule/stage_placement.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::stage_placement_test {
namespace {

using Stages = std::vector<std::int32_t>;

Stages of_chunk(const StagePlacement& placement, std::int32_t chunk) {
  Stages stages;
  for (std::int32_t rank = 0; rank < placement.ranks; ++rank) stages.push_back(placement.stage_of({rank, chunk}));
  return stages;
}

TEST(StagePlacement, EachChunkGoesRoundALoop) {
  const StagePlacement loop{PlacementShape::Loop, 4, 2};
  EXPECT_EQ(loop.stages(), 8);
  EXPECT_EQ(of_chunk(loop, 0), (Stages{0, 1, 2, 3}));
  EXPECT_EQ(of_chunk(loop, 1), (Stages{4, 5, 6, 7}));
  EXPECT_EQ(loop.next({3, 0}), (Place{0, 1}));
}

TEST(StagePlacement, EverySecondChunkComesBackInAV) {
  const StagePlacement v{PlacementShape::V, 4, 2};
  EXPECT_EQ(v.stages(), 8);
  EXPECT_EQ(of_chunk(v, 0), (Stages{0, 1, 2, 3}));
  EXPECT_EQ(of_chunk(v, 1), (Stages{7, 6, 5, 4}));
  EXPECT_EQ(v.next({3, 0}), (Place{3, 1}));
  EXPECT_EQ(v.previous({0, 1}), (Place{1, 1}));
}

TEST(StagePlacement, TwoReplicasRunBothWays) {
  const StagePlacement both{PlacementShape::BothWays, 4, 2};
  EXPECT_EQ(both.stages(), 4);
  EXPECT_EQ(of_chunk(both, 0), (Stages{0, 1, 2, 3}));
  EXPECT_EQ(of_chunk(both, 1), (Stages{3, 2, 1, 0}));
  EXPECT_EQ(both.next({3, 0}), std::nullopt);
  EXPECT_EQ(both.next({3, 1}), (Place{2, 1}));
  EXPECT_EQ(both.previous({3, 1}), std::nullopt);
}

TEST(StagePlacement, NeighboursLeadThroughAllStagesInOrder) {
  for (const PlacementShape shape : {PlacementShape::Loop, PlacementShape::V, PlacementShape::BothWays})
    for (std::int32_t ranks = 1; ranks <= 4; ++ranks) {
      const StagePlacement placement{shape, ranks, 2};
      for (std::int32_t rank = 0; rank < ranks; ++rank)
        for (std::int32_t chunk = 0; chunk < 2; ++chunk) {
          const Place at{rank, chunk};
          const std::int32_t stage = placement.stage_of(at);
          if (const auto next = placement.next(at)) {
            EXPECT_EQ(placement.stage_of(*next), stage + 1);
            EXPECT_EQ(placement.previous(*next), at);
          } else {
            EXPECT_EQ(stage, placement.stages() - 1);
          }
          if (shape == PlacementShape::BothWays) continue;
          EXPECT_EQ(placement.place_of(stage), at);
        }
    }
}

}  // namespace
}  // namespace tidemark::tests::stage_placement_test
