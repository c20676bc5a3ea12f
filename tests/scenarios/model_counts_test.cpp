#include <filesystem>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "parallel/graph.hpp"
#include "scenarios/io/config_reader.hpp"

namespace tidemark {
namespace {

const std::filesystem::path models = std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scenarios/models";

struct Published {
  const char* file;
  std::int64_t parameters;  ///< as published with the weights: every parameter, tied ones once
};

const Published published[] = {
    {"llama-3.1-8b", 8'030'261'248}, {"llama-3.1-70b", 70'553'706'496},  {"llama-3.1-405b", 405'853'388'800},
    {"llama-2-7b", 6'738'415'616},   {"llama-2-13b", 13'015'864'320},    {"llama-2-70b", 68'976'648'192},
    {"gpt2", 124'439'808},           {"gpt2-xl", 1'557'611'200},         {"qwen2.5-7b", 7'615'616'512},
    {"qwen2.5-72b", 72'706'203'648}, {"mistral-7b-v0.1", 7'241'732'096}, {"phi-3-mini-4k", 3'821'079'552},
    {"phi-4", 14'659'507'200},       {"qwen3-8b", 8'190'735'360},        {"qwen3-32b", 32'762'123'264},
};

class ModelCounts : public testing::TestWithParam<Published> {};

TEST_P(ModelCounts, AreThePublishedOnesExactly) {
  const Model model = read_model(models / (std::string(GetParam().file) + ".json"));
  EXPECT_EQ(model.name, GetParam().file);
  EXPECT_EQ(parameter_count(build_model(model, {})), GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(Shipped, ModelCounts, testing::ValuesIn(published), [](const auto& model) {
  std::string name = model.param.file;
  for (char& c : name)
    if (c == '-' || c == '.') c = '_';
  return name;
});

// Models that were published as dimensions only: GPT-3 (Brown et al. 2020, table 2.1), and the four of Korthikanti et
// al. 2022, table 3, with 51,200 tokens and 2,048 positions.
struct Dimensions {
  const char* file;
  std::int64_t layers, hidden, heads, vocabulary, positions;
};
const Dimensions of_papers[] = {
    {"gpt3-175b", 96, 12288, 96, 50257, 2048},     {"megatron-22b", 48, 6144, 64, 51200, 2048},
    {"megatron-175b", 96, 12288, 96, 51200, 2048}, {"megatron-530b", 105, 20480, 128, 51200, 2048},
    {"megatron-1t", 128, 25600, 160, 51200, 2048},
};

TEST(ModelCounts, OfPapersFollowTheirFormula) {
  for (const Dimensions& d : of_papers) {
    const Model model = read_model(models / (std::string(d.file) + ".json"));
    EXPECT_EQ(model.heads, d.heads);
    // Narayanan et al. 2021, equation 2: 12 l h^2 (1 + 13 / 12h + (V + s) / 12lh), and the last norm's 2h.
    const std::int64_t h = d.hidden;
    EXPECT_EQ(parameter_count(build_model(model, {})),
              d.layers * (12 * h * h + 13 * h) + (d.vocabulary + d.positions) * h + 2 * h)
        << d.file;
  }
}

TEST(ModelCounts, EveryShippedModelIsChecked) {
  std::set<std::string> checked, shipped;
  for (const Published& model : published) checked.insert(model.file);
  for (const Dimensions& model : of_papers) checked.insert(model.file);
  for (const auto& entry : std::filesystem::directory_iterator(models)) shipped.insert(entry.path().stem().string());
  EXPECT_EQ(checked, shipped);
}

}  // namespace
}  // namespace tidemark
