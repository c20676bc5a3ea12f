#include "sim/memory/caching_allocator.hpp"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/memory/allocator_text.hpp"

namespace tidemark::tests::caching_allocator_test {
namespace {

using namespace literals;

constexpr StreamId compute{0};
constexpr StreamId comm{1};

using Allocator = LoggedAllocator;

Allocator with_capacity(Bytes capacity) { return logged_allocator(capacity); }
Allocator roomy() { return with_capacity(1_GiB * 1024); }

std::string after_requests(const std::vector<Bytes>& requests) {
  Allocator allocator = roomy();
  for (const Bytes request : requests) take(allocator, request);
  return text(allocator.layout());
}

// A cache that holds one free block of `cached` bytes, then serves the request.
std::string after_reuse(Bytes cached, Bytes request) {
  Allocator allocator = roomy();
  allocator.free(take(allocator, cached));
  take(allocator, request);
  return text(allocator.layout());
}

TEST(CachingAllocator, RoundsToHalfKibibytes) {
  EXPECT_EQ(after_requests({1_B}), "2M[512* 2096640]");
  EXPECT_EQ(after_requests({512_B, 513_B}), "2M[512* 1K* 2095616]");
}

TEST(CachingAllocator, OneMebibyteIsTheLastSmallRequest) {
  EXPECT_EQ(after_requests({1_MiB}), "2M[1M* 1M]");
  EXPECT_EQ(after_requests({1_MiB + 1_B}), "20M[1049088* 19922432]");
  EXPECT_EQ(after_requests({1_MiB - 100_B}), "2M[1M* 1M]");
}

TEST(CachingAllocator, TenMebibytesIsTheFirstSegmentOfItsOwn) {
  EXPECT_EQ(after_requests({10_MiB}), "10M[10M*]");
  EXPECT_EQ(after_requests({10_MiB - 512_B}), "20M[10485248* 10486272]");
  EXPECT_EQ(after_requests({10_MiB + 1_B}), "12M[10486272* 2096640]");
}

TEST(CachingAllocator, LargePoolKeepsALeftoverOfOneMebibyteInTheBlock) {
  EXPECT_EQ(after_reuse(20_MiB, 19_MiB), "20M[20M*]");
  EXPECT_EQ(after_reuse(20_MiB, 19_MiB - 512_B), "20M[19922432* 1049088]");
  EXPECT_EQ(after_reuse(20_MiB, 18_MiB), "20M[18M* 2M]");
}

TEST(CachingAllocator, SmallPoolWastesNothing) {
  EXPECT_EQ(after_requests({1_MiB, 1_MiB}), "2M[1M* 1M*]");
  EXPECT_EQ(after_requests({1_MiB, 1_MiB - 512_B}), "2M[1M* 1048064* 512]");
  EXPECT_EQ(after_requests({1_MiB, 1_MiB - 512_B, 1_B}), "2M[1M* 1048064* 512*]");
}

TEST(CachingAllocator, RoundingOfTheSegmentIsSlackInTheBlock) {
  Allocator allocator = roomy();
  take(allocator, 25_MiB);
  EXPECT_EQ(text(allocator.layout()), "26M[26M*]");
  EXPECT_EQ(allocator.reserved(), 26_MiB);
  EXPECT_EQ(allocator.allocated(), 26_MiB);
  EXPECT_EQ(allocator.stats().all.requested.current, 25_MiB);
}

TEST(CachingAllocator, ASmallRequestMayCutAHugeBlock) { EXPECT_EQ(after_reuse(22_MiB, 2_MiB), "22M[2M* 20M]"); }

TEST(CachingAllocator, SmallRequestsNeverUseLargeBlocks) {
  EXPECT_EQ(after_reuse(20_MiB, 1_KiB), "20M[20M] 2M[1K* 2047K]");
}

TEST(CachingAllocator, BestFitIsTheSmallestThatFits) {
  Allocator allocator = roomy();
  const BlockId blocks[] = {take(allocator, 40_MiB), take(allocator, 30_MiB), take(allocator, 34_MiB)};
  for (const BlockId block : blocks) allocator.free(block);
  take(allocator, 31_MiB);
  EXPECT_EQ(text(allocator.layout()), "40M[40M] 30M[30M] 34M[31M* 3M]");
}

TEST(CachingAllocator, EqualFitsBreakTiesOnTheAddress) {
  Allocator allocator = roomy();
  const BlockId low = take(allocator, 30_MiB);
  const BlockId high = take(allocator, 30_MiB);
  allocator.free(high);
  allocator.free(low);
  take(allocator, 30_MiB);
  EXPECT_EQ(text(allocator.layout()), "30M[30M*] 30M[30M]");
}

TEST(CachingAllocator, FreedBlocksMergeWithBothNeighbours) {
  Allocator allocator = roomy();
  const BlockId a = take(allocator, 4_MiB);
  const BlockId b = take(allocator, 4_MiB);
  const BlockId c = take(allocator, 4_MiB);
  allocator.free(a);
  EXPECT_EQ(text(allocator.layout()), "20M[4M 4M* 4M* 8M]");
  allocator.free(c);
  EXPECT_EQ(text(allocator.layout()), "20M[4M 4M* 12M]");
  allocator.free(b);
  EXPECT_EQ(text(allocator.layout()), "20M[20M]");
}

TEST(CachingAllocator, SegmentsNeverMerge) {
  Allocator allocator = roomy();
  const BlockId a = take(allocator, 20_MiB);
  const BlockId b = take(allocator, 20_MiB);
  allocator.free(a);
  allocator.free(b);
  EXPECT_EQ(text(allocator.layout()), "20M[20M] 20M[20M]");
}

TEST(CachingAllocator, StreamsDoNotShareBlocks) {
  Allocator allocator = roomy();
  allocator.free(take(allocator, 12_MiB, comm));
  const BlockId block = take(allocator, 12_MiB, compute);
  EXPECT_EQ(text(allocator.layout()), "12M[12M] 12M[12M*]");
  EXPECT_EQ(allocator.stream(block), compute);
  take(allocator, 12_MiB, comm);
  EXPECT_EQ(text(allocator.layout()), "12M[12M*] 12M[12M*]");
}

TEST(CachingAllocator, EmptyCacheGivesBackLargeThenSmallInSetOrder) {
  Allocator allocator = roomy();
  std::vector<BlockId> blocks;
  blocks.push_back(take(allocator, 1_KiB));
  blocks.push_back(take(allocator, 24_MiB, comm));
  blocks.push_back(take(allocator, 30_MiB));
  blocks.push_back(take(allocator, 24_MiB));
  blocks.push_back(take(allocator, 24_MiB));
  blocks.push_back(take(allocator, 1_KiB, comm));
  take(allocator, 2_MiB);  // keeps its segment
  allocator.source().take_events();
  for (const BlockId block : blocks) allocator.free(block);

  EXPECT_EQ(allocator.empty_cache(), 106_MiB);
  const std::vector<SegmentEvent> events = allocator.source().take_events();
  EXPECT_EQ(text(events), "-24M -24M -30M -24M -2M -2M");
  EXPECT_LT(events[0].address, events[1].address);
  EXPECT_EQ(events[3].address, Address{(1 << 30) + (2 << 20)}) << "the other stream comes after all of the first";
  EXPECT_EQ(text(allocator.layout()), "20M[2M* 18M]");
  EXPECT_EQ(allocator.empty_cache(), 0_B);
}

TEST(CachingAllocator, AFullDeviceMakesItGiveBackTheWholeCacheAndRetry) {
  Allocator allocator = with_capacity(100_MiB);
  const BlockId a = take(allocator, 30_MiB);
  const BlockId b = take(allocator, 30_MiB);
  take(allocator, 30_MiB);
  allocator.free(a);
  allocator.free(b);
  take(allocator, 40_MiB);
  EXPECT_EQ(text(allocator.source().events()), "+30M +30M +30M -30M -30M +40M");
  EXPECT_EQ(allocator.stats().alloc_retries, 1);
  EXPECT_EQ(allocator.stats().ooms, 0);
  EXPECT_EQ(allocator.stats().device_allocs, 4);
  EXPECT_EQ(allocator.stats().device_frees, 2);
  EXPECT_EQ(allocator.stats().all.reserved.peak, 90_MiB);
}

TEST(CachingAllocator, OutOfMemoryComesWithItsEvidence) {
  Allocator allocator = with_capacity(64_MiB);
  take(allocator, 2_MiB);
  take(allocator, 20_MiB);
  allocator.free(take(allocator, 11_MiB));  // from the segment of the first: it cannot be given back
  const auto result = allocator.malloc(25_MiB, compute);
  EXPECT_EQ(std::get<OutOfMemory>(result),
            (OutOfMemory{
                .requested = 25_MiB, .segment = 26_MiB, .available = 24_MiB, .reserved = 40_MiB, .allocated = 22_MiB}));
  EXPECT_EQ(allocator.stats().alloc_retries, 1);
  EXPECT_EQ(allocator.stats().ooms, 1);
  take(allocator, 24_MiB);  // it goes on
}

TEST(CachingAllocator, AnExbibyteFailsWithoutARetry) {
  Allocator allocator = roomy();
  allocator.free(take(allocator, 30_MiB));
  EXPECT_TRUE(std::holds_alternative<OutOfMemory>(allocator.malloc(1_GiB * (1 << 30), compute)));
  EXPECT_EQ(allocator.stats().alloc_retries, 0);
  EXPECT_EQ(allocator.reserved(), 30_MiB);
}

TEST(CachingAllocator, StatisticsCountBlocksNotRequests) {
  Allocator allocator = roomy();
  const BlockId small = take(allocator, 100_B);
  const BlockId large = take(allocator, 3_MiB - 1_B);
  const PoolStats& all = allocator.stats().all;
  EXPECT_EQ(all.allocated.current, 3_MiB + 512_B);
  EXPECT_EQ(all.requested.current, 3_MiB + 99_B);
  EXPECT_EQ(all.reserved.current, 22_MiB);
  EXPECT_EQ(all.segments.current, 2);
  EXPECT_EQ(allocator.stats().small.allocated.current, 512_B);
  EXPECT_EQ(allocator.stats().large.allocations.current, 1);

  allocator.free(large);
  allocator.free(small);
  EXPECT_EQ(all.allocated, (Stat<Bytes>{.current = 0_B, .peak = 3_MiB + 512_B, .total = 3_MiB + 512_B}));
  EXPECT_EQ(all.active_blocks, (Stat<std::int64_t>{.current = 0, .peak = 2, .total = 2}));
  EXPECT_EQ(all.requested.current, 0_B);
  EXPECT_EQ(all.reserved.current, 22_MiB) << "a free gives nothing back to the device";

  allocator.reset_peaks();
  EXPECT_EQ(all.allocated.peak, 0_B);
  EXPECT_EQ(all.reserved.peak, 22_MiB);
  allocator.empty_cache();
  EXPECT_EQ(all.reserved.current, 0_B);
  EXPECT_EQ(all.segments, (Stat<std::int64_t>{.current = 0, .peak = 2, .total = 2}));
}

TEST(CachingAllocator, InactiveSplitIsWhatIsFreeInSegmentsPartlyInUse) {
  Allocator allocator = roomy();
  const PoolStats& large = allocator.stats().large;
  const BlockId a = take(allocator, 4_MiB);  // cuts a whole segment
  EXPECT_EQ(large.inactive_split.current, 16_MiB);
  EXPECT_EQ(large.inactive_split_blocks.current, 1);
  const BlockId b = take(allocator, 6_MiB);  // cuts the rest
  EXPECT_EQ(large.inactive_split.current, 10_MiB);
  EXPECT_EQ(large.inactive_split_blocks.current, 1);
  const BlockId c = take(allocator, 10_MiB);  // takes the rest whole
  EXPECT_EQ(large.inactive_split.current, 0_B);
  EXPECT_EQ(large.inactive_split_blocks.current, 0);
  allocator.free(a);
  allocator.free(c);
  EXPECT_EQ(large.inactive_split.current, 14_MiB);
  EXPECT_EQ(large.inactive_split_blocks.current, 2);
  allocator.free(b);  // one free segment again
  EXPECT_EQ(large.inactive_split.current, 0_B);
  EXPECT_EQ(large.inactive_split_blocks.current, 0);
}

TEST(CachingAllocator, RestoredStateContinuesAsTheOriginal) {
  Allocator original = roomy();
  const BlockId a = take(original, 3_MiB);
  take(original, 5_MiB, comm);
  const BlockId c = take(original, 700_B);
  take(original, 25_MiB);
  original.free(a);
  const std::vector<SegmentLayout> picture = original.layout();

  Allocator restored = roomy();
  const std::vector<BlockId> blocks = restored.restore(picture);
  EXPECT_EQ(restored.layout(), picture);
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(restored.size(blocks[0]), 5_MiB);
  EXPECT_EQ(restored.allocated(), original.allocated());
  EXPECT_EQ(restored.stats().all.inactive_split.current, original.stats().all.inactive_split.current);
  EXPECT_EQ(restored.stats().small.inactive_split_blocks.current, 1);

  EXPECT_EQ(restored.address(take(restored, 2_MiB)), original.address(take(original, 2_MiB)));
  restored.free(blocks[1]);
  original.free(c);
  EXPECT_EQ(restored.layout(), original.layout());
  EXPECT_EQ(restored.reserved(), original.reserved());
}

TEST(CachingAllocator, CopiesAreIndependent) {
  Allocator one = roomy();
  const BlockId block = take(one, 3_MiB);
  Allocator other = one;
  one.free(block);
  EXPECT_EQ(text(one.layout()), "20M[20M]");
  EXPECT_EQ(text(other.layout()), "20M[3M* 17M]");
}

TEST(CachingAllocatorDeathTest, FreesABlockOnlyOnce) {
  Allocator allocator = roomy();
  const BlockId block = take(allocator, 3_MiB);
  allocator.free(block);
  EXPECT_DEATH(allocator.free(block), "freed once");
  EXPECT_DEATH(static_cast<void>(allocator.malloc(0_B, compute)), "nothing");
}

TEST(CachingAllocator, LargeSegmentSizeIsAnOption) {
  CachingAllocator<InventedAddresses> allocator{{}, {.large_segment = 32_MiB}};
  EXPECT_TRUE(std::holds_alternative<BlockId>(allocator.malloc(2_MiB, compute)));
  EXPECT_EQ(allocator.reserved(), 32_MiB);
}

TEST(CachingAllocator, CountsMemoryAloneWhereThatWillDo) {
  CachingAllocator<InventedAddresses> all, memory({}, {}, {}, Counted::Memory);
  const auto both = [&](auto act) {
    act(all);
    act(memory);
  };
  both([](auto& allocator) {
    const BlockId first = std::get<BlockId>(allocator.malloc(30_MiB, StreamId{0}));
    (void)allocator.malloc(600_KiB, StreamId{0});
    allocator.free(first);
    (void)allocator.malloc(5_MiB, StreamId{0});
  });
  EXPECT_EQ(memory.layout(), all.layout());
  EXPECT_EQ(memory.stats().all.allocated, all.stats().all.allocated);
  EXPECT_EQ(memory.stats().all.reserved, all.stats().all.reserved);
  EXPECT_EQ(memory.stats().device_allocs, all.stats().device_allocs);
  EXPECT_EQ(all.stats().large.inactive_split.current, 25_MiB);
  EXPECT_EQ(memory.stats().large.inactive_split.current, 0_B);
}

}  // namespace
}  // namespace tidemark::tests::caching_allocator_test
