// Expandable segments. Every expectation follows from c10/cuda/CUDACachingAllocator.cpp (PyTorch 2.10); the function is
// named where it is not try_allocate_expandable_block.
#include <gtest/gtest.h>

#include "sim/memory/block_map.hpp"
#include "tests/sim/memory/allocator_text.hpp"

namespace tidemark::tests::block_expansion_test {
namespace {

using namespace literals;

constexpr StreamId comm{1};

LoggedAllocator expandable(Bytes capacity, AllocatorOptions options = {}) {
  options.expandable_segments = true;
  if (options.device_memory > 1_GiB) options.device_memory = 1_GiB;
  return logged_allocator(capacity, options);
}

TEST(ExpandableSegments, GrowByPagesForWhatIsMissing) {
  LoggedAllocator allocator = expandable(1_GiB);
  take(allocator, 2_MiB);
  EXPECT_EQ(text(allocator.layout()), "20M[2M* 18M]");
  take(allocator, 25_MiB);  // 7 MiB more than the free tail
  EXPECT_EQ(text(allocator.layout()), "40M[2M* 25M* 13M]");
  take(allocator, 55_MiB);  // 42 MiB more: three pages
  EXPECT_EQ(text(allocator.layout()), "100M[2M* 25M* 55M* 18M]");
  EXPECT_EQ(text(allocator.source().events()), "m20M m20M m60M");
  EXPECT_EQ(allocator.stats().device_allocs, 3);
}

TEST(ExpandableSegments, PagesOfTheSmallPoolHave2MiB) {
  LoggedAllocator allocator = expandable(1_GiB);
  take(allocator, 1_MiB);
  take(allocator, 1_MiB - 512_B);
  take(allocator, 1_KiB);
  EXPECT_EQ(text(allocator.source().events()), "m2M m2M");
  EXPECT_EQ(text(allocator.layout()), "4M[1M* 1048064* 1K* 2096640]");
}

TEST(ExpandableSegments, LargeSegmentSizeIsTheirPage) {
  LoggedAllocator allocator = expandable(1_GiB, {.large_segment = 12_MiB});
  take(allocator, 13_MiB);
  EXPECT_EQ(text(allocator.source().events()), "m24M");
}

// should_split
TEST(ExpandableSegments, CutWhateverIsLeft) {
  LoggedAllocator allocator = expandable(1_GiB);
  take(allocator, 20_MiB - 512_B);
  EXPECT_EQ(text(allocator.layout()), "20M[20971008* 512]");
}

TEST(ExpandableSegments, AreOnePerStreamAndPool) {
  LoggedAllocator allocator = expandable(1_GiB);
  take(allocator, 2_MiB);
  take(allocator, 2_MiB, comm);
  take(allocator, 2_KiB);
  EXPECT_EQ(text(allocator.layout()), "20M[2M* 18M] 20M[2M* 18M] 2M[2K* 2046K]");
}

// map_block, alloc_found_block: neither segment nor inactive_split counts them.
TEST(ExpandableSegments, CountAsReservedOnly) {
  LoggedAllocator allocator = expandable(1_GiB);
  const BlockId block = take(allocator, 2_MiB);
  take(allocator, 30_MiB);
  allocator.free(block);
  const PoolStats& large = allocator.stats().large;
  EXPECT_EQ(large.reserved, (Stat<Bytes>{.current = 40_MiB, .peak = 40_MiB, .total = 40_MiB}));
  EXPECT_EQ(large.segments.total, 0);
  EXPECT_EQ(large.inactive_split.total, 0_B);
  EXPECT_EQ(large.allocated.current, 30_MiB);
}

// get_free_block: what a block could grow to counts, so that real holes come first.
TEST(ExpandableSegments, AHoleIsTakenBeforeASmallerTail) {
  LoggedAllocator allocator = expandable(1_GiB);
  const BlockId front = take(allocator, 10_MiB);
  take(allocator, 10_MiB);
  take(allocator, 35_MiB);
  allocator.free(front);
  take(allocator, 4_MiB);
  EXPECT_EQ(text(allocator.layout()), "60M[4M* 6M 10M* 35M* 5M]");
}

// unmap_block, release_blocks
TEST(ExpandableSegments, OnlyFreePagesGoBack) {
  LoggedAllocator allocator = expandable(1_GiB);
  const BlockId a = take(allocator, 4_MiB);
  const BlockId b = take(allocator, 51_MiB);
  allocator.free(b);
  allocator.source().take_events();
  EXPECT_EQ(allocator.empty_cache(), 40_MiB);
  EXPECT_EQ(text(allocator.layout()), "20M[4M* 16M]");
  EXPECT_EQ(allocator.empty_cache(), 0_B);
  allocator.free(a);
  EXPECT_EQ(allocator.empty_cache(), 20_MiB);
  EXPECT_EQ(text(allocator.source().events()), "u40M u20M");
  EXPECT_EQ(allocator.stats().device_frees, 2);
  EXPECT_TRUE(allocator.layout().empty());
  take(allocator, 4_MiB);
  EXPECT_EQ(text(allocator.layout()), "20M[4M* 16M]");
}

TEST(ExpandableSegments, PartOfAPageAtEitherEndStays) {
  LoggedAllocator allocator = expandable(1_GiB);
  take(allocator, 4_MiB);
  const BlockId middle = take(allocator, 50_MiB);
  take(allocator, 6_MiB);
  allocator.free(middle);
  EXPECT_EQ(allocator.empty_cache(), 20_MiB);
  EXPECT_EQ(text(allocator.layout()), "20M[4M* 16M] 20M[14M 6M*]");
  EXPECT_EQ(allocator.reserved(), 40_MiB);
}

// find_expandable_block: the lowest unmapped pages with room.
TEST(ExpandableSegments, GapsAreFilledWhereTheyAreLargeEnough) {
  LoggedAllocator allocator = expandable(1_GiB);
  take(allocator, 20_MiB);
  const BlockId middle = take(allocator, 20_MiB);
  take(allocator, 20_MiB);
  allocator.free(middle);
  allocator.empty_cache();
  EXPECT_EQ(text(allocator.layout()), "20M[20M*] 20M[20M*]");
  take(allocator, 30_MiB);
  EXPECT_EQ(text(allocator.layout()), "20M[20M*] 60M[20M* 30M* 10M]");
  take(allocator, 15_MiB);
  EXPECT_EQ(text(allocator.layout()), "100M[20M* 15M* 5M 20M* 30M* 10M]");
}

// The free block before unmapped pages is part of the room; so is a free one between two gaps.
TEST(ExpandableSegments, FreeAndUnmappedPartsJoin) {
  LoggedAllocator allocator = expandable(1_GiB);
  const BlockId a = take(allocator, 20_MiB);
  const BlockId b = take(allocator, 20_MiB);
  allocator.free(a);
  allocator.empty_cache();
  allocator.free(b);
  allocator.source().take_events();
  take(allocator, 50_MiB);
  EXPECT_EQ(text(allocator.source().events()), "m20M m20M");
  EXPECT_EQ(text(allocator.layout()), "60M[50M* 10M]");
}

TEST(ExpandableSegments, WhatWasMappedBeforeTheDeviceWasFullStaysUntilTheRetry) {
  LoggedAllocator allocator = expandable(50_MiB);
  const BlockId a = take(allocator, 20_MiB);
  const BlockId b = take(allocator, 20_MiB);
  allocator.free(a);
  allocator.empty_cache();
  allocator.free(b);
  allocator.source().take_events();
  EXPECT_FALSE(try_take(allocator, 50_MiB));  // 60 MiB of pages
  EXPECT_EQ(text(allocator.source().events()), "m20M u40M");
  EXPECT_EQ(allocator.stats().alloc_retries, 1);
  EXPECT_EQ(allocator.stats().ooms, 1);
  EXPECT_EQ(allocator.reserved(), 0_B);
}

TEST(ExpandableSegments, PagesAreMappedAllOrNone) {
  LoggedAllocator allocator = expandable(50_MiB);
  take(allocator, 2_MiB);
  EXPECT_FALSE(try_take(allocator, 45_MiB));  // two pages more, and room for one
  EXPECT_EQ(text(allocator.source().events()), "m20M");
  take(allocator, 30_MiB);
  EXPECT_EQ(text(allocator.layout()), "40M[2M* 30M* 8M]");
}

// alloc_block: the limit is checked with the size of a segment, whatever would be mapped.
TEST(ExpandableSegments, AMemoryFractionCountsWholeSegments) {
  LoggedAllocator allocator = expandable(1_GiB, {.memory_fraction = 0.45, .device_memory = 100_MiB});
  take(allocator, 2_MiB);
  EXPECT_FALSE(try_take(allocator, 25_MiB)) << "20 reserved + 26 > 45, though one page of 20 would do";
  EXPECT_TRUE(try_take(allocator, 24_MiB));
  EXPECT_EQ(allocator.reserved(), 40_MiB);
}

// get_free_block passes over oversize blocks; find_expandable_block, which comes next, does not.
TEST(ExpandableSegments, OversizeFreeBlocksServeSmallerRequestsAfterAll) {
  LoggedAllocator allocator = expandable(1_GiB, {.max_split_size = 40_MiB});
  const BlockId a = take(allocator, 60_MiB);
  allocator.free(a);
  take(allocator, 10_MiB);
  EXPECT_EQ(text(allocator.layout()), "60M[10M* 50M]");
}

TEST(ExpandableSegments, RestoredStateContinuesAsTheOriginal) {
  LoggedAllocator original = expandable(1_GiB);
  const BlockId a = take(original, 25_MiB);
  const BlockId b = take(original, 20_MiB);
  take(original, 15_MiB);
  take(original, 1_KiB);
  original.free(a);
  original.empty_cache();
  const std::vector<SegmentLayout> picture = original.layout();
  ASSERT_EQ(text(picture), "40M[5M 20M* 15M*] 2M[1K* 2047K]");

  LoggedAllocator restored = expandable(1_GiB);
  const std::vector<AddressSpace> spaces{{{1 << 30}, 1160_MiB, StreamId{0}, PoolKind::Large, {}},
                                         {picture[1].address, 1152_MiB, StreamId{0}, PoolKind::Small, {}}};
  const std::vector<BlockId> blocks = restored.restore(picture, spaces);
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(restored.layout(), picture);
  EXPECT_EQ(restored.reserved(), 42_MiB);
  for (LoggedAllocator* allocator : {&original, &restored}) {
    allocator->free(allocator == &original ? b : blocks[0]);
    take(*allocator, 30_MiB);
    take(*allocator, 70_MiB);
    EXPECT_EQ(text(allocator->layout()), "140M[30M* 15M 15M* 70M* 10M] 2M[1K* 2047K]");
    allocator->empty_cache();
  }
  EXPECT_EQ(restored.layout(), original.layout());
}

}  // namespace
}  // namespace tidemark::tests::block_expansion_test
