// A model on one rank, which is what all ranks are compared with: its gradients are the derivative of its loss.

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/math/calculator.hpp"
#include "scenarios/arithmetic/rank_training.hpp"
#include "tests/scenarios/arithmetic/math_case.hpp"

namespace tidemark::tests {
namespace {

class NoOthers final : public World {
 public:
  [[nodiscard]] Rank rank() const override { return {0}; }
  [[nodiscard]] std::int32_t size() const override { return 1; }
  void exchange(std::span<const Message>, const std::string&) override {}
  void report_failure(const std::string& why) override { throw RunFailure(why); }
};

// What the first step leaves of a model whose parameters begin so far along a direction.
std::vector<Finding> trained(const JobOutline& job, double nudged) {
  NoOthers alone;
  math::HostCalculator calculator;
  RankTraining training(job, {0});
  training.nudge(nudged);
  const std::string found = training.run(alone, calculator, math::Storage::Wide);
  EXPECT_EQ(training.wrong(), "");
  return findings_in(found);
}

double mean_loss(const std::vector<Finding>& findings) {
  double sum = 0, count = 0;
  for (const Finding& finding : findings)
    if (finding.what == Found::Loss && finding.step == 1)
      for (const double loss : finding.values) sum += loss, ++count;
  return sum / count;
}

class Derivative : public testing::TestWithParam<MathCase> {};

TEST_P(Derivative, OfTheLossIsWhatTheOptimizerFinds) {
  const JobOutline job(scenario_of(GetParam()));
  constexpr double step = 1e-6;
  const double slope = (mean_loss(trained(job, step)) - mean_loss(trained(job, -step))) / (2 * step);
  double along = 0;
  for (const Finding& finding : trained(job, 0)) {
    if (finding.what != Found::Gradient || finding.step != 1) continue;
    for (std::size_t i = 0; i < finding.values.size(); ++i)
      along += finding.values[i] * direction(finding.name, finding.first + static_cast<std::int64_t>(i));
  }
  EXPECT_GT(std::abs(slope), 1e-3);
  EXPECT_LT(std::abs(along / slope - 1), 1e-6) << along << " instead of " << slope;
}

MathCase model(std::string name, std::string keys, std::string train = "", std::string runtime = "") {
  MathCase made;
  made.model = name;
  made.name = std::move(name), made.override_keys = std::move(keys), made.train = std::move(train);
  if (!runtime.empty()) made.runtime += "\n" + runtime;
  for (char& c : made.name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return made;
}
MathCase named(std::string name, MathCase made) {
  made.name = std::move(name);
  return made;
}

const std::string few = "num_key_value_heads = 2\nhead_dim = 8", llama = "llama-3.1-8b";

INSTANTIATE_TEST_SUITE_P(
    Models, Derivative,
    testing::Values(model(llama, few), named("tied", model(llama, few + "\ntie_word_embeddings = true")),
                    model("qwen2.5-7b", "num_key_value_heads = 2"), model("qwen3-8b", few),
                    model("olmo-2-7b", "num_key_value_heads = 4"), model("pythia-6.9b", ""), model("gemma-2-9b", few),
                    model("gpt2", "n_layer = 4\nn_embd = 32\nn_head = 4\nn_positions = 16"),
                    named("recomputed", model(llama, few, "recompute = \"full\"")),
                    named("selective", model(llama, few, "recompute = \"selective\"")),
                    named("scores", model(llama, few, "attention = \"unfused\"")),
                    named("flash", model(llama, few, "attention = \"flash\"")),
                    named("loss_of_transformer_engine", model(llama, few, "cross_entropy = \"te\"")),
                    named("fused_loss", model(llama, few, "cross_entropy = \"fused\"")),
                    named("gate_apart", model(llama, few, "", "switches.no-bias-swiglu-fusion = true")),
                    named("turns_apart", model(llama, few, "", "switches.no-rope-fusion = true"))),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests
