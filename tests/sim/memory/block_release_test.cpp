// Which cached segments go back to the device, when, and in what order. Every expectation follows from
// c10/cuda/CUDACachingAllocator.cpp (PyTorch 2.10); the function is named where it is not malloc.
#include <gtest/gtest.h>

#include "sim/memory/block_map.hpp"
#include "tests/sim/memory/allocator_text.hpp"

namespace tidemark::tests::block_release_test {
namespace {

using namespace literals;

constexpr StreamId comm{1};

// -- max_split_size_mb, max_non_split_rounding_mb ---------------------------------------------------------------------

const AllocatorOptions split_40{.max_split_size = 40_MiB};

// A cache that holds one free block of `cached` bytes, then serves the request.
std::string after_reuse(const AllocatorOptions& options, Bytes cached, Bytes request) {
  LoggedAllocator allocator = logged_allocator(1_GiB, options);
  allocator.free(take(allocator, cached));
  take(allocator, request);
  return text(allocator.layout());
}

// get_free_block, should_split
TEST(MaxSplitSize, SmallerRequestsLeaveOversizeBlocksAlone) {
  EXPECT_EQ(after_reuse(split_40, 50_MiB, 30_MiB), "50M[50M] 30M[30M*]");
  EXPECT_EQ(after_reuse(split_40, 40_MiB, 30_MiB), "40M[40M] 30M[30M*]");
  EXPECT_EQ(after_reuse(split_40, 38_MiB, 30_MiB), "38M[30M* 8M]");
  EXPECT_EQ(after_reuse({}, 50_MiB, 30_MiB), "50M[30M* 20M]");
}

TEST(MaxSplitSize, OversizeRequestsTakeBlocksWholeWithinTheRounding) {
  EXPECT_EQ(after_reuse(split_40, 64_MiB, 45_MiB), "64M[64M*]");
  EXPECT_EQ(after_reuse(split_40, 66_MiB, 46_MiB), "66M[66M] 46M[46M*]") << "20 MiB more is too much";
  EXPECT_EQ(after_reuse({.max_split_size = 40_MiB, .max_non_split_rounding = 40_MiB}, 84_MiB, 46_MiB), "84M[84M*]");
  EXPECT_EQ(after_reuse({.max_split_size = 40_MiB, .max_non_split_rounding = 40_MiB}, 86_MiB, 46_MiB),
            "86M[86M] 46M[46M*]");
}

TEST(MaxSplitSize, OnlyTheSmallestBlockThatFitsIsLookedAt) {
  LoggedAllocator allocator = logged_allocator(1_GiB, split_40);
  const BlockId oversize = take(allocator, 50_MiB);
  const BlockId larger = take(allocator, 60_MiB);
  allocator.free(oversize);
  allocator.free(larger);
  take(allocator, 38_MiB);
  EXPECT_EQ(text(allocator.layout()), "50M[50M] 60M[60M] 38M[38M*]");
}

// A segment for a request below the limit may itself be oversize; it is cut, and whole again once it is free.
TEST(MaxSplitSize, ANewSegmentIsCutForASmallerRequest) {
  LoggedAllocator allocator = logged_allocator(1_GiB, {.max_split_size = 20_MiB});
  const BlockId block = take(allocator, 2_MiB);
  EXPECT_EQ(text(allocator.layout()), "20M[2M* 18M]");
  allocator.free(block);
  take(allocator, 2_MiB);
  EXPECT_EQ(text(allocator.layout()), "20M[20M] 20M[2M* 18M]") << "20 MiB is oversize";
}

TEST(MaxSplitSize, OversizeBlocksAndSegmentsAreCounted) {
  LoggedAllocator allocator = logged_allocator(1_GiB, split_40);
  take(allocator, 30_MiB);
  const BlockId a = take(allocator, 40_MiB);
  take(allocator, 50_MiB);
  allocator.free(a);
  EXPECT_EQ(allocator.stats().oversize_allocations, (Stat<std::int64_t>{.current = 1, .peak = 2, .total = 2}));
  EXPECT_EQ(allocator.stats().oversize_segments, (Stat<std::int64_t>{.current = 2, .peak = 2, .total = 2}));
  allocator.empty_cache();
  EXPECT_EQ(allocator.stats().oversize_segments.current, 1);
}

// -- what goes first when the device is full: release_available_cached_blocks -----------------------------------------

TEST(OversizeRelease, OneSegmentThatIsLargeEnoughIsAllThatGoes) {
  LoggedAllocator allocator = logged_allocator(130_MiB, split_40);
  const BlockId a = take(allocator, 50_MiB);
  const BlockId b = take(allocator, 60_MiB);
  const BlockId c = take(allocator, 12_MiB);
  for (const BlockId block : {a, b, c}) allocator.free(block);
  allocator.source().take_events();
  take(allocator, 30_MiB);  // below the limit: a segment of the limit's size is looked for
  EXPECT_EQ(text(allocator.source().events()), "-50M +30M");
  EXPECT_EQ(allocator.stats().alloc_retries, 0);
  EXPECT_EQ(allocator.stats().sync_all_streams, 0);
}

TEST(OversizeRelease, OtherwiseTheLargestGoUntilTheirSumIsEnough) {
  LoggedAllocator allocator = logged_allocator(200_MiB, split_40);
  const BlockId a = take(allocator, 50_MiB);
  const BlockId b = take(allocator, 60_MiB);
  const BlockId c = take(allocator, 40_MiB);
  const BlockId d = take(allocator, 30_MiB);
  for (const BlockId block : {a, b, c, d}) allocator.free(block);
  allocator.source().take_events();
  take(allocator, 80_MiB);
  EXPECT_EQ(text(allocator.source().events()), "-60M -50M +80M");
  EXPECT_EQ(allocator.stats().alloc_retries, 0);
}

TEST(OversizeRelease, WhatIsNotEnoughIsGoneAllTheSame) {
  LoggedAllocator allocator = logged_allocator(100_MiB, split_40);
  const BlockId cached = take(allocator, 46_MiB);
  take(allocator, 50_MiB);
  allocator.free(cached);
  allocator.source().take_events();
  EXPECT_FALSE(try_take(allocator, 60_MiB));
  EXPECT_EQ(text(allocator.source().events()), "-46M");
  EXPECT_EQ(allocator.stats().alloc_retries, 1);
  EXPECT_EQ(allocator.stats().ooms, 1);
}

TEST(OversizeRelease, OtherStreamsAndTheRestGoOnlyWithTheWholeCache) {
  LoggedAllocator allocator = logged_allocator(130_MiB, split_40);
  const BlockId ours = take(allocator, 40_MiB);
  const BlockId theirs = take(allocator, 50_MiB, comm);
  const BlockId small = take(allocator, 30_MiB);
  for (const BlockId block : {ours, theirs, small}) allocator.free(block);
  allocator.source().take_events();
  take(allocator, 100_MiB);
  EXPECT_EQ(text(allocator.source().events()), "-40M -30M -50M +100M");
  EXPECT_EQ(allocator.stats().alloc_retries, 1);
}

// -- garbage_collection_threshold: garbage_collect_cached_blocks ------------------------------------------------------

AllocatorOptions collecting(double threshold) {
  return {.garbage_collection_threshold = threshold, .memory_fraction = 0.5, .device_memory = 1000_MiB};
}

// 460 MiB reserved of the 500 that are allowed. Two segments are free: the first since the fourth search of the pool,
// the second since the fifth.
LoggedAllocator nearly_full(const AllocatorOptions& options) {
  LoggedAllocator allocator = logged_allocator(1_GiB, options);
  const BlockId a = take(allocator, 100_MiB);
  const BlockId b = take(allocator, 120_MiB);
  take(allocator, 140_MiB);
  take(allocator, 100_MiB);
  allocator.free(a);
  allocator.free(b);
  allocator.free(take(allocator, 120_MiB));
  allocator.source().take_events();
  return allocator;
}

TEST(GarbageCollection, SegmentsOlderThanTheAverageGoFirst) {
  LoggedAllocator allocator = nearly_full(collecting(0.8));
  take(allocator, 130_MiB);  // 60 MiB above the threshold; ages 2 and 1
  EXPECT_EQ(text(allocator.source().events()), "-100M +130M");
  EXPECT_EQ(allocator.stats().alloc_retries, 0);
}

TEST(GarbageCollection, RoundsGoOnUntilTheTargetIsReached) {
  LoggedAllocator allocator = nearly_full(collecting(0.6));  // 160 MiB above
  take(allocator, 130_MiB);
  EXPECT_EQ(text(allocator.source().events()), "-100M -120M +130M");
}

TEST(GarbageCollection, OneRoundTakesAllThatAreOldEnough) {
  LoggedAllocator allocator = logged_allocator(1_GiB, collecting(0.8));
  const BlockId a = take(allocator, 100_MiB);
  const BlockId b = take(allocator, 120_MiB);
  take(allocator, 140_MiB);
  take(allocator, 100_MiB);
  allocator.free(a);
  allocator.free(b);
  allocator.source().take_events();
  take(allocator, 130_MiB);  // 60 MiB above; both of age 1
  EXPECT_EQ(text(allocator.source().events()), "-100M -120M +130M");
}

TEST(GarbageCollection, NothingGoesAtTheThresholdOrOnAHit) {
  LoggedAllocator allocator = nearly_full(collecting(0.92));  // 460 MiB
  take(allocator, 120_MiB);
  EXPECT_EQ(text(allocator.source().events()), "");
  EXPECT_TRUE(try_take(allocator, 12_MiB));
  EXPECT_TRUE(try_take(allocator, 30_MiB));
  EXPECT_EQ(text(allocator.source().events()), "");
}

TEST(GarbageCollection, OnlyWholeSegmentsOfTheLargeDefaultPoolGo) {
  LoggedAllocator allocator = logged_allocator(1_GiB, collecting(0.1));
  allocator.free(take(allocator, 1_MiB));
  const BlockId half = take(allocator, 5_MiB);
  take(allocator, 5_MiB);
  allocator.free(half);
  allocator.begin_allocate_to_pool({1, 0});
  allocator.free(take(allocator, 60_MiB));
  allocator.end_allocate_to_pool({1, 0});
  allocator.source().take_events();
  take(allocator, 100_MiB);
  EXPECT_EQ(text(allocator.source().events()), "+100M");
}

TEST(GarbageCollection, NeedsALimit) {
  AllocatorOptions options = collecting(0.1);
  options.memory_fraction = 1;
  LoggedAllocator allocator = nearly_full(options);
  take(allocator, 130_MiB);
  EXPECT_EQ(text(allocator.source().events()), "+130M");
}

// -- per_process_memory_fraction: alloc_block -------------------------------------------------------------------------

TEST(MemoryFraction, TheAllocatorStopsAtItsShare) {
  LoggedAllocator allocator = logged_allocator(1_GiB, {.memory_fraction = 0.5, .device_memory = 100_MiB});
  const BlockId a = take(allocator, 30_MiB);
  take(allocator, 20_MiB);
  EXPECT_FALSE(try_take(allocator, 2_MiB));
  EXPECT_EQ(allocator.stats().ooms, 1);
  allocator.free(a);
  take(allocator, 12_MiB);  // from the cache
  EXPECT_FALSE(try_take(allocator, 20_MiB)) << "part of the cached segment is in use";
  EXPECT_EQ(allocator.stats().alloc_retries, 2);
  EXPECT_EQ(allocator.reserved(), 50_MiB);
}

}  // namespace
}  // namespace tidemark::tests::block_release_test
