#include "scenarios/plan/tape.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/plan/exact_memory.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/prediction.hpp"
#include "tests/scenarios/random_layout.hpp"

namespace tidemark::tests {
namespace {

const std::filesystem::path source = TIDEMARK_SOURCE_DIR;

TEST(Tape, SaysWhatPredictSaysOfEveryRandomLayout) {
  SharedGraphs graphs;
  int checked = 0;
  for (std::uint32_t seed = 1; checked < 25; ++seed) {
    std::optional<Scenario> scenario = random_scenario(seed);
    if (!scenario) continue;
    SCOPED_TRACE(seed);
    scenario->runtime.allocator = random_allocator(seed);
    Figures expected = figures_of(predict(*scenario));
    Figures found = exact_memory(*scenario, graphs);
    EXPECT_EQ(found.allocated, expected.allocated);
    EXPECT_EQ(found.device, expected.device);
    EXPECT_EQ(found.device_upper, expected.device_upper);
    EXPECT_EQ(found.completed, expected.completed);
    if (checked % 10 == 0) {
      add_exact_time(*scenario, graphs, found);
      EXPECT_EQ(found, expected);
    }
    ++checked;
  }
}

TEST(Tape, MicroBatchesInTheMiddleAreKnownWithoutRunningThem) {
  SharedGraphs graphs;
  const Scenario scenario =
      settled(parse_scenario(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 2
[model_override]
num_hidden_layers = 4
[layout]
tensor = 2
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 256
)",
                             "small.toml", {source / "scenarios/examples", source / "scenarios"}));
  const Runtime runtime = runtime_of(scenario);
  const auto graph = graphs.graph_of(scenario.model, graph_options_of(scenario));
  const LoweringInput input{*graph, scenario.layout, scenario.train, runtime};
  const Role role = roles(input).front();
  const StageTape stage = stage_tape(lower_repeating(input, role));
  const TapeRecord record = run_tape(state_tape(input, role), stage);
  EXPECT_GT(record.skipped, 400);  // of two steps of 256
  EXPECT_LT(record.bodies, 80);
}

}  // namespace
}  // namespace tidemark::tests
