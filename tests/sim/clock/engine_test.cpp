#include "sim/clock/engine.hpp"

#include <string>

#include <gtest/gtest.h>

#include "sim/clock/class_timeline.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"
#include "tests/sim/clock/outlined.hpp"

namespace tidemark::tests::engine_test {
namespace {

using namespace literals;

// Programs that share one kernel, and prices as plain numbers.
struct Bed {
  Workload workload;
  TimeCosts costs;

  Bed(std::vector<std::string> programs, std::vector<Communicator> communicators) {
    for (const std::string& text : programs) {
      workload.program_of_rank.push_back(static_cast<std::int32_t>(workload.programs.size()));
      workload.programs.push_back(parse_program(text));
    }
    workload.communicators = std::move(communicators);
    costs.classes.resize(programs.size());
    for (std::size_t c = 0; c < programs.size(); ++c)
      costs.classes[c].kernels.resize(workload.programs[c].kernels.size(), 10_ns);
  }
  [[nodiscard]] Folding folding() const {
    return unfolded(workload, std::vector<std::int32_t>(workload.program_of_rank.size(), 0));
  }
  [[nodiscard]] Trace run(LinkSharing sharing = LinkSharing::MaxMinFair) const {
    return simulate(workload, folding(), costs, sharing);
  }
  [[nodiscard]] Trace run_quickly() const { return simulate(outlined(workload), folding(), costs); }
  [[nodiscard]] std::vector<ClassTimeline> timelines(const Trace& trace) const {
    return tidemark::sim::timelines(workload, folding(), costs, trace);
  }
  void collective(const CollectiveKey& key, const TransferCost& cost) {
    const Folding each = folding();
    costs.collectives.resize(each.groups.size());
    for (std::size_t g = 0; g < each.groups.size(); ++g)
      if (each.groups[g].slot == key.comm) costs.collectives[g][key] = cost;
  }
  void message(MessageKey key, const TransferCost& cost) {
    for (OpTimes& times : costs.classes) times.messages[key] = cost;
  }
};

const Communicator pair{"pair", {{2, 1, 1}}};

Instant at(Duration since_start) { return Instant{since_start}; }

TEST(Engine, KernelsOfAStreamRunOneAfterAnother) {
  const Bed bed({"launch s0 copy ->\nlaunch s0 copy ->\n"}, {});
  const Trace trace = bed.run();
  const std::vector<ClassTimeline> timelines = bed.timelines(trace);
  EXPECT_EQ(trace.outcome, (std::variant<Completed, Deadlock>(Completed{})));
  EXPECT_EQ(trace.end, at(20_ns));
  EXPECT_EQ(timelines[0].spans[1], (Span{1, {0}, at(10_ns), at(10_ns), at(20_ns)}));
}

TEST(Engine, ASlowHostSetsThePace) {
  Bed bed({"launch s0 copy ->\nlaunch s0 copy ->\n"}, {});
  bed.costs.classes[0].host.launch = 30_ns;
  EXPECT_EQ(bed.run().end, at(70_ns));
}

TEST(Engine, AFusedKernelIsHandedOverOnce) {
  Bed bed({"launch s0 fused=8 copy ->\nlaunch s0 fused=- norm ->\nlaunch s0 copy ->\n"}, {});
  bed.costs.classes[0].host.launch = 30_ns;
  bed.costs.classes[0].kernels = {10_ns, {}, 10_ns};
  const Trace trace = bed.run();
  const std::vector<ClassTimeline> timelines = bed.timelines(trace);
  EXPECT_EQ(trace.end, at(70_ns));
  EXPECT_EQ(timelines[0].host[2], at(30_ns));
  EXPECT_EQ(timelines[0].spans[1], (Span{1, {0}, at(40_ns), at(40_ns), at(40_ns)}));
}

TEST(Engine, StreamsRunSideBySideAndWaitForEvents) {
  const Trace trace = Bed({"launch s0 copy ->\nlaunch s1 copy ->\nrecord e0 s1\nwait s0 e0\n"
                           "launch s0 copy ->\n"},
                          {})
                          .run();
  EXPECT_EQ(trace.end, at(20_ns));
}

TEST(Engine, TheHostWaitsForASynchronizedEvent) {
  const Bed bed({"launch s0 copy ->\nrecord e0 s0\nsync e0\nmark forward 1 0 x\nlaunch s0 copy ->\n"}, {});
  const Trace trace = bed.run();
  EXPECT_EQ(bed.timelines(trace)[0].host[3], at(10_ns));
  EXPECT_EQ(trace.classes[0].step_ends.front(), at(10_ns));
}

TEST(Engine, ACollectiveWaitsForItsLastMember) {
  Bed bed({"alloc b0 512 temporaries s0 x\nlaunch s0 copy -> b0:bool[1]\ncollective s0 g0 all_reduce sum bool 512 b0 "
           "-> b0\n",
           "alloc b0 512 temporaries s0 x\ncollective s0 g0 all_reduce sum bool 512 b0 -> b0\n"},
          {pair});
  bed.collective({{0}, CollectiveKind::AllReduce, 512_B}, {5_ns, {}});
  const Trace trace = bed.run();
  const std::vector<ClassTimeline> timelines = bed.timelines(trace);
  EXPECT_EQ(timelines[1].spans.back(), (Span{1, {0}, at(0_ns), at(10_ns), at(15_ns)}));
  EXPECT_EQ(trace.end, at(15_ns));
}

TEST(Engine, MessagesArePairedInOrder) {
  Bed bed({"alloc b0 1000 temporaries s0 x\nexchange s0 g0 send +1 b0\nexchange s0 g0 send +1 b0\n",
           "alloc b0 1000 temporaries s0 x\nexchange s0 g0 receive -1 b0\nlaunch s0 copy -> b0:bool[1]\n"
           "exchange s0 g0 receive -1 b0\n"},
          {pair});
  bed.costs.links = {1_GBps};
  bed.message({{0}, 1, 1000_B}, {2_ns, {{{0}, 1000_B, 1}}});
  const Trace trace = bed.run();
  EXPECT_EQ(trace.end, at(2 * 1002_ns + 10_ns));
}

TEST(Engine, TransfersShareALink) {
  Bed bed({"alloc b0 1000 temporaries s0 x\ncollective s0 g0 all_gather bool 1000 b0 -> b0\n",
           "alloc b0 1000 temporaries s0 x\ncollective s0 g0 all_gather bool 1000 b0 -> b0\n"},
          {{"alone", {{1, 1, 1}}}});
  bed.costs.links = {1_GBps};
  bed.collective({{0}, CollectiveKind::AllGather, 1000_B}, {{}, {{{0}, 1000_B, 1}}});
  EXPECT_EQ(bed.run().end, at(2000_ns));
  EXPECT_EQ(bed.run(LinkSharing::None).end, at(1000_ns));
}

TEST(Engine, SendsThatWaitForEachOtherAreADeadlock) {
  const std::string ungrouped =
      "alloc b0 512 temporaries s0 x\nalloc b1 512 temporaries s0 x\n"
      "exchange s0 g0 send +1 b0\nexchange s0 g0 receive -1 b1\n";
  Bed bed({ungrouped, ungrouped, ungrouped}, {{"ring", {{3, 1, 1}}}});
  bed.message({{0}, 1, 512_B}, {});
  const Trace trace = bed.run();
  ASSERT_TRUE(std::holds_alternative<Deadlock>(trace.outcome));
  const Deadlock& deadlock = std::get<Deadlock>(trace.outcome);
  EXPECT_EQ(deadlock.cycle, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(deadlock.stalls[0], (Stall{0, 2, "its send to be received in communicator ring", 1}));
}

TEST(Engine, TheSameRingGroupedGoesThrough) {
  const std::string grouped =
      "alloc b0 512 temporaries s0 x\nalloc b1 512 temporaries s0 x\nexchange s0 g0 send +1 b0 receive -1 b1\n";
  Bed bed({grouped, grouped, grouped}, {{"ring", {{3, 1, 1}}}});
  bed.message({{0}, 1, 512_B}, {7_ns, {}});
  EXPECT_EQ(bed.run().end, at(7_ns));
}

TEST(Engine, AMemberThatNeverComesIsNamed) {
  Bed bed({"alloc b0 512 temporaries s0 x\ncollective s0 g0 all_reduce sum bool 512 b0 -> b0\n",
           "alloc b0 512 temporaries s0 x\ncollective s0 g0 all_reduce sum bool 512 b0 -> b0\n"
           "collective s0 g0 all_reduce sum bool 512 b0 -> b0\n"},
          {pair});
  bed.collective({{0}, CollectiveKind::AllReduce, 512_B}, {});
  const Deadlock deadlock = std::get<Deadlock>(bed.run().outcome);
  EXPECT_EQ(deadlock.stalls, (std::vector<Stall>{{1, 2, "all_reduce in communicator pair", 0}}));
  EXPECT_TRUE(deadlock.cycle.empty());
}

// ---- copies and uneven collectives

const std::string on_both = "alloc b0 1000 temporaries s0 x\nalloc b1 1000 temporaries s0 x pinned\n";

TEST(Engine, ACopyIsATransferOnItsStream) {
  Bed bed({on_both + "memcpy s1 1000 b0 -> b1\nlaunch s0 copy b0:bool[1] -> b0:bool[1]\nrecord e0 s1\nwait s0 e0\n"},
          {});
  bed.costs.links = {1_GBps};
  bed.costs.classes[0].copies[{MemorySpace::Device, MemorySpace::Pinned, 1000_B}] = {5_ns, {{{0}, 1000_B}}};
  const Trace trace = bed.run();
  const std::vector<ClassTimeline> timelines = bed.timelines(trace);
  EXPECT_EQ(trace.end, at(1005_ns));
  EXPECT_EQ(timelines[0].spans[1], (Span{3, {0}, at(0_ns), at(0_ns), at(10_ns)}));
}

// What the host thread computes takes its own time, before it hands anything over.
TEST(Engine, TheHostThreadComputesByItself) {
  const std::string kernel = " fill(value=0) -> ";
  Bed bed({on_both + "launch s0" + kernel + "b0:bool[1]\ncompute" + kernel + "b1:bool[1]\nlaunch s0" + kernel +
           "b0:bool[1]\n"},
          {});
  const Duration launched = bed.costs.classes[0].host.launch;
  bed.costs.classes[0].kernels = {10_ns, 700_ns};
  for (const Trace& trace : {bed.run(), bed.run_quickly()}) {
    EXPECT_EQ(trace.end, at(launched + 700_ns + launched + 10_ns));
    const ClassTimeline timeline = bed.timelines(trace).front();
    EXPECT_EQ(timeline.host[3], at(launched));
    EXPECT_EQ(timeline.host[4], at(launched + 700_ns));
  }
}

TEST(Engine, CopiesShareLinksWithEachOtherAndWithMessages) {
  const std::string copy = on_both + "memcpy s0 1000 b0 -> b1\n";
  Bed bed({copy, copy}, {});
  bed.costs.links = {1_GBps};
  for (OpTimes& times : bed.costs.classes)
    times.copies[{MemorySpace::Device, MemorySpace::Pinned, 1000_B}] = {{}, {{{0}, 1000_B}}};
  EXPECT_EQ(bed.run().end, at(2000_ns));
  EXPECT_EQ(bed.run_quickly().end, at(2000_ns));
}

// A collective whose link a copy uses is not alone there.
TEST(Engine, ACollectiveBesideACopyTakesLonger) {
  Bed bed({on_both + "collective s0 g0 all_reduce sum bool 1000 b0 -> b0\nmemcpy s1 1000 b0 -> b1\n"},
          {{"one", {{1, 1, 1}}}});
  bed.costs.links = {1_GBps};
  bed.costs.classes[0].copies[{MemorySpace::Device, MemorySpace::Pinned, 1000_B}] = {{}, {{{0}, 1000_B}}};
  bed.collective({{0}, CollectiveKind::AllReduce, 1000_B}, {{}, {{{0}, 1000_B}}});
  EXPECT_EQ(bed.run().end, at(2000_ns));
  EXPECT_EQ(bed.run_quickly().end, at(2000_ns));
}

// One price for the call of the group, though one side sends nothing and comes last.
TEST(Engine, AnUnevenCollectiveTakesWhatItsMatrixTakes) {
  const std::string start = "alloc b0 900 temporaries s0 x\nalloc b1 900 temporaries s0 x\n";
  Bed bed({start + "collective s0 g0 all_to_all bool 900 b0 -> b1 m3 sends 0 900 receives 0 100\n",
           start + "launch s0 copy b0:bool[1] -> b0:bool[1]\n"
                   "collective s0 g0 all_to_all bool 900 b0 -> b1 m3 sends 100 0 receives 900 0\n"},
          {pair});
  bed.collective({{0}, CollectiveKind::AllToAll, {}, {3}}, {70_ns, {}});
  const Trace trace = bed.run();
  const std::vector<ClassTimeline> timelines = bed.timelines(trace);
  EXPECT_EQ(trace.outcome, (std::variant<Completed, Deadlock>(Completed{})));
  EXPECT_EQ(timelines[0].spans.front(), (Span{2, {0}, at(0_ns), at(10_ns), at(80_ns)}));
  EXPECT_EQ(timelines[1].spans.back(), (Span{3, {0}, at(10_ns), at(10_ns), at(80_ns)}));
}

}  // namespace
}  // namespace tidemark::tests::engine_test
