#include "sim/clock/lone_transfers.hpp"

#include <gtest/gtest.h>

#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::lone_transfers_test {
namespace {

using namespace literals;

constexpr Duration operator""_ps(unsigned long long n) { return Duration{static_cast<std::int64_t>(n)}; }

TimedProgram timed_text(const std::string& text) {
  const Program program = parse_program("alloc b0 512 temporaries s0 x\nalloc b1 1024 temporaries s0 x\n" + text);
  return timed(program, 10_ps, {}, Kernels::Together);
}

// Two collectives, on streams 0 and 1, with `between` them.
bool overlap(const std::string& between) {
  const Overlaps found = overlaps(timed_text("collective s0 g0 all_reduce sum bool 512 b0 -> b0\n" + between +
                                             "collective s1 g0 all_reduce sum bool 1024 b1 -> b1\n"));
  EXPECT_EQ(found[0][1], found[1][0]);
  return found[0][1];
}

TEST(LoneTransfers, OverlapWhereNoEventSaysThatOneIsOver) {
  EXPECT_TRUE(overlap(""));
  EXPECT_FALSE(overlap("record e0 s0\nwait s1 e0\n"));
  EXPECT_TRUE(overlap("record e0 s0\nwait s2 e0\n"));
  EXPECT_FALSE(overlap("record e0 s0\nwait s2 e0\nrecord e1 s2\nwait s1 e1\n"));
  EXPECT_FALSE(overlap("record e0 s0\nsync e0\n"));
  EXPECT_TRUE(overlap("record e0 s1\nsync e0\n"));
}

TEST(LoneTransfers, AnEventThatWasRecordedTooEarlySaysNothing) {
  const Overlaps found =
      overlaps(timed_text("record e0 s0\ncollective s0 g0 all_reduce sum bool 512 b0 -> b0\nwait s1 e0\n"
                          "collective s1 g0 all_reduce sum bool 1024 b1 -> b1\n"));
  EXPECT_TRUE(found[0][1]);
}

TEST(LoneTransfers, OnOneStreamNoneOverlaps) {
  const Overlaps found =
      overlaps(timed_text("collective s0 g0 all_reduce sum bool 512 b0 -> b0\nexchange s0 g0 send +1 b1\n"
                          "collective s0 g0 all_reduce sum bool 512 b0 -> b0\n"));
  EXPECT_EQ(found, (Overlaps{{false, false}, {false, false}}));
}

TEST(LoneTransfers, OfKnownDurationTheyAreKernels) {
  const TimedProgram program = timed_text(
      "collective s0 g0 all_reduce sum bool 512 b0 -> b0\ncollective s0 g0 all_reduce sum bool 1024 b1 -> b1\n"
      "collective s0 g0 all_reduce sum bool 512 b0 -> b0\n");
  const TimedProgram known = with_known(program, {{7_ps}, std::nullopt});
  ASSERT_EQ(known.streams[0].size(), 3U);
  EXPECT_EQ(known.streams[0][0].kind, TimedOp::Kind::Kernels);
  EXPECT_EQ(known.streams[0][0].after, 17_ps) << "handed over after 10, over 7 later";
  EXPECT_EQ(known.streams[0][1], program.streams[0][1]);
  const TimedProgram all = with_known(program, {{7_ps}, {30_ps}});
  ASSERT_EQ(all.streams[0].size(), 1U);
  EXPECT_EQ(all.streams[0][0].duration, 44_ps);
  EXPECT_EQ(all.streams[0][0].after, 57_ps) << "the second goes on from 20 to 50, the third follows";
  EXPECT_EQ(all.streams[0][0].what, 6U) << "bytes start and end";
}

}  // namespace
}  // namespace tidemark::tests::lone_transfers_test
