#include "kernels/execute/world/world.hpp"

#include <atomic>

#include <gtest/gtest.h>

#include "tests/kernels/thread_world.hpp"

namespace tidemark::tests::world_test {
namespace {

class Worlds : public testing::TestWithParam<int> {};

TEST_P(Worlds, NobodyLeavesABarrierBeforeAllHaveCome) {
  const int n = GetParam();
  std::atomic<int> came = 0;
  const auto ends = on_ranks(n, [&](World& world) {
    for (int round = 1; round <= 30; ++round) {
      ++came;
      world.barrier();
      EXPECT_GE(came, round * n);
      world.barrier();
    }
  });
  EXPECT_EQ(ends, all_well(n));
}

TEST_P(Worlds, RankZeroGathersWhatEveryoneSays) {
  const int n = GetParam();
  const auto ends = on_ranks(n, [&](World& world) {
    // Nothing, and more than a line.
    const std::string mine =
        world.rank().value == 1 ? "" : std::string(5000, static_cast<char>('a' + world.rank().value));
    const std::vector<std::string> all = world.gather(mine);
    if (world.rank().value != 0) {
      EXPECT_TRUE(all.empty());
      return;
    }
    ASSERT_EQ(std::ssize(all), n);
    for (int r = 0; r < n; ++r)
      EXPECT_EQ(all[static_cast<std::size_t>(r)], r == 1 ? "" : std::string(5000, static_cast<char>('a' + r)));
  });
  EXPECT_EQ(ends, all_well(n));
}

TEST_P(Worlds, EveryoneHearsRankZero) {
  const auto ends = on_ranks(GetParam(), [&](World& world) {
    EXPECT_EQ(world.broadcast(world.rank().value == 0 ? "zero" : "not me"), "zero");
    EXPECT_EQ(world.broadcast(world.rank().value == 0 ? "" : "not me"), "");
  });
  EXPECT_EQ(ends, all_well(GetParam()));
}

TEST_P(Worlds, EveryoneHearsTheFirstWhoHasSomethingToSay) {
  const auto ends = on_ranks(GetParam(), [&](World& world) {
    EXPECT_EQ(world.first_said(""), "");
    const int last = GetParam() - 1;
    EXPECT_EQ(world.first_said(world.rank().value == last ? "last" : ""), "last");
    EXPECT_EQ(world.first_said(std::to_string(world.rank().value)), "0");
  });
  EXPECT_EQ(ends, all_well(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Worlds, testing::Values(1, 2, 3, 4, 7));

TEST(World, AFailureOnOneRankEndsAll) {
  const auto ends = on_ranks(3, [&](World& world) {
    if (world.rank().value == 1) throw std::runtime_error("the disk is on fire");
    world.barrier();
  });
  EXPECT_EQ(ends, std::vector<std::string>(3, "rank 1: the disk is on fire"));
}

TEST(World, NothingWaitsLongerThanTheTimeLimit) {
  const auto ends = on_ranks(
      3,
      [&](World& world) {
        if (world.rank().value != 1) world.barrier();
      },
      std::chrono::milliseconds(50));
  EXPECT_EQ(ends[1], "");
  EXPECT_NE(ends[0].find("a barrier took too long"), std::string::npos);
  EXPECT_EQ(ends[0], ends[2]);
}

}  // namespace
}  // namespace tidemark::tests::world_test
