#include "sim/workload_text.hpp"

#include <string>

#include <gtest/gtest.h>

#include "sim/program_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {
namespace {

const std::string sample = R"(communicator tensor 2/1/1
communicator embedding 2/4/3 2/1/1
ranks 0 1 0 1
program
alloc b0 512 temporaries s0 a
launch s0 fill 0+512 -> b0
free b0
program
mark forward 1 0 layers.0
)";

TEST(WorkloadText, RoundTrips) {
  const Workload workload = parse_workload(sample);
  EXPECT_EQ(workload.communicators.size(), 2u);
  EXPECT_EQ(workload.communicators[1].axes, (std::vector<GroupAxis>{{2, 4, 3}, {2, 1, 1}}));
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

}  // namespace
}  // namespace tidemark::tests
