#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "tests/golden/golden_rows.hpp"

namespace tidemark::tests::golden::golden_test {
namespace {

// Each row's own figures: own_figures_test.cpp.

// Identical ranks of one stage spread by up to 2.6 %, so that stages are held by the median of their ranks.
TEST(ReservedGolden, StagesAreAsMeasured) {
  const ReservedScore score = reserved_score(families());
  ASSERT_EQ(score.predicted.size(), 10u);
  const Claim now = claim_of("simumax_b200", "reserved peak, median of a stage's ranks", score.predicted);
  EXPECT_EQ(claims_text({now}), claims_text({claimed(now.family, now.figure)}));
  const Errors of_factor = errors(score.by_factor);
  EXPECT_LT(now.median, percent(of_factor.median));
  EXPECT_LT(std::abs(now.worst), percent(of_factor.worst));
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const Family& family : families()) rows.insert(rows.end(), family.rows.begin(), family.rows.end());
  return rows;
}

// Three layouts of one model on eight devices, by what they make of a second.
TEST(StepGolden, LayoutsComeInTheOrderInWhichTheyWereMeasured) {
  constexpr double tie = 0.02;
  const std::filesystem::path root = TIDEMARK_SOURCE_DIR;
  struct Rate {
    std::string name;
    double predicted, measured;
  };
  std::map<std::string, std::vector<Rate>> by_micro_batches;
  for (const Row& row : all_rows()) {
    if (!row.name.starts_with("llama3_70b") || row.name.find("seq") != std::string::npos) continue;
    const auto sequences =
        static_cast<double>(scenarios::read_scenario(row.scenario, root / "scenarios").train.global_batch);
    by_micro_batches[row.name.substr(row.name.rfind("_mbc"))].push_back(
        {row.name, sequences / (1e3 * predicted(row).step.s), sequences / row.step_ms});
  }
  EXPECT_EQ(by_micro_batches.size(), 3U);
  for (const auto& [count, rates] : by_micro_batches) {
    EXPECT_EQ(rates.size(), 3U) << count;
    for (const Rate& a : rates)
      for (const Rate& b : rates) {
        if (a.measured <= b.measured * (1 + tie)) continue;
        EXPECT_GT(a.predicted, b.predicted) << a.name << " and " << b.name;
      }
  }
}

}  // namespace
}  // namespace tidemark::tests::golden::golden_test
