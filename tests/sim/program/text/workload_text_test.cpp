#include "sim/program/text/workload_text.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/program/text/program_text.hpp"
#include "sim/program/verify.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::workload_text_test {
namespace {

const std::string sample = R"(communicator tensor 2/1/1
communicator embedding 2/1/3 1/4/1
ranks 0 1 0 1
program
alloc b0 512 temporaries s0 a
launch s0 fill(value=0) -> b0:bool[1]
free b0
program
mark forward 1 0 layers.0
)";

TEST(WorkloadText, RoundTrips) {
  const Workload workload = parse_workload(sample);
  EXPECT_EQ(workload.communicators.size(), 2u);
  EXPECT_EQ(workload.communicators[1].axes, (std::vector<GroupAxis>{{2, 1, 3}, {1, 4, 1}}));
  EXPECT_EQ(workload.program_of_rank, (std::vector<std::int32_t>{0, 1, 0, 1}));
  EXPECT_EQ(workload.programs.size(), 2u);
  EXPECT_EQ(text(workload), sample);
}

std::string complaint(const std::string& text) {
  try {
    static_cast<void>(parse_workload(text));
  } catch (const ProgramTextError& error) {
    return error.what();
  }
  return "";
}

TEST(WorkloadText, MistakesNameTheirLine) {
  EXPECT_EQ(complaint("communicator tensor 2/1\n"), "line 1: an axis is size/stride/step");
  EXPECT_EQ(complaint("communicator tensor 0/1/1\n"), "line 1: '0' is no number from 1 on");
  EXPECT_EQ(complaint("# a comment\n\nhello\n"), "line 3: 'hello' begins no line of a workload");
  EXPECT_EQ(complaint("communicator\n"), "line 1: a communicator has a name");
  EXPECT_NE(complaint("ranks 0\nprogram\nmark forward 1 0 a\nalloc nonsense\n").find("line 4: "), std::string::npos);
  EXPECT_NE(complaint("ranks 0 2\nprogram\nmark forward 1 0 a\n").find("there is no program 2"), std::string::npos);
}

TEST(WorkloadText, BlankLinesSayNothing) {
  EXPECT_EQ(text(parse_workload(" ")), "ranks \n");
  EXPECT_EQ(text(parse_workload("\t\r\n \n")), "ranks \n");
  std::string spread;
  for (const char c : sample) spread += c == '\n' ? std::string(" \r\n \t\n  # a comment\n") : std::string(1, c);
  EXPECT_EQ(text(parse_workload(spread)), sample);
  EXPECT_EQ(complaint("ranks 0\n\nprogram\n \n\nfree 7\n"), "line 6: '7' is no buffer");
}

TEST(WorkloadText, ProgramsAndGroupsNameWhatIsThere) {
  EXPECT_EQ(
      complaint("communicator a 2/1/1\nranks 0 0\nprogram\ncreate communicator g0\n\nprogram\ncreate communicator "
                "g1\n"),
      "line 6: the program names communicator g1, and there are 1");
  for (const char* beyond : {"4/1/1", "2/1/3", "2/2/1", "2147483647/2147483647/2147483647", "2/1/1 2/1/1 2/1/1"})
    EXPECT_EQ(complaint("communicator a " + std::string(beyond) + "\nranks 0 0\nprogram\n"),
              "line 1: the groups of communicator a are not all within 2 ranks")
        << beyond;
  EXPECT_EQ(complaint("communicator a 2/1/1 1/7/1\nranks 0 0\nprogram\n"), "");
}

TEST(WorkloadText, NobodySpeaksInAGroupOfOthers) {
  // Ranks 0 and 2 are a group of two, each a step of two away; rank 1 is in none.
  const Workload workload = parse_workload(
      "communicator ends 2/1/2\nranks 0 0 0\nprogram\ncreate communicator g0\n"
      "alloc b0 512 temporaries s0 a\nexchange s0 g0 send 1 b0 receive -1 b0\nfree b0\n");
  EXPECT_EQ(verify(workload),
            (std::vector<std::string>{"rank 1 sends in communicator ends, of which it is no member",
                                      "rank 1 receives in communicator ends, of which it is no member"}));
}

TEST(WorkloadText, UnevenRowsAndSpacesRoundTrip) {
  const std::string job = R"(communicator expert 2/1/1
ranks 0 1
program
alloc b0 512 temporaries s0 a
alloc b1 512 temporaries s0 a pinned
memcpy s0 512 b0 -> b1
collective s0 g0 all_to_all bool 512 b0 -> b0 m7 sends 0 512 receives 0 256
program
collective s0 g0 all_to_all bool 512 b0 -> b0 m7 sends 256 0 receives 512 0
)";
  EXPECT_EQ(text(parse_workload(job)), job);
}

}  // namespace
}  // namespace tidemark::tests::workload_text_test
