#include "scenarios/recordings/logs/logged_steps.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/recordings/logs/training_log.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::logged_steps_test {
namespace {

// Their forms are those of the places that logged_steps.hpp names; numbers are made up.
TEST(LoggedSteps, ReadsTheLinesOfEachTool) {
  struct Line {
    std::string text;
    std::optional<double> seconds, samples, tokens;
  };
  const std::vector<Line> lines{
      {" [2025-01-01 00:00:00] iteration       2/  100 | consumed samples:  256 | elapsed time per iteration (ms): "
       "19120.4 | throughput per GPU (TFLOP/s/GPU): 381.0 | learning rate: 1.5E-07 |",
       19.1204,
       {},
       {}},
      {"\x1b[31mstep: 10  \x1b[32mloss:  9.0  memory: 47.25GiB(59.74%)  \x1b[34mtps: 5,120  \x1b[36mtflops: 300.00",
       {},
       {},
       5120},
      {"epoch=0/micro_step=20/global_step=10, RunningAvgSamplesPerSec=3.9, CurrSamplesPerSec=4.5, MemAllocated=1GB",
       {},
       4.5,
       {}},
      {"Training epoch 0, iteration 7/99 | global_step: 7 | reduced_train_loss: 1.2 | train_step_timing in s: 2.5",
       2.5,
       {},
       {}},
      {"iteration: 5 / 100 | consumed_tokens: 2.1M | elapsed_time_per_iteration_ms: 2.43K | tokens_per_sec: 431K",
       2430e-3,
       {},
       {}},
      {"    throughput/device/TPS=12,345", {}, {}, 12345}};
  for (const Line& line : lines) {
    const std::vector<LoggedStep> found = logged_steps("a line before\n" + line.text + "\n");
    ASSERT_EQ(found.size(), 1U) << line.text;
    EXPECT_EQ(found[0].line, 2U) << line.text;
    EXPECT_EQ(found[0].samples_per_s, line.samples) << line.text;
    EXPECT_EQ(found[0].tokens_per_s_per_device, line.tokens) << line.text;
    ASSERT_EQ(found[0].seconds.has_value(), line.seconds.has_value()) << line.text;
    EXPECT_NEAR(found[0].seconds.value_or(0), line.seconds.value_or(0), 1e-9) << line.text;
  }
}

TEST(LoggedSteps, CountsALineOnceWhereRanksRepeatItAndLeavesValidationOut) {
  EXPECT_EQ(logged_steps("[rank0]: step: 1 loss: 9 tps: 10\n[rank1]: step: 1 loss: 9 tps: 11\n"
                         "[rank0]: validate step: 1 loss: 9 tps: 90\n[rank0]: step: 2 loss: 9 tps: 12\n"),
            (std::vector<LoggedStep>{{{}, {}, 10, 1}, {{}, {}, 12, 4}}));
}

TEST(LoggedSteps, NothingIsReadOfWhatIsNoTime) {
  for (const char* line : {"elapsed time per iteration (ms): ", "elapsed time per iteration (ms): nan", "tps: 5",
                           "step: 1 tps: 0", "step: 1 tps: -5", "CurrSamplesPerSec=inf", "train_step_timing in s: x"})
    EXPECT_TRUE(logged_steps(line).empty()) << line;
}

TEST(LoggedSteps, TheMedianIsOfAllButTheFirst) {
  const auto of = [](std::vector<LoggedStep> steps) { return measured_step(steps, 8, 8 * 1024, 4); };
  EXPECT_FALSE(of({}));
  EXPECT_EQ(of({{2.0, {}, {}, 1}}), (MeasuredStep{Duration{2 * picoseconds_per_second}, 1}));
  EXPECT_EQ(of({{30.0, {}, {}, 1}, {1.0, {}, {}, 2}, {9.0, {}, {}, 3}, {2.0, {}, {}, 4}}),
            (MeasuredStep{Duration{2 * picoseconds_per_second}, 3}));
  // 8 samples at 4 a second; 8,192 tokens on 4 devices at 1,024 a second each.
  EXPECT_EQ(of({{{}, 4.0, {}, 1}})->median, Duration{2 * picoseconds_per_second});
  EXPECT_EQ(of({{{}, {}, 1024.0, 1}})->median, Duration{2 * picoseconds_per_second});
}

TEST(LoggedSteps, ALogOfTimesAloneIsALog) {
  EXPECT_TRUE(training_log(" iteration 2/ 9 | elapsed time per iteration (ms): 5.0 |", "job.log").empty());
}

}  // namespace
}  // namespace tidemark::tests::logged_steps_test
