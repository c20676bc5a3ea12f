// Hybrids: the letters of their layers, and what a config.json says of Mamba.
#include "scenarios/model_config/hybrid_layers.hpp"

#include <string>

#include <gtest/gtest.h>

#include "parallel/job/built_model.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::hybrid_layers_test {
namespace {

std::string config(const std::string& more) {
  return R"({"model_type": "nemotron_h", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
"num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "vocab_size": 100, "mamba_num_heads": 8)" +
         more + "}";
}
Model model_of(const std::string& more) { return parse_model(config(more), "tiny.json"); }
std::string problem_of(const std::string& more) {
  try {
    (void)model_of(more);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

// core/ssm/mamba_hybrid_layer_allocation.py, run as a program by itself for these numbers, gives these.
TEST(HybridLayers, AreSpreadAsMegatronSpreadsThem) {
  EXPECT_EQ(spread_pattern(9, 0, 0), "MMMMMMMMM");
  EXPECT_EQ(spread_pattern(8, 0, 0.5), "M-M-M-M-");
  EXPECT_EQ(spread_pattern(24, 0.08, 0.5), "M-M-M--*M-M-M-M-*M--M-M-");
  EXPECT_EQ(spread_pattern(48, 0.1, 0.3), "MM-MM-M*M-MM-MM*-MM-MMM-*MM-MM-M*M-MM-MM*-MM-MM-");
  EXPECT_EQ(spread_pattern(7, 1, 0), "*******");
  EXPECT_EQ(spread_pattern(8, 0.6, 0.6), std::nullopt);
  EXPECT_EQ(spread_pattern(8, -0.1, 0), std::nullopt);
}

TEST(HybridLayers, HaveOneBranchEach) {
  const Model model = model_of(R"(, "hybrid_override_pattern": "M-*M")");
  EXPECT_EQ(hybrid_pattern(model), "M-*M");
  EXPECT_TRUE(model.hybrid());
  EXPECT_EQ(model.layers.kinds().size(), 3u);
  EXPECT_EQ(model.layers.kind(0), model.layers.kind(3));
  EXPECT_EQ(*model.mamba(), (Mamba2{.heads = 8, .head_dim = 64, .groups = 8, .state = 128}));
  EXPECT_EQ(model.positions, Positions::None);
  EXPECT_EQ(model.activation, Activation::SquaredRelu);
}

// NemotronHConfig calls it attention_head_dim, or head_dim.
TEST(HybridLayers, HeadsAreAsWideAsAScenarioSaysWhateverTheFileCallsIt) {
  std::string text = config(R"(, "hybrid_override_pattern": "M-*M")");
  text.replace(text.find("\"head_dim\""), 10, "\"attention_head_dim\"");
  EXPECT_EQ(parse_model(text, "tiny.json").head_dim, 16);
  EXPECT_EQ(parse_model(text, "tiny.json", {{"head_dim", 32, {"job.toml", 5, 9, {}, {}}}}).head_dim, 32);
  EXPECT_EQ(parse_model(text, "tiny.json", {{"attention_head_dim", 32, {"job.toml", 5, 9, {}, {}}}}).head_dim, 32);
}

TEST(HybridLayers, ParametersAreTheClosedForm) {
  const Model model = read_model(source / "scenarios/models/nemotron-h-8b.json");
  const std::int64_t h = 4096, i = 128 * 64, gn = 8 * 128, a = 128, vocabulary = 131072;
  const std::int64_t mixer = h * (2 * i + 2 * gn + a) + 5 * (i + 2 * gn) + 3 * a + i + i * h;
  const std::int64_t attention = h * (32 + 2 * 8) * 128 + 32 * 128 * h, mlp = 2 * h * 21504;
  const std::int64_t layers = 24 * (mixer + h) + 24 * (mlp + h) + 4 * (attention + h);
  EXPECT_EQ(layers + 2 * vocabulary * h + h, 8'100'852'736);
  EXPECT_EQ(parameter_count(build_model(model, {})), 8'100'852'736);
}

TEST(HybridLayers, ThatAreNotModelledAreRefused) {
  const std::string four = R"(, "hybrid_override_pattern": "M-*M")", at = "tiny.json: error: ";
  EXPECT_EQ(problem_of(""), at + "hybrid_override_pattern: 0 letters do not give one for each of 4 layers\n"
                                 "  hint: M (Mamba), * (attention) and - (MLP), layer by layer");
  EXPECT_EQ(problem_of(R"(, "hybrid_override_pattern": "ME*M")"),
            at + "hybrid_override_pattern: E, a layer of experts, is not modelled yet in a hybrid\n"
                 "  hint: M (Mamba), * (attention) and - (MLP) would do");
  EXPECT_EQ(problem_of(R"(, "hybrid_override_pattern": "Mx*M")"),
            at + "hybrid_override_pattern: \"x\" is the letter of no layer\n"
                 "  hint: M (Mamba), * (attention) and - (MLP) would do");
  EXPECT_EQ(problem_of(four + R"(, "n_groups": 3)"),
            at + "n_groups: 3 groups do not divide 8 heads of Mamba\n  hint: a divisor of 8 would do");
  EXPECT_NE(problem_of(four + R"(, "conv_kernel": 3)").find("conv_kernel"), std::string::npos);
  EXPECT_NE(problem_of(four + R"(, "use_conv_bias": false)").find("use_conv_bias"), std::string::npos);
  EXPECT_NE(problem_of(four + R"(, "mamba_proj_bias": true)").find("mamba_proj_bias"), std::string::npos);
  EXPECT_NE(problem_of(four + R"(, "residual_in_fp32": true)").find("residual_in_fp32"), std::string::npos);
  EXPECT_NE(problem_of(four + R"(, "mamba_hidden_act": "gelu")").find("mamba_hidden_act"), std::string::npos);
}

}  // namespace
}  // namespace tidemark::tests::hybrid_layers_test
