#include "sim/memory/free_blocks.hpp"

#include <iterator>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::free_blocks_test {
namespace {

using Key = std::pair<Bytes, Address>;

Key key(const FreeBlock& block) { return {block.size, block.address}; }

// Grows up to thousands of blocks, and shrinks down to none, in turn; sizes and addresses as `any` gives them.
template <class Any>
void expect_an_ordered_set(Any any) {
  std::mt19937_64 random(7);
  FreeBlocks blocks;
  std::set<Key> expected;
  for (int step = 0; step < seeds(200'000); ++step) {
    const auto [size, address] = any(random);
    const bool grow = step / 10'000 % 2 == 0;
    if (random() % 4 == 0 ? !grow : grow) {
      if (expected.emplace(size, address).second) blocks.insert(size, address, BlockId{step});
    } else if (const auto found = expected.lower_bound({size, Address{}}); found != expected.end()) {
      if (step % 2 == 0)
        blocks.erase(found->first, found->second);
      else
        blocks.erase(blocks.best_fit(size));
      expected.erase(found);
    }
    const FreeBlock* const fit = blocks.best_fit(size);
    const auto expected_fit = expected.lower_bound({size, Address{}});
    ASSERT_EQ(fit != nullptr, expected_fit != expected.end());
    ASSERT_EQ(blocks.last() != nullptr, !expected.empty());
    if (!expected.empty()) {
      ASSERT_EQ(key(*blocks.last()), *expected.rbegin());
    }
    if (fit == nullptr) continue;
    ASSERT_EQ(key(*fit), *expected_fit);
    const FreeBlock* const next = blocks.next(fit);
    ASSERT_EQ(next != nullptr, std::next(expected_fit) != expected.end());
    if (next != nullptr) {
      ASSERT_EQ(key(*next), *std::next(expected_fit));
    }
    const FreeBlock* const previous = blocks.previous(fit);
    ASSERT_EQ(previous != nullptr, expected_fit != expected.begin());
    if (previous != nullptr) {
      ASSERT_EQ(key(*previous), *std::prev(expected_fit));
    }
  }
  ASSERT_EQ(blocks.size(), expected.size());
  std::vector<Key> order;
  blocks.for_each([&](const FreeBlock& block) { order.push_back(key(block)); });
  EXPECT_EQ(order, std::vector(expected.begin(), expected.end()));
}

TEST(FreeBlocks, BehaveAsAnOrderedSet) {
  expect_an_ordered_set([](std::mt19937_64& random) {
    return Key{Bytes{static_cast<std::int64_t>(random() % 64)}, Address{random() % 64}};
  });
}

TEST(FreeBlocks, BehaveAsAnOrderedSetOfOneSize) {
  expect_an_ordered_set([](std::mt19937_64& random) { return Key{Bytes{512}, Address{random() % 4096}}; });
}

TEST(FreeBlocks, BehaveAsAnOrderedSetOfSizesOfAllMagnitudes) {
  expect_an_ordered_set([](std::mt19937_64& random) {
    const auto size = static_cast<std::int64_t>(random() >> (1 + random() % 63));
    return Key{Bytes{size}, Address{random() % 8}};
  });
}

}  // namespace
}  // namespace tidemark::tests::free_blocks_test
