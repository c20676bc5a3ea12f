// Pinned memory. Every expectation follows from ATen/core/CachingHostAllocator.h (PyTorch 2.15); the function is named.
#include "sim/memory/caching_host_allocator.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::caching_host_allocator_test {
namespace {

using namespace literals;

constexpr StreamId compute{0}, copies{1};

// allocate: PowerOf2Ceil
TEST(HostAllocator, RoundsUpToAPowerOfTwo) {
  CachingHostAllocator allocator;
  EXPECT_EQ(allocator.size(allocator.malloc(1_B)), 1_B);
  EXPECT_EQ(allocator.size(allocator.malloc(1_MiB)), 1_MiB);
  EXPECT_EQ(allocator.size(allocator.malloc(1_MiB + 1_B)), 2_MiB);
  EXPECT_EQ(allocator.held(), 3_MiB + 1_B);
  EXPECT_EQ(allocator.in_use(), allocator.held());
}

// get_free_block: blocks are not split, and only those of the same size class are looked at
TEST(HostAllocator, KeepsWhatIsFreedForRequestsOfThatSize) {
  CachingHostAllocator allocator;
  const BlockId large = allocator.malloc(8_MiB);
  allocator.free(large);
  EXPECT_EQ(allocator.in_use(), 0_B);
  (void)allocator.malloc(3_MiB);
  EXPECT_EQ(allocator.held(), 12_MiB);
  EXPECT_EQ(allocator.malloc(5_MiB), large);
  EXPECT_EQ(allocator.held(), 12_MiB);
}

// process_events: from the oldest on, until one is not ready
TEST(HostAllocator, ABlockWaitsForCopiesAndForThoseThatWereFreedBeforeIt) {
  CachingHostAllocator allocator;
  const BlockId first = allocator.malloc(4_MiB), second = allocator.malloc(4_MiB);
  allocator.record_event(first, copies);
  allocator.record_event(second, compute);
  allocator.free(first);
  allocator.free(second);
  EXPECT_EQ(allocator.in_use(), 8_MiB);
  allocator.events().finish(compute);
  EXPECT_EQ(allocator.size(allocator.malloc(4_MiB)), 4_MiB);
  EXPECT_EQ(allocator.held(), 12_MiB) << "the second waits behind the first";
  allocator.events().finish(copies);
  EXPECT_EQ(allocator.malloc(4_MiB), second) << "the latest to come back";
  EXPECT_EQ(allocator.malloc(4_MiB), first);
  EXPECT_EQ(allocator.held(), 12_MiB);
}

// free: an event on each stream
TEST(HostAllocator, ABlockWaitsForAllStreamsThatCopied) {
  CachingHostAllocator allocator;
  const BlockId block = allocator.malloc(1_MiB);
  for (const StreamId stream : {compute, copies, compute}) allocator.record_event(block, stream);
  allocator.free(block);
  allocator.events().finish(compute);
  allocator.process_events();
  EXPECT_EQ(allocator.in_use(), 1_MiB);
  allocator.events().finish(copies);
  allocator.process_events();
  EXPECT_EQ(allocator.in_use(), 0_B);
  EXPECT_EQ(allocator.empty_cache(), 1_MiB);
  EXPECT_EQ(allocator.held(), 0_B);
}

// allocate, maybe_cache_block
TEST(HostAllocator, LargeBlocksAreNeitherRoundedNorKeptIfOptionsSaySo) {
  CachingHostAllocator rounded_to_16({.max_rounded = 16_MiB});
  const BlockId large = rounded_to_16.malloc(20_MiB);
  EXPECT_EQ(rounded_to_16.held(), 20_MiB);
  rounded_to_16.free(large);
  EXPECT_EQ(rounded_to_16.size(rounded_to_16.malloc(24_MiB)), 24_MiB) << "the free one is too small";
  EXPECT_EQ(rounded_to_16.malloc(17_MiB), large);
  EXPECT_EQ(rounded_to_16.held(), 44_MiB);

  CachingHostAllocator kept_to_16({.max_cached = 16_MiB});
  kept_to_16.free(kept_to_16.malloc(20_MiB));
  EXPECT_EQ(kept_to_16.held(), 0_B);
  kept_to_16.free(kept_to_16.malloc(9_MiB));
  EXPECT_EQ(kept_to_16.held(), 16_MiB);
}

// ---- another account of the same: what was asked for and what has happened since, looked through from the beginning

struct PredictionDetail {
  std::int64_t size = 0;            // of the block
  std::vector<std::int64_t> waits;  // for copies, by number
  enum class State { Used, Waiting, Free, Gone } state = State::Used;
};

class Account {
 public:
  explicit Account(HostAllocatorOptions options) : options_(options) {}

  std::size_t take(std::int64_t requested) {
    look();
    std::int64_t size = 1;
    while (size < requested) size *= 2;
    const std::int64_t up_to = size;
    if (requested > options_.max_rounded.count() || requested > options_.max_cached.count()) size = requested;
    for (auto at = returned_.rbegin(); at != returned_.rend(); ++at) {
      PredictionDetail& its = reported_[*at];
      if (its.size < size || its.size > up_to || its.size * 2 <= up_to) continue;
      const std::size_t found = *at;
      its.state = PredictionDetail::State::Used;
      returned_.erase(std::next(at).base());
      return found;
    }
    reported_.push_back({size, {}, PredictionDetail::State::Used});
    return reported_.size() - 1;
  }
  void give(std::size_t block, const std::set<std::int64_t>& of_copies) {
    PredictionDetail& its = reported_[block];
    its.waits.assign(of_copies.begin(), of_copies.end());
    its.state = PredictionDetail::State::Waiting;
    if (of_copies.empty()) return back(block);
    waiting_.push_back(block);
  }
  void finish(std::int64_t copy) { done_.insert(copy); }
  void look() {
    while (!waiting_.empty()) {
      const std::size_t block = waiting_.front();
      if (!std::ranges::all_of(reported_[block].waits, [&](std::int64_t c) { return done_.contains(c); })) return;
      waiting_.erase(waiting_.begin());
      back(block);
    }
  }
  [[nodiscard]] std::int64_t sum(bool free_too) const {
    std::int64_t all = 0;
    for (const PredictionDetail& its : reported_)
      if (its.state != PredictionDetail::State::Gone && (free_too || its.state != PredictionDetail::State::Free))
        all += its.size;
    return all;
  }
  [[nodiscard]] std::int64_t size(std::size_t block) const { return reported_[block].size; }

 private:
  void back(std::size_t block) {
    PredictionDetail& its = reported_[block];
    its.state = its.size > options_.max_cached.count() ? PredictionDetail::State::Gone : PredictionDetail::State::Free;
    if (its.state == PredictionDetail::State::Free) returned_.push_back(block);
  }

  HostAllocatorOptions options_;
  std::vector<PredictionDetail> reported_;
  std::vector<std::size_t> returned_, waiting_;
  std::set<std::int64_t> done_;
};

TEST(HostAllocator, DoesAsAnotherAccountOfItDoes) {
  for (std::uint32_t seed = 0; seed < static_cast<std::uint32_t>(seeds(200)); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::int64_t>(random() % n); };
    HostAllocatorOptions options;
    if (seed % 3 == 1) options.max_rounded = Bytes{1000};
    if (seed % 5 == 2) options.max_cached = Bytes{2000};
    CachingHostAllocator allocator(options);
    Account account(options);
    struct Taken {
      BlockId block;
      std::size_t reported;
      std::set<std::int64_t> copies;
    };
    std::vector<Taken> taken;
    // One stream: what was recorded on it is done in order.
    std::int64_t recorded = 0, done = 0;
    for (int op = 0; op < 400; ++op) {
      switch (below(5)) {
        case 0:
        case 1: {
          const std::int64_t size = 1 + below(seed % 2 == 0 ? 64 : 5000);
          taken.push_back({allocator.malloc(Bytes{size}), account.take(size), {}});
          EXPECT_EQ(allocator.size(taken.back().block).count(), account.size(taken.back().reported));
          break;
        }
        case 2:
          if (!taken.empty()) {
            Taken& its = taken[static_cast<std::size_t>(below(static_cast<std::uint32_t>(taken.size())))];
            allocator.record_event(its.block, copies);
            its.copies = {0};
          }
          break;
        case 3:
          if (!taken.empty()) {
            const auto at = taken.begin() + below(static_cast<std::uint32_t>(taken.size()));
            if (!at->copies.empty()) at->copies = {++recorded};
            allocator.free(at->block);
            account.give(at->reported, at->copies);
            taken.erase(at);
          }
          break;
        case 4:
          if (done < recorded) {
            allocator.events().finish(copies, ++done);
            account.finish(done);
          }
          break;
      }
      EXPECT_EQ(allocator.held().count(), account.sum(true));
      EXPECT_EQ(allocator.in_use().count(), account.sum(false));
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::caching_host_allocator_test
