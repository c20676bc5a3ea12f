#include "scenarios/recordings/logs/log_comparison.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::log_comparison_test {
namespace {

using namespace literals;

// Two groups: ranks 0 and 1, and rank 2, which needs more.
Prediction prediction() {
  Prediction p;
  p.scenario.gpus = 3;
  const auto group = [&](std::vector<Rank> ranks, Bytes more) {
    RankGroup& g = p.groups.emplace_back();
    g.ranks = std::move(ranks);
    g.memory.peak_allocated_by_step = {10_MiB + more, 50_MiB + more, 60_MiB + more};
    g.memory.allocated.bytes = 60_MiB + more;
    g.memory.peak_reserved = 80_MiB + more;
  };
  group({Rank{0}, Rank{1}}, 0_B);
  group({Rank{2}}, 20_MiB);
  return p;
}

LoggedPeak logged(int rank, std::int64_t step, std::optional<Bytes> allocated, Bytes reserved) {
  return {{rank}, LoggedPeak::Framework::Megatron, step, allocated, reserved, 5, {}};
}

TEST(LogComparison, EachRankStandsBesideItsGroup) {
  const LogComparison c = compare_log(prediction(), {logged(1, 2, 60_MiB, 80_MiB), logged(2, 2, 80_MiB, 125_MiB)});
  ASSERT_EQ(c.ranks.size(), 2u);
  EXPECT_EQ(c.ranks[0].error(), 0);
  EXPECT_EQ(c.ranks[1].allocated, (BytePair{80_MiB, 80_MiB}));
  EXPECT_EQ(c.ranks[1].reserved, (BytePair{100_MiB, 125_MiB}));
  EXPECT_DOUBLE_EQ(c.ranks[1].error(), 0.2);
  EXPECT_TRUE(c.agrees(0.2));
  EXPECT_FALSE(c.agrees(0.19));
}

TEST(LogComparison, AllocatedIsThatOfTheStepsUntilTheLine) {
  const LogComparison c = compare_log(prediction(), {logged(0, 1, 50_MiB, 80_MiB)});
  EXPECT_EQ(c.ranks[0].allocated, (BytePair{50_MiB, 50_MiB}));
  // Steps beyond the simulated ones repeat the last.
  EXPECT_EQ(compare_log(prediction(), {logged(0, 500, 60_MiB, 80_MiB)}).ranks[0].error(), 0);
}

TEST(LogComparison, TorchtitanSaysOnlyWhatIsReserved) {
  const LogComparison c = compare_log(prediction(), {logged(0, 1, std::nullopt, 100_MiB)});
  EXPECT_FALSE(c.ranks[0].allocated);
  EXPECT_DOUBLE_EQ(c.ranks[0].error(), 0.2);
}

TEST(LogComparison, AMessageThatMemoryRanOutIsLaidBesideThePredictionsOwnEnd) {
  const LoggedPeak message{{0}, LoggedPeak::Framework::OutOfMemory, -1, 50_MiB, 70_MiB, 1, 90_MiB};
  Prediction p = prediction();
  p.scenario.cluster.device.capacity = 100_MiB;
  p.groups[0].memory.device.bytes = 120_MiB;
  RankPeaks row = compare_log(p, {message}).ranks[0];
  EXPECT_EQ(row.allocated, (BytePair{60_MiB, 50_MiB}));
  EXPECT_TRUE(row.predicted_end.starts_with("does not run out of memory in the prediction")) << row.predicted_end;
  EXPECT_FALSE(compare_log(p, {message}).agrees(1));
  p.groups[0].failure = OutOfDeviceMemory{{}, 20_MiB, 8_MiB};
  p.groups[0].failed_op = "layers.2.mlp";
  row = compare_log(p, {message}).ranks[0];
  EXPECT_FALSE(row.allocated || row.reserved);
  EXPECT_TRUE(compare_log(p, {message}).agrees(0.05));
  EXPECT_EQ(row.device, (BytePair{92_MiB, 90_MiB}));
  EXPECT_NE(row.predicted_end.find("layers.2.mlp: 20.00 MiB asked, 8.00 MiB free"), std::string::npos)
      << row.predicted_end;
}

TEST(LogComparison, AMessageOfADeviceOfAnotherSizeIsAnError) {
  LoggedPeak message{{0}, LoggedPeak::Framework::OutOfMemory, -1, 50_MiB, 70_MiB, 7, 90_MiB, 50_GiB};
  Prediction p = prediction();
  p.scenario.cluster.device.capacity = 79_GiB;
  try {
    (void)compare_log(p, {message}, "job.log");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.problems().at(0).line, 7);
    EXPECT_EQ(error.problems().at(0).message,
              "ran out of memory on a device of 50.00 GiB, and the scenario's have 79.00 GiB");
  }
  message.capacity = 80_GiB;  // an H100 with another driver
  EXPECT_EQ(compare_log(p, {message}).ranks.size(), 1U);
}

TEST(LogComparison, WhatIsReservedAsAJobIsMadeIsNotCompared) {
  const LogComparison c = compare_log(prediction(), {logged(0, 0, 10_MiB, 30_MiB)});
  EXPECT_EQ(c.ranks[0].allocated, (BytePair{10_MiB, 10_MiB}));
  EXPECT_FALSE(c.ranks[0].reserved);
}

TEST(LogComparison, AStepOutsideItsRangeDoesNotAgree) {
  const auto s = [](double seconds) { return Duration{static_cast<std::int64_t>(seconds * picoseconds_per_second)}; };
  LogComparison c = compare_log(prediction(), {logged(0, 2, 60_MiB, 80_MiB)});
  EXPECT_TRUE(c.agrees(0.02));
  c.step = StepBeside{s(2), s(1.8), s(2.4), {s(2.44), 3}};
  EXPECT_TRUE(c.agrees(0.02));  // 2.4 and 2 % of it
  c.step->measured.median = s(2.46);
  EXPECT_FALSE(c.agrees(0.02));
  c.step->measured.median = s(1.7);
  EXPECT_FALSE(c.agrees(0.02));
}

TEST(LogComparison, ARankOfAnotherJobIsAnError) {
  try {
    (void)compare_log(prediction(), {logged(0, 1, 50_MiB, 80_MiB), logged(3, 1, 50_MiB, 80_MiB)}, "job.log");
    FAIL() << "it was compared";
  } catch (const InputError& error) {
    EXPECT_EQ(text(error.problems().front()),
              "job.log:5: error: rank 3 is not in the job\n"
              "  hint: the scenario has ranks 0 to 2: it has to be the job that wrote the log");
  }
}

}  // namespace
}  // namespace tidemark::tests::log_comparison_test
