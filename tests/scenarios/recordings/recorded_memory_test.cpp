#include "scenarios/recordings/recorded_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/recordings/trace_replay.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::recorded_memory_test {
namespace {

using namespace literals;
using Action = TraceEvent::Action;

constexpr Address base{0x7f00'0000'0000};

Address at(Bytes offset) { return base + offset; }

RecordedEvent event(Action action, Bytes offset, Bytes size) {
  return {.action = action, .stream = StreamId{0}, .address = at(offset), .size = size};
}

std::vector<Bytes> allocated(const std::vector<RecordedEvent>& events) {
  RecordedTrace trace;
  trace.events = events;
  return recorded_memory(trace).allocated;
}

TEST(RecordedMemory, BlocksAreWhatIsCutOffTheRangeTheyLieIn) {
  EXPECT_EQ(allocated({event(Action::SegmentAlloc, 0_B, 2_MiB), event(Action::Alloc, 0_B, 100_B),
                       event(Action::Alloc, 512_B, 1000_B), event(Action::FreeRequested, 0_B, 100_B),
                       event(Action::FreeCompleted, 0_B, 100_B), event(Action::Alloc, 0_B, 512_B)}),
            (std::vector<Bytes>{0_B, 0_B, 512_B, 1536_B, 1024_B, 1024_B, 1536_B}));
}

TEST(RecordedMemory, WhatIsTooLittleToCutOffCountsWithItsBlock) {
  // 1 MiB of a large segment stays with the block; a byte more would not.
  EXPECT_EQ(allocated({event(Action::SegmentAlloc, 0_B, 20_MiB), event(Action::Alloc, 0_B, 19_MiB)}).back(), 20_MiB);
  EXPECT_EQ(allocated({event(Action::SegmentAlloc, 0_B, 20_MiB), event(Action::Alloc, 0_B, 19_MiB - 512_B)}).back(),
            19_MiB - 512_B);
  // A hole between two blocks is such a rest too.
  EXPECT_EQ(allocated({event(Action::SegmentAlloc, 0_B, 20_MiB), event(Action::Alloc, 0_B, 3_MiB),
                       event(Action::Alloc, 3_MiB, 5_MiB), event(Action::FreeCompleted, 0_B, 3_MiB),
                       event(Action::Alloc, 0_B, 2_MiB)}),
            (std::vector<Bytes>{0_B, 0_B, 3_MiB, 8_MiB, 5_MiB, 8_MiB}));
}

TEST(RecordedMemory, FreeRangesMergeWithinASegmentOnly) {
  // Two segments side by side: the first one's last free block is not the second's.
  EXPECT_EQ(allocated({event(Action::SegmentAlloc, 0_B, 20_MiB), event(Action::SegmentAlloc, 20_MiB, 20_MiB),
                       event(Action::Alloc, 0_B, 10_MiB), event(Action::Alloc, 10_MiB, 9_MiB)})
                .back(),
            20_MiB);
  // Pages of an expandable segment do merge.
  EXPECT_EQ(allocated({event(Action::SegmentMap, 0_B, 20_MiB), event(Action::SegmentMap, 20_MiB, 20_MiB),
                       event(Action::Alloc, 0_B, 30_MiB), event(Action::Alloc, 30_MiB, 8_MiB)})
                .back(),
            38_MiB);
}

TEST(RecordedMemory, ReservedIsWhatSegmentsAndPagesHold) {
  RecordedTrace trace;
  trace.events = {event(Action::SegmentAlloc, 0_B, 20_MiB), event(Action::SegmentMap, 100_MiB, 40_MiB),
                  event(Action::SegmentUnmap, 120_MiB, 20_MiB), event(Action::SegmentFree, 0_B, 20_MiB)};
  EXPECT_EQ(recorded_memory(trace).reserved, (std::vector<Bytes>{0_B, 20_MiB, 60_MiB, 40_MiB, 20_MiB}));
}

TEST(RecordedMemory, ABlockWhoseFreeIsPendingIsNobodys) {
  EXPECT_EQ(allocated({event(Action::SegmentAlloc, 0_B, 2_MiB), event(Action::Alloc, 0_B, 512_B),
                       event(Action::FreeRequested, 0_B, 512_B), event(Action::Alloc, 512_B, 512_B),
                       event(Action::FreeCompleted, 0_B, 512_B)}),
            (std::vector<Bytes>{0_B, 0_B, 512_B, 0_B, 512_B, 512_B}));
}

TEST(RecordedMemory, OptionsOfTheRecordingDecideWhatIsCut) {
  RecordedTrace trace;
  trace.options.max_split_size = 24_MiB;
  trace.options.roundup_divisions.fill(4);
  trace.events = {event(Action::SegmentAlloc, 0_B, 40_MiB), event(Action::Alloc, 0_B, 30_MiB),
                  event(Action::SegmentAlloc, 40_MiB, 20_MiB), event(Action::Alloc, 40_MiB, 9_MiB)};
  EXPECT_EQ(recorded_memory(trace).allocated, (std::vector<Bytes>{0_B, 0_B, 40_MiB, 40_MiB, 50_MiB}));
  // In an expandable segment, every rest of a block is.
  EXPECT_EQ(allocated({event(Action::SegmentMap, 0_B, 20_MiB), event(Action::Alloc, 0_B, 19_MiB)}).back(), 19_MiB);
}

// The replay, which emulates the allocator, is exact on these: what addresses alone say has to be the same.
TEST(RecordedMemory, HasThePeaksOfTheReplayOnRealRecordings) {
  const char* shared = std::getenv("TIDEMARK_SHARED_DATA");
  const std::filesystem::path folder =
      std::filesystem::path(shared != nullptr ? shared : TIDEMARK_SOURCE_DIR "/../shared/data") / "allocator-traces";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "needs the recorded traces: TIDEMARK_SHARED_DATA names the folder with allocator-traces/";
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("native-") && !name.starts_with("expandable-")) continue;
    const RecordedTrace trace = recorded_trace(read_memory_snapshot(entry.path().string()), 0, name);
    const ReplayReport report = replay(trace);
    ASSERT_TRUE(report.exact()) << name;
    const RecordedMemory memory = recorded_memory(trace);
    EXPECT_EQ(*std::max_element(memory.allocated.begin(), memory.allocated.end()), report.peak_allocated) << name;
    EXPECT_EQ(*std::max_element(memory.reserved.begin(), memory.reserved.end()), report.peak_reserved) << name;
    EXPECT_EQ(memory.reserved.back(), report.reserved) << name;
    ++read;
  }
  EXPECT_GE(read, 7);
}

// -- live tensors -----------------------------------------------------------------------------------------------------

TEST(LiveTensors, ComeInOrderOfAllocationWithTheirStacks) {
  MemorySnapshot snapshot;
  snapshot.frames = {{"old", "a.py", 1}, {"new", "b.py", 2}};
  snapshot.stacks = {{{0}}, {{1}}};
  snapshot.segments = {{.address = base,
                        .size = 20_MiB,
                        .pool = PoolKind::Large,
                        .blocks = {{base, 2_MiB, 2_MiB, BlockRecord::State::ActiveAllocated, {0}},
                                   {at(2_MiB), 4_MiB, 4_MiB, BlockRecord::State::ActiveAllocated, {1}},
                                   {at(6_MiB), 14_MiB, 0_B, BlockRecord::State::Inactive, {}}}}};
  snapshot.device_traces = {{{.action = Action::Alloc, .address = at(6_MiB), .size = 3_MiB, .stack = {1}},
                             {.action = Action::Alloc, .address = at(2_MiB), .size = 4_MiB, .stack = {1}},
                             {.action = Action::FreeCompleted, .address = at(6_MiB), .size = 3_MiB}}};
  const RecordedTrace trace = recorded_trace(snapshot);
  EXPECT_EQ(live_tensors(snapshot, 0, trace, 2),
            (std::vector<RecordedTensor>{
                {2_MiB, 2_MiB, RecordedTensor::before, {0}}, {3_MiB, 3_MiB, 0, {1}}, {4_MiB, 4_MiB, 1, {1}}}));
  EXPECT_EQ(live_tensors(snapshot, 0, trace, 3).size(), 2u);
}

}  // namespace
}  // namespace tidemark::tests::recorded_memory_test
