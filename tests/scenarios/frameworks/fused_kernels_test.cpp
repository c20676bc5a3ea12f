#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/prediction.hpp"
#include "tests/scenarios/one_job.hpp"

// What torch.compile fuses is one kernel on the clock.

namespace tidemark::tests::fused_kernels_test {
namespace {

using namespace literals;
using namespace one_job;

constexpr std::int64_t layers = 2, tokens = 4096, ffn = 14336, hidden = 4096;

Scenario of_titan(const std::string& switches) {
  Scenario scenario = parse_scenario(
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n[train]\n"
      "sequence_length = 4096\nmicro_batch = 1\n[runtime]\nname = \"torchtitan\"\n[runtime.switches]\n" +
          switches,
      "job.toml", folders);
  scenario.model.layers.resize(layers);
  return scenario;
}

Program program_of(const std::string& switches) {
  const Scenario scenario = of_titan(switches);
  const Runtime runtime = runtime_of(scenario);
  const BuiltModel built = build_model(scenario.model, model_options_of(scenario));
  const LoweringInput input{built, scenario.layout, scenario.train, runtime};
  return lower_role(input, roles(input).front());
}

// How often a first step of that operation comes in the last step, by what its kernel moves.
std::map<Bytes, int> fused_kernels(const Program& program, Operation operation, std::int32_t last) {
  std::map<Bytes, int> found;
  std::int32_t step = 0;
  for (const Op& op : program.ops) {
    if (const auto* mark = std::get_if<Mark>(&op)) step = mark->step;
    const auto* launch = std::get_if<Launch>(&op);
    if (launch == nullptr || step != last) continue;
    const Kernel& kernel = program[launch->kernel];
    if (kernel.operation == operation && kernel.fused && !kernel.follows()) ++found[kernel.fused->traffic];
  }
  return found;
}

TEST(FusedKernels, MoveWhatGoesInAndWhatComesOut) {
  const Program program = program_of("compile = \"model\"");
  const Bytes row = tokens * ffn * 2_B;
  // Forward the gate and what it is multiplied with go in, the product comes out. Backward both go in again, and the
  // product's gradient; their own gradients come out.
  const std::map<Bytes, int> expected{{3 * row, layers}, {5 * row, layers}};
  EXPECT_EQ(fused_kernels(program, Operation::Silu, of_titan("").train.steps), expected);
}

TEST(FusedKernels, GoOnWhereTheyBegan) {
  const Program program = program_of("compile = true");
  const Launch* before = nullptr;
  int first = 0, later = 0;
  for (const Op& op : program.ops) {
    const auto* launch = std::get_if<Launch>(&op);
    if (launch == nullptr) continue;
    if (program[launch->kernel].follows()) {
      ASSERT_NE(before, nullptr);
      EXPECT_TRUE(program[before->kernel].fused) << "what follows is of the kernel before it";
      EXPECT_EQ(launch->stream, before->stream);
      ++later;
    } else if (program[launch->kernel].fused) {
      ++first;
    }
    before = launch;
  }
  EXPECT_GT(first, 10 * layers);
  EXPECT_GT(later, first);
}

TEST(FusedKernels, NothingIsFusedThatNobodyCompiles) {
  for (const Kernel& kernel : program_of("").kernels) EXPECT_FALSE(kernel.fused);
}

TEST(FusedKernels, MakeAStepShorterByWhatTheyDoNotMove) {
  const Prediction eager = predict(of_titan("")), compiled = predict(of_titan("compile = \"model\""));
  ASSERT_TRUE(eager.completed && compiled.completed);
  // Norms, rotary positions, gate and residuals: thirty times a layer's hidden state, at the least, that a compiler
  // keeps in registers.
  const Device& device = of_titan("").cluster.device;
  const Duration of_rows = tokens * hidden * 2_B / device.memory_bandwidth;
  EXPECT_LT(compiled.step.step + layers * 30 * of_rows, eager.step.step);
}

}  // namespace
}  // namespace tidemark::tests::fused_kernels_test
