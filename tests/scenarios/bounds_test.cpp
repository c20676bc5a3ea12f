#include "scenarios/plan/bounds.hpp"

#include <cstdlib>
#include <iostream>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lower.hpp"
#include "scenarios/plan/exact_memory.hpp"
#include "scenarios/plan/pass_schedule.hpp"
#include "tests/scenarios/random_layout.hpp"

namespace tidemark::tests {
namespace {

using namespace literals;

// TIDEMARK_LAYOUTS=2000 for as many as docs/planner.md reports.
int layouts() {
  const char* asked = std::getenv("TIDEMARK_LAYOUTS");
  return asked == nullptr ? 25 : std::atoi(asked);
}

TEST(Bounds, HoldWhatPredictSaysOfEveryRandomLayout) {
  SharedGraphs graphs;
  Bounder bounder(graphs);
  double low = 0, high = 0, device = 0, short_of = 0, beyond = 0;
  const auto share = [](auto part, auto whole) {
    return static_cast<double>(part.count()) / static_cast<double>(whole.count());
  };
  int checked = 0;
  const std::vector<std::uint32_t> once_wrong{411, 1498, 4001, 4526};
  for (std::uint32_t i = 0; checked < layouts(); ++i) {
    const std::uint32_t seed = i < once_wrong.size() ? once_wrong[i] : i;
    const std::optional<Scenario> scenario = random_scenario(seed);
    if (!scenario) continue;
    SCOPED_TRACE(seed);
    ++checked;
    ASSERT_TRUE(Bounder::knows(*scenario));
    const MemoryBounds memory = bounder.memory(*scenario);
    const DurationBounds step = bounder.step(*scenario);
    Figures exact = exact_memory(*scenario, graphs);
    add_exact_time(*scenario, graphs, exact);
    EXPECT_LE(memory.allocated_low, exact.allocated);
    if (exact.completed) {
      EXPECT_GE(memory.allocated_high, exact.allocated);
    }
    EXPECT_LE(memory.device_upper_low, exact.device_upper);
    EXPECT_LE(step.low, exact.step);
    EXPECT_GE(step.high, exact.step);
    // What settings of the allocator make larger.
    Scenario set = *scenario;
    set.runtime.allocator = random_allocator(seed);
    ASSERT_TRUE(Bounder::knows(set));
    const Figures under = exact_memory(set, graphs);
    EXPECT_LE(bounder.memory(set).allocated_low, under.allocated) << set.runtime.allocator;
    EXPECT_LE(bounder.memory(set).device_upper_low, under.device_upper) << set.runtime.allocator;
    low += 1 - share(memory.allocated_low, exact.allocated);
    high += share(memory.allocated_high, exact.allocated) - 1;
    device += 1 - share(memory.device_upper_low, exact.device_upper);
    short_of += 1 - share(step.low, exact.step);
    beyond += share(step.high, exact.step) - 1;
  }
  const auto mean = [&](double sum) { return 100 * sum / checked; };
  std::cout << fmt::format(
      "{} layouts, mean gaps: allocated {:.2f} % below and {:.2f} % above, device {:.2f} % below, time {:.2f} % below "
      "and "
      "{:.1f} % above\n",
      checked, mean(low), mean(high), mean(device), mean(short_of), mean(beyond));
}

TEST(Bounds, DoNotKnowWhatNobodyHasThoughtThrough) {
  const Scenario scenario = *random_scenario(411);
  EXPECT_TRUE(Bounder::knows(scenario));
  std::vector<Scenario> others(5, scenario);
  others[0].layout.sharding = Sharding{2};
  others[1].layout.schedule = ScheduleKind{3};
  others[2].train.recompute.kind = Recompute{3};
  others[3].train.recompute.method = RecomputeMethod{2};
  others[4].runtime.name = "torchtitan";
  for (const Scenario& other : others) EXPECT_FALSE(Bounder::knows(other));
}

TEST(PassSchedule, APipelineFillsAndEmptiesRoundItsBusiestStage) {
  Layout layout;
  layout.pipeline = 4;
  // Equal passes and free hand-overs: (m + p - 1)(f + b), as every textbook has it.
  const std::vector<std::vector<PassSpans>> spans(4, {{Duration{10}, Duration{20}}});
  const std::vector<Duration> begin(4);
  const PassSchedule schedule(layout, 8);
  const std::vector<Duration> ends = schedule.earliest_ends(spans, Duration{}, begin);
  EXPECT_EQ(ends.front(), Duration{(8 + 3) * 30});
  EXPECT_EQ(schedule.latest_ends(spans, Duration{}, begin), ends);
}

TEST(PassSchedule, HandOversOfOneStageWaitForEachOther) {
  Layout layout;
  layout.pipeline = 2;
  const std::vector<std::vector<PassSpans>> spans(2, {{Duration{10}, Duration{20}}});
  // F0 | send 5 | F0' B0' | send 5 | B0 of one micro-batch.
  EXPECT_EQ(PassSchedule(layout, 1).earliest_ends(spans, Duration{5}, {Duration{}, Duration{}}).front(), Duration{70});
}

TEST(PassSchedule, InterleavedRanksHoldTheMostBeforeTheirFirstBackwardPass) {
  std::int32_t most = 0;
  for (const InFlight::At& at : fullest_moments(interleaved(0, 2, 16, 2, 2), 2).moments)
    most = std::max(most, at.others[0] + at.others[1]);
  // Warm-up of rank 0 is 2 (p - 1) + (v - 1) p = 4 passes; the steady part adds one before each backward pass.
  EXPECT_EQ(most, 4);
}

TEST(PassSchedule, TheMostInFlightIsReadFromTheList) {
  const auto most = [](const Schedule& schedule) {
    std::vector<std::int32_t> others;  // of the first moment of either kind of pass
    for (const InFlight::At& at : fullest_moments(schedule, 1).moments) others.push_back(at.others.front());
    return others;
  };
  for (std::int32_t stage = 0; stage < 4; ++stage)
    EXPECT_EQ(most(one_f_one_b(stage, 4, 8)), std::vector<std::int32_t>(2, 3 - stage));
  EXPECT_EQ(most(one_f_one_b(0, 4, 2)), (std::vector<std::int32_t>{1, 1}));
  EXPECT_EQ(most(gpipe(8)), (std::vector<std::int32_t>{7, 7}));
}

}  // namespace
}  // namespace tidemark::tests
