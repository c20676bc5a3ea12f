#include "scenarios/plan/tape.hpp"

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/io/input_error.hpp"
#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/plan/exact_memory.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/prediction.hpp"

namespace tidemark {
namespace {

const std::filesystem::path source = TIDEMARK_SOURCE_DIR;

// A random layout of a small model; nothing where it is none.
std::optional<Scenario> random_scenario(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<std::string>& values) { return values[random() % values.size()]; };
  const std::string schedule = pick({"1f1b", "1f1b", "gpipe", "interleaved"});
  const std::string recompute =
      pick({"\"none\"", "\"full\"", "\"selective\"", "\"full\"\nrecompute_method = \"block\"\nrecompute_layers = 2"});
  const std::string text = fmt::format(
      R"(model = "models/{}.json"
cluster = "clusters/{}.toml"
gpus = {}
[model_override]
num_hidden_layers = {}
[layout]
tensor = {}
sequence_parallel = {}
pipeline = {}
schedule = "{}"
chunks = {}
sharding = "{}"
order = "{}"
[train]
sequence_length = {}
micro_batch = {}
global_batch = {}
gradient_dtype = "{}"
cross_entropy = "{}"
hidden_dropout = {}
attention_dropout = 0.0
recompute = {}
)",
      pick({"llama-3.1-8b", "qwen2.5-7b", "gpt2-xl", "gemma-2-9b"}),
      pick({"h100-sxm-80g", "rtx-4090-24g", "rtx-3080-10g", "a100-sxm-40g"}), pick({"2", "4", "8", "16"}),
      pick({"4", "8", "12"}), pick({"1", "2", "4"}), pick({"true", "false"}), pick({"1", "2", "4", "8"}), schedule,
      schedule == "interleaved" ? pick({"2", "3"}) : "1", pick({"none", "zero1"}),
      pick({"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"}), pick({"512", "1024"}), pick({"1", "2", "3"}),
      pick({"16", "48", "60", "96", "192"}), pick({"fp32", "bf16"}), pick({"te", "unfused", "fused"}),
      pick({"0.0", "0.1"}), recompute);
  try {
    return settled(parse_scenario(text, "random.toml", {source / "scenarios/examples", source / "scenarios"}));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

TEST(Tape, SaysWhatPredictSaysOfEveryRandomLayout) {
  SharedGraphs graphs;
  int checked = 0;
  for (std::uint32_t seed = 1; checked < 40; ++seed) {
    const std::optional<Scenario> scenario = random_scenario(seed);
    if (!scenario) continue;
    SCOPED_TRACE(seed);
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
  const StageTape stage = stage_tape(input, role, lower_few(input, role, truncation(scenario.layout, 256)));
  const TapeRecord record = run_tape(state_tape(input, role), stage);
  EXPECT_GT(record.skipped, 400);  // of two steps of 256
  EXPECT_LT(record.bodies, 80);
}

}  // namespace
}  // namespace tidemark
