#include <string>

#include <gtest/gtest.h>

#include "sim/memory/replay.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"
#include "tests/sim/program/random_program.hpp"

// A block that another stream borrowed is back at the latest when the host thread could not have gone on otherwise.

namespace tidemark::tests::queued_launches_test {
namespace {

using namespace literals;

const std::string cross_stream =
    "alloc b0 31457280 temporaries s0 x\nlaunch s0 add ->\nborrow b0 s1\nlaunch s1 copy b0:bool[1] ->\nfree b0\n"
    "record e0 s1\n";

Bytes reserved_at_the_latest(const std::string& text, const LaunchQueue& queue) {
  const Program program = parse_program(text + "alloc b1 31457280 temporaries s0 x\n");
  return replay(program, free_of_charge(), {.cross_stream = CrossStreamFrees::AtNextSync, .queue = queue})
      .peak_reserved;
}

std::string launches(int count, const std::string& stream) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "launch " + stream + " add ->\n";
  return text;
}

// The copy is done once a later launch of its stream has begun.
TEST(QueuedLaunches, ABorrowedBlockIsBackOnceItsStreamHasBegunWhatCameAfter) {
  const LaunchQueue four{.depth = 4, .channels = 8};
  EXPECT_EQ(reserved_at_the_latest(cross_stream + launches(4, "s1"), four), 60_MiB);
  EXPECT_EQ(reserved_at_the_latest(cross_stream + launches(5, "s1"), four), 30_MiB);
  EXPECT_EQ(reserved_at_the_latest(cross_stream + launches(50, "s1"), {.depth = 64, .channels = 8}), 60_MiB);
}

TEST(QueuedLaunches, LaunchesOfOtherChannelsSayNothing) {
  const LaunchQueue four{.depth = 4, .channels = 8};
  EXPECT_EQ(reserved_at_the_latest(cross_stream + launches(50, "s0"), four), 60_MiB);
}

TEST(QueuedLaunches, LaunchesThatComeAfterItOnAnotherStreamDo) {
  const LaunchQueue four{.depth = 4, .channels = 8};
  EXPECT_EQ(reserved_at_the_latest(cross_stream + "wait s0 e0\n" + launches(4, "s0"), four), 60_MiB);
  EXPECT_EQ(reserved_at_the_latest(cross_stream + "wait s0 e0\n" + launches(5, "s0"), four), 30_MiB);
}

}  // namespace
}  // namespace tidemark::tests::queued_launches_test
