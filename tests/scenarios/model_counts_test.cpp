#include <filesystem>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "parallel/built_model.hpp"
#include "scenarios/io/config_reader.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {
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

TEST(ModelCounts, EveryShippedModelIsChecked) {
  std::set<std::string> checked{"gemma-3-12b-text", "gemma-3-27b-text"}, shipped;
  for (const Published& model : published) checked.insert(model.file);
  for (const Dimensions& model : of_papers) checked.insert(model.file);
  for (const auto& entry : std::filesystem::directory_iterator(models)) shipped.insert(entry.path().stem().string());
  EXPECT_EQ(checked, shipped);
}

}  // namespace
}  // namespace tidemark::tests
