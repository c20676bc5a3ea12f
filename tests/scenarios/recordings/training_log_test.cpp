#include "scenarios/recordings/logs/training_log.hpp"

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
      "job.log:2:77: error: the memory report of rank 3 breaks off or is not a number here\n"
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

// Their forms are those of the places that training_log.hpp names; numbers are made up.
TEST(TrainingLog, ReadsTheLinesOfOtherTools) {
  using Framework = LoggedPeak::Framework;
  struct Line {
    std::string text;
    Framework framework;
    std::int64_t step;
    std::optional<Bytes> allocated, reserved, device;
  };
  const std::vector<Line> lines{
      {"after 5 iterations memory (MB) | allocated: 10.0 | max allocated: 20.0 | reserved: 30.0 | max reserved: 40.0",
       Framework::Megatron,
       5,
       20_MiB,
       40_MiB,
       {}},
      {"MA 1.5 GB         Max_MA 2.0 GB         CA 3.25 GB         Max_CA 3 GB ",
       Framework::DeepSpeed,
       -1,
       2_GiB,
       Bytes{std::int64_t{13} * (1 << 28)},
       {}},
      {"Training epoch 0, iteration 7/99 | lr: 1e-4 | max_memory_reserved: 2097152 | max_memory_allocated: 1048576 |",
       Framework::Nemo,
       7,
       1_MiB,
       2_MiB,
       {}},
      {"iteration 3/10 | mem-max-allocated-gigabytes: 1.5 | mem-max-reserved-gigabytes: 2.5",
       Framework::Bridge,
       3,
       Bytes{1'500'000'000},
       Bytes{2'500'000'000},
       {}},
      {" Memory usage: 1.00MiB. Peak allocated 2.00MiB. Peak reserved: 3.00MiB",
       Framework::Nanotron,
       -1,
       2_MiB,
       3_MiB,
       {}},
      {"    gpu_memory/GPU reserved mem (GiB)=2.5", Framework::OlmoCore, -1, {}, Bytes{5 * (1LL << 29)}, {}},
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 "
       "GiB "
       "of which 1.00 GiB is free. Including non-PyTorch memory, this process has 78.00 GiB memory in use. Of the "
       "allocated memory 70.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.",
       Framework::OutOfMemory, -1, 70_GiB, Bytes{(70LL << 30) + (512 << 20)}, 78_GiB},
      {"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total capacity; 70.00 GiB "
       "already "
       "allocated; 3.00 MiB free; 71.00 GiB reserved in total by PyTorch)",
       Framework::OutOfMemory,
       -1,
       70_GiB,
       71_GiB,
       {}}};
  for (const Line& line : lines) {
    const std::vector<LoggedPeak> found = training_log(line.text, "job.log", Rank{3});
    ASSERT_EQ(found.size(), 1U) << line.text;
    EXPECT_EQ(found.front().rank, Rank{3}) << line.text;
    EXPECT_EQ(name(found.front().framework), name(line.framework)) << line.text;
    EXPECT_EQ(found.front().step, line.step) << line.text;
    EXPECT_EQ(found.front().allocated, line.allocated) << line.text;
    EXPECT_EQ(found.front().reserved, line.reserved) << line.text;
    EXPECT_EQ(found.front().device, line.device) << line.text;
  }
}

TEST(TrainingLog, DeepSpeedsEngineReportsWhileItIsMade) {
  const std::string made =
      "[INFO] [utils.py:781:see_memory_usage] After initializing ZeRO optimizer\n"
      "[INFO] [utils.py:782:see_memory_usage] MA 1.0 GB         Max_MA 2.0 GB         CA 3.0 GB         Max_CA 3 GB \n";
  EXPECT_EQ(training_log(made).front().step, 0);
  const std::string trains =
      made +
      "[INFO] [utils.py:781:see_memory_usage] Engine after backward\n"
      "[INFO] [utils.py:782:see_memory_usage] MA 1.0 GB         Max_MA 5.0 GB         CA 7.0 GB         Max_CA 7 GB \n";
  EXPECT_EQ(training_log(trains).front().step, -1);
  EXPECT_EQ(training_log(trains).front().allocated, 5_GiB);
}

TEST(TrainingLog, MessagesSayTheSizeOfTheDevice) {
  EXPECT_EQ(
      training_log("CUDA out of memory. GPU 0 has a total capacity of 39.50 GiB of which 1.00 GiB is free. Of the "
                   "allocated memory 30.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but "
                   "unallocated.")
          .front()
          .capacity,
      Bytes{79LL << 29});
  EXPECT_EQ(training_log("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 39.50 GiB total capacity; 30.00 GiB "
                         "already allocated; 1.00 GiB free; 31.00 GiB reserved in total by PyTorch)")
                .front()
                .capacity,
            Bytes{79LL << 29});
}

TEST(TrainingLog, ReadsNvidiaSmisTableByIndexAndKeepsTheHighest) {
  const std::vector<LoggedPeak> found = training_log(
      "index, timestamp, memory.used [MiB]\n0, 2026/01/01, 100 MiB\n1, 2026/01/01, 300 MiB\n0, 2026/01/01, 200 MiB\n"
      "1, 2026/01/01, 250 MiB\n");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].device, 200_MiB);
  EXPECT_EQ(found[1].rank, Rank{1});
  EXPECT_EQ(found[1].device, 300_MiB);
  EXPECT_FALSE(found[0].reserved || found[0].allocated);
}

}  // namespace
}  // namespace tidemark::tests::training_log_test
