#include "scenarios/estimate/envelope.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/report/text/prediction_text.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::envelope_test {
namespace {

constexpr const char* small_job = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 4
[model_override]
num_hidden_layers = 2
[layout]
tensor = 2
sequence_parallel = true
sharding = "zero1"
[train]
sequence_length = 2048
micro_batch = 1
global_batch = 4
hidden_dropout = 0.0
attention_dropout = 0.0
)";

const RuleRow& row(const Envelope& e, const std::string& rule) {
  const auto found = std::ranges::find_if(e.rows, [&](const RuleRow& r) { return r.rule == rule; });
  EXPECT_NE(found, e.rows.end()) << rule;
  return *found;
}

TEST(Envelope, BucketsAreAllThatTheFullestDeviceHolds) {
  const Envelope e = envelope(scenario_of_text(small_job));
  EXPECT_EQ(e.buckets.total(), e.prediction.highest().memory.device.bytes);
  for (const RuleRow& r : e.rows) {
    EXPECT_LE(r.guide.low, r.guide.high) << r.rule;
    EXPECT_FALSE(r.why.empty()) << r.rule;
    EXPECT_FALSE(r.source.section.empty()) << r.rule;
  }
}

TEST(Envelope, RulesAreOfADevicesPart) {
  const Envelope e = envelope(scenario_of_text(small_job));
  const auto count = static_cast<double>(e.prediction.parameters);
  EXPECT_EQ(row(e, "parameters x 2 B / (TP x PP)").guide.low, count);
  EXPECT_EQ(row(e, "parameters x 8 B / (TP x PP)").guide.low, 4 * count);
  EXPECT_EQ(row(e, "their sum, ZeRO's part of it over 2 ranks").guide.low, 4 * count);
  EXPECT_NEAR(row(e, "parameters x 2 B / (TP x PP)").off(), 0, 1e-3);
}

TEST(Envelope, ImpliedKGivesTheSimulatedActivations) {
  const Envelope e = envelope(scenario_of_text(small_job));
  EXPECT_NEAR(e.k * 2048 * 4096 * 2 * 2, static_cast<double>(e.buckets.activations.count()), 1);
}

TEST(Envelope, CacheOfGroupedQueriesIsNarrowerThanTheRule) {
  const Envelope e = envelope(
      scenario_of_text(std::string(small_job) + "[rollout]\nbatch = 4\nprompt_length = 64\nresponse_length = 64\n"));
  const RuleRow& cache = row(e, "2 x layers x hidden x sequence x batch x bytes");
  // 8 of 32 heads, on two ranks.
  EXPECT_EQ(static_cast<double>(cache.simulated.count()) * 4 * 2, cache.guide.low);
  EXPECT_NE(cache.why.find("8 of 32 heads"), std::string::npos) << cache.why;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Numbers of a frozen base of few bits, and of a state of few bits of adapters alone, have no reasons of AdamW's.
TEST(Envelope, WhatIsFrozenIsNoReasonForWhatIsTrained) {
  const Envelope e = envelope(scenario_of_text(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/rtx-4090-24g.toml"
gpus = 1
[model_override]
num_hidden_layers = 2
[train]
sequence_length = 512
micro_batch = 1
global_batch = 1
optimizer = "paged_adamw_8bit"
recompute = "full"
[adapter]
rank = 16
target_modules = "all-linear"
[quantization]
format = "nf4"
[runtime]
name = "pytorch"
)"));
  const auto why = [&](std::string_view bucket) {
    return std::ranges::find_if(e.rows, [&](const RuleRow& r) { return r.bucket == bucket; })->why;
  };
  EXPECT_TRUE(has(why("parameters"), "frozen, in nf4")) << why("parameters");
  EXPECT_FALSE(has(why("parameters"), "updated too")) << why("parameters");
  EXPECT_TRUE(has(why("gradients"), "of adapters alone, 2.62 M of 1.49 B parameters")) << why("gradients");
  EXPECT_TRUE(has(why("optimizer"), "of adapters alone")) << why("optimizer");
  EXPECT_TRUE(has(why("optimizer"), "two moments of a byte each")) << why("optimizer");
  EXPECT_TRUE(has(why("optimizer"), "managed memory")) << why("optimizer");
  EXPECT_FALSE(has(why("optimizer"), "as the rule says")) << why("optimizer");
}

// ZeRO shares out what is of experts over those that hold the same ones: here no two do.
TEST(Envelope, ExpertsAreDividedByExpertParallelism) {
  const Envelope e = envelope(scenario_of_text(R"(model = "models/mixtral-8x7b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 4
[model_override]
num_hidden_layers = 2
[layout]
expert = 4
sharding = "zero1"
[train]
sequence_length = 512
micro_batch = 1
global_batch = 4
hidden_dropout = 0.0
attention_dropout = 0.0
)"));
  const std::string divided = "what is experts' is divided by expert parallelism, over 4 ranks, and no further";
  EXPECT_TRUE(has(row(e, "parameters x 8 B").why, divided)) << row(e, "parameters x 8 B").why;
  EXPECT_TRUE(has(row(e, "parameters x 8 B").why, "all but what is experts' is shared out over 4 ranks"));
  EXPECT_TRUE(row(e, "their sum, ZeRO's part of it over 4 ranks").why.starts_with(divided));
}

// Ranks that hold parts of sequences hold the same parameters, and share them out.
TEST(Envelope, ContextRanksShareToo) {
  const std::string text = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 2
[layout]
context = 2
{}[train]
sequence_length = 512
micro_batch = 1
global_batch = 4
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "{}"
)";
  const auto of = [&](std::string_view layout, std::string_view runtime) {
    std::string titan = fmt::format(fmt::runtime(text), layout, runtime);
    if (runtime == "torchtitan")
      titan.erase(titan.find("hidden_dropout"), titan.find("[runtime]") - titan.find("hidden_dropout"));
    return envelope(scenario_of_text(titan));
  };
  const Envelope titan = of("shard_group = 2\n", "torchtitan"), megatron = of("sharding = \"zero1\"\n", "megatron");
  EXPECT_TRUE(has(prediction_text(titan.prediction), "data 4, fully sharded (zero3) over 4;"));
  EXPECT_TRUE(has(row(titan, "parameters x 2 B").why, "sharded over 4 ranks")) << row(titan, "parameters x 2 B").why;
  EXPECT_TRUE(has(prediction_text(megatron.prediction), "data 4, optimizer sharded (zero1) over 8;"));
  // Parameters in fp32 and both moments, on eight ranks.
  const RuleRow& state = row(megatron, "parameters x 8 B");
  EXPECT_TRUE(has(state.why, "shared out over 8 ranks")) << state.why;
  EXPECT_NEAR(static_cast<double>(state.simulated.count()) * 8 / (state.guide.low * 12 / 8), 1, 0.01);
  EXPECT_EQ(row(megatron, "their sum, ZeRO's part of it over 8 ranks").simulated,
            megatron.buckets.parameters + megatron.buckets.gradients + megatron.buckets.optimizer);
}

TEST(Envelope, AnswersAsPredictDoes) {
  const Envelope e = envelope(scenario_of_text(std::string(small_job) + "[runtime]\nheadroom = \"1 GiB\"\n"));
  const std::string text = envelope_text(e), answer = prediction_text(e.prediction);
  EXPECT_TRUE(text.starts_with("yes, it fits with 1.00 GiB headroom: ")) << text;
  EXPECT_EQ(text.substr(0, text.find('\n')), answer.substr(0, answer.find('\n')));
}

TEST(Envelope, JsonSaysWhatTheTextSays) {
  const Envelope e = envelope(scenario_of_text(small_job));
  const auto json = nlohmann::json::parse(envelope_json(e));
  EXPECT_EQ(json["schema"], "tidemark.estimate/1");
  EXPECT_EQ(json["rules"].size(), e.rows.size());
  EXPECT_EQ(json["buckets"]["parameters"], e.buckets.parameters.count());
  const std::string text = envelope_text(e);
  EXPECT_TRUE(text.starts_with("yes, it fits: ")) << text;
  for (const RuleRow& r : e.rows) EXPECT_NE(text.find(r.why), std::string::npos) << r.rule;
}

}  // namespace
}  // namespace tidemark::tests::envelope_test
