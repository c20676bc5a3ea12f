// What a comparison tells first: where an error began, not where it grew largest.

#include "scenarios/validate/arithmetic/comparison.hpp"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/math/engine/calculator.hpp"
#include "scenarios/validate/arithmetic/rank_training.hpp"
#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::comparison_test {
namespace {

class Comparisons : public testing::Test {
 protected:
  Comparisons() {
    const std::vector<std::string> ends = on_ranks(1, [this](World& world) {
      math::HostCalculator host;
      of_one_rank_ = RankTraining(job_, {0}, job_).run(world, host, math::Storage::Wide);
    });
    EXPECT_EQ(ends, all_well(1));
    found_ = findings_in(of_one_rank_);
  }

  // What is told when the rank found something else: gradients of the first step, so far off.
  MathCheck check(const std::vector<std::pair<std::string, double>>& wrong) {
    std::string bytes;
    for (Finding finding : found_) {
      for (const auto& [name, factor] : wrong)
        if (finding.what == FindingKind::Gradient && finding.step == 1 && finding.name == name)
          for (double& value : finding.values) value *= factor;
      append(bytes, finding);
    }
    MathCheck check;
    check.type = "float64";
    check.tolerance = 1e-12;
    Comparison comparison(check, Optimizer::Sgd, of_one_rank_);
    comparison.add({0}, RankParameters(job_, {}), bytes);
    return std::move(comparison).finish();
  }

  Job job_{scenario_of({.name = "small", .train = "optimizer = \"sgd\"", .override_keys = "num_key_value_heads = 4"})};
  std::string of_one_rank_;
  std::vector<Finding> found_;
};

TEST_F(Comparisons, FindNothingWhereNothingIs) {
  EXPECT_TRUE(check({}).agrees());
  EXPECT_EQ(check({}).worst.size(), 10u);
}

TEST_F(Comparisons, TellFirstWhatOneRankComesToFirst) {
  const MathCheck reported = check(
      {{"layers.0.mlp.fc1.weight", 2.0}, {"layers.2.mlp.fc1.weight", 1.5}, {"layers.3.attention.qkv.weight", 1.1}});
  EXPECT_FALSE(reported.agrees());
  // Backward, the last layer comes first.
  EXPECT_EQ(reported.worst[0].what, "gradient of layers.3.attention.qkv.weight");
  EXPECT_NEAR(reported.worst[0].relative, 0.1, 1e-9);
  EXPECT_EQ(reported.worst[1].what, "gradient of layers.2.mlp.fc1.weight");
  EXPECT_EQ(reported.worst[2].what, "gradient of layers.0.mlp.fc1.weight");
  EXPECT_LE(reported.worst[3].relative, reported.tolerance);
}

TEST_F(Comparisons, TakeWhatIsNoNumberForWrong) {
  const MathCheck reported = check({{"layers.1.mlp.fc2.weight", std::nan("")}});
  EXPECT_FALSE(reported.agrees());
  EXPECT_EQ(reported.worst[0].what, "gradient of layers.1.mlp.fc2.weight");
}

}  // namespace
}  // namespace tidemark::tests::comparison_test
