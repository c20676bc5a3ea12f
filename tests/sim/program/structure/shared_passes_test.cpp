#include "sim/program/structure/shared_passes.hpp"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "sim/program/structure/timing.hpp"
#include "sim/program/text/program_text.hpp"
#include "sim/program/verify.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::shared_passes_test {
namespace {

const std::string start = R"(mark construction 0 -1 start
alloc b0 1024 parameters s0 weights
create communicator g0
)";
const std::string piece = "alloc b1 512 optimizer_moments s0 piece\n";
// Its activation has a number of its own.
const std::string pass = R"(mark forward 1 0 layer
alloc b2 2048 saved_activations s0 activation
collective s0 g0 all_reduce sum bool 1024 b0 -> b0
free b2
)";
const std::string reduce = R"(mark communication 1 -1 reduce
collective s0 g0 all_reduce sum bool 1024 b0 -> b0
)";

std::optional<std::string> passes_in(const std::string& own, const std::string& whole = start + piece + pass + reduce,
                                     const std::string& state = start + piece + reduce) {
  const Program shows = parse_program(whole), without = parse_program(state), its = parse_program(own);
  const std::optional<SharedPasses> shared = SharedPasses::of(shows, without);
  if (!shared) return std::nullopt;
  const std::optional<SharedPasses::Spliced> spliced = shared->in(its);
  if (!spliced) return std::nullopt;
  EXPECT_TRUE(verify(spliced->program).empty());
  EXPECT_EQ(spliced->places, timed_like(shows, spliced->program));
  return text(spliced->program);
}

TEST(SharedPasses, StandAmongTheStateOfAnotherRank) {
  // Its pieces are others; what passes use is called what they call it.
  const std::string own =
      "mark construction 0 -1 start\nalloc b0 64 optimizer_moments s0 other\n"
      "alloc b1 1024 parameters s0 weights\ncreate communicator g0\n"
      "alloc b2 256 optimizer_moments s0 piece\n"
      "mark communication 1 -1 reduce\ncollective s0 g0 all_reduce sum bool 1024 b1 -> b1\n";
  EXPECT_EQ(passes_in(own),
            "mark construction 0 -1 start\nalloc b3 64 optimizer_moments s0 other\n"
            "alloc b0 1024 parameters s0 weights\ncreate communicator g0\n"
            "alloc b4 256 optimizer_moments s0 piece\n" +
                pass + reduce);
}

TEST(SharedPasses, AreNotSharedWhereTheOtherHasNotMadeWhatTheyUse) {
  EXPECT_FALSE(
      passes_in("mark construction 0 -1 start\nalloc b0 1024 parameters s0 others\ncreate communicator g0\n"
                "mark communication 1 -1 reduce\ncollective s0 g0 all_reduce sum bool 1024 b0 -> b0\n"));
}

TEST(SharedPasses, AreNotSharedWhereOthersSeeADifference) {
  EXPECT_FALSE(
      passes_in(start + "mark communication 1 -1 reduce\ncollective s0 g0 all_reduce sum bool 512 b0 -> b0\n"));
}

TEST(SharedPasses, OpenCommunicatorsOnceThoughAStateWithoutThemOpensThem) {
  const std::string begin = "mark construction 0 -1 start\nalloc b0 1024 parameters s0 weights\n";
  const std::string opening =
      "mark forward 1 0 layer\ncreate communicator g0\n"
      "collective s0 g0 all_reduce sum bool 1024 b0 -> b0\n";
  const std::string end = "collective s0 g0 all_reduce sum bool 1024 b0 -> b0\n";
  const std::string mark = "mark communication 1 -1 reduce\n", open = "create communicator g0\n";
  const std::string whole = begin + opening + mark + end, state = begin + mark + open + end;
  EXPECT_EQ(passes_in(state, whole, state), whole);
  // What no pass opens, it opens itself, before what comes after passes.
  EXPECT_FALSE(passes_in(state, begin + pass + mark + end, state));
  const std::string early = begin + open + mark + end;
  EXPECT_EQ(passes_in(early, whole, early), whole);
}

TEST(SharedPasses, AreThoseOfThatStateOnly) {
  EXPECT_TRUE(passes_in(start + piece + reduce));
  // A program that does something else between passes.
  EXPECT_FALSE(passes_in(start + piece + reduce, start + piece + pass + reduce, start + reduce));
  EXPECT_FALSE(passes_in(start + piece + reduce, start + piece + pass + reduce + "free b1\n"));
  EXPECT_FALSE(passes_in(start + piece + reduce, start + piece + pass + "mark communication 1 -1 reduce\n"));
}

}  // namespace
}  // namespace tidemark::tests::shared_passes_test
