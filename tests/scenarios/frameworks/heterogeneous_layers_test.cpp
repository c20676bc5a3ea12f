// Layers that differ as a search for an architecture left them: block_configs of a config.json, and `layers` by hand.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "parallel/job/built_model.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::heterogeneous_layers_test {
namespace {

Model shipped(const std::string& name) { return read_model(source / ("scenarios/models/" + name + ".json")); }

// By hand, of the lists of their configurations: layers with attention, and how many MLPs there are of which width.
struct Searched {
  std::int64_t hidden, heads, attentions, mlps, widths;
};
std::int64_t closed_form(const Searched& its) {
  const std::int64_t h = its.hidden, vocabulary = 128256, attention = h * (2 * its.heads + 2 * 8) * 128 + h;
  return 2 * vocabulary * h + h + its.attentions * attention + its.mlps * h + 3 * h * its.widths;
}

// Published as 49 B (49.9 on its page) and 253 B.
TEST(HeterogeneousLayers, ParametersAreTheClosedForm) {
  const std::int64_t super_widths = 49 * 28672 + 6 * 14336 + 10 * 7168 + 8 * 5632 + 6 * 2816 + 17920;
  const std::int64_t super_count = closed_form({8192, 64, 49, 80, super_widths});
  EXPECT_EQ(super_count, 49'867'145'216);
  EXPECT_EQ(parameter_count(build_model(shipped("llama-3.3-nemotron-super-49b"), {})), super_count);
  const std::int64_t ultra_widths = 34 * 53248 + 19 * 26624 + 10 * 21504 + 6 * 16128 + 4 * 37376 + 2 * 32000 + 5376 +
                                    10752 + 399360 + 425984 + 343040 + 301056;
  const std::int64_t ultra_count = closed_form({16384, 128, 64, 81, ultra_widths});
  EXPECT_EQ(ultra_count, 253'401'268'224);
  EXPECT_EQ(parameter_count(build_model(shipped("llama-3.1-nemotron-ultra-253b"), {})), ultra_count);
}

TEST(HeterogeneousLayers, AreReadAsMegatronReadsThem) {
  const Model model = shipped("llama-3.3-nemotron-super-49b");
  EXPECT_TRUE(model.heterogeneous());
  EXPECT_FALSE(model.hybrid());
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.ffn, 28672);  // what most have: 2/3 x 5.25 x 8192
  EXPECT_EQ(model.widest_mlp(), 28672);
  EXPECT_EQ(model.layers[0], (Layer{Attention{}, DenseMlp{.ffn = 14336}}));
  const std::vector<std::string> ultra = runs_of(shipped("llama-3.1-nemotron-ultra-253b").layers);
  EXPECT_NE(std::ranges::find(ultra, "1 unmixed dense=425984"), ultra.end());
}

constexpr const char* job = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 2
{}
[model_override]
num_hidden_layers = {}
[layout]
tensor = 2
sequence_parallel = true
[train]
sequence_length = 8192
micro_batch = 1
{}
[runtime]
{}
)";
std::string job_of(const std::string& layers, int count, const std::string& train = "",
                   const std::string& runtime = "name = \"megatron\"") {
  return fmt::format(fmt::runtime(job), layers.empty() ? "" : "layers = " + layers, count, train, runtime);
}

// A branch that is not there gives its input on: core/transformer/identity_op.py.
TEST(HeterogeneousLayers, OnesWithoutBranchesTakeNothing) {
  const auto highest = [](const std::string& text) {
    const Prediction p = predict(scenario_of_text(text));
    return std::pair{p.highest().memory.allocated.bytes, p.highest().memory.peak_reserved};
  };
  EXPECT_EQ(highest(job_of(R"(["unmixed alone", "attention dense"])", 4)), highest(job_of("", 2)));
  EXPECT_EQ(highest(job_of(R"(["unmixed alone", "attention dense"])", 4, "recompute = \"selective\"")),
            highest(job_of("", 2, "recompute = \"selective\"")));
  // Two layers of one branch each are one of two.
  EXPECT_EQ(highest(job_of(R"(["attention alone", "unmixed dense"])", 4)), highest(job_of("", 2)));
}

// Of each token a layer's MLP keeps its norm's input, what fc1 gives twice as wide, and what the activation gives.
TEST(HeterogeneousLayers, AnMlpKeepsByItsOwnWidth) {
  const auto saved = [](const std::string& layers) {
    const Prediction p = predict(scenario_of_text(job_of(layers, 4)));
    return p.highest().memory.allocated.composition[Category::SavedActivations];
  };
  const std::int64_t wide = 14336 - 4096;
  EXPECT_EQ(saved("") - saved(R"(["2 attention dense", "2 attention dense=4096"])"),
            Bytes{2 * 8192 * 3 * wide * 2 / 2});
}

TEST(HeterogeneousLayers, AnswersSayThemAsAScenarioMay) {
  const Scenario s = scenario_of_text(job_of(R"(["3 attention dense", "unmixed dense=4096"])", 8));
  const auto json = nlohmann::json::parse(scenario_json(s, -1))["model"];
  EXPECT_EQ(json["layers"].dump(),
            R"(["3 attention dense","1 unmixed dense=4096","3 attention dense","1 unmixed dense=4096"])");
  EXPECT_EQ(scenario_of_text(job_of(json["layers"].dump(), 8)).model, s.model);
  EXPECT_FALSE(nlohmann::json::parse(scenario_json(scenario_of_text(job_of("", 8)), -1))["model"].contains("layers"));
}

std::string problem_of(const std::string& text) {
  try {
    (void)scenario_of_text(text);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}
TEST(HeterogeneousLayers, WhereAFrameworkHasNoneTheyAreRefused) {
  const std::string lacking = R"(["attention dense", "unmixed dense"])", wide = R"(["dense=4096", "dense"])";
  const auto says = [](const std::string& text, const std::string& what) {
    EXPECT_NE(problem_of(text).find(what), std::string::npos) << problem_of(text);
  };
  EXPECT_EQ(problem_of(job_of(wide, 4)), "");
  says(job_of(wide, 4, "", "name = \"fsdp2\""), "layers of \"attention dense=4096\" are not modelled there yet");
  says(job_of(lacking, 4, "recompute = \"selective\"\nrecompute_modules = [\"mlp\"]"),
       "recomputation of other modules than core attention is not modelled yet where layers lack attention or an MLP");
  says(job_of(R"(["dense=4095", "dense"])", 4), "tensor = 2 does not divide intermediate_size = 4095");
  says(job_of(wide, 4, "", "name = \"megatron\"\nversions = { megatron = \"0.11\" }"),
       "Megatron-LM core's 0.12 to 0.19");
  std::string other = job_of(R"(["experts", "dense=4096"])", 4);
  other.replace(other.find("llama-3.1-8b"), 12, "mixtral-8x7b");
  says(other, "in models like Llama alone");
  says(job_of(R"(["unmixed alone", "unmixed dense"])", 4), "no layer has attention");
  says(job_of(R"(["dense=0", "dense"])", 4),
       "\"dense=0\" in \"dense=0\" is not a part of resized llama-3.1-8b's layers");
}

std::string config_problem(const std::string& blocks) {
  try {
    (void)parse_model(R"({"model_type": "nemotron-nas", "hidden_size": 64, "num_hidden_layers": 2,
"num_attention_heads": 4, "vocab_size": 100, "block_configs": )" +
                          blocks + "}",
                      "tiny.json");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}
TEST(HeterogeneousLayers, MistakesOfBlocksAreToldByLayer) {
  const std::string good = R"({"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.5}})",
                    none = R"({"attention": {"no_op": true}, "ffn": {"no_op": true}})";
  EXPECT_EQ(config_problem("[" + good + ", " + none + "]"), "");
  const auto says = [](const std::string& blocks, const std::string& what) {
    EXPECT_NE(config_problem(blocks).find("tiny.json: error: block_configs: " + what), std::string::npos)
        << config_problem(blocks);
  };
  says("[" + good + "]", "takes a list of 2 layers, one for each");
  says("[" + good + ", 3]", "layer 1 has no attention");
  says("[" + good + R"(, {"attention": {"n_heads_in_group": 3}, "ffn": {"ffn_mult": 1}}])",
       "layer 1: n_heads_in_group has to divide 4 heads");
  says("[" + good + R"(, {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 1}}])",
       "layer 1 has 1 heads of keys, and others have 2");
  says("[" + good + R"(, {"attention": {"replace_with_linear": true}, "ffn": {"ffn_mult": 1}}])",
       "layer 1: replace_with_linear is not modelled yet");
  says("[" + good + R"(, {"attention": {"no_op": true, "heads": 8}, "ffn": {"ffn_mult": 1}}])",
       "layer 1: \"heads\" of its attention is not known here");
  says("[" + good + R"(, {"attention": {"no_op": true}, "ffn": {"ffn_mult": 1}, "mixer": {}}])",
       "layer 1: \"mixer\" of its configuration is not known here");
  says("[" + good + R"(, {"attention": {"no_op": true}, "ffn": {"ffn_mult": -1}}])",
       "layer 1: ffn_mult is not a number above 0");
  says("[" + none + ", " + none + "]", "no layer has attention, or none has an MLP");
}

}  // namespace
}  // namespace tidemark::tests::heterogeneous_layers_test
