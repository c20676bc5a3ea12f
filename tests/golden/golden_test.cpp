#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/golden_rows.hpp"

namespace tidemark::golden {
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
    EXPECT_GE(stages[s].reserved_min, stages[s].allocated_max * 0.99);
  }
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

}  // namespace
}  // namespace tidemark::golden
