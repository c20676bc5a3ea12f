#include "sim/clock/summary.hpp"

#include <gtest/gtest.h>

#include "sim/clock/engine.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::summary_test {
namespace {

using namespace literals;

// Two ranks, one step of 50 ns: 10 of kernels, then a collective of 5, a transfer aside of 20 that 10 more of kernels
// overlap; the second rank has another 15 of kernels before the collective.
TEST(Summary, EveryPicosecondOfTheStepIsSomewhere) {
  const std::string tail =
      "collective s0 g0 all_reduce sum bool 512 b0 -> b0\n"
      "record e0 s0\nwait s1 e0\ncollective s1 g0 all_gather bool 512 b0 -> b0\nrecord e1 s1\n"
      "launch s0 copy ->\nwait s0 e1\n";
  const std::string head = "alloc b0 512 temporaries s0 x\nmark forward 1 0 x\nlaunch s0 copy ->\n";
  Workload workload;
  workload.programs = {parse_program(head + tail), parse_program(head + "launch s0 add ->\n" + tail)};
  workload.program_of_rank = {0, 1};
  workload.communicators = {{"pair", {{2, 1, 1}}}};
  const Folding folding = unfolded(workload, {0, 0});
  TimeCosts costs;
  costs.classes.resize(2);
  costs.classes[0].kernels = {10_ns};
  costs.classes[1].kernels = {10_ns, 15_ns};
  costs.collectives = {
      {{{{0}, CollectiveKind::AllReduce, 512_B}, {5_ns, {}}}, {{{0}, CollectiveKind::AllGather, 512_B}, {20_ns, {}}}}};
  const Trace trace = simulate(workload, folding, costs);

  EXPECT_EQ(last_step(trace), 50_ns);
  const std::vector<ClassTimeline> its = timelines(workload, folding, costs, trace);
  const auto of = [&](std::size_t rank) { return step_times(workload.programs[rank], its[rank], trace, 1); };
  EXPECT_EQ(of(0), (StepTimes{50_ns, 20_ns, {5_ns + 10_ns}, {15_ns}, 0_ns}));
  EXPECT_EQ(of(1), (StepTimes{50_ns, 35_ns, {5_ns + 10_ns}, {0_ns}, 0_ns}));
}

// 30 ns of a copy aside, of which a kernel hides 10, and 7 of one on the compute stream itself.
TEST(Summary, CopiesToTheHostAreExposedAsTransfersAre) {
  Workload workload;
  workload.programs = {
      parse_program("alloc b0 512 temporaries s0 x\nalloc b1 512 temporaries s0 x pinned\nmark forward 1 0 x\n"
                    "memcpy s1 512 b0 -> b1\nrecord e0 s1\nlaunch s0 copy ->\nwait s0 e0\nmemcpy s0 128 b1 -> b0\n")};
  workload.program_of_rank = {0};
  const Folding folding = unfolded(workload, {0});
  TimeCosts costs;
  costs.classes.resize(1);
  costs.classes[0].kernels = {10_ns};
  costs.classes[0].copies[{MemorySpace::Device, MemorySpace::Pinned, 512_B}] = {30_ns, {}};
  costs.classes[0].copies[{MemorySpace::Pinned, MemorySpace::Device, 128_B}] = {7_ns, {}};
  const Trace trace = simulate(workload, folding, costs);
  const ClassTimeline its = timelines(workload, folding, costs, trace).front();
  EXPECT_EQ(step_times(workload.programs.front(), its, trace, 0), (StepTimes{37_ns, 10_ns, {}, {}, 0_ns, 27_ns}));
}

// Ranks pass tensors both ways at once. The first one's is taken at 10 ns, and what it is to receive begins at 30.
TEST(Summary, AnExchangeWaitsUntilItsLastMessageBegins) {
  const std::string head = "alloc b0 512 temporaries s0 x\nalloc b1 512 temporaries s0 x\nmark forward 1 0 x\n";
  Workload workload;
  workload.programs = {
      parse_program(head + "exchange s0 g0 send +1 b0 receive +1 b1\n"),
      parse_program(head +
                    "launch s0 copy ->\nexchange s0 g0 receive -1 b0\nlaunch s0 add ->\nexchange s0 g0 send -1 b1\n")};
  workload.program_of_rank = {0, 1};
  workload.communicators = {{"pair", {{2, 1, 1}}}};
  const Folding folding = unfolded(workload, {0, 0});
  TimeCosts costs;
  costs.classes.resize(2);
  costs.classes[1].kernels = {10_ns, 15_ns};
  for (OpTimes& times : costs.classes)
    for (const std::int32_t step : {-1, 1}) times.messages[{{0}, step, 512_B}] = {5_ns, {}};
  const Trace trace = simulate(workload, folding, costs);
  const std::vector<ClassTimeline> its = timelines(workload, folding, costs, trace);
  EXPECT_EQ(step_times(workload.programs[0], its[0], trace, 1), (StepTimes{35_ns, 0_ns, {5_ns}, {30_ns}, 0_ns}));
  EXPECT_EQ(step_times(workload.programs[1], its[1], trace, 1), (StepTimes{35_ns, 25_ns, {10_ns}, {0_ns}, 0_ns}));
}

// The first stream waits for the third, which waits for a transfer on the second: that waits 20 ns for the other rank,
// takes 5, and is followed by 7 of kernels on the third.
TEST(Summary, WhoWaitsForAStreamDoesWhatThatDoes) {
  const std::string head = "alloc b0 512 temporaries s0 x\nmark forward 1 0 x\n";
  const std::string tail =
      "collective s1 g0 all_reduce sum bool 512 b0 -> b0\nrecord e0 s1\nwait s2 e0\nlaunch s2 copy ->\nrecord e1 s2\n"
      "wait s0 e1\n";
  Workload workload;
  workload.programs = {parse_program(head + tail), parse_program(head + "launch s1 add ->\n" + tail)};
  workload.program_of_rank = {0, 1};
  workload.communicators = {{"pair", {{2, 1, 1}}}};
  const Folding folding = unfolded(workload, {0, 0});
  TimeCosts costs;
  costs.classes.resize(2);
  costs.classes[0].kernels = {7_ns};
  costs.classes[1].kernels = {20_ns, 7_ns};
  costs.collectives = {{{{{0}, CollectiveKind::AllReduce, 512_B}, {5_ns, {}}}}};
  const Trace trace = simulate(workload, folding, costs);
  const std::vector<ClassTimeline> its = timelines(workload, folding, costs, trace);
  EXPECT_EQ(step_times(workload.programs[0], its[0], trace, 1), (StepTimes{32_ns, 7_ns, {5_ns}, {20_ns}, 0_ns}));
  EXPECT_EQ(step_times(workload.programs[1], its[1], trace, 1), (StepTimes{32_ns, 27_ns, {5_ns}, {0_ns}, 0_ns}));
}

}  // namespace
}  // namespace tidemark::tests::summary_test
