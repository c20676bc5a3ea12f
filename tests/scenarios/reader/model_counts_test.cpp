#include <filesystem>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "parallel/job/built_model.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::model_counts_test {
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
    {"gemma-2-9b", 9'241'705'984},   {"gemma-2-27b", 27'227'128'320},    {"gemma-3-1b", 999'885'952},
    {"olmo-2-7b", 7'298'617'344},    {"olmo-2-13b", 13'716'198'400},     {"olmo-2-32b", 32'234'279'936},
    {"pythia-6.9b", 6'857'302'016},  {"gpt-neox-20b", 20'554'567'680},   {"santacoder", 1'124'886'528},
    {"starcoder", 15'517'456'384},
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

// Gemma 3 12B and 27B are published with their images' part: SigLIP So400m at 896 x 896 pixels (patches of 14; 27
// layers of 1152, 4304 in the MLP; biases and LayerNorms everywhere), a norm, and a projection onto the text's width.
std::int64_t vision_parameters(std::int64_t text_width) {
  constexpr std::int64_t width = 1152, ffn = 4304, patch = 14, patches = (896 / 14) * (896 / 14);
  const std::int64_t embedding = 3 * patch * patch * width + width + patches * width;
  const std::int64_t layer = 4 * (width * width + width) + 2 * width * ffn + ffn + width + 2 * 2 * width;
  return embedding + 27 * layer + 2 * width + width + width * text_width;
}

TEST(ModelCounts, TheTextOfAMultimodalModelIsWhatItsVisionTowerLeaves) {
  for (const Published& whole :
       {Published{"gemma-3-12b-text", 12'187'325'040}, Published{"gemma-3-27b-text", 27'432'406'640}}) {
    const Model model = read_model(models / (std::string(whole.file) + ".json"));
    EXPECT_EQ(parameter_count(build_model(model, {})) + vision_parameters(model.hidden), whole.parameters)
        << whole.file;
  }
}

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

// Mixtures of experts. `published` is what the files of weights hold: beside parameters the corrections of routers,
// which are trained as buffers, and with what predicts further tokens copies of the embedding and the head. Of
// DeepSeek-V3 that is the main model, as its card has it. `active` is what cards give rounded (12.9 B, 39 B, 14 B, 3.3
// B, 22 B, 21 B, and so on; those of V2-Lite, Kimi K2, GLM-4.5 and gpt-oss without the embedding: 2.4 B, 32 B, 32
// B, 3.61 B and 5.13 B).
struct PublishedExperts {
  const char* file;
  std::int64_t published, active;
};
const PublishedExperts of_experts[] = {
    {"mixtral-8x7b", 46'702'792'704, 12'879'925'248},     {"mixtral-8x22b", 140'620'634'112, 39'152'031'744},
    {"qwen2-57b-a14b", 57'408'658'944, 14'249'270'784},   {"qwen3-30b-a3b", 30'532'122'624, 3'353'032'704},
    {"qwen3-235b-a22b", 235'093'634'560, 22'190'763'520}, {"deepseek-v2", 235'741'434'880, 21'375'800'320},
    {"deepseek-v2-lite", 15'706'484'224, 2'661'150'208},  {"deepseek-v3", 671'026'419'200, 37'552'282'624},
    {"kimi-k2", 1'026'408'232'448, 32'861'477'888},       {"gpt-oss-20b", 20'914'757'184, 4'187'440'704},
    {"gpt-oss-120b", 116'829'156'672, 5'711'982'912},     {"glm-4.5", 358'337'791'296, 33'632'251'904},
    {"glm-4.5-air", 110'468'824'832, 13'424'123'904},
};

std::int64_t corrections(const Model& model) {
  std::int64_t layers = model.further.size();
  for (std::int64_t layer = 0; layer < model.layers.size(); ++layer) layers += model.has_experts(layer);
  return model.experts()->correction_bias ? layers * model.experts()->count : 0;
}

TEST(ModelCounts, OfExpertsAreThePublishedOnesExactlyAndSoIsWhatATokenGoesThrough) {
  for (const PublishedExperts& expected : of_experts) {
    SCOPED_TRACE(expected.file);
    Model model = read_model(models / (std::string(expected.file) + ".json"));
    const bool main_only = model.name == "deepseek-v3";
    if (main_only) model.further = {};
    const std::int64_t copies = model.further.size() * 2 * model.vocabulary * model.hidden;
    EXPECT_EQ(parameter_count(build_model(model, {})) + corrections(model) + copies, expected.published);
    model.further = {};
    EXPECT_EQ(active_parameter_count(build_model(model, {})), expected.active);
  }
}

// A layer like the last one, what joins two vectors of a token, and three norms: 11.6 B for DeepSeek-V3.
TEST(ModelCounts, WhatPredictsOneTokenFurtherIsALayerAProjectionAndThreeNorms) {
  Model model = read_model(models / "deepseek-v3.json");
  ASSERT_EQ(model.further.size(), 1);
  const std::int64_t with = parameter_count(build_model(model, {}));
  model.further = {};
  const std::int64_t without = parameter_count(build_model(model, {}));
  model.layers.resize(62);
  const std::int64_t layer = parameter_count(build_model(model, {})) - without;
  EXPECT_EQ(with - without, layer + 2 * 7168 * 7168 + 3 * 7168);
  EXPECT_EQ(with - without, 11'610'067'968);
}

// Published as 16 B, of which 3 B are active; its weights hold 1,728 numbers that the architecture does not name.
TEST(ModelCounts, MoonlightFollowsTheFormulaOfItsArchitecture) {
  const Model model = read_model(models / "moonlight-16b-a3b.json");
  const std::int64_t h = 2048, attention = h * 16 * 192 + h * 576 + 512 + 512 * 16 * 256 + 16 * 128 * h;
  const std::int64_t expert = 3 * h * 1408, layer = attention + 2 * h;
  const std::int64_t all = 2 * 163840 * h + h + 27 * layer + 3 * h * 11264 + 26 * (64 * h + 66 * expert);
  EXPECT_EQ(parameter_count(build_model(model, {})), all);
  EXPECT_EQ(active_parameter_count(build_model(model, {})), all - 26 * 58 * expert);
  EXPECT_EQ(all, 15'960'108'544);
}

TEST(ModelCounts, EveryShippedModelIsChecked) {
  std::set<std::string> checked{"gemma-3-12b-text", "gemma-3-27b-text", "moonlight-16b-a3b"}, shipped;
  checked.insert("nemotron-h-8b");                  // hybrid_layers_test.cpp
  checked.insert("llama-3.3-nemotron-super-49b");   // heterogeneous_layers_test.cpp
  checked.insert("llama-3.1-nemotron-ultra-253b");  // there too
  for (const PublishedExperts& model : of_experts) checked.insert(model.file);
  for (const Published& model : published) checked.insert(model.file);
  for (const Dimensions& model : of_papers) checked.insert(model.file);
  for (const auto& entry : std::filesystem::directory_iterator(models)) shipped.insert(entry.path().stem().string());
  EXPECT_EQ(checked, shipped);
}

}  // namespace
}  // namespace tidemark::tests::model_counts_test
