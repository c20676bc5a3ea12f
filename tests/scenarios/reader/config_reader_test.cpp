#include "scenarios/model_config/config_reader.hpp"

#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::config_reader_test {
namespace {

Model shipped(const std::string& name) {
  return read_model(std::string(TIDEMARK_SOURCE_DIR "/scenarios/models/") + name + ".json");
}

std::string problems(std::string_view text, const std::vector<ConfigOverride>& overrides = {}) {
  try {
    parse_model(text, "config.json", overrides);
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}

/// A small model with `more` keys at its end.
std::string tiny(const std::string& more = "", const std::string& type = "llama") {
  return R"({"model_type": ")" + type +
         R"(", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, )"
         R"("intermediate_size": 128, "vocab_size": 1000)" +
         more + "}";
}

ConfigOverride set(const std::string& key, std::int64_t value) { return {key, value, {"job.toml", 5, 9, {}, {}}}; }

TEST(ConfigReader, ReadsTheShippedModels) {
  const auto model = [](const char* name, const char* type, std::int64_t hidden, std::int64_t layers,
                        std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn, std::int64_t vocabulary,
                        std::int64_t positions) {
    Model m;
    m.name = name;
    m.architecture = type;
    m.hidden = hidden;
    m.layers = LayerList(layers, {.mixer = Attention{.window = m.architecture == "mistral" ? 4096 : 0}});
    m.heads = heads;
    m.kv_heads = kv_heads;
    m.head_dim = 128;
    m.ffn = ffn;
    m.vocabulary = vocabulary;
    m.max_positions = positions;
    m.qkv_bias = m.architecture == "qwen2";
    return m;
  };
  for (const Model& expected : {
           model("llama-3.1-8b", "llama", 4096, 32, 32, 8, 14336, 128256, 131072),
           model("llama-3.1-70b", "llama", 8192, 80, 64, 8, 28672, 128256, 131072),
           model("llama-3.1-405b", "llama", 16384, 126, 128, 8, 53248, 128256, 131072),
           model("llama-2-7b", "llama", 4096, 32, 32, 32, 11008, 32000, 4096),
           model("llama-2-13b", "llama", 5120, 40, 40, 40, 13824, 32000, 4096),
           model("llama-2-70b", "llama", 8192, 80, 64, 8, 28672, 32000, 4096),
           model("qwen2.5-7b", "qwen2", 3584, 28, 28, 4, 18944, 152064, 131072),
           model("qwen2.5-72b", "qwen2", 8192, 80, 64, 8, 29568, 152064, 131072),
           model("mistral-7b-v0.1", "mistral", 4096, 32, 32, 8, 14336, 32000, 32768),
       }) {
    EXPECT_EQ(shipped(expected.name), expected) << expected.name;
  }
}

TEST(ConfigReader, LeftOutKeysHaveTheDefaultsOfTransformers) {
  const Model llama = parse_model(tiny(), "tiny.json");
  EXPECT_EQ(llama.kv_heads, 4);
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.max_positions, 2048);
  EXPECT_FALSE(llama.tied_embeddings || llama.qkv_bias || llama.output_bias || llama.mlp_bias);

  // MistralConfig has 8 key/value heads, and as many as attention heads only for null.
  EXPECT_EQ(parse_model(tiny(R"(, "num_key_value_heads": null)", "mistral"), "tiny.json").kv_heads, 4);
  EXPECT_EQ(problems(tiny("", "mistral")),
            "config.json: error: num_key_value_heads: 8 does not divide 4 attention heads");
}

TEST(ConfigReader, BiasDependsOnTheFamily) {
  const Model llama = parse_model(tiny(R"(, "attention_bias": true, "mlp_bias": true)"), "tiny.json");
  EXPECT_TRUE(llama.qkv_bias && llama.output_bias && llama.mlp_bias);
  const Model qwen = parse_model(tiny(R"(, "num_key_value_heads": 2)", "qwen2"), "tiny.json");
  EXPECT_TRUE(qwen.qkv_bias && !qwen.output_bias && !qwen.mlp_bias);
  EXPECT_EQ(problems(tiny(R"(, "num_key_value_heads": 2, "attention_bias": true)", "mistral")),
            "config.json: error: attention_bias: true is not modelled: mistral has no such switch");
}

TEST(ConfigReader, ModelsAreNamedAfterTheirFileOrTheFolderOfACheckpoint) {
  EXPECT_EQ(parse_model(tiny(), "models/llama-3.1-8b.json").name, "llama-3.1-8b");
  EXPECT_EQ(parse_model(tiny(), "checkpoints/my-model/config.json").name, "my-model");
  EXPECT_EQ(parse_model(tiny(), "config.json").name, "config");
}

TEST(ConfigReader, MetadataIsIgnoredAndFeaturesThatAreOffAreAccepted) {
  EXPECT_EQ(problems(tiny(R"(, "my_note": {"a": [1]}, "rope_scaling": {"factor": 8.0}, "sliding_window": 4096,
                             "num_local_experts": 0, "quantization_config": null, "is_encoder_decoder": false,
                             "layer_types": ["full_attention", "sliding_attention"])")),
            "no problem");
}

// json.dumps of Python writes float("inf") so; Nemotron-H's config.json has it.
TEST(ConfigReader, InfinityOfPythonSaysNothing) {
  EXPECT_EQ(problems(tiny(R"(, "time_step_limit": [0.0, Infinity], "lowest": -Infinity, "name": "to Infinity")")),
            "no problem");
  EXPECT_EQ(problems(tiny(R"(, "lowest": -Infinity, "note": Unknown)")),
            problems(tiny(R"(, "lowest": -12345678, "note": Unknown)")));
}

/// A shipped config.json with `more` keys at its beginning.
std::string shipped_with(const std::string& name, const std::string& more) {
  std::ifstream file(std::string(TIDEMARK_SOURCE_DIR "/scenarios/models/") + name + ".json");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.insert(text.find('{') + 1, more + ", ");
}

TEST(ConfigReader, WeightsThatArePublishedInFewBitsAreTheModelsWhereTrainersHaveTheirOwn) {
  const std::string fp8 = R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]})";
  EXPECT_EQ(problems(shipped_with("deepseek-v3", fp8)), "no problem");
  EXPECT_EQ(problems(shipped_with("gpt-oss-20b", R"("quantization_config": {"quant_method": "mxfp4"})")), "no problem");
  for (const char* trained_by_transformers : {"llama-3.1-8b", "qwen3-30b-a3b"})
    EXPECT_NE(problems(shipped_with(trained_by_transformers, fp8)).find("a quantized base is not modelled yet"),
              std::string::npos);
  EXPECT_NE(
      problems(shipped_with("deepseek-v3", R"("quantization_config": {"quant_method": "awq"})")).find("quantized"),
      std::string::npos);
}

// It takes a one for each expert, choice, token and layer.
TEST(ConfigReader, TheLossOfRoutersIsNotModelled) {
  std::string text = shipped_with("mixtral-8x7b", "\"note\": 1");
  EXPECT_EQ(problems(text), "no problem");
  const std::string off = "\"output_router_logits\": false";
  text.replace(text.find(off), off.size(), "\"output_router_logits\": true");
  EXPECT_NE(problems(text).find("output_router_logits: the loss of routers that transformers adds is not modelled yet"),
            std::string::npos);
}

TEST(ConfigReader, WhatWouldChangeMemoryIsRefused) {
  EXPECT_EQ(problems(tiny(R"(, "num_local_experts": 8, "quantization_config": {"bits": 4}, "q_lora_rank": 1536,
                             "use_qk_norm": true, "attn_logit_softcapping": 50.0, "use_parallel_residual": true,
                             "final_logit_softcapping": 30, "layer_types": ["linear_attention"])")),
            "config.json: error: use_parallel_residual: true is not modelled: llama has no such switch\n"
            "config.json: error: attn_logit_softcapping: capping of attention scores is not modelled in this family\n"
            "config.json: error: final_logit_softcapping: capping of logits is not modelled in this family\n"
            "config.json: error: num_local_experts: mixture of experts is not modelled in this family\n"
            "config.json: error: q_lora_rank: multi-head latent attention is not modelled in this family\n"
            "config.json: error: use_qk_norm: normalization of Q and K is not modelled in this family\n"
            "config.json: error: quantization_config: a quantized base is not modelled yet\n"
            "  hint: leave it out: it describes published weights, not training\n"
            "config.json: error: layer_types: layers other than \"full_attention\" and \"sliding_attention\" are not "
            "modelled yet");
  EXPECT_EQ(problems(tiny(R"(, "hidden_act": "relu2")")),
            "config.json: error: hidden_act: \"relu2\" is not modelled yet\n  hint: \"silu\", \"gelu\" or "
            "\"gelu_pytorch_tanh\" would do");
}

std::string gpt2(const std::string& more = "") {
  return R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 1000)" + more + "}";
}

TEST(ConfigReader, Gpt2HasItsOwnKeysAndDefaults) {
  const Model plain = parse_model(gpt2(), "tiny.json");
  EXPECT_EQ(plain.ffn, 256);  // n_inner left out, or null: four times the width
  EXPECT_EQ(parse_model(gpt2(R"(, "n_inner": null)"), "tiny.json"), plain);
  EXPECT_EQ(plain.max_positions, 1024);
  EXPECT_EQ(plain.kv_heads, 4);
  EXPECT_TRUE(plain.tied_embeddings && plain.qkv_bias && plain.output_bias && plain.mlp_bias);
  EXPECT_EQ(plain.normalization, Normalization::Layer);
  EXPECT_EQ(plain.activation, Activation::Gelu);
  EXPECT_EQ(plain.positions, Positions::Learned);

  const Model other = parse_model(gpt2(R"(, "n_inner": 96, "n_positions": 64, "activation_function": "relu2",
    "position_embedding_type": "rope", "add_bias_linear": false, "tie_word_embeddings": false)"),
                                  "tiny.json");
  EXPECT_EQ(other.ffn, 96);
  EXPECT_EQ(other.max_positions, 64);
  EXPECT_EQ(other.activation, Activation::SquaredRelu);
  EXPECT_EQ(other.positions, Positions::Rotary);
  EXPECT_FALSE(other.tied_embeddings || other.qkv_bias || other.output_bias || other.mlp_bias);

  EXPECT_EQ(problems(gpt2(R"(, "position_embedding_type": "alibi", "activation_function": "tanh")")),
            "config.json: error: position_embedding_type: \"alibi\" is not modelled yet\n"
            "  hint: \"absolute\" (learned vectors) or \"rope\" would do\n"
            "config.json: error: activation_function: \"tanh\" is not modelled yet\n"
            "  hint: \"gelu_new\", \"gelu\", \"gelu_fast\", \"gelu_pytorch_tanh\", \"relu2\" or \"swiglu\" would do");
  EXPECT_EQ(problems(R"({"model_type": "gpt2", "n_head": 4, "n_layer": 2, "vocab_size": 10})"),
            "config.json: error: n_embd: is missing\n  hint: 1 to 262144 would do");
}

TEST(ConfigReader, GemmaHasNormsOnBothSidesAndAGeluGate) {
  const Model second = shipped("gemma-2-9b");
  EXPECT_EQ(second.norms, NormPlacement::Around);
  EXPECT_EQ(second.activation, Activation::GeGlu);
  EXPECT_EQ(second.qk_norm, QkNorm::None);
  EXPECT_TRUE(second.tied_embeddings && second.zero_centered_norms && second.scaled_embedding);
  EXPECT_EQ(second.head_dim, 256);
  EXPECT_EQ(second.attention_softcap, 50);
  EXPECT_EQ(second.logit_softcap, 30);
  EXPECT_EQ(second.window(), 4096);

  const Model third = shipped("gemma-3-1b");
  EXPECT_EQ(third.norms, NormPlacement::Around);
  EXPECT_EQ(third.activation, Activation::GeGlu);
  EXPECT_EQ(third.qk_norm, QkNorm::PerHead);
  EXPECT_EQ(third.kv_heads, 1);
  EXPECT_EQ(third.attention_softcap, 0);
  EXPECT_EQ(third.logit_softcap, 0);
  EXPECT_EQ(third.window(), 512);
}

// Layers of the first one are as Llama's are made, with norms, embedding and gate of Gemma's.
TEST(ConfigReader, TheFirstGemmaHasNormsBeforeAndNoCaps) {
  const Model first = parse_model(R"({"model_type": "gemma", "hidden_size": 2048, "num_hidden_layers": 18,
    "num_attention_heads": 8, "num_key_value_heads": 1, "intermediate_size": 16384, "hidden_act": "gelu"})",
                                  "gemma-2b.json");
  EXPECT_EQ(first.norms, NormPlacement::Before);
  EXPECT_EQ(first.activation, Activation::GeGlu);
  EXPECT_TRUE(first.tied_embeddings && first.zero_centered_norms && first.scaled_embedding);
  EXPECT_EQ(first.head_dim, 256);
  EXPECT_EQ(first.vocabulary, 256000);
  EXPECT_EQ(first.attention_softcap, 0);
  EXPECT_EQ(first.logit_softcap, 0);
  EXPECT_EQ(first.window(), 0);
}

TEST(ConfigReader, GemmasDefaultsAreThoseOfTransformersAndNullIsNoCap) {
  // The text part of gemma-3-12b-it, as it is published: what is left out has the defaults.
  const Model text = parse_model(R"({"model_type": "gemma3_text", "hidden_size": 3840, "intermediate_size": 15360,
    "num_attention_heads": 16, "num_hidden_layers": 48, "num_key_value_heads": 8, "sliding_window": 1024,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}})",
                                 "gemma-3-12b-text.json");
  EXPECT_EQ(text, shipped("gemma-3-12b-text"));

  const Model usual = parse_model(tiny("", "gemma2"), "tiny.json");
  EXPECT_EQ(usual.attention_softcap, 50);
  EXPECT_EQ(usual.logit_softcap, 30);
  const std::string no_caps = R"(, "attn_logit_softcapping": null, "final_logit_softcapping": null)";
  const Model uncapped = parse_model(tiny(no_caps, "gemma2"), "tiny.json");
  EXPECT_EQ(uncapped.attention_softcap, 0);
  EXPECT_EQ(uncapped.logit_softcap, 0);

  EXPECT_EQ(problems(tiny(R"(, "attn_logit_softcapping": -1, "hidden_activation": "tanh", "attention_bias": true,
                             "use_bidirectional_attention": true)",
                          "gemma2")),
            "config.json: error: attn_logit_softcapping: -1 is out of range\n"
            "  hint: above 0 and up to 1000000 would do\n"
            "config.json: error: attention_bias: true is not modelled where a norm follows the output projection\n"
            "config.json: error: hidden_activation: \"tanh\" is not modelled yet\n"
            "  hint: \"silu\", \"gelu\" or \"gelu_pytorch_tanh\" would do\n"
            "config.json: error: use_bidirectional_attention: attention to what comes after is not modelled yet");
}

TEST(ConfigReader, OlmoNormalizesOnlyWhatGoesIntoTheResidualStreamAndQueriesAndKeysWhole) {
  const Model model = shipped("olmo-2-32b");
  EXPECT_EQ(model.norms, NormPlacement::After);
  EXPECT_EQ(model.qk_norm, QkNorm::AllHeads);
  EXPECT_EQ(model.activation, Activation::SwiGlu);
  EXPECT_FALSE(model.tied_embeddings || model.zero_centered_norms || model.scaled_embedding);
}

TEST(ConfigReader, NeoXAddsAttentionAndMlpToTheSameInput) {
  const Model model = shipped("pythia-6.9b");
  EXPECT_TRUE(model.parallel_residual && model.qkv_bias && model.output_bias && model.mlp_bias);
  EXPECT_FALSE(model.tied_embeddings);
  EXPECT_EQ(model.normalization, Normalization::Layer);
  EXPECT_EQ(model.activation, Activation::Gelu);
  EXPECT_EQ(model.positions, Positions::Rotary);
  EXPECT_EQ(model.rotary_dim(), 32);

  const Model usual = parse_model(tiny("", "gpt_neox"), "tiny.json");
  EXPECT_TRUE(usual.parallel_residual);
  EXPECT_EQ(usual.rotary_dim(), 4);
  const Model other = parse_model(tiny(R"(, "use_parallel_residual": false, "attention_bias": false,
    "rope_parameters": {"partial_rotary_factor": 0.5})",
                                       "gpt_neox"),
                                  "tiny.json");
  EXPECT_EQ(other.rotary_dim(), 8);
  EXPECT_FALSE(other.parallel_residual || other.qkv_bias || other.output_bias);
  EXPECT_TRUE(other.mlp_bias);
  EXPECT_EQ(problems(tiny(R"(, "rotary_pct": 1.5)", "gpt_neox")),
            "config.json: error: rotary_pct: 1.5 is out of range\n  hint: above 0 and up to 1 would do");
}

TEST(ConfigReader, BigCodeHasOneKeyAndValueForAllQueries) {
  const Model model = shipped("santacoder");
  EXPECT_EQ(model.kv_heads, 1);
  EXPECT_EQ(model.normalization, Normalization::Layer);
  EXPECT_EQ(model.positions, Positions::Learned);
  EXPECT_EQ(model.activation, Activation::Gelu);
  EXPECT_TRUE(model.tied_embeddings && model.qkv_bias && model.output_bias && model.mlp_bias);

  const std::string start =
      R"({"model_type": "gpt_bigcode", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 1000)";
  EXPECT_EQ(parse_model(start + R"(, "multi_query": false})", "tiny.json").kv_heads, 4);
  EXPECT_EQ(problems(start + R"(, "num_key_value_heads": 2})"),
            "config.json: error: num_key_value_heads: 1 is what multi_query says");
}

TEST(ConfigReader, SlidingWindowsAreThoseOfFamiliesThatHaveThem) {
  EXPECT_EQ(parse_model(tiny(R"(, "sliding_window": 99)"), "tiny.json").window(), 0);
  const std::string kv = R"(, "num_key_value_heads": 4)";
  EXPECT_EQ(parse_model(tiny(kv + R"(, "sliding_window": 99)", "qwen2"), "tiny.json").window(), 0);
  const std::string used = kv + R"(, "sliding_window": 99, "use_sliding_window": true)";
  EXPECT_EQ(parse_model(tiny(used, "qwen2"), "tiny.json").window(), 0) << "its layers from the 28th on";
  EXPECT_EQ(parse_model(tiny(used + R"(, "max_window_layers": 1)", "qwen2"), "tiny.json").window(), 99);
  EXPECT_EQ(parse_model(tiny(kv + R"(, "sliding_window": null)", "mistral"), "tiny.json").window(), 0);
}

// ---- mixtures of experts, latent attention -------------------------------------------------------------------------

TEST(ConfigReader, ExpertsAreWhatEachFamilySaysOfThem) {
  const Model mixtral = shipped("mixtral-8x7b");
  EXPECT_EQ(*mixtral.experts(), (Experts{.count = 8, .chosen = 2, .ffn = 14336}));
  EXPECT_EQ(*shipped("qwen2-57b-a14b").experts(), (Experts{.count = 64,
                                                           .chosen = 8,
                                                           .ffn = 2560,
                                                           .shared_ffn = 20480,
                                                           .shared_gate = true,
                                                           .score = RouterScore::SoftmaxBefore}));
  EXPECT_EQ(*shipped("qwen3-30b-a3b").experts(), (Experts{.count = 128, .chosen = 8, .ffn = 768}));
  const Model oss = shipped("gpt-oss-120b");
  EXPECT_EQ(*oss.experts(), (Experts{.count = 128, .chosen = 4, .ffn = 2880, .biases = true, .clamped_gate = true}));
  EXPECT_TRUE(oss.attention_sinks && oss.qkv_bias && oss.output_bias && !oss.mlp_bias);
  EXPECT_EQ(oss.window(), 128);
  EXPECT_TRUE(oss.layers[0].window() == 128 && oss.layers[1].window() == 0);
  const Model glm = shipped("glm-4.5");
  EXPECT_EQ(glm.experts()->score, RouterScore::Sigmoid);
  EXPECT_EQ(glm.experts()->scale, 2.5);
  EXPECT_EQ(glm.experts()->groups, 0);  // one group is none
  EXPECT_EQ(glm.qk_norm, QkNorm::PerHead);
  EXPECT_EQ(glm.rotary_dim(), 64);
  EXPECT_EQ(glm.further.size(), 1);
  EXPECT_TRUE(glm.qkv_bias && !glm.output_bias && !glm.has_experts(2) && glm.has_experts(3) && glm.has_experts(92));
  EXPECT_EQ(shipped("glm-4.5-air").qk_norm, QkNorm::None);
}

TEST(ConfigReader, DeepSeeksHeadsAreMadeOfLatents) {
  const Model third = shipped("deepseek-v3");
  EXPECT_EQ(
      *third.latent(),
      (MultiLatentAttention{
          .query_rank = 1536, .kv_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .value_head = 128}));
  EXPECT_EQ(third.head_dim, 192);
  EXPECT_EQ(third.value_dim(), 128);
  EXPECT_EQ(third.rotary_dim(), 64);
  EXPECT_EQ(third.kv_heads, 128);
  EXPECT_EQ(*third.experts(), (Experts{.count = 256,
                                       .chosen = 8,
                                       .ffn = 2048,
                                       .shared_ffn = 2048,
                                       .score = RouterScore::Sigmoid,
                                       .groups = 8,
                                       .topk_group = 4,
                                       .correction_bias = true,
                                       .scale = 2.5}));
  EXPECT_TRUE(!third.has_experts(2) && third.has_experts(3));
  const Model lite = shipped("deepseek-v2-lite");
  EXPECT_EQ(lite.latent()->query_rank, 0);
  EXPECT_EQ(lite.experts()->shared_ffn, 2 * 1408);
  EXPECT_EQ(lite.experts()->groups, 0);
  EXPECT_EQ(shipped("deepseek-v2").experts()->topk_group, 3);

  // Without a layer of experts there are none, and what is left out has the defaults of transformers.
  const Model dense = parse_model(tiny(R"(, "first_k_dense_replace": 2)", "deepseek_v3"), "tiny.json");
  EXPECT_EQ(dense.experts(), nullptr);
  EXPECT_EQ(*dense.latent(), *third.latent());
  EXPECT_EQ(parse_model(tiny(R"(, "q_lora_rank": null)", "deepseek_v3"), "tiny.json").latent()->query_rank, 0);
}

TEST(ConfigReader, ExpertsThatCannotBeAreRefusedByTheirKey) {
  EXPECT_EQ(
      problems(tiny(R"(, "n_group": 7, "num_key_value_heads": 2, "qk_rope_head_dim": 4, "scoring_func": "softmax",
                             "topk_method": "greedy", "norm_topk_prob": false, "attention_bias": true,
                             "num_experts_per_tok": 300, "num_nextn_predict_layers": -1)",
                    "deepseek_v3")),
      "config.json: error: qk_rope_head_dim: 4 per head: FlashAttention and cuDNN take multiples of 8\n"
      "config.json: error: num_key_value_heads: with latent attention every head has its own keys and values\n"
      "  hint: 4 would do, or leave it out\n"
      "config.json: error: attention_bias: true is not modelled with latent attention\n"
      "config.json: error: num_attention_heads: 132 per head: FlashAttention and cuDNN take multiples of 8 up to "
      "256\n"
      "config.json: error: norm_topk_prob: sigmoids whose sum is not made one are not modelled yet\n"
      "config.json: error: scoring_func: \"softmax\" is not modelled yet\n  hint: \"sigmoid\" would do\n"
      "config.json: error: topk_method: \"greedy\" is not modelled yet\n  hint: \"noaux_tc\" would do\n"
      "config.json: error: n_group: 7 does not divide 256 experts\n  hint: 1 would do, which is one group of all\n"
      "config.json: error: num_experts_per_tok: 300 experts cannot be chosen from 256\n"
      "  hint: 1 to 256 would do\n"
      "config.json: error: num_nextn_predict_layers: -1 is out of range\n  hint: 0 to 16 would do");
  EXPECT_EQ(
      problems(tiny(R"(, "mlp_only_layers": [2], "num_key_value_heads": 4, "use_sliding_window": true)", "qwen3_moe")),
      "config.json: error: use_sliding_window: a window of keys is not modelled in this family\n"
      "config.json: error: mlp_only_layers: takes a list of layers\n  hint: 0 to 1 each");
  const Model listed =
      parse_model(tiny(R"(, "mlp_only_layers": [1], "num_key_value_heads": 4)", "qwen3_moe"), "tiny.json");
  EXPECT_TRUE(listed.has_experts(0) && !listed.has_experts(1));
}

TEST(ConfigReader, OtherFamiliesAreRefusedByName) {
  const std::string known =
      "llama, qwen2, mistral, phi3, qwen3, gemma, gemma2, gemma3_text, olmo2, gpt_neox, gpt2, gpt_bigcode, mixtral, "
      "qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, kimi_k2, glm4_moe, gpt_oss, nemotron_h, "
      "nemotron-nas, starcoder2, olmo, olmo3, granite, cohere, cohere2, stablelm, phi, glm, glm4, smollm3, seed_oss, "
      "exaone4, ministral or ministral3 would do";
  EXPECT_EQ(problems(R"({"model_type": "mamba"})"),
            "config.json: error: model_type: \"mamba\" is not modelled yet\n  hint: " + known);
  EXPECT_EQ(problems(R"({"model_type": "falcon_h1"})"),
            "config.json: error: model_type: \"falcon_h1\" is not modelled: its layers have attention and Mamba-2 side "
            "by side, and Megatron-LM has no such layer\n  hint: " +
                known);
  EXPECT_EQ(problems("{}"), "config.json: error: model_type: is missing\n  hint: " + known);
  EXPECT_EQ(problems(R"({"model_type": 3})"),
            "config.json: error: model_type: takes a text, not 3\n  hint: a text between quotes");
  EXPECT_EQ(
      problems(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}, "vision_config": {}})"),
      "config.json: error: text_config: \"gemma3\" is a multimodal model, of which only the text model is modelled\n"
      "  hint: put its text_config into a file of its own, if its model_type is known");
}

TEST(ConfigReader, SyntaxErrorsHaveAPlace) {
  const std::string hint =
      "\n  hint: JSON: {\"key\": value}, text in double quotes, no comma behind the last value, no comments";
  EXPECT_EQ(
      problems("{\n  \"model_type\": llama\n}"),
      "config.json:2:17: error: syntax error while parsing value - invalid literal; last read: '\"model_type\": l'" +
          hint);
  EXPECT_EQ(problems(""),
            "config.json:1:1: error: syntax error while parsing value - unexpected end of input; expected '[', '{', or "
            "a literal" +
                hint);
  EXPECT_EQ(
      problems("[1, 2]"),
      "config.json:1:1: error: is not a JSON object\n  hint: a config.json begins with { and names its model_type");
  EXPECT_EQ(problems(R"({"hidden_size": 1, "hidden_size": 2})"),
            "config.json: error: hidden_size: is there twice\n  hint: leave one of them out");
  EXPECT_EQ(problems(std::string(100000, '[')), "config.json: error: is nested too deep");
  std::string objects = "{\"block_configs\": [{}";
  for (int i = 0; i < 200'000; ++i) objects += ",{}";
  EXPECT_EQ(problems(objects + "]}").find("config.json: error: has more than 10000 objects"), 0u);
  EXPECT_EQ(problems(R"({"hidden_size": 1e999})"), "config.json:1:17: error: number overflow parsing '1e999'");
  EXPECT_NE(problems("\xff\xfe\x00binary"), "no problem");
}

TEST(ConfigReader, AllValuesThatAreWrongAreReportedTogether) {
  EXPECT_EQ(
      problems(R"({"model_type": "llama", "hidden_size": "4096", "num_hidden_layers": 0, "num_attention_heads": -4,
                         "intermediate_size": 1.5, "vocab_size": 18446744073709551615, "tie_word_embeddings": 1})"),
      "config.json: error: hidden_size: takes a whole number, not \"4096\"\n  hint: 1 to 262144 would do\n"
      "config.json: error: num_hidden_layers: 0 is out of range\n  hint: 1 to 4096 would do\n"
      "config.json: error: num_attention_heads: -4 is out of range\n  hint: 1 to 4096 would do\n"
      "config.json: error: intermediate_size: takes a whole number, not 1.5\n  hint: 1 to 1048576 would do\n"
      "config.json: error: vocab_size: 18446744073709551615 is out of range\n  hint: 1 to 4194304 would do\n"
      "config.json: error: tie_word_embeddings: takes true or false, not 1\n  hint: true or false, without quotes");
}

TEST(ConfigReader, HeadsHaveToFit) {
  EXPECT_EQ(problems(tiny(R"(, "num_key_value_heads": 3)")),
            "config.json: error: num_key_value_heads: 3 does not divide 4 attention heads");
  EXPECT_EQ(problems(tiny(), {set("hidden_size", 66)}),
            "config.json: error: num_attention_heads: 4 does not divide hidden_size = 66, and head_dim is left out");
}

TEST(ConfigReader, OverridesReplaceKeysBeforeTheyAreUnderstood) {
  const Model model = parse_model(tiny(), "tiny.json", {set("num_hidden_layers", 12), set("head_dim", 32)});
  EXPECT_EQ(model.layers.size(), 12);
  EXPECT_EQ(model.head_dim, 32);
}

TEST(ConfigReader, AProblemOfAnOverrideIsReportedWhereItWasWritten) {
  EXPECT_EQ(problems(tiny(), {set("num_hidden_layers", 0)}),
            "job.toml:5:9: error: num_hidden_layers: 0 is out of range\n  hint: 1 to 4096 would do");
  EXPECT_EQ(problems(tiny(), {set("num_hidden_layer", 12)}),
            "job.toml:5:9: error: num_hidden_layer: is neither in the file nor known\n  hint: did you mean "
            "num_hidden_layers?");
  EXPECT_EQ(problems(tiny(), {set("num_local_experts", 8)}),
            "job.toml:5:9: error: num_local_experts: mixture of experts is not modelled in this family");
}

TEST(ConfigReader, ReadsTheUsualNamesOfGpt2) {
  const std::string gpt2 =
      R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "vocab_size": 1000})";
  const Model own = parse_model(gpt2, "tiny.json", {set("n_layer", 12)});
  EXPECT_EQ(own.layers.size(), 12);
  EXPECT_EQ(parse_model(gpt2, "tiny.json", {set("num_hidden_layers", 12)}), own);
  EXPECT_EQ(problems(gpt2, {set("num_hidden_layers", 0)}),
            "job.toml:5:9: error: n_layer: 0 is out of range\n  hint: 1 to 4096 would do");
  EXPECT_EQ(problems(gpt2, {set("num_hidden_layers", 12), set("n_layer", 3)}),
            "job.toml:5:9: error: num_hidden_layers: 12 is not what n_layer says\n"
            "  hint: both mean the same: leave one of them out");
}

TEST(ConfigReader, RefusesOverridesOfWhatAFamilyHasNot) {
  EXPECT_EQ(problems(tiny(), {set("n_layer", 3)}),
            "job.toml:5:9: error: n_layer: means nothing to this model, of type \"llama\"\n  hint: leave it out");
}

TEST(ConfigReader, ReadsFamiliesOfTransformersAlone) {
  using parallel::NormPlacement;
  const auto read = [](const std::string& type, const std::string& more = "") {
    return parse_model(tiny(R"(, "num_key_value_heads": 4)" + more, type), "tiny.json");
  };
  const Model coder = read("starcoder2", R"(, "sliding_window": 8, "residual_dropout": 0.1, "attention_dropout": 0.2)");
  EXPECT_TRUE(coder.transformers_alone() && coder.tied_embeddings && coder.qkv_bias && coder.mlp_bias);
  EXPECT_EQ(coder.normalization, Normalization::Layer);
  EXPECT_EQ(coder.activation, Activation::Gelu);
  EXPECT_EQ(coder.window(), 8);
  EXPECT_EQ(coder.hidden_dropout, 0.1);
  EXPECT_EQ(coder.attention_dropout, 0.2);
  EXPECT_EQ(read("starcoder2", R"(, "use_bias": false)").qkv_bias, false);
  EXPECT_EQ(read("olmo", R"(, "clip_qkv": 8.0)").qkv_clip, 8);
  EXPECT_EQ(problems(tiny(R"(, "clip_qkv": 8.0)")),
            "config.json: error: clip_qkv: limiting of Q, K and V is not modelled yet");
  // Every fourth layer sees all keys.
  const Model third = parse_model(R"({"model_type": "olmo3", "hidden_size": 64, "num_hidden_layers": 5,
    "num_attention_heads": 4, "intermediate_size": 128})",
                                  "tiny.json");
  EXPECT_EQ(third.norms, NormPlacement::After);
  EXPECT_EQ(third.layers[2].window(), 4096);
  EXPECT_EQ(third.layers[3].window(), 0);
  EXPECT_TRUE(read("cohere").parallel_residual);
  EXPECT_FALSE(read("stablelm").parallel_residual);
  EXPECT_TRUE(read("stablelm", R"(, "use_parallel_residual": true)").parallel_residual);
  EXPECT_EQ(read("phi").rotary_fraction, 0.5);
  EXPECT_TRUE(read("glm").qkv_bias && !read("glm").output_bias);
  EXPECT_EQ(read("glm4").norms, NormPlacement::Around);
  EXPECT_EQ(read("seed_oss").hidden_dropout, 0.1);
  const Model letters = read("exaone4", R"(, "sliding_window": 8, "sliding_window_pattern": "LG")");
  EXPECT_TRUE(letters.layers[0].window() == 8 && letters.layers[1].window() == 0);
  EXPECT_EQ(read("exaone4", R"(, "sliding_window": null)").window(), 0);
  EXPECT_EQ(problems(tiny(R"(, "no_rope_layers": [1, 0])", "smollm3")),
            "config.json: error: no_rope_layers: other layers than every fourth without rotary positions are not "
            "modelled");
  EXPECT_EQ(problems(tiny(R"(, "use_qk_norm": true, "num_key_value_heads": 4)", "cohere")),
            "config.json: error: use_qk_norm: normalization of Q and K is not modelled in this family");
}

TEST(ConfigReader, AFileThatIsNotThereIsAnInputError) {
  EXPECT_THROW(read_model("no/such/file.json"), InputError);
  EXPECT_THROW(read_model(TIDEMARK_SOURCE_DIR), InputError);
}

}  // namespace
}  // namespace tidemark::tests::config_reader_test
