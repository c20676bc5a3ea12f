// Megatron's optimizer of other precisions, and on the host: what is asked for, and what that takes.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::optimizer_switches_test {
namespace {

std::string job(const std::string& tables, const std::string& train = "", const std::string& sharding = "zero1") {
  return R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 2
[model_override]
num_hidden_layers = 2
[layout]
data = 2
sharding = ")" +
         sharding + "\"\n[train]\nsequence_length = 1024\nmicro_batch = 1\n" + train + "\n" + tables;
}
std::string with(const std::string& switches) { return job("[runtime.switches]\n" + switches); }
const std::string on_host = "[offload]\noptimizer = \"cpu\"\n";
const std::string aware = "use-precision-aware-optimizer = true\n";

Scenario scenario_of(const std::string& text) { return parse_scenario(text, "job.toml", folders); }
std::string problems(const std::string& text) {
  try {
    (void)scenario_of(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}
bool says(const std::string& text, const std::string& what) { return problems(text).find(what) != std::string::npos; }

TEST(OptimizerSwitches, WhatMegatronAsksForIsAskedFor) {
  EXPECT_TRUE(
      says(job(on_host, "", "none"), "an optimizer on the host is modelled with the distributed optimizer only"));
  EXPECT_TRUE(says(job(on_host, "optimizer = \"sgd\""), "an optimizer on the host is AdamW"));
  EXPECT_TRUE(says(with("exp-avg-dtype = \"bf16\""), "takes a precision-aware optimizer"));
  EXPECT_TRUE(says(with(aware + "exp-avg-dtype = \"fp4\""), "is not known"));
  EXPECT_TRUE(says(with(aware + "main-params-dtype = \"bf16\""), "is not known"));
  EXPECT_TRUE(says(with(aware + "main-grads-dtype = \"bf16\""), "disagrees with gradient_dtype"));
  EXPECT_TRUE(says(job(on_host + "[runtime.switches]\n" + aware + "exp-avg-dtype = \"fp8\""), "in fp32"));
  EXPECT_TRUE(says(job(on_host + "[runtime.switches]\noptimizer-cpu-offload = false"), "disagrees with optimizer"));
  EXPECT_TRUE(says(job("[offload]\noptimizer = \"cpu\"\noptimizer_fraction = 2"), "out of range"));
  EXPECT_EQ(problems(job(on_host +
                         "optimizer_fraction = 0.5\n[runtime.switches]\noptimizer-cpu-offload = true\n"
                         "optimizer-offload-fraction = 0.5\nno-pin-cpu-params = true\n" +
                         aware)),
            "no problem");
}

TEST(OptimizerSwitches, AreWrittenAsTheyAreRead) {
  const Scenario s = scenario_of(job(on_host + "optimizer_fraction = 0.25\n[runtime.switches]\n"
                                               "overlap-cpu-optimizer-d2h-h2d = true\nno-pin-cpu-grads = true"));
  EXPECT_EQ(s.runtime.optimizer.offloaded, 0.25);
  const nlohmann::json json = nlohmann::json::parse(scenario_json(s, 2));
  EXPECT_EQ(json["offload"]["optimizer_fraction"], 0.25);
  EXPECT_EQ(json["runtime"]["switches"]["no-pin-cpu-grads"], true);
  EXPECT_EQ(json["runtime"]["switches"]["overlap-cpu-optimizer-d2h-h2d"], true);
}

// Bytes of an element of the last rank's shard that are there when the step is over.
double static_bytes(const std::string& text) {
  const Prediction p = predict(scenario_of(text));
  const double shard = static_cast<double>(p.parameters) / 2;
  return static_cast<double>(p.groups.back().memory.final_allocated.count()) / shard;
}

TEST(OptimizerSwitches, SayWhatAnElementTakes) {
  const double usual = static_bytes(job(""));
  const auto less = [&](const std::string& text) { return usual - static_bytes(text); };
  constexpr double roundings = 0.01;
  EXPECT_NEAR(less(with(aware)), 2, roundings);
  EXPECT_NEAR(less(with(aware + "store-param-remainders = false")), 0, roundings);
  EXPECT_NEAR(less(with(aware + "exp-avg-dtype = \"bf16\"\nexp-avg-sq-dtype = \"fp16\"")), 6, roundings);
  // By rows and by columns.
  EXPECT_NEAR(less(with(aware + "exp-avg-dtype = \"fp8\"\nexp-avg-sq-dtype = \"fp8\"")), 6, roundings);
  EXPECT_NEAR(less(with(aware + "main-params-dtype = \"fp16\"")), 2, roundings);
  EXPECT_NEAR(less(job(on_host)), 8, roundings);
  EXPECT_NEAR(less(job(on_host + "[runtime.switches]\n" + aware)), 12, roundings);
  EXPECT_NEAR(less(job(on_host + "optimizer_fraction = 0")), 0, roundings);
}

std::string muon(const std::string& switches = "", const std::string& sharding = "zero1") {
  return job("[runtime.switches]\n" + switches, "optimizer = \"muon\"", sharding);
}

TEST(MuonSwitches, WhatMegatronAsksForIsAskedFor) {
  EXPECT_EQ(problems(muon()), "no problem");
  EXPECT_EQ(problems(muon("optimizer = \"dist_muon\"\nmuon-momentum = 0.95\nmuon-scale-mode = \"spectral\"")),
            "no problem");
  EXPECT_TRUE(says(muon("optimizer = \"dist_muon\"", "none"), "disagrees with optimizer"));
  EXPECT_TRUE(says(with("muon-nesterov = true"), "flags of Muon, which is not the optimizer"));
  EXPECT_TRUE(says(muon("muon-tp-mode = \"distributed\""), "not modelled"));
  EXPECT_TRUE(says(muon("muon-scalar-optimizer = \"lion\""), "not modelled"));
  EXPECT_TRUE(says(muon("muon-num-ns-steps = 0"), "out of range"));
  EXPECT_TRUE(says(muon(aware), "Muon is not precision-aware"));
  EXPECT_TRUE(says(job("", "optimizer = \"muon\"\nprecision = \"fp16\""), "takes bf16 or fp32"));
  EXPECT_TRUE(says(muon("muon-nestorov = true"), "did you mean"));
}

TEST(MuonSwitches, AreWrittenAsTheyAreRead) {
  const Scenario requested =
      scenario_of(muon("muon-nesterov = true\nmuon-no-split-qkv = true\nmuon-tp-mode = \"blockwise\"\n"
                       "no-use-layer-wise-param-layout = true\nmuon-num-ns-steps = 6\n"
                       "muon-fp32-matmul-prec = \"highest\""));
  const MuonBehavior expected{.layer_wise_layout = false,
                              .nesterov = true,
                              .splits_qkv = false,
                              .bf16_products = false,
                              .across_ranks = parallel::MuonAcrossRanks::Blockwise,
                              .steps = 6};
  EXPECT_EQ(requested.runtime.optimizer.muon, expected);
  const nlohmann::json switches = nlohmann::json::parse(scenario_json(requested, 2))["runtime"]["switches"];
  EXPECT_EQ(switches["muon-num-ns-steps"], 6);
  EXPECT_EQ(switches["muon-tp-mode"], "blockwise");
  EXPECT_EQ(switches["no-use-layer-wise-param-layout"], true);
}

}  // namespace
}  // namespace tidemark::tests::optimizer_switches_test
