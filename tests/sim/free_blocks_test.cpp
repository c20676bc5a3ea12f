#include "sim/free_blocks.hpp"

#include <random>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tidemark {
namespace {

TEST(FreeBlocks, BehaveAsAnOrderedSet) {
  std::mt19937_64 random(7);
  FreeBlocks blocks;
  std::set<std::pair<Bytes, Address>> expected;
  for (int step = 0; step < 100'000; ++step) {
    const Bytes size{static_cast<std::int64_t>(random() % 64)};
    const Address address{random() % 64};
    const bool grow = step / 10'000 % 2 == 0;  // up to the thousands, then down to none
    if (random() % 4 == 0 ? !grow : grow) {
      if (expected.emplace(size, address).second) blocks.insert({size, address, BlockId{step}});
    } else if (const auto found = expected.lower_bound({size, Address{}}); found != expected.end()) {
      blocks.erase(found->first, found->second);
      expected.erase(found);
    }
    ASSERT_EQ(blocks.size(), expected.size());
    const auto fit = blocks.best_fit(size);
    const auto expected_fit = expected.lower_bound({size, Address{}});
    ASSERT_EQ(fit.has_value(), expected_fit != expected.end());
    if (!fit) continue;
    ASSERT_EQ(std::pair(blocks.at(*fit).size, blocks.at(*fit).address), *expected_fit);
  }
  std::vector<std::pair<Bytes, Address>> order;
  blocks.for_each([&](const FreeBlock& block) { order.emplace_back(block.size, block.address); });
  EXPECT_EQ(order, std::vector(expected.begin(), expected.end()));
}

}  // namespace
}  // namespace tidemark
