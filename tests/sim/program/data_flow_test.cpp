#include "sim/program/data_flow.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/program/liveness.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::data_flow_test {
namespace {

std::string text(const FlowFinding& f) {
  std::string said = fmt::format("{} {} {} B by {} in {} {}", name(f.kind), f.tensor, f.largest.count(), f.by,
                                 name(f.at.phase), f.at.label);
  if (f.kind == FlowKind::Unread || f.kind == FlowKind::Kept)
    said += fmt::format(" until {} {}", name(f.until.phase), f.until.label);
  if (!f.keeper.empty()) said += " held as " + f.keeper;
  return said + (f.times > 1 ? fmt::format(", {} times", f.times) : "") + "\n";
}

// Of rank 0, which has a group with rank 1.
std::string flow_of(const std::string& program) {
  const Workload workload{{with_frees(parse_program(program))}, {0, 0}, {{"pair", {{2, 1, 1}}, {}}}};
  std::string all;
  for (const FlowFinding& finding : data_flow(workload, 0)) all += text(finding);
  return all;
}

const std::string two = R"(alloc b0 16 temporaries s0 x
alloc b1 16 temporaries s0 y
mark forward 1 0 layers.0.add
)";

TEST(DataFlow, WhatIsWrittenReadAndFreedIsNothingToSpeakOf) {
  EXPECT_EQ(flow_of(two + R"(launch s0 fill(value=0) -> b0:fp32[4]
launch s0 scale(factor=2) b0:fp32[4] -> b1:fp32[4]
launch s0 copy b1:fp32[4] -> b1:fp32[4]
bind out b1
)"),
            "");
}

TEST(DataFlow, ReadingWhatNobodyWroteIsSaidByteByByte) {
  EXPECT_EQ(flow_of(two + R"(launch s0 fill(value=0) -> b0:fp32[2]
launch s0 scale(factor=2) b0+4:fp32[3] -> b1:fp32[3]
bind out b1
)"),
            "unread x 4 B by fill y in forward layers.*.add until forward layers.*.add\n"
            "unwritten x 8 B by scale x in forward layers.*.add\n");
}

TEST(DataFlow, WhatIsFreedUnreadIsSaid) {
  EXPECT_EQ(flow_of(two + R"(launch s0 fill(value=0) -> b0:fp32[4]
launch s0 scale(factor=2) b0:fp32[3] -> b1:fp32[3]
)"),
            "unread x 4 B by fill y in forward layers.*.add until forward layers.*.add\n"
            "unread y 12 B by scale y in forward layers.*.add until forward layers.*.add\n");
}

TEST(DataFlow, WhatIsOverwrittenUnreadIsSaid) {
  EXPECT_EQ(flow_of(two + R"(launch s0 fill(value=0) -> b0:fp32[4]
mark backward 1 0 later
launch s0 fill(value=1) -> b0+8:fp32[2]
bind out b0
)"),
            "unread x 8 B by fill y in forward layers.*.add until backward later\n");
}

TEST(DataFlow, ViewsThatShareABufferAreFollowedApart) {
  // Columns of one matrix: what one writes the other does not read.
  EXPECT_EQ(flow_of(two + R"(launch s0 fill(value=0) -> b0:fp32[2x1/2x1]
launch s0 fill(value=1) -> b0+4:fp32[2x1/2x1]
launch s0 scale(factor=2) b0+4:fp32[2x1/2x1] -> b1:fp32[2]
launch s0 scale(factor=2) b0:fp32[2x1/2x1] -> b1+8:fp32[2]
bind out b1
)"),
            "");
}

TEST(DataFlow, LayersAreToldOnce) {
  EXPECT_EQ(flow_of(R"(mark forward 1 0 layers.0.norm
alloc b0 4 temporaries s0 layers.0.norm.rstd
launch s0 fill(value=0) -> b0:fp32[1]
mark forward 1 0 layers.1.norm
alloc b1 4 temporaries s0 layers.1.norm.rstd
launch s0 fill(value=0) -> b1:fp32[1]
)"),
            "unread layers.*.norm.rstd 4 B by fill y in forward layers.*.norm until forward layers.*.norm, 2 times\n");
}

TEST(DataFlow, StatisticsOfAKernelMayGoUnreadButNotBeKept) {
  const std::string norm = R"(alloc b0 4 temporaries s0 x
alloc b1 4 temporaries s0 weight
alloc b2 4 temporaries s0 y
alloc b3 4 temporaries s0 rstd
mark forward 1 0 norm
launch s0 fill(value=0) -> b0:fp32[1]
launch s0 fill(value=0) -> b1:fp32[1]
launch s0 rms_norm(epsilon=1,weight_offset=0) b0:fp32[1] b1:fp32[1] - -> b2:fp32[1] b3:fp32[1]
bind out b2
)";
  EXPECT_EQ(flow_of(norm), "");
  EXPECT_EQ(flow_of(norm + "bind saved b3\nalloc b4 4 temporaries s0 z\nbind out b4\nunbind saved\n"),
            "unread y 4 B by rms_norm y in forward norm until forward norm\n"
            "unread rstd 4 B by rms_norm rstd in forward norm until forward norm\n"
            "kept y 4 B by rms_norm y in forward norm until forward norm held as out\n"
            "kept rstd 4 B by rms_norm rstd in forward norm until forward norm held as saved\n");
}

TEST(DataFlow, WhatANameHoldsAfterItsLastReaderIsKept) {
  const std::string used = two + R"(launch s0 fill(value=0) -> b0:fp32[4]
launch s0 scale(factor=2) b0:fp32[4] -> b1:fp32[4]
bind out b1
bind frame b0
)";
  EXPECT_EQ(flow_of(used + "unbind frame\n"), "") << "nobody asked for memory meanwhile";
  EXPECT_EQ(
      flow_of(used + "mark backward 1 0 layers.0.norm\nalloc b2 4 temporaries s0 z\nbind out2 b2\nunbind frame\n"),
      "kept x 16 B by scale x in forward layers.*.add until backward layers.*.norm held as frame\n");
}

TEST(DataFlow, ScratchMemoryHoldsNothing) {
  EXPECT_EQ(flow_of(two + R"(launch s0 fill(value=0) -> b0:fp32[4] ~ b1
launch s0 scale(factor=2) b1:fp32[4] -> b0:fp32[4]
bind out b0
)"),
            "unread x 16 B by fill y in forward layers.*.add until forward layers.*.add\n"
            "unwritten y 16 B by scale x in forward layers.*.add\n");
}

TEST(DataFlow, MembersOfAGroupReadAndWriteTheirParts) {
  // In place, this rank's part is the first.
  const std::string begin = "create communicator g0\n" + two;
  EXPECT_EQ(flow_of(begin + R"(launch s0 fill(value=0) -> b0:fp32[2]
collective s0 g0 all_gather fp32 16 b0 -> b0
launch s0 scale(factor=2) b0:fp32[4] -> b1:fp32[4]
bind out b1
)"),
            "");
  EXPECT_EQ(flow_of(begin + R"(launch s0 fill(value=0) -> b0:fp32[4]
collective s0 g0 reduce_scatter sum fp32 16 b0 -> b1
launch s0 scale(factor=2) b1:fp32[4] -> b0:fp32[4]
bind out b0
)"),
            "unwritten y 8 B by scale x in forward layers.*.add\n");
  EXPECT_EQ(flow_of(begin + R"(launch s0 fill(value=0) -> b0:fp32[2]
collective s0 g0 all_reduce sum fp32 16 b0 -> b0
bind out b0
)"),
            "unwritten x 8 B by all_reduce in forward layers.*.add\n");
}

TEST(DataFlow, AStreamReadsOnlyWhatItHasWaitedFor) {
  const std::string written = two + "launch s0 fill(value=0) -> b0:fp32[4]\n",
                    read = "launch s1 copy b0:fp32[4] -> b1:fp32[4]\n";
  EXPECT_EQ(flow_of(written + "record e0 s0\nwait s1 e0\n" + read + "bind out b1\n"), "");
  EXPECT_EQ(flow_of(written + "record e0 s0\nsync e0\n" + read + "bind out b1\n"), "") << "the host has";
  EXPECT_EQ(flow_of(written + read + "bind out b1\n"), "early x 16 B by copy x in forward layers.*.add\n");
  EXPECT_EQ(flow_of("record e0 s0\n" + written + "wait s1 e0\n" + read + "bind out b1\n"),
            "early x 16 B by copy x in forward layers.*.add\n")
      << "recorded before it was written";
}

TEST(DataFlow, NumbersOfTheHostAreNotFollowed) {
  const std::string reduced = "create communicator g0\n" + two + "collective s0 g0 all_reduce sum fp32 16 b0 -> b0\n";
  EXPECT_EQ(flow_of(reduced + "launch s0 fill(value=0) -> b1:fp32[4]\nbind out b1\n"), "");
  EXPECT_EQ(flow_of(reduced + "launch s0 scale(factor=2) b0:fp32[4] -> b1:fp32[4]\nbind out b1\n"),
            "unwritten x 16 B by all_reduce in forward layers.*.add\n");
}

TEST(DataFlow, WhatIsReceivedIsWrittenAndWhatIsSentIsRead) {
  EXPECT_EQ(flow_of("create communicator g0\n" + two + R"(launch s0 fill(value=0) -> b0:fp32[4]
exchange s0 g0 send +1 b0 receive +1 b1
launch s0 copy b1:fp32[4] -> b1:fp32[4]
bind out b1
)"),
            "");
}

}  // namespace
}  // namespace tidemark::tests::data_flow_test
