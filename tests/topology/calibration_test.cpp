#include "topology/calibration.hpp"

#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::calibration_test {
namespace {

using namespace literals;

std::optional<TimeByPoints> reported(const std::vector<MeasuredPoint>& points, std::vector<std::int64_t> sizes,
                                     double modelled) {
  return time_by_points(points, sizes, modelled);
}

TEST(Calibration, ASizeThatWasMeasuredTakesWhatItTook) {
  const auto time = reported({{{64, 64}, 7_us, 1}, {{64, 128}, 9_us, 2}}, {64, 128}, 2);
  ASSERT_TRUE(time);
  EXPECT_EQ(time->time, 9_us);
  EXPECT_EQ(time->source, TimeSource::Measured);
}

TEST(Calibration, WhatSizesDoNotSayTheModelAdds) {
  EXPECT_EQ(reported({{{64}, 10_us, 4}}, {64}, 6)->time, 15_us) << "one that accumulates takes half as much again";
}

TEST(Calibration, BetweenPointsTheRatioToTheModelIsAPowerLaw) {
  // Times are the model's n^2 times n^0.5: any size between points is told exactly.
  std::vector<MeasuredPoint> points;
  for (const std::int64_t n : {16, 32, 64, 128, 256})
    points.push_back({{n}, Duration{std::llround(1e6 * std::pow(n, 2.5))}, std::pow(static_cast<double>(n), 2)});
  const auto time = reported(points, {90}, 90 * 90);
  ASSERT_TRUE(time);
  EXPECT_EQ(time->source, TimeSource::Interpolated);
  EXPECT_NEAR(static_cast<double>(time->time.count()), 1e6 * std::pow(90, 2.5), 0.02e6 * std::pow(90, 2.5));
}

TEST(Calibration, OnePointAloneTellsItsNeighboursByTheModel) {
  const std::vector<MeasuredPoint> points{{{64, 64}, 10_us, 100}};
  EXPECT_EQ(reported(points, {128, 64}, 200)->time, 20_us);
  EXPECT_EQ(reported(points, {32, 33}, 25)->source, TimeSource::Interpolated);
}

TEST(Calibration, WhatIsFartherThanAFactorOfTwoInAnySizeKeepsItsModel) {
  const std::vector<MeasuredPoint> points{{{64, 64}, 10_us, 100}};
  EXPECT_FALSE(reported(points, {129, 64}, 200));
  EXPECT_FALSE(reported(points, {64, 31}, 50));
  EXPECT_FALSE(reported(points, {64, 64, 1}, 100)) << "sizes of another kind";
  EXPECT_FALSE(reported({}, {64}, 1));
}

TEST(Calibration, FlagsAreNeverNear) {
  EXPECT_FALSE(reported({{{64, 1}, 10_us, 100}}, {64, 0}, 100)) << "causal, and not";
}

TEST(Calibration, TransfersGoByKindRanksNodesAndSize) {
  Calibration c;
  c.collectives = {{CollectiveKind::AllReduce, 8, 1, 1_MiB, 30_us}, {CollectiveKind::AllReduce, 8, 1, 4_MiB, 60_us}};
  c.messages = {{true, 1_MiB, 50_us}};
  c.copies = {{true, 1_MiB, 20_us}};
  EXPECT_EQ(measured_time(c, CollectiveKind::AllReduce, 8, 1, 1_MiB)->time, 30_us);
  const Duration between = measured_time(c, CollectiveKind::AllReduce, 8, 1, 2_MiB)->time;
  EXPECT_GT(between, 36_us);
  EXPECT_LT(between, 50_us) << "their geometric mean is 42.4 us";
  EXPECT_FALSE(measured_time(c, CollectiveKind::AllGather, 8, 1, 1_MiB));
  EXPECT_FALSE(measured_time(c, CollectiveKind::AllReduce, 4, 1, 1_MiB));
  EXPECT_FALSE(measured_time(c, CollectiveKind::AllReduce, 8, 2, 1_MiB));
  EXPECT_EQ(measured_message(c, true, 1_MiB)->time, 50_us);
  EXPECT_FALSE(measured_message(c, false, 1_MiB));
  EXPECT_FALSE(measured_copy(c, false, 1_MiB));
}

TEST(Calibration, AStretchedTransferTakesTheTimeAndKeepsItsLinks) {
  const std::array links{100_GBps, 50_GBps};
  const TransferCost cost{2_us, {{LinkId{0}, 1_MiB, 2}, {LinkId{1}, 1_MiB, 1}}};
  const Duration modelled = lone(cost, links);
  EXPECT_EQ(modelled, 2_us + 1_MiB / 50_GBps) << "alone, whoever shares";
  for (const Duration time : {10_us, 300_us}) {
    const TransferCost stretched_cost = stretched(cost, modelled, time);
    EXPECT_LE(lone(stretched_cost, links), time + 1_ns);
    EXPECT_GE(lone(stretched_cost, links) + 1_ns, time);
    EXPECT_EQ(stretched_cost.loads.size(), 2u);
    EXPECT_EQ(stretched_cost.loads.front().sharers, 2);
  }
  EXPECT_EQ(stretched({2_us, {}}, 2_us, 9_us), (TransferCost{9_us, {}}));
}

TEST(Calibration, SharedOnesAreEqualWhereTheySayTheSame) {
  Calibration a;
  a.source = "a";
  EXPECT_EQ(SharedCalibration(a), SharedCalibration(a));
  Calibration b = a;
  b.messages.push_back({false, 1_KiB, 1_us});
  EXPECT_NE(SharedCalibration(a), SharedCalibration(b));
  EXPECT_NE(SharedCalibration(a), SharedCalibration());
}

}  // namespace
}  // namespace tidemark::tests::calibration_test
