#include "kernels/execute/references.hpp"

#include <map>
#include <utility>

#include <gtest/gtest.h>

#include "sim/program/liveness.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/sim/program/random_program.hpp"

namespace tidemark::tests::references_test {
namespace {

using Releases = std::vector<std::pair<std::size_t, std::int32_t>>;  // op, buffer

Releases counted(const Program& program) {
  Releases found;
  References references(program);
  for (std::size_t i = 0; i < program.ops.size(); ++i)
    references.after(i, [&](BufferId buffer) { found.emplace_back(i, buffer.value); });
  return found;
}

// Where the pass that predictions use puts them.
Releases computed(const Program& program) {
  Releases found;
  std::size_t written = 0;
  for (const Op& op : with_frees(program).ops) {
    if (const auto* free = std::get_if<Free>(&op))
      found.emplace_back(written - 1, free->buffer.value);
    else
      ++written;
  }
  return found;
}

TEST(References, ReleaseWhereThePredictionFrees) {
  std::size_t releases = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Program program = random_program(seed);
    const Releases found = counted(program);
    ASSERT_EQ(found, computed(program)) << "seed " << seed;
    releases += found.size();
  }
  EXPECT_GT(releases, 10000u);
}

Releases counted(const std::string& program) { return counted(parse_program(program)); }

TEST(References, TheLastUseReleases) {
  EXPECT_EQ(counted(R"(alloc b0 512 temporaries s0 a
launch s0 fill(value=0) -> b0:bool[1]
launch s0 copy b0:bool[1] -> b0:bool[1]
mark forward 1 0 later
)"),
            (Releases{{2, 0}}));
}

TEST(References, WhatNobodyUsesGoesAtOnce) {
  EXPECT_EQ(counted("alloc b0 512 temporaries s0 a\nmark forward 1 0 later\n"), (Releases{{0, 0}}));
}

TEST(References, AVariableHoldsWhatItNames) {
  EXPECT_EQ(counted(R"(alloc b0 512 temporaries s0 a
bind frame b0
launch s0 fill(value=0) -> b0:bool[1]
mark forward 1 0 later
unbind frame
)"),
            (Releases{{4, 0}}));
  EXPECT_EQ(counted("alloc b0 512 temporaries s0 a\nbind frame b0\n"), Releases{});
}

TEST(References, RebindingLetsGoOfWhatWasHeld) {
  EXPECT_EQ(counted(R"(alloc b0 512 temporaries s0 a
bind frame b0
alloc b1 512 temporaries s0 a
bind frame b1
unbind frame
)"),
            (Releases{{3, 0}, {4, 1}}));
}

TEST(References, RebindingToTheSameBufferKeepsIt) {
  EXPECT_EQ(counted(R"(alloc b0 512 temporaries s0 a
bind frame b0
bind frame b0
mark forward 1 0 later
unbind frame
)"),
            (Releases{{4, 0}}));
}

TEST(References, ABorrowIsAUse) {
  EXPECT_EQ(counted("alloc b0 512 temporaries s0 a\nlaunch s0 fill(value=0) -> b0:bool[1]\nborrow b0 s1\n"),
            (Releases{{2, 0}}));
}

TEST(References, ABindingStillToComeKeepsABuffer) {
  EXPECT_EQ(counted(R"(alloc b0 512 temporaries s0 a
launch s0 fill(value=0) -> b0:bool[1]
mark forward 1 0 later
bind frame b0
unbind frame
)"),
            (Releases{{4, 0}}));
}

}  // namespace
}  // namespace tidemark::tests::references_test
