#include "sim/program/structure/timing.hpp"

#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/program/text/program_text.hpp"
#include "tests/sim/program/random_program.hpp"

namespace tidemark::tests::timing_test {
namespace {

using Places = std::vector<std::uint32_t>;

std::optional<Places> places(const std::string& simulated, const std::string& own) {
  return timed_like(parse_program(simulated), parse_program(own));
}

const std::string pass = "mark forward 1 0 x\nlaunch s0 copy ->\ncollective s0 g0 all_reduce sum bool 512 b0 -> b0\n";
const std::string start = "alloc b0 512 temporaries s0 x\ncreate communicator g0\n";

TEST(Timing, AProgramIsTimedLikeItself) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const Program program = random_program(seed);
    const std::optional<Places> found = timed_like(program, program);
    ASSERT_TRUE(found);
    // Where the host takes no time between two ops, it comes to them at once.
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      EXPECT_GE((*found)[i], i);
      for (std::size_t op = i; op < (*found)[i]; ++op) EXPECT_FALSE(std::holds_alternative<Launch>(program.ops[op]));
    }
  }
}

TEST(Timing, MemoryTellsNobodyApart) {
  EXPECT_EQ(places(start + pass, start + "alloc b1 512 temporaries s0 x\nfree b1\n" + pass),
            (Places{2, 2, 2, 2, 2, 3, 4}));
}

TEST(Timing, KernelsOfPassesDo) {
  const std::string other = "mark forward 1 0 x\nlaunch s0 add ->\ncollective s0 g0 all_reduce sum bool 512 b0 -> b0\n";
  const std::string more =
      "mark forward 1 0 x\nlaunch s0 copy ->\nlaunch s0 copy ->\n"
      "collective s0 g0 all_reduce sum bool 512 b0 -> b0\n";
  EXPECT_FALSE(places(start + pass, start + other));
  EXPECT_FALSE(places(start + pass, start + more));
  EXPECT_FALSE(places(start + more, start + pass));
}

// Of experts or a vocabulary.
TEST(Timing, RowsOfItsOwnTellNobodyApartWhereTheyMayBeAny) {
  const auto with = [](int first) {
    return start + "alloc b1 64 temporaries s0 x\nmark forward 1 0 x\n" +
           fmt::format("launch s0 vocabulary_mask(first={},end={}) b1:int64[8] -> b1:bool[8] b1:int64[8]\n", first,
                       first + 32);
  };
  const Program one = parse_program(with(0)), other = parse_program(with(32));
  EXPECT_FALSE(timed_like(one, other));
  EXPECT_TRUE(timed_like(one, other, OwnRows::Any));
  const Program no_mask = parse_program(start + "alloc b1 64 temporaries s0 x\nmark forward 1 0 x\n" +
                                        "launch s0 fill(value=1) -> b1:int64[8]\n"),
                no_other = parse_program(start + "alloc b1 64 temporaries s0 x\nmark forward 1 0 x\n" +
                                         "launch s0 fill(value=2) -> b1:int64[8]\n");
  EXPECT_FALSE(timed_like(no_mask, no_other, OwnRows::Any));
}

// A rank's own kernels outside of micro-batches stand for each other one by one, as far as there are as many.
TEST(Timing, KernelsOfTheStateDoNot) {
  const std::string one = "mark optimizer_step 1 -1 x\nlaunch s0 copy ->\n";
  const std::string two =
      "mark optimizer_step 1 -1 x\nlaunch s0 sum ->\nalloc b1 4 temporaries s0 x\n"
      "launch s0 sum ->\n";
  EXPECT_EQ(places(start + one + pass, start + two + pass), (Places{2, 2, 2, 3, 4, 4, 4, 5, 6}));
  EXPECT_EQ(places(start + two + pass, start + one + pass), (Places{2, 2, 2, 3, 6, 7, 8}));
}

TEST(Timing, CallsMessagesAndMarksDo) {
  EXPECT_FALSE(places(start + pass, start + pass + "mark communication 1 -1 end\n"));
  EXPECT_FALSE(places(start + "mark forward 1 0 x\n", start + "mark backward 1 0 x\n"));
  EXPECT_TRUE(places(start + "mark forward 1 0 x\n", start + "mark forward 1 0 another\n"));
  const auto sends = [](const std::string& size) {
    return "alloc b1 " + size + " temporaries s0 x\ncreate communicator g0\nexchange s0 g0 send 1 b1\n";
  };
  EXPECT_TRUE(places(sends("512"), sends("512")));
  EXPECT_FALSE(places(sends("512"), sends("1024")));
}

// Events are alike where they are recorded at the same place, whatever their numbers.
TEST(Timing, WaitsDoByWhatTheyWaitFor) {
  const std::string two = "record e0 s0\nlaunch s0 copy ->\nrecord e1 s0\n",
                    other = "record e1 s0\nlaunch s0 copy ->\nrecord e0 s0\n";
  EXPECT_TRUE(places(two + "wait s1 e0\n", other + "wait s1 e1\n"));
  EXPECT_FALSE(places(two + "wait s1 e0\n", other + "wait s1 e0\n"));
  EXPECT_FALSE(places(two + "sync e0\n", other + "sync e0\n"));
}

}  // namespace
}  // namespace tidemark::tests::timing_test
