#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/io/scenario_reader.hpp"
#include "tests/golden/golden_rows.hpp"

namespace tidemark::tests::golden::golden_test {
namespace {

// Every row is held to what docs/accuracy.toml claims of its family, in percent.
double off(double predicted, double measured) { return std::abs(percent(predicted / measured - 1)); }
double off(Bytes predicted, Bytes measured) {
  return off(static_cast<double>(predicted.count()), static_cast<double>(measured.count()));
}
double worst(std::string_view family, std::string_view figure) { return std::abs(claimed(family, figure).worst); }

class Golden : public testing::TestWithParam<Row> {};

TEST_P(Golden, EveryStagesAllocatedPeakIsAsMeasured) {
  const Row& row = GetParam();
  const std::vector<StageFigures> stages = predicted(row).stages;
  ASSERT_EQ(stages.size(), row.allocated_max.size());
  const std::string figure = std::string("allocated peak of a stage") + (row.dense() ? ", without experts" : "");
  for (std::size_t s = 0; s < stages.size(); ++s) {
    EXPECT_LE(off(stages[s].allocated_max, row.allocated_max[s]), worst("simumax_b200", figure))
        << "stage " << s << ", source " << row.source;
    EXPECT_GE(stages[s].least_cached, 0);
  }
}

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

TEST_P(Golden, AStepTakesAboutAsLongAsMeasured) {
  const Row& row = GetParam();
  EXPECT_LE(off(predicted(row).step_ms, row.step_ms), worst("simumax_b200", "step time")) << "source " << row.source;
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
      EXPECT_LE(off(predicted_step_s(row), row.step_s), worst(family.name, "step time"))
          << row.name << ", source " << row.source;
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
        {row.name, sequences / predicted(row).step_ms, sequences / row.step_ms});
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

TEST(ReservedGolden, EveryRowIsAsNearAsItsFamilyClaims) {
  for (const ReservedFamily& family : reserved_families())
    for (const ReservedRow& row : family.rows) {
      if (row.excluded.empty()) {
        EXPECT_LE(100 * std::abs(predicted_reserved(family, row) / row.reserved - 1),
                  worst(family.name, figure_of(family)))
            << row.name;
      }
    }
}

TEST(LastRankGolden, EveryRowIsAsNearAsItsFamilyClaims) {
  for (const LastRankFamily& family : last_rank_families())
    for (const LastRankRow& row : family.rows) {
      if (!row.excluded.empty()) continue;
      const LastRankFigures p = predicted(row);
      const std::string known = row.fully_specified ? "fully specified" : "all";
      EXPECT_LE(off(p.static_bytes, row.static_bytes), worst(family.name, "static, " + known)) << row.name;
      if (row.peak_bytes) {
        EXPECT_LE(off(p.peak_bytes, *row.peak_bytes), worst(family.name, "peak, " + known)) << row.name;
      }
      if (row.first_step_peak_bytes) {
        EXPECT_LE(off(p.first_step_peak_bytes, *row.first_step_peak_bytes),
                  worst(family.name, "first step's peak, all"))
            << row.name;
      }
    }
}

}  // namespace
}  // namespace tidemark::tests::golden::golden_test
