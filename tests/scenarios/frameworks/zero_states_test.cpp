#include <filesystem>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"

// Model states of Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
// figure 1 and table 1: of P parameters trained by Adam in mixed precision on N ranks, 2 P bytes of parameters, 2 P of
// gradients, 12 P of optimizer state, and of these a share of N as the stage says.

namespace tidemark::tests::zero_states_test {
namespace {

const std::filesystem::path source = TIDEMARK_SOURCE_DIR;

struct States {
  Bytes parameters, gradients, optimizer;
  [[nodiscard]] Bytes all() const { return parameters + gradients + optimizer; }
};

// Of the first rank, with the gradients of its part as they are handed on to be added up, or all of them where they are
// not shared out.
States states_of(int stage, int ranks) {
  const Scenario scenario = parse_scenario(
      fmt::format(
          "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = {}\n[layout]\n"
          "sharding = \"zero{}\"\n[train]\nsequence_length = 512\nmicro_batch = 1\nsteps = 2\n[runtime]\n"
          "name = \"deepspeed\"\n",
          ranks, stage),
      "job.toml", {source, source / "scenarios"});
  const Runtime runtime = runtime_of(scenario);
  const BuiltModel built = build_model(scenario.model, model_options_of(scenario));
  const LoweringInput input{built, scenario.layout, scenario.train, runtime};
  const Program program = lower_every_pass(input, roles(input).front());
  States states;
  std::map<std::string, Bytes> labelled;
  bool in_backward = false;
  Bytes of_backward;
  for (const Op& op : program.ops) {
    if (const auto* const mark = std::get_if<Mark>(&op)) {
      if (mark->step > 1) break;  // the first step has made all of it
      in_backward = mark->phase == Phase::Backward;
    }
    const auto* const alloc = std::get_if<Alloc>(&op);
    if (alloc == nullptr) continue;
    labelled[program[alloc->label]] += alloc->size;
    const bool is_whole = program[alloc->label].find("grads_in_partition") == std::string::npos;
    if (in_backward && alloc->category == Category::Gradients && is_whole) of_backward += alloc->size;
    if (alloc->category == Category::OptimizerMoments) states.optimizer += alloc->size;
  }
  switch (stage) {
    case 1:
      states.parameters = labelled.at("flat.parameters");
      states.gradients = of_backward;
      break;
    case 2:
      states.parameters = labelled.at("flat.parameters");
      states.gradients = labelled.at("zero.flat_grad_partition");
      break;
    default:
      states.parameters = labelled.at("zero.partitioned_parameters");
      states.gradients = labelled.at("zero.grad_partitions");
  }
  // The master copy; what it is copied from on the way goes.
  for (const auto& [label, size] : labelled) {
    if (label == "flat.partition") states.optimizer += size - Bytes{size.count() / 3};  // bf16, then fp32
    if (label == "zero.fp32_partition") states.optimizer += Bytes{size.count() / 2};    // cast, then cloned
  }
  return states;
}

class ZeroStates : public testing::TestWithParam<int> {};

TEST_P(ZeroStates, AreThoseOfThePaper) {
  const std::int64_t n = GetParam(), parameters = 8'030'261'248;
  const Bytes two{2 * parameters}, twelve{12 * parameters};
  const auto share = [&](Bytes all) { return Bytes{all.count() / n}; };
  const States one = states_of(1, GetParam()), two_stage = states_of(2, GetParam()), three = states_of(3, GetParam());
  EXPECT_EQ(one.all(), two + two + share(twelve));
  EXPECT_EQ(two_stage.all(), two + share(two) + share(twelve));
  EXPECT_EQ(three.all(), share(two) + share(two) + share(twelve));
}

// On more ranks a part is smaller than the embedding, whose gradient stage 2 keeps whole (grads_in_partition).
INSTANTIATE_TEST_SUITE_P(Ranks, ZeroStates, testing::Values(4, 8));

}  // namespace
}  // namespace tidemark::tests::zero_states_test
