#include "scenarios/reader/layers_reader.hpp"

#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/job/built_model.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/model_layers.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::layers_reader_test {
namespace {

const std::filesystem::path data = std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scenarios";

Scenario scenario_with(const std::string& layers, const std::string& model, const std::string& more = "") {
  return parse_scenario(
      fmt::format("model = \"models/{}.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n{}\n"
                  "[train]\nsequence_length = 256\nmicro_batch = 1\n{}",
                  model, layers, more),
      "job.toml", {data, data});
}

std::string problem_of(const std::string& layers, const std::string& model) {
  try {
    (void)scenario_with(layers, model);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(LayersReader, AListByHandIsTheOneThatTheConfigurationMakes) {
  const auto as_configured = [](const std::string& layers, const std::string& model) {
    EXPECT_EQ(scenario_with(layers, model).model, scenario_with("", model).model) << model;
  };
  as_configured("layers = [\"3 dense\", \"58 experts\"]", "deepseek-v3");
  as_configured("layers = [\"1 latent dense\", \"26 experts latent\"]", "deepseek-v2-lite");
  as_configured("layers = [\"window\", \"attention\"]", "gpt-oss-20b");
  as_configured(
      "layers = [\"5 window\", \"attention\", \"5 window\", \"attention\", \"5 window\", \"attention\", "
      "\"5 window\", \"attention\", \"2 window\"]",
      "gemma-3-1b");
  as_configured("layers = [\"attention dense\"]", "llama-3.1-8b");
}

// A layer of Mixtral has eight experts and a router of 4096 each, or one of those as its MLP.
TEST(LayersReader, ALayerHasTheParametersOfItsOwnKind) {
  const Model configured = scenario_with("", "mixtral-8x7b").model,
              half = scenario_with("layers = [\"dense\", \"experts\"]", "mixtral-8x7b").model;
  const std::int64_t one = 3 * std::int64_t{4096} * 14336;
  EXPECT_EQ(parameter_count(build_model(configured, {})) - parameter_count(build_model(half, {})),
            16 * (7 * one + 8 * 4096));
  EXPECT_TRUE(!half.has_experts(30) && half.has_experts(31));
}

TEST(LayersReader, MistakesAreToldWithWhatWouldDo) {
  EXPECT_EQ(problem_of("layers = 3", "deepseek-v3"),
            "job.toml:4:10: error: layers takes a list of texts, not 3\n"
            "  hint: such as layers = [\"3 dense\", \"58 experts\"]");
  EXPECT_EQ(problem_of("layers = [3]", "deepseek-v3"),
            "job.toml:4:10: error: layers takes a list of texts, and 3 is none\n"
            "  hint: such as [\"3 dense\", \"58 experts\"]");
  EXPECT_EQ(problem_of("layers = [\"3 mamba\"]", "deepseek-v3"),
            "job.toml:4:10: error: layers: \"mamba\" in \"3 mamba\" is not a part of deepseek-v3's layers\n"
            "  hint: \"latent\", \"dense\" or \"experts\" would do, a number before it");
  EXPECT_EQ(problem_of("layers = [\"dense dense\"]", "deepseek-v3"),
            "job.toml:4:10: error: layers: \"dense\" in \"dense dense\" is not a part of deepseek-v3's layers\n"
            "  hint: \"latent\", \"dense\" or \"experts\" would do, a number before it");
  EXPECT_EQ(problem_of("layers = [\"3 dense\", \"latent\"]", "deepseek-v3"),
            "job.toml:4:10: error: layers: \"latent\" does not say which of them these layers have\n"
            "  hint: \"dense\" or \"experts\" would do");
  EXPECT_EQ(problem_of("layers = [\"62 dense\"]", "deepseek-v3"),
            "job.toml:4:10: error: layers: \"62 dense\" begins with 62, and the model has 61 layers\n"
            "  hint: 1 to 61 would do");
  EXPECT_EQ(problem_of("layers = [\"3 dense\", \"57 experts\"]", "deepseek-v3"),
            "job.toml:4:10: error: layers: a list of 60 layers cannot be repeated to make 61\n"
            "  hint: num_hidden_layers = 60 in [model_override], or a list of 61");
  EXPECT_EQ(problem_of("layers = []", "llama-3.1-8b"),
            "job.toml:4:10: error: layers: a list of 0 layers cannot be repeated to make 32\n"
            "  hint: num_hidden_layers = 1 in [model_override], or a list of 32");
}

// Of Gemma 3: 1152 x (2 x 1024 + 2 x 256) for attention, 3 x 1152 x 6912 for the MLP, four norms and two of heads.
TEST(LayersText, EqualLayersAreALineWithTheParametersOfEach) {
  EXPECT_EQ(layers_text(scenario_with("", "deepseek-v3").model),
            "  embedding: 926679040 parameters\n"
            "  layers 0-2: latent attention of 128 heads of 192, latents of 1536 and 512; MLP of 18432: 583483392 "
            "parameters each\n"
            "  layers 3-60: latent attention of 128 heads of 192, latents of 1536 and 512; 8 of 256 experts of 2048, "
            "shared ones of 2048: 11507286016 parameters each\n"
            "  next token 1: latent attention of 128 heads of 192, latents of 1536 and 512; 8 of 256 experts of 2048, "
            "shared ones of 2048: 11610067968 parameters including the projection that joins two vectors per token\n"
            "  norm and head: 926686208 parameters\n");
  EXPECT_EQ(layers_text(scenario_with("", "gemma-3-1b").model),
            "  embedding: 301989888 parameters\n"
            "  layers 0-4, 6-10, 12-16, 18-22, 24-25: attention of 4 heads of 256, 1 of keys and values, which see 512 "
            "keys; MLP of 6912: 26842112 parameters each\n"
            "  layers 5, 11, 17, 23: attention of 4 heads of 256, 1 of keys and values; MLP of 6912: 26842112 "
            "parameters each\n"
            "  norm and head: 1152 parameters, the head's weight being the embedding's\n");
}

}  // namespace
}  // namespace tidemark::tests::layers_reader_test
