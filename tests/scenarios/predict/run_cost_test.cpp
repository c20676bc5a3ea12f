#include "scenarios/report/run_cost.hpp"

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::run_cost_test {
namespace {

// A step of two seconds on 8 devices, of 8 sequences of 1000 tokens; kernels all of it, which may be a tenth off.
Prediction step_of_two_seconds() {
  Prediction p;
  p.scenario.gpus = 8;
  p.scenario.train.global_batch = 8;
  p.scenario.train.sequence_length = 1000;
  p.step.step = Duration{2 * picoseconds_per_second};
  p.step.causes[static_cast<std::size_t>(StepCause::Compute)] = p.step.step;
  p.scenario.cluster.device.efficiency.kernel_error = Ratio{100'000};
  return p;
}

TEST(RunCost, IsNothingWithoutALength) {
  Prediction p = step_of_two_seconds();
  EXPECT_FALSE(run_cost(p).has_value());
  EXPECT_EQ(run_cost_text(p), "");
}

TEST(RunCost, CountsWholeStepsOfTheTokens) {
  Prediction p = step_of_two_seconds();
  p.scenario.run.tokens = 8000 * 43'200 - 7999;  // a day, less all but one token of its last step
  const std::optional<RunCost> cost = run_cost(p);
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->steps, 43'200);
  EXPECT_EQ(cost->tokens, 8000.0 * 43'200);
  EXPECT_DOUBLE_EQ(cost->seconds.value, 86'400);
  EXPECT_DOUBLE_EQ(cost->gpu_days.value, 8);
  EXPECT_NEAR(cost->gpu_days.high, 8 * 1.1, 1e-9);
  EXPECT_NEAR(cost->gpu_days.low, 8 / 1.1, 1e-9);
  EXPECT_FALSE(cost->dollars.has_value());
}

TEST(RunCost, TakesThePriceOfAllGpusForTheWholeTime) {
  Prediction p = step_of_two_seconds();
  p.scenario.run.steps = 43'200;
  p.scenario.cluster.dollars_per_gpu_hour = Ratio{2'500'000};
  const std::optional<RunCost> cost = run_cost(p);
  ASSERT_TRUE(cost && cost->dollars);
  EXPECT_DOUBLE_EQ(cost->dollars->value, 8 * 24 * 2.5);
  EXPECT_NEAR(cost->dollars->high, 8 * 24 * 2.5 * 1.1, 1e-9);
  EXPECT_EQ(
      run_cost_text(p),
      "the run, 346 M tokens in 43200 steps: 1.00 (0.91 to 1.10) days, 8.00 (7.27 to 8.80) GPU-days, $480 (436 to "
      "528) at $2.50 a GPU-hour; steps alone\n");
}

TEST(RunCost, OfLessThanADayIsInHoursOrMinutes) {
  Prediction p = step_of_two_seconds();
  p.scenario.run.steps = 2 * 1800;
  EXPECT_EQ(
      run_cost_text(p),
      "the run, 28.8 M tokens in 3600 steps: 2.00 (1.82 to 2.20) hours, 16.0 (14.5 to 17.6) GPU-hours; steps alone\n");
  p.scenario.run.steps = 15;
  EXPECT_EQ(run_cost_text(p),
            "the run, 120 k tokens in 15 steps: 0.50 (0.45 to 0.55) minutes, 4.00 (3.64 to 4.40) GPU-minutes; steps "
            "alone\n");
}

TEST(RunCost, TellsWhatABillionTokensCostWhereOnlyThePriceIsKnown) {
  Prediction p = step_of_two_seconds();
  p.scenario.cluster.dollars_per_gpu_hour = Ratio{3'600'000};
  // 125,000 steps of 2 s on 8 GPUs at a thousandth of a dollar a second.
  EXPECT_EQ(run_cost_text(p), "a billion tokens cost $2.00 k (1.82 k to 2.20 k) at $3.60 a GPU-hour\n");
  p.deadlock.emplace();
  EXPECT_EQ(run_cost_text(p), "");
}

TEST(RunCost, RoundsToThreeDigits) {
  EXPECT_EQ(rounded_amount(0), "0.00");
  EXPECT_EQ(rounded_amount(9.996), "10.0");
  EXPECT_EQ(rounded_amount(999.4), "999");
  EXPECT_EQ(rounded_amount(999.6), "1.00 k");
  EXPECT_EQ(rounded_amount(1'412'000), "1.41 M");
  EXPECT_EQ(rounded_amount(15e12), "15.0 T");
}

}  // namespace
}  // namespace tidemark::tests::run_cost_test
