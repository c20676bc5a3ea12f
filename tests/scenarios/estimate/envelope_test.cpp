#include "scenarios/estimate/envelope.hpp"

#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/scenarios/folders.hpp"

namespace tidemark::tests {
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
}  // namespace tidemark::tests
