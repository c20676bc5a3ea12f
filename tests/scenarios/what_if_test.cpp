#include "scenarios/what_if.hpp"

#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/io/memory_snapshot.hpp"
#include "tests/scenarios/recorded_program.hpp"

namespace tidemark::tests {
namespace {

using namespace literals;

RerunOutcome rerun(RecordedProgram& program, const Conditions& conditions = {},
                   const std::vector<std::size_t>& emptied_at = {}) {
  return what_if(program.trace(), emptied_at, conditions);
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
  EXPECT_EQ(what_if(trace, {}, {.options = trace.options, .capacity = {}}).reserved_peak.reserved, 8'541'700'096_B);
  EXPECT_GT(what_if(trace, {}, {}).reserved_peak.reserved, 8'541'700'096_B);
}

}  // namespace
}  // namespace tidemark::tests
