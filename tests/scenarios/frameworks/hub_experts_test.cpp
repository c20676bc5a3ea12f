#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// Mixtures of experts by transformers' own modules: what is read, and what follows from it.

namespace tidemark::tests::hub_experts_test {
namespace {

struct Wanted {
  std::string model = "qwen3-30b-a3b";
  std::string runtime = "pytorch";
  std::string transformers = "5.23";
  std::string rest = {};   ///< tables after [runtime]
  std::string train = {};  ///< keys
  std::string cluster = "h100-sxm-80g";
  int layers = 2;
};

Scenario parsed(const Wanted& wanted) {
  const bool shards = wanted.runtime != "pytorch";
  const std::string text = fmt::format(
      "model = \"models/{}.json\"\ncluster = \"clusters/{}.toml\"\ngpus = {}\n{}"
      "[train]\nsequence_length = 1024\nmicro_batch = 2\nmaster_dtype = \"bf16\"\n{}\n{}[runtime]\nname = \"{}\"\n"
      "versions = {{ torch = \"2.15\", transformers = \"{}\" }}\n{}\n",
      wanted.model, wanted.cluster, shards ? 8 : 1,
      wanted.layers > 0 ? fmt::format("[model_override]\nnum_hidden_layers = {}\n", wanted.layers) : "", wanted.train,
      shards ? "[layout]\nsharding = \"zero3\"\n" : "", wanted.runtime, wanted.transformers, wanted.rest);
  return parse_scenario(text, "job.toml", folders);
}

std::string problems(const Wanted& wanted) {
  try {
    (void)parsed(wanted);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}

std::string says(const Wanted& wanted, const std::string& what) {
  const std::string all = problems(wanted);
  return all.find(what) == std::string::npos ? all : what;
}

// Of what is live at once, on the device.
Bytes allocated(const Wanted& wanted) { return predict(parsed(wanted)).highest().memory.allocated.bytes; }

int waits(const Wanted& wanted) {
  const Scenario scenario = parsed(wanted);
  const Runtime runtime = runtime_of(scenario);
  const BuiltModel built = build_model(scenario.model, model_options_of(scenario));
  const LoweringInput input{built, scenario.layout, scenario.train, runtime};
  const Program program = lower_role(input, roles(input).front());
  int found = 0;
  std::int32_t step = 0;
  for (const Op& op : program.ops) {
    if (const auto* mark = std::get_if<Mark>(&op)) step = mark->step;
    found += step == 1 && std::holds_alternative<Sync>(op) ? 1 : 0;
  }
  return found;
}

TEST(HubExperts, ParametersAreThoseOfModelCards) {
  const auto billions = [](const std::string& model, const std::string& transformers) {
    const Prediction its =
        predict(parsed({.model = model, .runtime = "fsdp2", .transformers = transformers, .layers = 0}));
    return fmt::format("{:.1f}", static_cast<double>(its.parameters) / 1e9);
  };
  EXPECT_EQ(billions("mixtral-8x7b", "5.23"), "46.7");
  EXPECT_EQ(billions("qwen3-30b-a3b", "5.23"), "30.5");
  EXPECT_EQ(billions("qwen2-57b-a14b", "5.23"), "57.4");
}

// modeling_qwen3_moe.py: the host asks for all experts' rows, from 4.52 on for who is hit and for each one's number
// too; integrations/moe.py asks for none, where the device has the kernel.
TEST(HubExperts, HostsWaitForTheRowsOfEachLinear) {
  constexpr int layers = 2, experts = 128;
  const int none = waits({});
  EXPECT_EQ(waits({.transformers = "4.51"}) - none, layers * experts);
  EXPECT_EQ(waits({.transformers = "4.57"}) - none, layers * (1 + 2 * experts));
  // Four products a layer forward and backward: of gate and up, and of down; two gradients each.
  EXPECT_EQ(waits({.cluster = "a100-sxm-80g"}) - none, layers * 6);
}

TEST(HubExperts, RowsOfTokensAreKeptOnceForEachExpert) {
  // Before 5.5 copies of all tokens stay while a layer runs, which is where a checkpointed model's peak is.
  const std::string full = "recompute = \"full\"\noptimizer = \"sgd\"";
  const Bytes latest = allocated({.train = full}), with_copies = allocated({.transformers = "5.4", .train = full});
  constexpr std::int64_t rows = std::int64_t{2} * 1024 * 8, hidden = 2048;
  EXPECT_GE((with_copies - latest).count(), 0);
  EXPECT_LE((with_copies - latest).count(), 2 * 2 * rows * hidden);
}

TEST(HubExperts, WhatIsNotModelledIsNamed) {
  EXPECT_EQ(says({.model = "gpt-oss-20b"}, "experts of transformers' gpt_oss are not modelled yet"),
            "experts of transformers' gpt_oss are not modelled yet");
  EXPECT_EQ(says({.model = "deepseek-v2-lite"}, "experts of transformers' deepseek_v2 are not modelled yet"),
            "experts of transformers' deepseek_v2 are not modelled yet");
  for (const char* optimizer : {"muon", "adafactor"})
    EXPECT_NE(problems({.train = fmt::format("optimizer = \"{}\"", optimizer)}).find("optimizers of matrices"),
              std::string::npos)
        << optimizer;
  EXPECT_NE(problems({.rest = "[runtime.switches]\nuse_liger_kernel = true"}).find("use_liger_kernel"),
            std::string::npos);
}

// peft/utils/transformers_weight_conversion.py, tuners/lora/layer.py ParamWrapper.
TEST(HubExperts, AdaptersOfParametersHaveTheirLimits) {
  const auto of = [](const std::string& keys, Wanted wanted = {}) {
    wanted.rest = "[adapter]\n" + keys;
    return problems(wanted);
  };
  const std::string all = "target_modules = \"all-linear\"";
  EXPECT_EQ(of(all), "no problem");
  EXPECT_EQ(of(all, {.runtime = "fsdp2"}), "no problem");
  const std::string names = "target_modules = [\"q_proj\", \"gate_proj\", \"up_proj\"]";
  EXPECT_EQ(of(names), "no problem");
  EXPECT_EQ(of("target_modules = [\"w1\", \"w3\"]", {.model = "mixtral-8x7b"}), "no problem");
  EXPECT_NE(of("target_modules = [\"q_proj\", \"gate_proj\"]").find("gate_proj and up_proj are one parameter"),
            std::string::npos);
  EXPECT_NE(of("target_modules = [\"w3\"]", {.model = "mixtral-8x7b"}).find("w1 and w3 are one parameter"),
            std::string::npos);
  const std::string drops = "dropout = 0.1\n";
  EXPECT_NE(of(drops + all).find("(target_parameters), and stops there at any dropout"), std::string::npos);
  EXPECT_EQ(of(drops + "target_modules = [\"q_proj\", \"o_proj\"]"), "no problem");
  EXPECT_EQ(of(drops + all, {.transformers = "4.57"}), "no problem");
  EXPECT_NE(of(all, {.runtime = "fsdp"}).find("under FullyShardedDataParallel are not modelled yet"),
            std::string::npos);
  EXPECT_NE(of(all, {.runtime = "deepspeed"}).find("under stage 3 are not modelled yet"), std::string::npos);
  // Names of Qwen2-MoE's are converted under no release: the shared expert's linears have them.
  EXPECT_EQ(of(drops + "target_modules = [\"gate_proj\"]", {.model = "qwen2-57b-a14b"}), "no problem");
}

TEST(HubExperts, KeysOfOtherFrameworksAreRefused) {
  const auto of_routing = [](const std::string& keys) { return problems({.rest = "[moe]\n" + keys}); };
  for (const char* keys : {"dispatcher = \"allgather\"", "capacity_factor = 1.5", "imbalance = 1.2"})
    EXPECT_NE(of_routing(keys).find("every rank has all experts"), std::string::npos) << keys;
  EXPECT_EQ(of_routing("imbalance = { zipf = 0.5, seed = 1 }"), "no problem");
  EXPECT_NE(problems({.transformers = "4.50"}).find("has no Qwen3-MoE"), std::string::npos);
}

// Adapters of experts' linears: gate, up and down of each of 128 experts, the router, and attention's four.
TEST(HubExperts, AdaptersGoBesideLinearsOfExpertsBeforeFive) {
  const Prediction its =
      predict(parsed({.transformers = "4.57", .rest = "[adapter]\nrank = 8\ntarget_modules = \"all-linear\""}));
  constexpr std::int64_t hidden = 2048, ffn = 768, heads = 32 * 128, keys = 4 * 128;
  constexpr std::int64_t of_layer =
      8 * (128 * 3 * (hidden + ffn) + (hidden + 128) + 2 * (hidden + heads) + 2 * (hidden + keys));
  EXPECT_EQ(its.trained, 2 * of_layer);
}

// Gate and up are one parameter, of twice the rank: each expert has matrices of 16 and of 8.
TEST(HubExperts, AdaptersGoBesideParametersOfExpertsFromFiveOn) {
  const Prediction its = predict(parsed({.rest = "[adapter]\nrank = 8\ntarget_modules = \"all-linear\""}));
  constexpr std::int64_t hidden = 2048, ffn = 768, heads = 32 * 128, keys = 4 * 128;
  constexpr std::int64_t of_expert = 16 * (hidden + 2 * ffn) + 8 * (ffn + hidden);
  constexpr std::int64_t of_layer = 128 * of_expert + 8 * ((hidden + 128) + 2 * (hidden + heads) + 2 * (hidden + keys));
  EXPECT_EQ(its.trained, 2 * of_layer);
}

// Without checkpoints each layer keeps its experts once more, as they are with what adapters add.
TEST(HubExperts, AdaptedParametersAreKeptWhole) {
  const auto of = [](const std::string& targets) {
    return allocated({.rest = fmt::format("[adapter]\nrank = 8\ntarget_modules = [{}]", targets)});
  };
  constexpr std::int64_t down = std::int64_t{128} * 2048 * 768 * 2, layers = 2;
  const Bytes more = of("\"q_proj\", \"down_proj\"") - of("\"q_proj\"");
  EXPECT_GE(more.count(), layers * down);
}

}  // namespace
}  // namespace tidemark::tests::hub_experts_test
