#include "scenarios/recordings/training_log.hpp"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::training_log_test {
namespace {

using namespace literals;

// Their form is that of Megatron-LM core 0.14, megatron/training/utils.py; numbers are made up.
const std::string megatron =
    " [2025-01-01 00:00:00] iteration        1/      10 | consumed samples:            8 | lm loss: 1.0E+01 |\n"
    "[Rank 0] (after 1 iterations) memory (MB) | allocated: 100.5 | max allocated: 150.25 | reserved: 200.0 | max "
    "reserved: 200.0\n"
    "[Rank 4] (after 1 iterations) memory (MB) | allocated: 90 | max allocated: 140.5 | reserved: 180.0 | max "
    "reserved: "
    "182.0\n"
    "[Rank 0] (after 2 iterations) memory (MB) | allocated: 120.5 | max allocated: 170.25 | reserved: 220.0 | max "
    "reserved: 222.0\n";

const std::string torchtitan =
    "[rank0]:[titan] 2025-01-01 00:00:00,000 - root - INFO - CUDA capacity: NVIDIA H100 80GB HBM3 with 79.10GiB "
    "memory\n"
    "[rank0]:[titan] 2025-01-01 00:00:00,000 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.2000  "
    "\x1b[38;2;180;60;0mgrad_norm:  4.0000  \x1b[38;2;54;234;195mmemory: 41.50GiB(52.47%)  \x1b[34mtps: 1,000\x1b[39m\n"
    "[rank0]:[titan] 2025-01-01 00:00:00,000 - root - INFO - step: 10  loss:  9.0000  grad_norm:  3.0000  memory: "
    "47.25GiB(59.74%)  tps: 5,000  tflops: 300.00  mfu: 30.00%\n"
    "[rank0]:[titan] 2025-01-01 00:00:00,000 - root - INFO - step: 20  loss:  8.0000  grad_norm:  3.0000  memory: "
    "47.00GiB(59.42%)  tps: 5,000\n"
    "[rank0]:[titan] 2025-01-01 00:00:00,000 - root - INFO - validate step: 20  loss:  8.0000  memory: "
    "60.00GiB(75.00%)  tps: 5,000\n";

std::string first_problem(const std::string& text) {
  try {
    (void)training_log(text, "job.log");
    return "";
  } catch (const InputError& error) {
    return scenarios::text(error.problems().front());
  }
}

TEST(TrainingLog, ReadsMegatronsLastReportOfEachRank) {
  using Framework = LoggedPeak::Framework;
  EXPECT_EQ(
      training_log(megatron),
      (std::vector<LoggedPeak>{{{0}, Framework::Megatron, 2, Bytes{std::llround(170.25 * (1 << 20))}, 222_MiB, 4},
                               {{4}, Framework::Megatron, 1, Bytes{std::llround(140.5 * (1 << 20))}, 182_MiB, 3}}));
}

TEST(TrainingLog, ReadsTheFormsOfOtherVersions) {
  const std::vector<LoggedPeak> newer = training_log(
      "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.00 | max allocated: 2.00 | reserved: 3.00 | max "
      "reserved: 4.00 | total device memory used: 5.00\r\n");
  EXPECT_EQ(newer.front().reserved, 4_MiB);
  // Behind a launcher's prefix, and two ranks on a line.
  const std::vector<LoggedPeak> two = training_log(
      "3: [default3]:[Rank 3] (after 2 iterations) memory (MB) | allocated: 1 | max allocated: 2 | reserved: 3 | max "
      "reserved: 4[Rank 1] (after 2 iterations) memory (MB) | allocated: 1 | max allocated: 2 | reserved: 3 | max "
      "reserved: 5");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].rank, Rank{1});
  EXPECT_EQ(two[0].reserved, 5_MiB);
  EXPECT_EQ(two[1].rank, Rank{3});
}

TEST(TrainingLog, OtherLinesOfARankAreNone) {
  EXPECT_EQ(training_log("[Rank 0] (before save_checkpoint for iteration 10) memory (MB) | allocated: x\n" + megatron +
                         "[Rank 7] says hello\n[Rank x]\nmemory: 3 GiB\n"),
            [] {
              std::vector<LoggedPeak> shifted = training_log(megatron);
              for (LoggedPeak& peak : shifted) ++peak.line;
              return shifted;
            }());
}

TEST(TrainingLog, ReadsTorchtitansHighestIntervalOfEachRank) {
  const std::vector<LoggedPeak> peaks = training_log(torchtitan);
  ASSERT_EQ(peaks.size(), 1u);
  EXPECT_EQ(peaks[0],
            (LoggedPeak{
                {0}, LoggedPeak::Framework::Torchtitan, 10, std::nullopt, Bytes{std::llround(47.25 * (1 << 30))}, 3}));
}

TEST(TrainingLog, LinesWithoutARankAreOfTheOneThatIsNamed) {
  const std::string line = "step: 10  loss:  9.0  memory: 47.25GiB(59.74%)  tps: 5,000\n";
  EXPECT_EQ(training_log(line, {}, Rank{6}).front().rank, Rank{6});
  EXPECT_EQ(training_log("[rank2]: " + line, {}, Rank{6}).front().rank, Rank{2});
}

TEST(TrainingLog, AReportThatBreaksOffIsAnErrorWithItsPlace) {
  EXPECT_EQ(
      first_problem("\n[Rank 3] (after 2 iterations) memory (MB) | allocated: 1.5 | max allocated: many\n"),
      "job.log:2:77: error: the memory report of rank 3 breaks off or is no number here\n"
      "  hint: as in: [Rank 0] (after 2 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: "
      "3.0 | max reserved: 3.0");
  EXPECT_TRUE(first_problem("step: 1 memory: lots\n").starts_with("job.log:1:"));
  EXPECT_TRUE(first_problem("step: 1 memory: 1.5GiB(2.0\n").starts_with("job.log:1:"));
  EXPECT_TRUE(
      first_problem("[Rank 0] (after 1 iterations) memory (MB) | allocated: 1e300 | max allocated: 1 | reserved: "
                    "1 | max reserved: 1\n")
          .starts_with("job.log:1:"));
  EXPECT_TRUE(first_problem("[Rank 0] (after 1 iterations) memory (MB) | allocated: nan | max allocated: 1 | reserved: "
                            "1 | max reserved: 1\n")
                  .starts_with("job.log:1:"));
}

TEST(TrainingLog, ALogWithoutReportsIsAnError) {
  EXPECT_TRUE(first_problem("").starts_with("job.log: error: has no memory report"));
  EXPECT_NE(first_problem("iteration 1/10\n").find("hint: "), std::string::npos);
}

TEST(TrainingLog, APartOfALogIsReadOrRefused) {
  for (const std::string& log : {megatron, torchtitan})
    for (std::size_t length = 0; length < log.size(); ++length) {
      try {
        for (const LoggedPeak& peak : training_log(log.substr(0, length))) EXPECT_GE(peak.reserved, 0_B);
      } catch (const InputError& error) {
        EXPECT_FALSE(error.problems().empty());
      }
    }
}

}  // namespace
}  // namespace tidemark::tests::training_log_test
