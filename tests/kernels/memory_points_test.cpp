#include "kernels/execute/memory_points.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "sim/program/liveness.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::memory_points_test {
namespace {

using namespace literals;

// Two pages that stay, four that come and go within an op, one page in the next phase.
const Program small = with_frees(parse_program(R"(mark construction 0 -1 start
alloc b0 8000 parameters s0 weight
bind weight b0
mark forward 1 0 a
alloc b1 16384 temporaries s0 x
launch s0 fill(value=0) -> b1:bool[1]
mark backward 1 0 b
alloc b2 100 temporaries s0 y
launch s0 fill(value=0) -> b2:bool[1]
mark forward 1 1 c
)"));

TEST(MemoryPoints, PagesAndBlocksAfterAnOpAndTheFreesThatFollowIt) {
  const MemoryPoints points = predicted_points(small, {}, {0, 1, 4, 5, 7, 9});
  const auto at = [](std::size_t op, std::int32_t step, Phase phase, Bytes resident, Bytes allocated) {
    return MemoryPoint{op, step, phase, resident, allocated};
  };
  EXPECT_EQ(points.samples,
            (std::vector{at(0, 0, Phase::Construction, 0_B, 0_B), at(1, 0, Phase::Construction, 8_KiB, 8192_B),
                         at(4, 1, Phase::Forward, 24_KiB, 24576_B), at(5, 1, Phase::Forward, 8_KiB, 8192_B),
                         at(7, 1, Phase::Backward, 12_KiB, 8704_B), at(9, 1, Phase::Forward, 8_KiB, 8192_B)}));
  // By the op that entered the phase first.
  EXPECT_EQ(points.phases,
            (std::vector{at(0, 0, Phase::Construction, 8_KiB, 8192_B), at(3, 1, Phase::Forward, 24_KiB, 24576_B),
                         at(6, 1, Phase::Backward, 12_KiB, 8704_B)}));
  EXPECT_EQ(points.peak, at(4, 1, Phase::Forward, 24_KiB, 24576_B));
  EXPECT_EQ(points.reserved, 2_MiB);
}

TEST(MemoryPoints, AScaleLeavesWholePagesOfBlocksAndNoFewerThanOne) {
  const MemoryPoints points = predicted_points(small, {2}, {1, 4, 7});
  EXPECT_EQ(points.samples[0].resident, 4_KiB);
  EXPECT_EQ(points.samples[1].resident, 12_KiB);
  EXPECT_EQ(points.samples[2].resident, 8_KiB);
  EXPECT_EQ(points.samples[1].allocated, 24576_B);
}

TEST(MemoryPoints, MomentsAreSpreadOverTheLastStepAndHoldThePeak) {
  TestJob job;
  job.layout.pipeline = 2;
  const Lowered lowered(job);
  const PageScale scale{16};
  for (const std::int32_t stage : {0, 1}) {
    const Program program = lowered.stage(stage);
    const std::vector<std::size_t> moments = sample_moments(program, scale);
    EXPECT_TRUE(std::is_sorted(moments.begin(), moments.end()));
    EXPECT_EQ(std::adjacent_find(moments.begin(), moments.end()), moments.end());
    const MemoryPoints points = predicted_points(program, scale, moments);
    const auto in_last_step = std::count_if(points.samples.begin(), points.samples.end(), [&](const MemoryPoint& p) {
      return p.step == static_cast<std::int32_t>(lowered.job.train.steps);
    });
    EXPECT_GE(in_last_step, 32);
    EXPECT_LT(in_last_step, std::ssize(moments));
    EXPECT_TRUE(std::binary_search(moments.begin(), moments.end(), points.peak.op));
    const auto highest = std::max_element(points.phases.begin(), points.phases.end(),
                                          [](const auto& a, const auto& b) { return a.resident < b.resident; });
    EXPECT_EQ(highest->resident, points.peak.resident);
    EXPECT_EQ(moments.back(), without_frees(program).ops.size() - 1);
  }
}

TEST(MemoryPoints, APhaseKeepsItsHighestValues) {
  PhasePeaks peaks;
  peaks.note({0, 1, Phase::Forward, 5_KiB, 3_KiB});
  peaks.note({7, 1, Phase::Backward, 1_KiB, 1_KiB});
  peaks.note({9, 1, Phase::Forward, 4_KiB, 8_KiB});
  peaks.note({11, 2, Phase::Forward, 1_KiB, 1_KiB});
  EXPECT_EQ(peaks.all(), (std::vector<MemoryPoint>{{0, 1, Phase::Forward, 5_KiB, 8_KiB},
                                                   {7, 1, Phase::Backward, 1_KiB, 1_KiB},
                                                   {11, 2, Phase::Forward, 1_KiB, 1_KiB}}));
}

}  // namespace
}  // namespace tidemark::tests::memory_points_test
