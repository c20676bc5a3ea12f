#include "scenarios/recordings/what_if.hpp"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/recordings/memory_snapshot.hpp"
#include "scenarios/recordings/trace_replay.hpp"
#include "tests/scenarios/recordings/recorded_program.hpp"

namespace tidemark::tests::what_if_test {
namespace {

using namespace literals;

RerunOutcome rerun(RecordedProgram& program, const Conditions& conditions = {},
                   const std::vector<std::size_t>& emptied_at = {}) {
  return what_if(program.trace(), RerunReading{.emptied_at = emptied_at}, conditions);
}

// Ten segments of 20 MiB, of each of which 12 MiB are free, and then 100 MiB asked for.
RecordedProgram fragmented() {
  RecordedProgram program;
  std::vector<std::uint64_t> freed;
  for (int i = 0; i < 10; ++i) {
    program.alloc(8_MiB);
    freed.push_back(program.alloc(9_MiB));
    freed.push_back(program.alloc(3_MiB));
  }
  for (const std::uint64_t block : freed) program.free(block);
  program.alloc(100_MiB);
  return program;
}

TEST(WhatIf, MakesTheSameRequestsAgain) {
  RecordedProgram program = fragmented();
  const RerunOutcome outcome = rerun(program);
  EXPECT_EQ(outcome.reserved_peak.reserved, 300_MiB);
  EXPECT_EQ(outcome.reserved_peak.allocated, 180_MiB);
  EXPECT_EQ(outcome.reserved_peak.requested, 180_MiB);
  EXPECT_EQ(outcome.reserved_peak.fragmentation(), 120_MiB);
  EXPECT_EQ(outcome.reserved_peak.event, 70U);
  EXPECT_EQ(outcome.peak_allocated, 200_MiB);
  EXPECT_EQ(outcome.ran_out, std::nullopt);
}

TEST(WhatIf, UnderOtherOptions) {
  RecordedProgram program = fragmented();
  const RerunOutcome expandable =
      rerun(program, {.options = {.expandable_segments = true, .device_memory = 1_GiB}, .capacity = {}});
  EXPECT_EQ(expandable.reserved_peak.reserved, 300_MiB) << "one segment, with the same holes";
  AllocatorOptions rounded;
  rounded.roundup_divisions.fill(2);
  EXPECT_EQ(rerun(program, {.options = rounded, .capacity = {}}).reserved_peak.allocated, 208_MiB);
}

TEST(WhatIf, SaysWhereItRunsOut) {
  RecordedProgram program = fragmented();
  const RerunOutcome outcome = rerun(program, {.options = {}, .capacity = 250_MiB});
  EXPECT_EQ(outcome.ran_out, (RanOut{.event = 70,
                                     .requested = 100_MiB,
                                     .segment = 100_MiB,
                                     .available = 50_MiB,
                                     .reserved = 200_MiB,
                                     .allocated = 80_MiB,
                                     .limit = {}}));
  EXPECT_EQ(outcome.alloc_retries, 1);
  const RerunOutcome limited =
      rerun(program, {.options = {.memory_fraction = 0.5, .device_memory = 500_MiB}, .capacity = 500_MiB});
  ASSERT_TRUE(limited.ran_out.has_value());
  EXPECT_EQ(limited.ran_out->limit, 250_MiB);
  EXPECT_EQ(limited.ran_out->available, 300_MiB);
}

TEST(WhatIf, EmptiesTheCacheWhereTheProgramDid) {
  RecordedProgram program;
  program.free(program.alloc(30_MiB));
  program.alloc(40_MiB);
  EXPECT_EQ(rerun(program).reserved_peak.reserved, 70_MiB);
  EXPECT_EQ(rerun(program, {}, {3}).reserved_peak.reserved, 40_MiB);
}

TEST(WhatIf, BlocksWaitForOtherStreamsAsTheyDid) {
  RecordedProgram program;
  const std::uint64_t shared = program.alloc(30_MiB);
  program.free_later(shared);
  program.alloc(30_MiB);
  program.complete(shared);
  program.alloc(30_MiB);
  const RerunOutcome outcome = rerun(program);
  EXPECT_EQ(outcome.reserved_peak.reserved, 60_MiB);
  EXPECT_EQ(outcome.peak_allocated, 60_MiB);
}

TEST(WhatIf, ARequestThatRanOutMayBeServed) {
  RecordedProgram program;
  program.alloc(30_MiB);
  program.run_out(40_MiB);
  EXPECT_EQ(rerun(program).served_ooms, 1);
  const RerunOutcome full = rerun(program, {.options = {}, .capacity = 60_MiB});
  EXPECT_EQ(full.served_ooms, 0);
  EXPECT_EQ(full.ran_out, std::nullopt) << "the program went on without it";
}

// A segment each for 30, 40 and 50 MiB, of which the first two go back before the third comes: by the program or, if
// the device had no more than 119 MiB, by the allocator. Stacks tell, or nothing does.
RecordedTrace emptied_before_a_request(std::int32_t stack_of_release, std::int32_t stack_of_request) {
  constexpr std::uint64_t at = 1ULL << 40;
  using Action = TraceEvent::Action;
  RecordedTrace trace;
  const auto add = [&](Action action, std::uint64_t address, Bytes size, std::int32_t stack) {
    trace.events.push_back(
        {.action = action, .stream = StreamId{0}, .address = {address}, .size = size, .stack = StackId{stack}});
  };
  const auto come = [&](std::uint64_t address, Bytes size, std::int32_t stack) {
    add(Action::SegmentAlloc, address, size, stack);
    add(Action::Alloc, address, size, stack);
  };
  const auto go = [&](std::uint64_t address, Bytes size) {
    add(Action::FreeRequested, address, size, -1);
    add(Action::FreeCompleted, address, size, -1);
  };
  const std::int32_t other = stack_of_request < 0 ? -1 : 7;
  come(at, 30_MiB, other);
  come(at + (100ULL << 20), 40_MiB, other);
  go(at, 30_MiB);
  go(at + (100ULL << 20), 40_MiB);
  add(Action::SegmentFree, at, 30_MiB, stack_of_release);
  add(Action::SegmentFree, at + (100ULL << 20), 40_MiB, stack_of_release);
  come(at + (200ULL << 20), 50_MiB, stack_of_request);
  trace.end = {{.address = {at + (200ULL << 20)},
                .size = 50_MiB,
                .stream = StreamId{0},
                .pool = PoolKind::Large,
                .blocks = {{{at + (200ULL << 20)}, 50_MiB, 50_MiB, BlockState::Allocated}}}};
  return trace;
}

TEST(WhatIf, StacksTellWhoEmptiedTheCache) {
  const auto wanted = [](const RecordedTrace& trace) {
    const ReplayReport report = replay(trace);
    EXPECT_TRUE(report.exact()) << report.first_divergence.value_or(Divergence{}).text;
    return what_if(trace, report, {});
  };
  const RerunRange by_program = wanted(emptied_before_a_request(5, 6));
  EXPECT_EQ(by_program.likeliest.reserved_peak.reserved, 70_MiB);
  EXPECT_TRUE(by_program.certain());
  const RerunRange by_allocator = wanted(emptied_before_a_request(6, 6));
  EXPECT_EQ(by_allocator.likeliest.reserved_peak.reserved, 120_MiB) << "nothing is full here";
  EXPECT_TRUE(by_allocator.certain());
  // Where stacks are those of the segments' allocations, that they are the request's too tells nothing.
  EXPECT_FALSE(wanted(emptied_before_a_request(7, 7)).certain());
  const RerunRange unknown = wanted(emptied_before_a_request(-1, -1));
  EXPECT_EQ(unknown.likeliest.reserved_peak.reserved, 120_MiB);
  EXPECT_EQ(unknown.lowest_peak, 70_MiB);
  EXPECT_EQ(unknown.highest_peak, 120_MiB);
  EXPECT_FALSE(unknown.certain());
  ASSERT_EQ(unknown.open.size(), 1U);
  EXPECT_EQ(unknown.open[0],
            "once the cache was returned, and the recording does not say whether the program emptied it or the device "
            "was full: taken for "
            "the device");
}

TEST(WhatIf, AProgramThatEmptiesItsCacheDoesSoHere) {
  // The same, and then once more where it cannot have been the allocator: for no request at all.
  RecordedTrace trace = emptied_before_a_request(-1, -1);
  const Address block = trace.events.back().address;
  for (const auto action :
       {TraceEvent::Action::FreeRequested, TraceEvent::Action::FreeCompleted, TraceEvent::Action::SegmentFree})
    trace.events.push_back(
        {.action = action, .stream = StreamId{0}, .address = block, .size = 50_MiB, .stack = StackId{-1}});
  trace.end.clear();
  const RerunRange range = what_if(trace, replay(trace), {});
  EXPECT_EQ(range.likeliest.reserved_peak.reserved, 70_MiB);
  EXPECT_EQ(range.lowest_peak, 70_MiB);
  EXPECT_EQ(range.highest_peak, 120_MiB);
}

TEST(WhatIf, TheCacheIsEmptiedAfterTheFreesBeforeIt) {
  // A block is freed, and the cache emptied at once: the block's segment is in it.
  RecordedTrace trace = emptied_before_a_request(-1, -1);
  const Address block = trace.events.back().address;
  for (const auto action :
       {TraceEvent::Action::FreeRequested, TraceEvent::Action::FreeCompleted, TraceEvent::Action::SegmentFree})
    trace.events.push_back(
        {.action = action, .stream = StreamId{0}, .address = block, .size = 50_MiB, .stack = StackId{-1}});
  trace.end.clear();
  const ReplayReport report = replay(trace);
  EXPECT_EQ(report.emptied_at, (std::vector<std::size_t>{trace.events.size() - 1}));
  EXPECT_EQ(what_if(trace, report, {}).likeliest.final_reserved, 0_B);
}

TEST(WhatIf, GarbageCollectionIsNotTheProgram) {
  // Of two segments that are free one goes before the next request, as only garbage collection does.
  constexpr std::uint64_t at = 1ULL << 40;
  using Action = TraceEvent::Action;
  RecordedProgram program;
  program.trace().options.garbage_collection_threshold = 0.5;
  RecordedTrace& trace = program.trace();
  const auto add = [&](Action action, std::uint64_t address, Bytes size) {
    trace.events.push_back(
        {.action = action, .stream = StreamId{0}, .address = {address}, .size = size, .stack = StackId{-1}});
  };
  for (const std::uint64_t address : {at, at + (std::uint64_t{100} << 20)}) {
    add(Action::SegmentAlloc, address, 30_MiB);
    add(Action::Alloc, address, 30_MiB);
  }
  for (const std::uint64_t address : {at, at + (std::uint64_t{100} << 20)}) {
    add(Action::FreeRequested, address, 30_MiB);
    add(Action::FreeCompleted, address, 30_MiB);
  }
  add(Action::SegmentFree, at, 30_MiB);
  add(Action::SegmentAlloc, at, 40_MiB);
  add(Action::Alloc, at, 40_MiB);
  add(Action::SegmentAlloc, at + (200ULL << 20), 90_MiB);
  add(Action::Alloc, at + (200ULL << 20), 90_MiB);
  const ReplayReport report = replay(trace);
  EXPECT_TRUE(report.emptied_at.empty());
  EXPECT_TRUE(report.perhaps_emptied_at.empty());
}

TEST(WhatIf, TheCacheMayBeEmptiedUnseen) {
  RecordedProgram program;
  program.free(program.alloc(30_MiB));
  program.alloc(40_MiB);
  EXPECT_EQ(what_if(program.trace(), ReplayReport{}, {}).lowest_peak, 70_MiB) << "the program never does";
  ReplayReport report;
  report.emptied_at = {program.events()};
  const RerunRange range = what_if(program.trace(), report, {});
  EXPECT_EQ(range.likeliest.reserved_peak.reserved, 70_MiB);
  EXPECT_EQ(range.lowest_peak, 40_MiB);
  EXPECT_EQ(range.highest_peak, 70_MiB);
  // Where a segment without a block was there, it would have been seen to go.
  program.trace().start = {{.address = {1ULL << 50},
                            .size = 20_MiB,
                            .stream = StreamId{0},
                            .pool = PoolKind::Large,
                            .blocks = {{{1ULL << 50}, 20_MiB, 0_B, BlockState::Free}}}};
  EXPECT_EQ(what_if(program.trace(), report, {}).lowest_peak, 70_MiB);
}

TEST(WhatIf, WhatRanOutMayBeKept) {
  RecordedProgram program;
  program.alloc(30_MiB);
  program.run_out(40_MiB);
  program.alloc(40_MiB);
  const RerunRange range = what_if(program.trace(), ReplayReport{}, {});
  EXPECT_EQ(range.likeliest.reserved_peak.reserved, 70_MiB);
  EXPECT_EQ(range.highest_peak, 110_MiB);
  const RerunRange limited = what_if(program.trace(), ReplayReport{}, {.options = {}, .capacity = 100_MiB});
  EXPECT_TRUE(limited.may_fit);
  EXPECT_TRUE(limited.may_run_out);
  EXPECT_FALSE(limited.certain());
  EXPECT_EQ(limited.highest_peak, 70_MiB) << "of the readings in which memory suffices";
}

TEST(WhatIf, EqualBlocksGoByAddressOrAge) {
  // 40 MiB are free in a segment of their own, and in a later one of 60 MiB behind a block of 20 MiB. 30 MiB take from
  // the one or the other; only if that is the first is there room for 60 MiB once the 20 MiB are free.
  RecordedProgram program;
  const std::uint64_t first = program.alloc(40_MiB);
  program.free(program.alloc(60_MiB));
  const std::uint64_t in_second = program.alloc(20_MiB);
  program.free(first);
  program.alloc(30_MiB);
  program.free(in_second);
  program.alloc(60_MiB);

  ReplayReport by_age;
  by_age.ties = ReplayReport::Ties::ByAge;
  const RerunRange certain = what_if(program.trace(), by_age, {});
  EXPECT_EQ(certain.likeliest.reserved_peak.reserved, 100_MiB);
  EXPECT_TRUE(certain.certain());

  const RerunRange rising = what_if(program.trace(), ReplayReport{}, {});
  EXPECT_EQ(rising.likeliest.reserved_peak.reserved, 100_MiB);
  EXPECT_EQ(rising.lowest_peak, 100_MiB);
  EXPECT_EQ(rising.highest_peak, 160_MiB);
  ASSERT_EQ(rising.open.size(), 1U);
  EXPECT_NE(rising.open[0].find("assumed to rise, as most did"), std::string::npos);

  for (const std::uint64_t address : {3ULL << 40, 2ULL << 40})
    program.trace().events.push_back({.action = TraceEvent::Action::SegmentAlloc,
                                      .stream = StreamId{0},
                                      .address = {address},
                                      .size = 40_MiB,
                                      .stack = StackId{-1}});
  EXPECT_EQ(what_if(program.trace(), ReplayReport{}, {}).likeliest.reserved_peak.reserved, 160_MiB) << "they fall";
}

TEST(WhatIf, BlocksFromBeforeAreRequestedFirst) {
  RecordedProgram program;
  program.trace().start = {{.address = {1ULL << 50},
                            .size = 20_MiB,
                            .stream = StreamId{0},
                            .pool = PoolKind::Large,
                            .blocks = {{{1ULL << 50}, 5_MiB, 5_MiB, BlockState::Allocated},
                                       {{(1ULL << 50) + (5 << 20)}, 15_MiB, 0_B, BlockState::Free}}}};
  program.alloc(15_MiB);
  EXPECT_EQ(rerun(program).reserved_peak.reserved, 20_MiB);
}

// Recorded with expandable segments, which hold what their blocks need: without them, more.
TEST(WhatIf, AnExpandableRecordingRerunsAsItWas) {
  const char* shared = std::getenv("TIDEMARK_SHARED_DATA");
  const std::filesystem::path data =
      shared != nullptr ? shared : std::filesystem::path(TIDEMARK_SOURCE_DIR) / ".." / "shared" / "data";
  const std::filesystem::path path = data / "allocator-traces" / "expandable-3gpu-oom.pickle.gz";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "needs the recorded traces: TIDEMARK_SHARED_DATA names the folder with allocator-traces/";
  }
  const RecordedTrace trace = recorded_trace(read_memory_snapshot(path.string()), 0);
  EXPECT_EQ(what_if(trace, RerunReading{}, {.options = trace.options, .capacity = {}}).reserved_peak.reserved,
            8'541'700'096_B);
  EXPECT_GT(what_if(trace, RerunReading{}, {}).reserved_peak.reserved, 8'541'700'096_B);
}

}  // namespace
}  // namespace tidemark::tests::what_if_test
