// A rank's gradients are the slopes of its losses: of a program in float64, along a direction through all parameters,
// by central differences. What ranks and one rank have wrong together shows here.

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/math/engine/calculator.hpp"
#include "scenarios/validate/arithmetic/rank_training.hpp"
#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::slopes_test {
namespace {

std::vector<Finding> first_step(const Job& job, double aside) {
  std::vector<Finding> found;
  const std::vector<std::string> ends = on_ranks(1, [&](World& world) {
    math::HostCalculator host;
    found = findings_in(RankTraining(job, {0}, job, aside).run(world, host, math::Storage::Wide));
  });
  EXPECT_EQ(ends, all_well(1));
  return found;
}

// Of all tokens together.
double loss(const std::vector<Finding>& found) {
  double sum = 0, count = 0;
  for (const Finding& finding : found)
    if (finding.what == FindingKind::Loss)
      for (const double value : finding.values) sum += value, ++count;
  return sum / count;
}

double slope_of_gradients(const std::vector<Finding>& found) {
  double slope = 0;
  for (const Finding& finding : found)
    if (finding.what == FindingKind::Gradient)
      for (std::size_t i = 0; i < finding.values.size(); ++i)
        slope += finding.values[i] * direction(finding.name, finding.first + static_cast<std::int64_t>(i));
  return slope;
}

class Slopes : public testing::TestWithParam<MathCase> {};

TEST_P(Slopes, OfLossesAreGradients) {
  Scenario scenario = scenario_of(GetParam());
  scenario.train.steps = 1;
  const Job job(scenario);
  // What is left out is of the order of the step's square, what rounding does to the losses, of its inverse.
  constexpr double aside = 1e-6;
  const double slope = (loss(first_step(job, aside)) - loss(first_step(job, -aside))) / (2 * aside);
  // Plain PyTorch's loop adds up micro-batches, Megatron's averages them.
  const double losses = scenario.runtime.name == "pytorch" ? 4 : 1;
  EXPECT_GT(std::abs(slope), 0.01);
  EXPECT_NEAR(slope_of_gradients(first_step(job, 0)) / (losses * slope), 1, 1e-6);
}

const std::string grouped = "num_key_value_heads = 2\nhead_dim = 8", window = grouped + "\nsliding_window = 5";
const std::string alike = "num_key_value_heads = 4";
const std::string hybrid =
    "hybrid_override_pattern = \"M-*M\"\nhead_dim = 8\nnum_key_value_heads = 2\nmamba_num_heads = 4\n"
    "mamba_head_dim = 8\nn_groups = 2\nssm_state_size = 4";
const std::string gpt2 = "n_embd = 32\nn_layer = 4\nn_head = 4\nn_positions = 16";

MathCase megatron(std::string name, std::string train = "", std::string model = "llama-3.1-8b",
                  std::string keys = grouped) {
  return {.name = std::move(name),
          .train = std::move(train),
          .override_keys = std::move(keys),
          .model = std::move(model),
          .precision = "bf16"};
}
MathCase otherwise(std::string name, const std::string& mode) {
  MathCase made = megatron(std::move(name));
  made.runtime += "\n" + mode;
  return made;
}
MathCase pytorch(std::string name, std::string train = "", std::string model = "llama-3.1-8b",
                 std::string keys = grouped) {
  MathCase made = megatron(std::move(name), std::move(train), std::move(model), std::move(keys));
  made.runtime = "name = \"pytorch\"";
  return made;
}

MathCase dropping(MathCase made) {
  made.name += "_drops";
  made.dropout = "hidden_dropout = 0.2\nattention_dropout = 0.3";
  return made;
}

const std::string scores = "attention = \"unfused\"", flash = "attention = \"flash\"";
const auto names = [](const auto& test) { return test.param.name; };

INSTANTIATE_TEST_SUITE_P(OfMegatron, Slopes,
                         testing::Values(megatron("llama"), megatron("flash", flash), megatron("scores", scores),
                                         megatron("recomputed", "recompute = \"full\""),
                                         megatron("loss_of_transformer_engine", "cross_entropy = \"te\""),
                                         megatron("fused_loss", "cross_entropy = \"fused\""),
                                         megatron("qwen2", "", "qwen2.5-7b", "num_key_value_heads = 2"),
                                         megatron("qwen3", "", "qwen3-8b"), megatron("olmo2", "", "olmo-2-7b", alike),
                                         megatron("neox", "", "pythia-6.9b", ""), megatron("gpt2", "", "gpt2", gpt2),
                                         megatron("gemma2", "", "gemma-2-9b"), megatron("gemma3", "", "gemma-3-1b"),
                                         megatron("hybrid", "", "nemotron-h-8b", hybrid),
                                         dropping(megatron("hybrid", "", "nemotron-h-8b", hybrid)),
                                         dropping(megatron("llama")), dropping(megatron("scores", scores)),
                                         otherwise("gate_apart", "switches.no-bias-swiglu-fusion = true"),
                                         otherwise("turns_apart", "switches.no-rope-fusion = true")),
                         names);
INSTANTIATE_TEST_SUITE_P(
    OfPyTorch, Slopes,
    testing::Values(pytorch("llama"), pytorch("scores", scores), pytorch("flash", flash),
                    pytorch("recomputed", "recompute = \"full\""), pytorch("pure", "master_dtype = \"bf16\""),
                    pytorch("gpt2", "", "gpt2", gpt2), pytorch("santacoder", "", "santacoder", gpt2),
                    pytorch("neox", "", "pythia-6.9b", ""), pytorch("phi3", "", "phi-3-mini-4k", alike),
                    pytorch("qwen2", "", "qwen2.5-7b", "num_key_value_heads = 2"), pytorch("qwen3", "", "qwen3-8b"),
                    pytorch("olmo2", "", "olmo-2-7b", alike), pytorch("gemma2", scores, "gemma-2-9b", window),
                    pytorch("gemma3", "", "gemma-3-1b", window), pytorch("mistral", flash, "mistral-7b-v0.1", window),
                    dropping(pytorch("flash", "", "gpt2", gpt2)), dropping(pytorch("scores", scores, "gpt2", gpt2)),
                    dropping(pytorch("window", "", "mistral-7b-v0.1", window))),
    names);

}  // namespace
}  // namespace tidemark::tests::slopes_test
