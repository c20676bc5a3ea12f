#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/scenario/memory_bounds.hpp"
#include "tests/convert/recipes.hpp"

// GPT-NeoX's configurations, in the style of its own configs/.

namespace tidemark::tests::gpt_neox_test {
namespace {

// Of 6.9 billion parameters: half precision, ZeRO-1, two tensor-parallel ranks.
const std::string config = R"({
  "pipe-parallel-size": 1, "model-parallel-size": 2,
  # the model
  "num-layers": 32, "hidden-size": 4096, "num-attention-heads": 32, "seq-length": 2048,
  "max-position-embeddings": 2048, "norm": "layernorm", "pos-emb": "rotary", "rotary_pct": 0.25,
  "no-weight-tying": true, "gpt_j_residual": true, "output_layer_parallelism": "column",
  "attention-config": [[["flash"], 32]],
  "optimizer": {"type": "Adam", "params": {"lr": 0.00012, "betas": [0.9, 0.95]}},
  "zero_optimization": {"stage": 1, "allgather_partitions": true, "cpu_offload": false},
  "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2,
  "checkpoint-activations": true, "checkpoint-num-layers": 1,
  "hidden-dropout": 0, "attention-dropout": 0,
  "fp16": {"enabled": true, "loss_scale": 0},
  "train-iters": 143000, "vocab-file": "/data/20B_tokenizer.json", "tokenizer_type": "HFTokenizer",
}
)";

ConvertRequest requested_of(const std::string& text) {
  ConvertRequest requested;
  requested.files = {"6-9B.yml"};
  requested.texts = {{"6-9B.yml", text}};
  requested.cluster = "clusters/a100-sxm-40g.toml";
  requested.gpus = 128;
  requested.data_root = shipped_data();
  return requested;
}
std::string with(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}
bool not_judged(const std::string& text, std::string_view what) {
  const Converted converted = convert(requested_of(text));
  return std::ranges::any_of(converted.remarks, [&](const Remark& its) {
    return its.kind == RemarkKind::NotJudged && its.what.starts_with(what);
  });
}

std::string problem_of(const std::string& text) {
  try {
    (void)convert(requested_of(text));
    return "no problem";
  } catch (const InputError& error) {
    return error.problems().front().message;
  }
}

TEST(GptNeox, ModelLayoutAndBatchAreTheFilesOwn) {
  const Converted converted = convert(requested_of(config));
  const Scenario scenario = scenario_of(converted, shipped_data());
  EXPECT_EQ(scenario.model.layers.size(), 32);
  EXPECT_TRUE(scenario.model.parallel_residual);
  EXPECT_FALSE(scenario.model.tied_embeddings);
  EXPECT_EQ(scenario.model.vocabulary, 50277);
  EXPECT_EQ(scenario.layout.tensor, 2);
  EXPECT_EQ(scenario.layout.data, 64);
  EXPECT_EQ(scenario.layout.sharding, parallel::Sharding::Zero1);
  EXPECT_EQ(scenario.train.global_batch, 8 * 2 * 64);
  EXPECT_EQ(scenario.train.recompute.kind, parallel::Recompute::Full);
  EXPECT_TRUE(
      std::ranges::none_of(converted.remarks, [](const Remark& its) { return its.kind == RemarkKind::NotJudged; }));
  EXPECT_TRUE(std::ranges::any_of(converted.remarks, [](const Remark& its) { return its.bound == "gpt-neox"; }));
}

// `deepy.py train.py -d configs 6-9B.yml local_setup.yml`: keys of one configuration stand in several files.
TEST(GptNeox, SeveralFilesAreOneConfiguration) {
  constexpr std::string_view batch = "  \"train_micro_batch_size_per_gpu\": 8, \"gradient_accumulation_steps\": 2,\n";
  ConvertRequest requested = requested_of(with(config, std::string(batch), ""));
  requested.files = {"local_setup.yml", "6-9B.yml"};
  requested.texts["local_setup.yml"] =
      "{\"train_micro_batch_size_per_gpu\": 8, \"gradient_accumulation_steps\": 2, \"data_path\": \"/data/pile\"}\n";
  EXPECT_EQ(scenario_of(convert(requested), shipped_data()).train,
            scenario_of(convert(requested_of(config)), shipped_data()).train);
  requested.texts["local_setup.yml"] = "{\"num_layers\": 12}\n";
  try {
    (void)convert(requested);
    FAIL() << "a key that two files have";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("local_setup.yml:1:2: error: num_layers stands in another of these files"),
              std::string::npos)
        << error.what();
  }
}

// A file of the model alone, whose batch another has.
TEST(GptNeox, WithoutABatchItIsAskedFor) {
  ConvertRequest requested = requested_of(with(config, "\"train_micro_batch_size_per_gpu\": 8,", ""));
  try {
    (void)scenario_of(convert(requested), shipped_data());
    FAIL() << "nothing says a batch";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("--micro-batch N says it"), std::string::npos) << error.what();
  }
}

TEST(GptNeox, AGatedMlpIsScaledAsGptNeoxScalesIt) {
  std::string llama = with(config, "\"layernorm\"", "\"rmsnorm\"");
  llama = with(llama, "\"gpt_j_residual\": true",
               "\"gpt_j_residual\": false, \"activation\": \"swiglu\", \"intermediate_size\": 32768, "
               "\"mlp_multiple_of\": 256, \"use_bias_in_mlp\": false, \"use_bias_in_attn_linear\": false");
  const Scenario scenario =
      scenario_of(convert(requested_of(with(llama, "\"rotary_pct\": 0.25", "\"rotary_pct\": 1"))), shipped_data());
  EXPECT_EQ(scenario.model.ffn, 11008);
  EXPECT_EQ(scenario.model.hidden, 4096);
}

TEST(GptNeox, WhatIsNotModelledIsListed) {
  EXPECT_TRUE(not_judged(with(config, "\"stage\": 1", "\"stage\": 3"), "--zero-stage"));
  EXPECT_TRUE(
      not_judged(with(config, "\"cpu_offload\": false", "\"cpu_offload\": true"), "zero_optimization.cpu_offload"));
  EXPECT_TRUE(not_judged(with(config, "\"Adam\"", "\"Lion\""), "optimizer.type"));
  EXPECT_TRUE(not_judged(with(config, "[\"flash\"]", "[\"sparse_fixed\"]"), "attention_config"));
  EXPECT_TRUE(not_judged(with(config, "\"hidden-dropout\": 0,", "\"moe_num_experts\": 8,"), "moe_num_experts"));
  EXPECT_FALSE(not_judged(config, ""));
}

// megatron/utils.py expand_attention_types: a pattern, and how many times it stands in the layers.
TEST(GptNeox, AttentionIsOfTheKindOfEachLayer) {
  const auto of = [&](const std::string& kinds) { return with(config, "[[[\"flash\"], 32]]", kinds); };
  EXPECT_TRUE(not_judged(of("[[[\"global\", \"local\"], 16]]"), "attention_config"));
  EXPECT_TRUE(not_judged(of("[[[\"global\", \"flash\"], \"all\"]]"), "attention_config"));
  EXPECT_FALSE(not_judged(of("[[[\"global\"], \"all\"]]"), ""));
  EXPECT_FALSE(not_judged(of("[[[\"flash\", \"flash\"], 16]]"), ""));
  EXPECT_EQ(problem_of(of("[[[\"flash\"], 12]]")), "attention_config = [[[\"flash\"], 12]] is not of 32 layers");
  EXPECT_EQ(problem_of(of("[[[\"flush\"], 32]]")), "attention_config: \"flush\" is no attention of GPT-NeoX's");
  EXPECT_EQ(problem_of(of("\"flash\"")),
            "attention_config = \"flash\" is a text where a list such as [[[\"flash\"], 12]] is expected");
}

TEST(GptNeox, ValuesOfAnotherTypeAreErrors) {
  EXPECT_EQ(problem_of(with(config, "\"pipe-parallel-size\": 1", "\"pipe-parallel-size\": \"2\"")),
            "pipe_parallel_size = \"2\" is a text where a whole number is expected");
  EXPECT_EQ(problem_of(with(config, "\"stage\": 1", "\"stage\": \"1\"")),
            "zero_optimization.stage = \"1\" is a text where a whole number is expected");
  EXPECT_EQ(problem_of(with(config, "\"enabled\": true", "\"enabled\": \"yes\"")),
            "enabled = \"yes\" is a text where true or false is expected");
  EXPECT_EQ(problem_of(with(config, "\"norm\"", "\"precision\": \"bfloat16\", \"norm\"")),
            "precision = \"bfloat16\": fp16 is enabled, too, at which GPT-NeoX stops");
}

TEST(GptNeox, WithoutCheckpointsTheirNumberIsOfNoMatter) {
  const std::string none = with(config, "\"checkpoint-activations\": true", "\"checkpoint-activations\": false");
  EXPECT_FALSE(not_judged(none, ""));
  EXPECT_EQ(scenario_of(convert(requested_of(none)), shipped_data()).train.recompute.kind, parallel::Recompute::None);
}

// arguments.py calculate_batch_parameters: 128 devices in replicas of two are 64; 2048 / 64 / 2 = 16.
TEST(GptNeox, TwoOfThreeBatchesSayTheThird) {
  const std::string micro = "\"train_micro_batch_size_per_gpu\": 8,";
  const Scenario s =
      scenario_of(convert(requested_of(with(config, micro, "\"train_batch_size\": 2048,"))), shipped_data());
  EXPECT_EQ(s.train.micro_batch, 16);
  EXPECT_EQ(s.train.global_batch, 2048);
  EXPECT_EQ(problem_of(with(config, micro, micro + "\"train_batch_size\": 2048,")),
            "train_batch_size = 2048 is not 8 sequences x 2 micro-batches x 64 replicas, at which GPT-NeoX stops");
}

TEST(GptNeox, ABatchSaysOnHowManyDevices) {
  ConvertRequest requested = requested_of(with(config, "\"gradient_accumulation_steps\": 2",
                                               "\"gradient_accumulation_steps\": 2, \"train_batch_size\": 256"));
  requested.gpus = {};
  const Scenario scenario = scenario_of(convert(requested), shipped_data());
  EXPECT_EQ(scenario.gpus, 256 / 16 * 2);
  EXPECT_EQ(scenario.train.global_batch, 256);
}

TEST(GptNeox, ItsLayersTakeMoreByTheirTokens) {
  ConvertRequest requested = requested_of(config);
  const Scenario one = scenario_of(convert(requested), shipped_data());
  requested.micro_batch = 16;
  const Scenario two = scenario_of(convert(requested), shipped_data());
  EXPECT_GT(most_more("gpt-neox", one), Bytes{});
  EXPECT_GT(most_more("gpt-neox:1", one), most_more("gpt-neox", one));
  const Converted apart = convert(requested_of(with(config, "[\"flash\"]", "[\"global\"]")));
  EXPECT_TRUE(std::ranges::any_of(apart.remarks, [](const Remark& its) { return its.bound == "gpt-neox:1"; }));
  EXPECT_EQ(most_more("gpt-neox", two), most_more("gpt-neox", one) * 2);
}

}  // namespace
}  // namespace tidemark::tests::gpt_neox_test
