#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/golden_rows.hpp"

namespace tidemark::tests::golden {
namespace {

// Of max_memory_allocated, each stage's maximum over its ranks.
constexpr double allocated_tolerance = 0.0005;

class Golden : public testing::TestWithParam<Row> {};

TEST_P(Golden, EveryStagesAllocatedPeakIsAsMeasured) {
  const Row& row = GetParam();
  const std::vector<StageFigures> stages = predicted(row).stages;
  ASSERT_EQ(stages.size(), row.allocated_max.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    EXPECT_NEAR(stages[s].allocated_max, row.allocated_max[s], allocated_tolerance * row.allocated_max[s])
        << "stage " << s << ", source " << row.source;
    EXPECT_GE(stages[s].least_cached, 0);
  }
}

// Identical ranks of one stage spread by up to 2.6 %, so that stages are held by the median of their ranks.
TEST(ReservedGolden, StagesAreAsMeasured) {
  const ReservedScore score = reserved_score(families());
  ASSERT_EQ(score.predicted.size(), 5u);
  const Errors of_stages = errors(score.predicted), of_factor = errors(score.by_factor);
  EXPECT_LE(of_stages.median, 0.001);
  EXPECT_LE(of_stages.worst, 0.005);
  EXPECT_LT(of_stages.median, of_factor.median);
  EXPECT_LT(of_stages.worst, of_factor.worst);
}

// Of a step's time, fitted and unseen rows alike.
constexpr double step_tolerance = 0.15;

TEST_P(Golden, AStepTakesAboutAsLongAsMeasured) {
  const Row& row = GetParam();
  EXPECT_NEAR(predicted(row).step_ms, row.step_ms, step_tolerance * row.step_ms) << "source " << row.source;
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const Family& family : families()) rows.insert(rows.end(), family.rows.begin(), family.rows.end());
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Rows, Golden, testing::ValuesIn(all_rows()), [](const auto& row) { return row.param.name; });

TEST(StepGolden, StepsTakeAboutAsLongAsMeasured) {
  for (const StepFamily& family : step_families())
    for (const StepRow& row : family.rows)
      EXPECT_NEAR(predicted_step_s(row), row.step_s, 0.08 * row.step_s) << row.name << ", source " << row.source;
}

// Rows whose configuration is known in full, as a share of what was measured.
TEST(LastRankGolden, FullySpecifiedRowsAreAsMeasured) {
  for (const LastRankFamily& family : last_rank_families()) {
    std::vector<double> statics, peaks;
    for (const LastRankRow& row : family.rows) {
      if (!row.fully_specified) continue;
      const LastRankFigures p = predicted(row);
      const auto off = [](Bytes found, Bytes measured) {
        return static_cast<double>(found.count()) / static_cast<double>(measured.count()) - 1;
      };
      statics.push_back(off(p.static_bytes, row.static_bytes));
      peaks.push_back(off(p.peak_bytes, row.peak_bytes));
      EXPECT_LE(std::abs(peaks.back()), 0.006) << row.name;
      EXPECT_LE(std::abs(statics.back()), 0.02) << row.name;
    }
    EXPECT_LE(errors(statics).median, 0.0015) << family.name;
    EXPECT_LE(errors(peaks).median, 0.0006) << family.name;
    EXPECT_GE(errors(statics).within_0_6_percent, 0.9) << family.name;
  }
}

}  // namespace
}  // namespace tidemark::tests::golden
