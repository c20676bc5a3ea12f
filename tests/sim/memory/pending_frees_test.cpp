// Blocks that several streams use, and private pools. Every expectation follows from c10/cuda/CUDACachingAllocator.cpp
// (PyTorch 2.10); the function is named where it is not the one of that name.
#include "sim/memory/pending_frees.hpp"

#include <gtest/gtest.h>

#include "tests/sim/memory/allocator_text.hpp"

namespace tidemark::tests::pending_frees_test {
namespace {

using namespace literals;

constexpr StreamId compute{0};
constexpr StreamId comm{1};
constexpr StreamId copy{2};
constexpr MempoolId graph{0, 1};
constexpr MempoolId other_graph{0, 2};

LoggedAllocator roomy(const AllocatorOptions& options = {}) { return logged_allocator(1_GiB, options); }

// free, insert_events
TEST(RecordStream, AFreedBlockWaitsForTheStreamsThatUseIt) {
  LoggedAllocator allocator = roomy();
  const BlockId block = take(allocator, 30_MiB);
  allocator.record_stream(block, comm);
  allocator.free(block);
  EXPECT_EQ(allocator.allocated(), 0_B) << "allocated falls when the program frees";
  EXPECT_EQ(allocator.stats().all.active.current, 30_MiB);
  EXPECT_EQ(allocator.stats().all.requested.current, 30_MiB);
  take(allocator, 30_MiB);
  EXPECT_EQ(text(allocator.layout()), "30M[30M?] 30M[30M*]");

  allocator.events().finish(comm);
  EXPECT_EQ(allocator.stats().all.active.current, 60_MiB) << "nobody looks before the next malloc";
  take(allocator, 30_MiB);
  EXPECT_EQ(text(allocator.layout()), "30M[30M*] 30M[30M*]");
  EXPECT_EQ(allocator.stats().all.active.current, 60_MiB);
}

TEST(RecordStream, OnItsOwnStreamMeansNothing) {
  LoggedAllocator allocator = roomy();
  const BlockId block = take(allocator, 30_MiB);
  allocator.record_stream(block, compute);
  allocator.free(block);
  EXPECT_EQ(text(allocator.layout()), "30M[30M]");
}

TEST(RecordStream, AllOfSeveralStreamsMustBeDone) {
  LoggedAllocator allocator = roomy();
  const BlockId block = take(allocator, 30_MiB);
  for (const StreamId stream : {comm, copy, comm}) allocator.record_stream(block, stream);
  allocator.free(block);
  allocator.events().finish(comm);
  allocator.process_events();
  EXPECT_EQ(text(allocator.layout()), "30M[30M?]");
  allocator.events().finish(copy);
  allocator.process_events();
  EXPECT_EQ(text(allocator.layout()), "30M[30M]");
}

// try_merge_blocks: not while events are open.
TEST(RecordStream, AWaitingBlockDoesNotMerge) {
  LoggedAllocator allocator = roomy();
  const BlockId a = take(allocator, 5_MiB);
  const BlockId b = take(allocator, 5_MiB);
  allocator.record_stream(b, comm);
  allocator.free(b);
  allocator.free(a);
  EXPECT_EQ(text(allocator.layout()), "20M[5M 5M? 10M]");
  allocator.events().finish(comm);
  allocator.process_events();
  EXPECT_EQ(text(allocator.layout()), "20M[20M]");
}

// process_events: per stream in order of the frees, up to the first open event.
TEST(RecordStream, EventsOfOneStreamCompleteInOrder) {
  LoggedAllocator allocator = roomy();
  const BlockId a = take(allocator, 10_MiB);
  const BlockId b = take(allocator, 12_MiB);
  for (const BlockId block : {a, b}) {
    allocator.record_stream(block, comm);
    allocator.free(block);
  }
  allocator.events().finish(comm, 1);
  allocator.process_events();
  EXPECT_EQ(text(allocator.layout()), "10M[10M] 12M[12M?]");
}

// release_cached_blocks, synchronize_and_free_events
TEST(RecordStream, AFullDeviceWaitsForAllStreams) {
  LoggedAllocator allocator = logged_allocator(50_MiB);
  const BlockId block = take(allocator, 30_MiB);
  allocator.record_stream(block, comm);
  allocator.free(block);
  take(allocator, 40_MiB);
  EXPECT_EQ(text(allocator.source().events()), "+30M -30M +40M");
  EXPECT_EQ(allocator.stats().sync_all_streams, 1);
  EXPECT_EQ(allocator.stats().alloc_retries, 1);
}

TEST(RecordStream, SoDoesEmptyCache) {
  LoggedAllocator allocator = roomy();
  const BlockId block = take(allocator, 30_MiB);
  allocator.record_stream(block, comm);
  allocator.free(block);
  EXPECT_EQ(allocator.empty_cache(), 30_MiB);
  EXPECT_EQ(allocator.stats().sync_all_streams, 1);
}

TEST(RecordStream, ANewOwnerOfTheBlockStartsWithoutUses) {
  LoggedAllocator allocator = roomy();
  const BlockId first = take(allocator, 30_MiB);
  allocator.record_stream(first, comm);
  allocator.free(first);
  allocator.events().finish(comm);
  const BlockId second = take(allocator, 30_MiB);
  allocator.free(second);
  EXPECT_EQ(text(allocator.layout()), "30M[30M]");
}

// -- private pools ----------------------------------------------------------------------------------------------------

// get_pool
TEST(PrivatePool, MemoryStaysInIt) {
  LoggedAllocator allocator = roomy();
  allocator.free(take(allocator, 30_MiB));
  allocator.begin_allocate_to_pool(graph);
  const BlockId captured = take(allocator, 30_MiB);
  take(allocator, 1_KiB);
  allocator.end_allocate_to_pool(graph);
  EXPECT_EQ(text(allocator.layout()), "30M[30M] 30M[30M*] 2M[1K* 2047K]");
  EXPECT_EQ(allocator.mempool(captured), graph);
  EXPECT_EQ(allocator.layout()[1].mempool, graph);
  allocator.free(captured);
  take(allocator, 30_MiB);
  take(allocator, 30_MiB);
  EXPECT_EQ(text(allocator.layout()), "30M[30M*] 30M[30M] 2M[1K* 2047K] 30M[30M*]");
  EXPECT_EQ(allocator.reserved(), 92_MiB) << "statistics are over all pools";
}

TEST(PrivatePool, IsUsedAgainByTheNextCapture) {
  LoggedAllocator allocator = roomy();
  for (int capture = 0; capture < 2; ++capture) {
    allocator.begin_allocate_to_pool(graph);
    allocator.free(take(allocator, 30_MiB));
    allocator.end_allocate_to_pool(graph);
  }
  EXPECT_EQ(allocator.reserved(), 30_MiB);
}

TEST(PrivatePool, TheLastOfSeveralThatTakesTheStreamCounts) {
  LoggedAllocator allocator = roomy();
  allocator.begin_allocate_to_pool(graph);
  allocator.begin_allocate_to_pool(other_graph, {.stream = comm});
  EXPECT_EQ(allocator.mempool(take(allocator, 30_MiB, compute)), graph);
  EXPECT_EQ(allocator.mempool(take(allocator, 30_MiB, comm)), other_graph);
  allocator.end_allocate_to_pool(graph);
  EXPECT_EQ(allocator.mempool(take(allocator, 30_MiB, compute)), MempoolId{});
}

// releasePool, release_cached_blocks
TEST(PrivatePool, GoesBackOnceItsGraphsAreGone) {
  LoggedAllocator allocator = roomy();
  for (int capture = 0; capture < 2; ++capture) {
    allocator.begin_allocate_to_pool(graph);
    allocator.free(take(allocator, 30_MiB));
    allocator.free(take(allocator, 1_KiB));
    allocator.end_allocate_to_pool(graph);
  }
  EXPECT_EQ(allocator.empty_cache(), 0_B);
  allocator.release_pool(graph);
  EXPECT_EQ(allocator.empty_cache(), 0_B) << "one graph is left";
  allocator.release_pool(graph);
  allocator.source().take_events();
  EXPECT_EQ(allocator.empty_cache(), 32_MiB);
  EXPECT_EQ(text(allocator.source().events()), "-2M -30M") << "here the small pool comes first";
}

// malloc: no retry while a capture is underway.
TEST(PrivatePool, ACaptureGivesNoCacheBack) {
  LoggedAllocator allocator = logged_allocator(50_MiB);
  allocator.free(take(allocator, 30_MiB));
  allocator.begin_allocate_to_pool(graph);
  EXPECT_FALSE(try_take(allocator, 30_MiB));
  EXPECT_EQ(allocator.stats().alloc_retries, 0);
  EXPECT_EQ(allocator.stats().ooms, 1);
  allocator.end_allocate_to_pool(graph);
  allocator.begin_allocate_to_pool(graph);
  EXPECT_EQ(allocator.empty_cache(), 0_B);
  allocator.end_allocate_to_pool(graph);
  EXPECT_TRUE(try_take(allocator, 40_MiB));
}

// insert_events_deferred_until_no_capture: no event is queried or recorded while a capture is underway.
TEST(PrivatePool, FreesOfSharedBlocksWaitForTheEndOfTheCapture) {
  LoggedAllocator allocator = roomy();
  const BlockId before = take(allocator, 30_MiB);
  const BlockId during = take(allocator, 32_MiB);
  allocator.record_stream(before, comm);
  allocator.begin_allocate_to_pool(graph);
  allocator.record_stream(during, comm);
  allocator.free(before);
  allocator.free(during);
  allocator.events().finish(comm);
  take(allocator, 12_MiB);
  EXPECT_EQ(text(allocator.layout()), "30M[30M?] 32M[32M?] 12M[12M*]");
  allocator.end_allocate_to_pool(graph);

  take(allocator, 14_MiB);
  // Uses within the capture are over; for the other one an event was recorded only now.
  EXPECT_EQ(text(allocator.layout()), "30M[30M?] 32M[14M* 18M] 12M[12M*]");
  allocator.events().finish(comm);
  allocator.process_events();
  EXPECT_EQ(text(allocator.layout()), "30M[30M] 32M[14M* 18M] 12M[12M*]");
}

// try_mempool_fallback
TEST(PrivatePool, MayLendItsFreeBlocksWhenTheDeviceIsFull) {
  LoggedAllocator allocator = logged_allocator(70_MiB);
  allocator.begin_allocate_to_pool(graph, {.use_on_oom = true});
  allocator.free(take(allocator, 30_MiB));
  allocator.end_allocate_to_pool(graph);
  const BlockId cached = take(allocator, 22_MiB);
  take(allocator, 12_MiB);
  allocator.free(cached);
  const BlockId lent = take(allocator, 25_MiB);
  EXPECT_EQ(allocator.mempool(lent), graph);
  EXPECT_EQ(text(allocator.layout()), "30M[25M* 5M] 22M[22M] 12M[12M*]") << "before the cache is given back";
  EXPECT_EQ(allocator.stats().alloc_retries, 0);
}

// should_split
TEST(PrivatePool, MayKeepItsBlocksWhole) {
  LoggedAllocator allocator = roomy();
  allocator.begin_allocate_to_pool(graph, {.no_split = true});
  take(allocator, 2_MiB);
  take(allocator, 1_KiB);
  allocator.end_allocate_to_pool(graph);
  EXPECT_EQ(text(allocator.layout()), "20M[20M*] 2M[2M*]");
}

TEST(PrivatePool, GrowsByPagesToo) {
  LoggedAllocator allocator = roomy({.expandable_segments = true, .device_memory = 1_GiB});
  take(allocator, 2_MiB);
  allocator.begin_allocate_to_pool(graph);
  const BlockId block = take(allocator, 2_MiB);
  allocator.end_allocate_to_pool(graph);
  EXPECT_EQ(text(allocator.layout()), "20M[2M* 18M] 20M[2M* 18M]");
  allocator.free(block);
  allocator.release_pool(graph);
  EXPECT_EQ(allocator.empty_cache(), 20_MiB);
}

}  // namespace
}  // namespace tidemark::tests::pending_frees_test
