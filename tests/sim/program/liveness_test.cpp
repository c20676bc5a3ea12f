#include "sim/program/liveness.hpp"

#include <string>

#include <gtest/gtest.h>

#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::liveness_test {
namespace {

std::string freed(const std::string& program) { return text(with_frees(parse_program(program))); }

TEST(Liveness, ABufferIsFreedRightAfterItsLastUse) {
  EXPECT_EQ(freed(R"(alloc b0 512 temporaries s0 a
launch s0 fill(value=0) -> b0:bool[1]
launch s0 copy b0:bool[1] -> b0:bool[1]
mark forward 1 0 later
)"),
            R"(alloc b0 512 temporaries s0 a
launch s0 fill(value=0) -> b0:bool[1]
launch s0 copy b0:bool[1] -> b0:bool[1]
free b0
mark forward 1 0 later
)");
}

TEST(Liveness, EveryKindOfUseCounts) {
  EXPECT_EQ(freed(R"(create communicator g0
alloc b0 512 temporaries s0 a
alloc b1 512 temporaries s0 a
alloc b2 512 temporaries s0 a
alloc b3 512 temporaries s0 a
collective s0 g0 all_gather bool 512 b0 -> b1
borrow b2 s1
exchange s0 g0 send +1 b1 receive -1 b3
)"),
            R"(create communicator g0
alloc b0 512 temporaries s0 a
alloc b1 512 temporaries s0 a
alloc b2 512 temporaries s0 a
alloc b3 512 temporaries s0 a
collective s0 g0 all_gather bool 512 b0 -> b1
free b0
borrow b2 s1
free b2
exchange s0 g0 send +1 b1 receive -1 b3
free b1
free b3
)");
}

TEST(Liveness, BuffersOfOneOpAreFreedInTheOrderOfItsText) {
  EXPECT_EQ(freed(R"(alloc b0 512 temporaries s0 a
alloc b1 512 temporaries s0 a
alloc b2 512 temporaries s0 a
launch s0 add b2:bool[1] b0:bool[1] -> b1:bool[1]
)"),
            R"(alloc b0 512 temporaries s0 a
alloc b1 512 temporaries s0 a
alloc b2 512 temporaries s0 a
launch s0 add b2:bool[1] b0:bool[1] -> b1:bool[1]
free b2
free b0
free b1
)");
}

TEST(Liveness, ABufferThatNobodyUsesIsFreedAtOnce) {
  EXPECT_EQ(freed("alloc b0 512 temporaries s0 a\nmark forward 1 0 later\n"),
            "alloc b0 512 temporaries s0 a\nfree b0\nmark forward 1 0 later\n");
}

TEST(Liveness, ANameKeepsItsBufferUntilItIsUnbound) {
  EXPECT_EQ(freed(R"(alloc b0 512 temporaries s0 a
bind frame b0
launch s0 fill(value=0) -> b0:bool[1]
mark forward 1 0 later
unbind frame
)"),
            R"(alloc b0 512 temporaries s0 a
bind frame b0
launch s0 fill(value=0) -> b0:bool[1]
mark forward 1 0 later
unbind frame
free b0
)");
}

TEST(Liveness, AUseAfterUnbindingIsTheLastOne) {
  EXPECT_EQ(freed(R"(alloc b0 512 temporaries s0 a
bind frame b0
unbind frame
launch s0 fill(value=0) -> b0:bool[1]
)"),
            R"(alloc b0 512 temporaries s0 a
bind frame b0
unbind frame
launch s0 fill(value=0) -> b0:bool[1]
free b0
)");
}

TEST(Liveness, RebindingANameDropsWhatItHeld) {
  EXPECT_EQ(freed(R"(alloc b0 512 temporaries s0 a
bind frame b0
alloc b1 512 temporaries s0 a
bind frame b1
unbind frame
)"),
            R"(alloc b0 512 temporaries s0 a
bind frame b0
alloc b1 512 temporaries s0 a
bind frame b1
free b0
unbind frame
free b1
)");
}

TEST(Liveness, ABufferWithTwoNamesNeedsBothToLetGo) {
  EXPECT_EQ(freed(R"(alloc b0 512 temporaries s0 a
bind one b0
bind two b0
unbind one
mark forward 1 0 later
unbind two
)"),
            R"(alloc b0 512 temporaries s0 a
bind one b0
bind two b0
unbind one
mark forward 1 0 later
unbind two
free b0
)");
}

TEST(Liveness, BindingANameToItsOwnBufferChangesNothing) {
  EXPECT_EQ(freed(R"(alloc b0 512 temporaries s0 a
bind frame b0
bind frame b0
mark forward 1 0 later
unbind frame
)"),
            R"(alloc b0 512 temporaries s0 a
bind frame b0
bind frame b0
mark forward 1 0 later
unbind frame
free b0
)");
}

TEST(Liveness, WhatANameHoldsAtTheEndIsNeverFreed) {
  const std::string program = R"(alloc b0 512 parameters s0 weight
bind weight b0
launch s0 fill(value=0) -> b0:bool[1]
)";
  EXPECT_EQ(freed(program), program);
}

TEST(Liveness, ABindingStillToComeKeepsABuffer) {
  EXPECT_EQ(freed(R"(alloc b0 512 temporaries s0 a
launch s0 fill(value=0) -> b0:bool[1]
mark forward 1 0 later
bind frame b0
unbind frame
)"),
            R"(alloc b0 512 temporaries s0 a
launch s0 fill(value=0) -> b0:bool[1]
mark forward 1 0 later
bind frame b0
unbind frame
free b0
)");
}

TEST(LivenessDeathTest, FreesAreComputedNotWritten) {
  EXPECT_DEATH((void)with_frees(parse_program("alloc b0 1 context s0 x\nfree b0")), "frees are computed");
}

}  // namespace
}  // namespace tidemark::tests::liveness_test
