// Every shipped model with experts is lowered, its programs are sound, and its memory and time are told: four layers of
// it, the modules that predict further tokens and leading layers without experts among them.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::models_of_experts_test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> models_of_experts() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(source / "scenarios/models"))
    if (read_model(entry.path()).experts() != nullptr) names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

Scenario of_model(const std::string& model, const std::string& layout) {
  return parse_scenario(fmt::format(R"(model = "models/{}.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 16
model_override.num_hidden_layers = 4
[layout]
{}
sharding = "zero1"
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 32
hidden_dropout = 0.0
attention_dropout = 0.0
cross_entropy = "te"
[runtime]
name = "megatron"
switches.moe-permute-fusion = true
switches.no-create-attention-mask-in-dataloader = true
)",
                                    model, layout),
                        "job.toml", folders);
}

class ModelsOfExperts : public testing::TestWithParam<std::string> {};

TEST_P(ModelsOfExperts, ArePredicted) {
  for (const char* layout : {"expert = 8\npipeline = 2",
                             "tensor = 2\nsequence_parallel = true\nexpert_tensor = 1\nexpert = 4\npipeline = 2"}) {
    const Prediction prediction = predict(of_model(GetParam(), layout));  // which verifies the programs
    EXPECT_FALSE(prediction.deadlock.has_value()) << layout;
    EXPECT_GT(prediction.step.step, Duration{}) << layout;
    EXPECT_GT(prediction.highest().memory.allocated.bytes, Bytes{}) << layout;
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, ModelsOfExperts, testing::ValuesIn(models_of_experts()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

// torchtitan multiplies all experts in one kernel, and numbers their rows in another, whatever they get.
TEST(TitanExperts, AFewRowsMoreOrLessTakeHardlyLonger) {
  const auto step = [](const std::string& moe) {
    const Prediction its = predict(parse_scenario(
        "model = \"models/qwen3-30b-a3b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
        "[model_override]\nnum_hidden_layers = 2\n[layout]\nexpert = 8\n[train]\nsequence_length = 4096\n"
        "micro_batch = 1\n[runtime]\nname = \"torchtitan\"\n" +
            moe,
        "titan.toml", folders));
    return seconds(its.step.step);
  };
  const double even = step("");
  EXPECT_NEAR(step("[moe]\nimbalance = 1.001\n") / even, 1, 0.03);
  EXPECT_GT(step("[moe]\nimbalance = 1.5\n"), even);
}

}  // namespace
}  // namespace tidemark::tests::models_of_experts_test
