#include <string>

#include <gtest/gtest.h>

#include "sim/clock/class_timeline.hpp"
#include "sim/clock/engine.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"
#include "tests/sim/clock/outlined.hpp"

// A host thread is ahead of its device by no more launches than its queue holds.

namespace tidemark::tests::launch_queue_test {
namespace {

using namespace literals;

struct Ran {
  Trace trace;
  ClassTimeline timeline;
};

/// One rank, whose launches take the host 1 ns and whose kernels take 100 ns.
Ran run(const Program& program, const LaunchQueue& queue) {
  Workload workload;
  workload.programs = {program};
  workload.program_of_rank = {0};
  TimeCosts costs;
  costs.classes.resize(1);
  costs.classes[0].host.launch = 1_ns;
  costs.classes[0].kernels.assign(program.kernels.size(), 100_ns);
  costs.classes[0].queue = queue;
  const Folding folding = unfolded(workload, {0});
  const Trace trace = simulate(workload, folding, costs);
  EXPECT_EQ(simulate(outlined(workload), folding, costs).end, trace.end) << "kernels that are one entry";
  EXPECT_EQ(simulate(outlined(workload), folding, costs).classes[0].step_ends, trace.classes[0].step_ends);
  return {trace, timeline_of(program, costs.classes[0], trace.classes[0])};
}

Program kernels(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "launch s0 copy ->\n";
  return parse_program(text + "mark optimizer_step 1 -1 x\n");
}

/// The most launches that had been handed over and not begun when the host thread came to one.
int most_ahead(const ClassTimeline& timeline) {
  int most = 0;
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    int waiting = 0;
    for (std::size_t before = 0; before < i; ++before)
      waiting += timeline.spans[before].begin > timeline.host[timeline.spans[i].op] ? 1 : 0;
    most = std::max(most, waiting);
  }
  return most;
}

TEST(LaunchQueue, HoldsTheHostThreadBack) {
  const LaunchQueue queue{.depth = 16, .channels = 8};
  const Ran ran = run(kernels(100), queue);
  EXPECT_LE(most_ahead(ran.timeline), 16);
  EXPECT_GE(most_ahead(ran.timeline), 12);
  EXPECT_EQ(ran.trace.end, Instant{10001_ns}) << "the device is never without work";
  EXPECT_GT(most_ahead(run(kernels(100), {.depth = LaunchQueue::endless, .channels = 1}).timeline), 90);
}

TEST(LaunchQueue, ThatIsNeverFullChangesNothing) {
  const Ran few = run(kernels(16), {.depth = 16, .channels = 8});
  const Ran endless = run(kernels(16), {.depth = LaunchQueue::endless, .channels = 1});
  EXPECT_EQ(few.timeline, endless.timeline);
}

// Copies of stream 1 wait behind those of stream 0 where both have one channel, and not where each has its own.
TEST(LaunchQueue, IsSharedByStreamsOfAChannel) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "launch s0 copy ->\nlaunch s1 copy ->\n";
  const Program program = parse_program(text);
  const Ran shared = run(program, {.depth = 16, .channels = 1}), apart = run(program, {.depth = 16, .channels = 8});
  EXPECT_LE(most_ahead(shared.timeline), 16);
  EXPECT_GT(most_ahead(apart.timeline), 16);
  EXPECT_LE(most_ahead(apart.timeline), 32);
}

// Who waits for an event has caught up: the queue begins empty.
TEST(LaunchQueue, HasRoomOnceTheHostHasWaitedForItsDevice) {
  std::string text;
  for (int i = 0; i < 10; ++i) text += "launch s0 copy ->\n";
  text += "record e0 s0\nsync e0\n";
  for (int i = 0; i < 10; ++i) text += "launch s0 copy ->\n";
  const Ran ran = run(parse_program(text), {.depth = 16, .channels = 8});
  EXPECT_EQ(ran.timeline.host.back(), Instant{1001_ns + 9_ns});
}

}  // namespace
}  // namespace tidemark::tests::launch_queue_test
