#include "parallel/expert_routing.hpp"

#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests {
namespace {

using Counts = std::vector<std::int64_t>;

std::int64_t sum(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

TEST(ExpertRouting, EqualSharesAreAsEqualAsWholeNumbers) {
  const Experts experts{.count = 8, .chosen = 2};
  EXPECT_EQ(choices_of_experts(experts, {}, 16, 1), Counts(8, 4));
  const Counts counts = choices_of_experts(experts, {}, 15, 4);
  EXPECT_EQ(sum(counts), 30);
  for (const std::int64_t count : counts) EXPECT_TRUE(count == 3 || count == 4);
}

TEST(ExpertRouting, TheFirstRankGetsWhatIsStated) {
  const Experts experts{.count = 8, .chosen = 2};
  const Counts counts = choices_of_experts(experts, {.imbalance = 1.5}, 64, 4);
  EXPECT_EQ(counts[0] + counts[1], 48);  // of 128, a rank's share is 32
  EXPECT_EQ(sum(counts), 128);
  // No expert is chosen by one token twice.
  EXPECT_EQ(choices_of_experts(experts, {.imbalance = 100}, 64, 4)[0], 64);
}

TEST(ExpertRouting, LoadsAreKeptInProportion) {
  const Experts experts{.count = 4, .chosen = 2};
  EXPECT_EQ(choices_of_experts(experts, {.loads = {1, 2, 2, 3}}, 16, 1), (Counts{4, 8, 8, 12}));
}

TEST(ExpertRouting, TokensChooseDifferentExpertsUntilTheCountsAreReached) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const std::int64_t chosen = 1 + static_cast<std::int64_t>(random() % 4), ranks = 1 << (random() % 3);
    const Experts experts{.count = ranks * (4 + static_cast<std::int64_t>(random() % 4)), .chosen = chosen};
    const std::int64_t tokens = 1 + static_cast<std::int64_t>(random() % 40);
    const ExpertRouting routing{.imbalance = 1 + 0.1 * static_cast<double>(random() % 20)};
    const Counts counts = choices_of_experts(experts, routing, tokens, static_cast<std::int32_t>(ranks));
    Counts found(counts.size());
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::set<std::int64_t> its;
      for (std::int64_t choice = 0; choice < chosen; ++choice) its.insert(chosen_expert(counts, tokens, token, choice));
      ASSERT_EQ(static_cast<std::int64_t>(its.size()), chosen);
      for (const std::int64_t expert : its) ++found[static_cast<std::size_t>(expert)];
    }
    EXPECT_EQ(found, counts);
  }
}

// Megatron-LM core 0.14, core/transformer/moe/moe_utils.py get_capacity: rounded up.
TEST(ExpertRouting, CapacityDropsAndPads) {
  const Experts experts{.count = 8, .chosen = 2};
  const ExpertRouting drops{.capacity_factor = 1.1, .imbalance = 2};
  EXPECT_EQ(capacity_of(experts, drops, 16), 5);
  const Counts rows = rows_of_experts(experts, drops, 16, 4);
  EXPECT_EQ(rows[0], 5);
  EXPECT_LE(rows[7], 4);
  EXPECT_EQ(rows_of_experts(experts, {.capacity_factor = 1.1, .pads_to_capacity = true}, 16, 4), Counts(8, 5));
}

}  // namespace
}  // namespace tidemark::tests
