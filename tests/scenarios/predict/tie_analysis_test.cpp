#include "scenarios/plan/tie_analysis.hpp"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "scenarios/plan/bounds/step_parts.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/report/text/plan_text.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/small_job.hpp"
#include "tests/scenarios/small_space.hpp"

namespace tidemark::tests::tie_analysis_test {
namespace {

using namespace literals;

TEST(TieAnalysis, WhatBothHaveAlikeDecidesNothing) {
  const StepParts best{{"matmul", {80_ms, 0.2}}, {"all_reduce of tensor", {20_ms, 0.2}}},
      other{{"matmul", {80_ms, 0.2}}, {"all_reduce of tensor", {22_ms, 0.2}}};
  const TieAnalysis its = tie_analysis(7, 2_ms, best, other);
  EXPECT_EQ(its.candidate, 7);
  EXPECT_EQ(its.error, 400_us) << "a fifth of the two milliseconds that differ";
  EXPECT_FALSE(its.open());
  EXPECT_EQ(its.settles, "all_reduce of tensor");
}

TEST(TieAnalysis, CausesThatWeighOppositeWaysLeaveTheOrderOpen) {
  const StepParts best{{"matmul", {80_ms, 0.1}}, {"all_reduce of tensor", {20_ms, 0.25}}},
      other{{"matmul", {93_ms, 0.1}}, {"all_reduce of tensor", {8_ms, 0.25}}};
  const TieAnalysis its = tie_analysis(0, 1_ms, best, other);
  EXPECT_TRUE(its.open());
  EXPECT_NEAR(static_cast<double>(its.error.count()), 3.2696e9, 1e6) << "1.3 and 3 ms, each for itself";
  EXPECT_EQ(its.settles, "all_reduce of tensor");
  EXPECT_EQ(its.of_that, 3_ms);
}

TEST(TieAnalysis, WhatOnlyOneHasCountsWhole) {
  const TieAnalysis its =
      tie_analysis(0, 5_ms, {{"matmul", {80_ms, 0.1}}}, {{"matmul", {80_ms, 0.1}}, {"copies", {5_ms, 0.5}}});
  EXPECT_EQ(its.error, 2500_us);
  EXPECT_EQ(its.settles, "copies");
  EXPECT_TRUE(tie_analysis(0, {}, {}, {}).open()) << "the same step";
}

TEST(StepParts, AddUpToTheStepAndSayWhatIsMeasured) {
  Scenario scenario = parse_scenario(small_job, "job.toml", folders);
  const Duration step = predict(scenario).step.step;
  const StepParts parts = step_parts(scenario, step);
  Duration sum;
  for (const auto& [cause, part] : parts) sum += part.time;
  EXPECT_NEAR(static_cast<double>(sum.count()), static_cast<double>(step.count()), 100);
  for (const char* cause : {"matmul", "attention", "attention_backward", "kernels bound by memory",
                            "all_gather of tensor", "reduce_scatter of tensor", "messages of pipeline"})
    EXPECT_TRUE(parts.contains(cause)) << cause;
  EXPECT_DOUBLE_EQ(parts.at("matmul").error, 0.15) << "the file's kernel_error";
  EXPECT_GT(parts.at("matmul").time, parts.at("attention").time);

  Calibration calibration;
  calibration.kernels = {{Operation::Matmul, DType::BF16, {1, 4096, 14336, 4096}, 600_us}};
  scenario.cluster.calibration = calibration;
  EXPECT_LT(step_parts(scenario, step).at("matmul").error, 0.15) << "some of them are known";
  EXPECT_DOUBLE_EQ(step_parts(scenario, step).at("all_gather of tensor").error, 0.25);
  // Tokens of a sequence-parallel pair, and of a stage to the next.
  calibration.collectives = {{CollectiveKind::AllGather, 2, 1, 32_MiB, 120_us}};
  calibration.messages = {{false, 16_MiB, 60_us}};
  scenario.cluster.calibration = calibration;
  const StepParts known = step_parts(scenario, step);
  EXPECT_LT(known.at("all_gather of tensor").error, 0.25);
  EXPECT_EQ(known.at("messages of pipeline").error, 0);
  EXPECT_DOUBLE_EQ(known.at("reduce_scatter of tensor").error, 0.25) << "of another kind";
}

SmallSpace layouts() {
  return {
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
      "model_override.num_hidden_layers = 4\n",
      "sequence_length = 4096\nmicro_batch = 1\nglobal_batch = 16\n"
      "cross_entropy = \"te\"\nhidden_dropout = 0.0\nattention_dropout = 0.0\n",
      {{"layout.tensor", {"1", "2", "4"}}, {"layout.pipeline", {"1", "2"}}}};
}

TEST(TieAnalysis, PlanMarksWhatItsErrorsLeaveOpenInTextJsonAndCsv) {
  const Space space = space_of(layouts());
  Plan found = plan(space, {});
  ASSERT_GE(found.best.size(), 2u);
  ASSERT_EQ(found.tie_analyses.size(), found.best.size() - 1);
  for (std::size_t i = 1; i < found.best.size(); ++i) {
    EXPECT_EQ(found.tie_analyses[i - 1].candidate, found.best[i].candidate);
    EXPECT_EQ(found.tie_analyses[i - 1].apart, found.best[i].figures.step - found.best.front().figures.step);
  }
  found.tie_analyses.front() = {found.best[1].candidate, 1_ms, 2_ms, "all_gather of tensor", 2_ms};
  for (std::size_t i = 1; i < found.tie_analyses.size(); ++i) found.tie_analyses[i].error = {};
  EXPECT_NE(plan_text(space, found).find("measuring all_gather of tensor would settle #"), std::string::npos);
  EXPECT_NE(brief_text(space, found).find("measuring all_gather of tensor would settle #"), std::string::npos);
  EXPECT_NE(plan_json(space, found).find("\"settled_by\": \"all_gather of tensor\""), std::string::npos);
  EXPECT_NE(plan_csv(space, found).find(",true,all_gather of tensor,"), std::string::npos);
  found.tie_analyses.front().error = {};
  EXPECT_EQ(plan_text(space, found).find("would settle"), std::string::npos);
}

// Bounds know measured times, or a search by them would reject what is best.
TEST(TieAnalysis, SearchesByMeasuredTimesAgreeWithPredict) {
  const auto file = std::filesystem::path(TIDEMARK_SOURCE_DIR) / "tests/bad_inputs/files/calibration.toml";
  const std::string calibration = "calibration = \"" + file.string() + "\"\n";
  SmallSpace small = layouts();
  small.top = calibration + small.top;
  expect_as_by_brute_force(plan(space_of(small), {}), brute_force(small));
}

}  // namespace
}  // namespace tidemark::tests::tie_analysis_test
