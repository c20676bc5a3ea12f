#include "scenarios/io/scenario_reader.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/io/environment.hpp"
#include "scenarios/io/input_error.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {
namespace {

using namespace literals;

const std::filesystem::path source = TIDEMARK_SOURCE_DIR;
const ScenarioFolders folders{source / "scenarios/examples", source / "scenarios"};

// Line 5 begins [layout], line 10 [train], line 18 [runtime].
constexpr std::string_view job = R"(model = "models/llama-3.1-70b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 64
[model_override]
[layout]
tensor = 8
sequence_parallel = true
pipeline = 4
sharding = "zero1"
[train]
sequence_length = 8192
micro_batch = 1
global_batch = 128
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0

[runtime]
name = "megatron"
)";

struct Edit {
  std::string_view old;
  std::string_view replacement;
};

std::string edited(const std::vector<Edit>& edits) {
  std::string text(job);
  for (const Edit& edit : edits) text.replace(text.find(edit.old), edit.old.size(), edit.replacement);
  return text;
}

Scenario scenario(const std::vector<Edit>& edits = {}) { return parse_scenario(edited(edits), "job.toml", folders); }

std::string problems_of(std::string_view text) {
  try {
    parse_scenario(text, "job.toml", folders);
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}
std::string problems(const std::vector<Edit>& edits) { return problems_of(edited(edits)); }

/// Of the job with one more line in a table, which becomes its first.
std::string with(std::string_view table, const std::string& line) {
  return problems({{table, std::string(table) + "\n" + line}});
}

std::string with_switch(const std::string& line) {
  return problems_of(std::string(job) + "[runtime.switches]\n" + line);
}
std::string with_variable(const std::string& line) {
  return problems_of(std::string(job) + "[runtime.environment]\n" + line);
}

TEST(ScenarioReader, ReadsTheContractsExample) {
  const Scenario s = read_scenario(source / "scenarios/examples/llama-3.1-70b-64xh100.toml", source / "scenarios");
  EXPECT_EQ(s.name, "llama-3.1-70b-64xh100");
  EXPECT_EQ(s.model.name, "llama-3.1-70b");
  EXPECT_EQ(s.cluster.name, "h100-sxm-80g");
  EXPECT_EQ(s.gpus, 64);
  EXPECT_EQ(s.layout,
            (Layout{.tensor = 8, .sequence_parallel = true, .pipeline = 4, .data = 2, .sharding = Sharding::Zero1}));
  EXPECT_EQ(s.train, (Train{.sequence_length = 8192,
                            .micro_batch = 1,
                            .global_batch = 128,
                            .cross_entropy = CrossEntropy::TransformerEngine}));
  EXPECT_EQ(s.runtime, RuntimeChoice{});
}

TEST(ScenarioReader, ReadsEveryShippedScenario) {
  int count = 0;
  for (const char* folder : {"scenarios/examples", "tests/golden/simumax_b200"}) {
    for (const auto& entry : std::filesystem::directory_iterator(source / folder)) {
      if (entry.path().extension() != ".toml") continue;  // a ds_config.json, say
      EXPECT_NO_THROW(read_scenario(entry.path(), source / "scenarios")) << entry.path();
      ++count;
    }
  }
  EXPECT_GE(count, 14);
}

TEST(ScenarioReader, GoldenScenariosStateWhatTheRunsWere) {
  const Scenario s = read_scenario(source / "tests/golden/simumax_b200/llama3_405b_l4_tp4_pp1_dp2_mbc8_cef.toml",
                                   source / "scenarios");
  EXPECT_EQ(s.model.layers, 4);
  EXPECT_EQ(s.model.kv_heads, 16);
  EXPECT_EQ(s.model.vocabulary_extra, 1);
  EXPECT_EQ(s.layout, (Layout{.tensor = 4, .sequence_parallel = true, .data = 2, .sharding = Sharding::Zero1}));
  EXPECT_EQ(s.train.global_batch, 16);
  EXPECT_EQ(s.runtime.versions, Versions{});
}

TEST(ScenarioReader, ReadsWhatTheExampleLeavesOut) {
  const Scenario s = parse_scenario(R"(model = "models/qwen2.5-7b.json"
cluster = "clusters/b200-sxm-180g.toml"
gpus = 8
[model_override]
num_hidden_layers = 14
tie_word_embeddings = true
vocabulary_extra = 1
vocabulary_multiple = 64
[layout]
tensor = 2
pipeline = 2
data = 2
count_embedding = true
count_loss = true
order = "tp-cp-ep-dp-pp"
[train]
sequence_length = 4097
micro_batch = 3
precision = "fp16"
gradient_dtype = "fp32"
optimizer = "sgd_momentum"
attention = "flash"
cross_entropy = "fused"
steps = 3
hidden_dropout = 0
attention_dropout = 0
[runtime]
headroom = "2 GiB"
allocator = ""
versions = {megatron = "0.13.1", transformer_engine = "2.8", torch = "2.9", cuda = "12.8", nccl = "2.27"}
environment = {CUBLAS_WORKSPACE_CONFIG = ":4096:8", CUDA_DEVICE_MAX_CONNECTIONS = 1}
)",
                                    "folder/job.toml", folders);
  EXPECT_EQ(s.name, "job");
  EXPECT_EQ(s.model.layers, 14);
  EXPECT_TRUE(s.model.tied_embeddings);
  EXPECT_EQ(s.model.vocabulary_extra, 1);
  EXPECT_EQ(s.model.vocabulary_multiple, 64);
  EXPECT_EQ(s.layout, (Layout{.tensor = 2, .pipeline = 2, .data = 2, .count_embedding = true, .count_loss = true}));
  EXPECT_EQ(s.train, (Train{.sequence_length = 4097,
                            .micro_batch = 3,
                            .global_batch = 6,
                            .precision = DType::FP16,
                            .gradient_dtype = DType::FP32,
                            .optimizer = Optimizer::SgdMomentum,
                            .attention = AttentionKernel::Flash,
                            .cross_entropy = CrossEntropy::Fused,
                            .steps = 3}));
  EXPECT_EQ(s.runtime.headroom, 2_GiB);
  EXPECT_EQ(s.runtime.versions, (Versions{{0, 13}, {2, 8}, {2, 9}, {12, 8}, {2, 27}}));
  EXPECT_EQ(s.runtime.cublas_workspace_config, ":4096:8");
}

TEST(ScenarioReader, GradientsFollowThePrecisionAsMegatronHasIt) {
  EXPECT_EQ(scenario().train.gradient_dtype, DType::FP32);
  EXPECT_EQ(scenario({{"micro_batch", "precision = \"fp16\"\nmicro_batch"}}).train.gradient_dtype, DType::FP16);
  EXPECT_EQ(scenario({{"micro_batch", "gradient_dtype = \"bf16\"\nmicro_batch"}}).train.gradient_dtype, DType::BF16);
  EXPECT_EQ(with("[train]", "gradient_dtype = \"fp16\""),
            "job.toml:11:18: error: gradient_dtype = \"fp16\" is neither \"fp32\" nor precision = \"bf16\"");
}

TEST(ScenarioReader, SequenceParallelIsOffWithOneTensorRank) {
  EXPECT_FALSE(scenario({{"tensor = 8", "tensor = 1"}}).layout.sequence_parallel);
  // Then the sequence need not divide either.
  EXPECT_EQ(problems({{"tensor = 8", "tensor = 1"}, {"8192", "8191"}}), "no problem");
}

TEST(ScenarioReader, TensorHasToDivideHeads) {
  EXPECT_EQ(problems({{"tensor = 8", "tensor = 6"}, {"gpus = 64", "gpus = 96"}, {"8192", "8190"}}),
            "job.toml:6:10: error: tensor = 6 does not divide 64 attention heads\n  hint: 1, 2, 4 or 8 would");
  EXPECT_EQ(problems({{"tensor = 8", "tensor = 16"}}),
            "job.toml:6:10: error: tensor = 16 is more than 8 key/value heads: replicated key/value heads are not "
            "modelled yet\n"
            "  hint: 1, 2, 4 or 8 would");
  EXPECT_EQ(problems({{"[model_override]", "[model_override]\nintermediate_size = 28676"}}),
            "job.toml:7:10: error: tensor = 8 does not divide intermediate_size = 28676\n  hint: 1, 2 or 4 would");
}

TEST(ScenarioReader, DegreesHaveToFillTheGpus) {
  EXPECT_EQ(
      problems({{"gpus = 64", "gpus = 72"}}),
      "job.toml:3:8: error: gpus = 72 is not a multiple of tensor x pipeline = 8 x 4 = 32\n  hint: 64 or 96 would");
  EXPECT_EQ(with("[layout]", "data = 4"),
            "job.toml:6:8: error: data = 4 disagrees with gpus / (tensor x pipeline) = 64 / 32 = 2\n  hint: leave it "
            "out, or set 2");
}

TEST(ScenarioReader, LayersHaveToFillTheStages) {
  EXPECT_EQ(problems({{"pipeline = 4", "pipeline = 3"}, {"gpus = 64", "gpus = 48"}}),
            "job.toml:8:12: error: pipeline = 3 does not divide 80 layers\n  hint: 1 or 2 would");
  EXPECT_EQ(with("[layout]", "count_embedding = true"),
            "job.toml:9:12: error: pipeline = 4 does not divide 80 layers + 1 for the embedding\n  hint: 1 would");
  EXPECT_EQ(with("[layout]", "count_embedding = true\ncount_loss = true"),
            "job.toml:10:12: error: pipeline = 4 does not divide 80 layers + 1 for the embedding + 1 for the loss\n  "
            "hint: 1 or 2 would");
}

TEST(ScenarioReader, BatchesAndSequencesHaveToAddUp) {
  EXPECT_EQ(problems({{"global_batch = 128", "global_batch = 127"}}),
            "job.toml:13:16: error: global_batch = 127 is not a multiple of micro_batch x data = 1 x 2 = 2\n  hint: "
            "126 or 128 would");
  EXPECT_EQ(problems({{"8192", "8191"}}),
            "job.toml:11:19: error: sequence_length = 8191 is not a multiple of tensor = 8, over which "
            "sequence_parallel spreads it\n"
            "  hint: 8184 or 8192 would");
}

TEST(ScenarioReader, TheOrderOfAxesNamesEachOnce) {
  EXPECT_EQ(with("[layout]", "order = \"tp-pp-dp\""), "no problem");
  EXPECT_EQ(with("[layout]", "order = \"tp-dp\""),
            "job.toml:6:9: error: order = \"tp-dp\" does not name tp, dp and pp once each\n"
            "  hint: \"tp-cp-ep-dp-pp\" is Megatron's default");
}

TEST(ScenarioReader, HeadroomHasToLeaveSomething) {
  EXPECT_EQ(with("[runtime]", "headroom = \"80 GiB\""),
            "job.toml:19:12: error: headroom = \"80 GiB\" leaves nothing of a device's 79.10 GiB");
}

TEST(ScenarioReader, DropoutLeftOutIsMegatronsTenth) {
  const Scenario left_out = parse_scenario(edited({{"hidden_dropout = 0.0\n", ""}}), "job.toml", folders);
  EXPECT_EQ(left_out.train.hidden_dropout, 0.1);
  EXPECT_EQ(left_out.train.attention_dropout, 0);
  const Scenario given =
      parse_scenario(edited({{"attention_dropout = 0.0", "attention_dropout = 0.25"}}), "job.toml", folders);
  EXPECT_EQ(given.train.attention_dropout, 0.25);
  EXPECT_EQ(problems({{"hidden_dropout = 0.0", "hidden_dropout = 1.5"}}).substr(0, 43),
            "job.toml:15:18: error: hidden_dropout = 1.5");
  EXPECT_NE(problems({{"hidden_dropout = 0.0", "hidden_dropout = 1.0"}}).find("nothing would be left"),
            std::string::npos);
}

TEST(ScenarioReader, LearnedPositionsBoundTheSequence) {
  const auto asked = [](const char* length) {
    return problems({{"models/llama-3.1-70b.json", "models/gpt3-175b.json"}, {"8192", length}});
  };
  EXPECT_EQ(asked("2048"), "no problem");
  EXPECT_NE(asked("2049").find("is more than the 2048 positions that the model has learned"), std::string::npos);
}

TEST(ScenarioReader, ContextParallelRanksShareOutEverySequence) {
  const auto asked = [](const std::string& keys, const std::string& sequence = "8192") {
    return problems(
        {{"tensor = 8", "tensor = 4\n" + keys}, {"sequence_length = 8192", "sequence_length = " + sequence}});
  };
  EXPECT_EQ(asked("context = 2"), "no problem");
  EXPECT_EQ(asked("context = 2\ncontext_kind = \"a2a\""), "no problem");
  EXPECT_EQ(asked("context = 4\ncontext_kind = \"a2a+p2p\"\ncontext_inner = 2"), "no problem");
  const auto says = [](const std::string& answer, const std::string& text) {
    EXPECT_NE(answer.find(text), std::string::npos) << answer;
  };
  says(asked("context = 2", "8190"),
       "sequence_length = 8190 is not a multiple of 8: each of context = 2 ranks takes two "
       "equal chunks, which tensor = 4 ranks spread\n  hint: 8184 or 8192 would");
  says(asked("context = 4\ncontext_kind = \"a2a\""),
       "context = 4 does not divide the 16 attention and 2 key/value heads of a rank\n  hint: 1 or 2 would");
  says(asked("context = 4\ncontext_kind = \"a2a+p2p\""),
       "needs context_inner: how many of the 4 ranks all-to-alls go among\n  hint: 2 would");
  says(asked("context = 4\ncontext_kind = \"a2a+p2p\"\ncontext_inner = 3"),
       "context_inner = 3 does not cut context = 4 into several groups of several ranks\n  hint: 2 would");
  says(asked("context = 2\ncontext_inner = 2"), "context_inner says how a2a+p2p divides ranks");
  says(problems({{"tensor = 8", "tensor = 4\ncontext = 2"}, {"[train]", "[train]\nattention = \"unfused\""}}),
       "context = 2: no attention that stores scores works on parts of a sequence");
  says(asked("context = 3"), "is not a multiple of tensor x context x pipeline = 4 x 3 x 4 = 48");
  // core/parallel_state.py: experts' ranks of a stage are those of the model's.
  says(asked("context = 2\norder = \"tp-cp-ep-pp-dp\""),
       "with expert_tensor = 4 the ranks of a stage are others to experts, which Megatron refuses for dense models "
       "too\n  hint: expert_tensor = 8 would");
  EXPECT_EQ(asked("context = 2\nexpert_tensor = 8\norder = \"tp-cp-ep-pp-dp\""), "no problem");
}

TEST(ScenarioReader, MegatronShardsNoParameters) {
  EXPECT_EQ(problems({{"zero1", "zero3"}}),
            "job.toml:9:12: error: sharding = \"zero3\": megatron shards no parameters here\n  hint: [runtime] name = "
            "\"fsdp2\", \"fsdp\" or \"deepspeed\" does");
}

TEST(ScenarioReader, OptimizerInstancesAreGroupsOfAShardedOptimizer) {
  EXPECT_EQ(with("[layout]", "shard_group = 8"),
            "job.toml:6:15: error: shard_group = 8 does not divide data = 2\n  hint: 1 or 2 would");
  const auto asked = [](const std::string& layout, const std::string& switches = "") {
    return problems(
        {{"[layout]", "[layout]\n" + layout}, {"tensor = 8", "tensor = 4"}, {"[runtime]", "[runtime]\n" + switches}});
  };
  EXPECT_EQ(asked("shard_group = 2", "switches.num-distributed-optimizer-instances = 2"), "no problem");
  const auto says = [](const std::string& answer, const std::string& text) {
    EXPECT_NE(answer.find(text), std::string::npos) << answer;
  };
  says(asked("", "switches.num-distributed-optimizer-instances = 2"),
       "num-distributed-optimizer-instances = 2 disagrees with shard_group");
  says(problems({{"[layout]", "[layout]\nshard_group = 1"}, {"zero1", "none"}}),
       "shard_group: there is no sharding within groups here\n  hint: leave it out; [runtime] name = \"fsdp2\" or "
       "\"fsdp\" has it, and megatron with sharding = \"zero1\"");
}

Scenario fully_sharded(const std::string& layout, const std::string& switches = "") {
  return parse_scenario(
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 16\n"
      "[layout]\n" +
          layout +
          "\n[train]\nsequence_length = 4096\nmicro_batch = 1\n[runtime]\n"
          "name = \"fsdp2\"\n[runtime.switches]\n" +
          switches,
      "job.toml", folders);
}

TEST(ScenarioReader, WhatIsFullySharded) {
  EXPECT_EQ(fully_sharded("").layout.sharding, Sharding::Zero3);
  EXPECT_EQ(fully_sharded("sharding = \"zero2\"").layout.sharding, Sharding::Zero2);
  EXPECT_EQ(fully_sharded("", "reshard_after_forward = false").layout.sharding, Sharding::Zero2);
  EXPECT_FALSE(fully_sharded("sharding = \"zero2\"").runtime.eager.fully_shard.reshards_after_forward);
  EXPECT_EQ(fully_sharded("shard_group = 8").layout.shards(), 8);
  const auto problem = [](const std::string& layout, const std::string& switches = "") -> std::string {
    try {
      (void)fully_sharded(layout, switches);
    } catch (const InputError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(problem("shard_group = 3"),
            "job.toml:5:15: error: shard_group = 3 does not divide data = 16\n  hint: 1, 2, 4, 8 or "
            "16 would");
  EXPECT_EQ(problem("sharding = \"zero1\""),
            "job.toml:5:12: error: sharding = \"zero1\": fully_shard shards parameters\n  hint: \"zero3\" would do, or "
            "\"zero2\", which keeps what is gathered until the backward pass");
  EXPECT_EQ(
      problem("sharding = \"zero3\"", "reshard_after_forward = false"),
      "job.toml:5:12: error: sharding = \"zero3\" disagrees with reshard_after_forward = false\n  hint: leave one of "
      "them out");
}

Scenario flat(const std::string& layout, const std::string& switches = "", const std::string& train = "") {
  return parse_scenario(
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 16\n"
      "[layout]\n" +
          layout + "\n[train]\nsequence_length = 4096\nmicro_batch = 1\n" + train +
          "\n[runtime]\nname = \"fsdp\"\n[runtime.switches]\n" + switches,
      "job.toml", folders);
}

TEST(ScenarioReader, WhatAreFlatParameters) {
  const FlatParameterHabits usual = flat("").runtime.eager.flat;
  EXPECT_EQ(flat("").layout.sharding, Sharding::Zero3);
  EXPECT_TRUE(usual.reshards_after_forward && usual.limits_all_gathers && !usual.whole && !usual.original_parameters);
  EXPECT_EQ(usual.backward_prefetch, BackwardPrefetch::Pre);
  EXPECT_EQ(usual.param_dtype, DType::BF16);
  EXPECT_EQ(usual.reduce_dtype, DType::BF16);
  EXPECT_TRUE(flat("sharding = \"none\"").runtime.eager.flat.whole);
  EXPECT_FALSE(flat("sharding = \"zero2\"").runtime.eager.flat.reshards_after_forward);
  EXPECT_EQ(flat("", "reduce_dtype = \"fp32\"").runtime.eager.flat.reduce_dtype, DType::FP32);
  EXPECT_EQ(flat("", "autocast = true\nparam_dtype = \"fp32\"").runtime.eager.flat.reduce_dtype, DType::FP32);
  const auto problem = [](const std::string& layout, const std::string& switches = "",
                          const std::string& train = "") -> std::string {
    try {
      (void)flat(layout, switches, train);
    } catch (const InputError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(
      problem("sharding = \"zero1\""),
      "job.toml:5:12: error: sharding = \"zero1\": FullyShardedDataParallel shards gradients too\n  hint: \"zero3\" "
      "(FULL_SHARD), \"zero2\" (SHARD_GRAD_OP) or \"none\" (NO_SHARD) would do");
  EXPECT_EQ(
      problem("shard_group = 4\nsharding = \"none\""),
      "job.toml:5:15: error: shard_group: sharding = \"none\" shards nothing within groups\n  hint: leave it out, or "
      "set sharding = \"zero3\"");
  EXPECT_EQ(
      problem("shard_group = 1"),
      "job.toml:5:15: error: shard_group = 1: FullyShardedDataParallel takes groups of one for NO_SHARD, and sums no "
      "gradients over the others\n  hint: leave it out, and set sharding = \"none\"");
  EXPECT_NE(problem("", "param_dtype = \"fp32\"").find("param_dtype = \"fp32\" is not what is computed in"),
            std::string::npos);
  EXPECT_NE(problem("", "", "precision = \"fp16\"").find("ShardedGradScaler is not modelled yet"), std::string::npos);
  EXPECT_NE(problem("", "backward_prefetch = \"before\"").find("backward_prefetch = \"before\" is not known"),
            std::string::npos);
}

Scenario of_torchtitan(const std::string& train, const std::string& switches = "", const std::string& layout = "",
                       const std::string& model = "llama-3.1-8b") {
  return parse_scenario(
      "model = \"models/" + model + ".json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 16\n[layout]\n" +
          layout + "\n[train]\nsequence_length = 4096\n" + train +
          "\nmicro_batch = 1\n[runtime]\nname = \"torchtitan\"\nversions = { torchtitan = \"0.2.2\" }\n"
          "[runtime.switches]\n" +
          switches,
      "job.toml", folders);
}

TEST(ScenarioReader, WhatTorchtitanTrains) {
  const Scenario usual = of_torchtitan("recompute = \"selective\"");
  EXPECT_EQ(usual.layout.sharding, Sharding::Zero3);
  EXPECT_EQ(usual.runtime.eager.optimizer, OptimizerKernels::Fused);
  EXPECT_EQ(usual.runtime.eager.titan, TitanSettings{});
  EXPECT_EQ(usual.runtime.versions.torchtitan, (Version{0, 2, 2}));
  EXPECT_EQ(usual.train.recompute.modules, RecomputedModules{});
  EXPECT_EQ(usual.train.attention, AttentionKernel::Fused);
  EXPECT_TRUE(of_torchtitan("", "", "tensor = 2").layout.sequence_parallel);
  EXPECT_EQ(of_torchtitan("", "selective_ac_option = 2").runtime.eager.titan.checkpointed_layers, 2);
  EXPECT_TRUE(of_torchtitan("", "compile = true").runtime.eager.titan.compile_loss);
  EXPECT_TRUE(of_torchtitan("", "compile = \"model\"").runtime.eager.titan.compile_layers);
  EXPECT_FALSE(of_torchtitan("", "compile = \"model\"").runtime.eager.titan.compile_loss);
  EXPECT_EQ(of_torchtitan("", "fsdp_reshard_after_forward = \"never\"").layout.sharding, Sharding::Zero2);
  EXPECT_EQ(of_torchtitan("", "", "sharding = \"zero2\"").runtime.eager.titan.reshard, ReshardPolicy::Never);
}

TEST(ScenarioReader, WhatTorchtitanDoesNotTrain) {
  const auto problem = [](const std::string& train, const std::string& switches = "", const std::string& layout = "",
                          const std::string& model = "llama-3.1-8b") -> std::string {
    try {
      (void)of_torchtitan(train, switches, layout, model);
    } catch (const InputError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(problem("", "selective_ac_option = \"ops\""),
            "job.toml:14:23: error: selective_ac_option = \"ops\" is no way to checkpoint\n  hint: \"op\", or every "
            "how many layers: 2");
  EXPECT_EQ(
      problem("", "compile = \"head\""),
      "job.toml:14:11: error: compile = \"head\" is no part of a training that is compiled\n  hint: true, false, or "
      "one of its components: \"model\", \"loss\"");
  EXPECT_EQ(problem("", "compile = true", "tensor = 2"),
            "job.toml:5:10: error: tensor: torch.compile of what is cut over ranks is not modelled yet\n  hint: 1, or "
            "without the switch compile");
  EXPECT_EQ(problem("", "fsdp_reshard_after_forward = \"never\"", "sharding = \"zero3\""),
            "job.toml:5:12: error: sharding = \"zero3\" is not what torchtitan does with fsdp_reshard_after_forward = "
            "\"never\"\n  hint: \"zero2\" is");
  EXPECT_EQ(problem("", "", "context = 2"),
            "job.toml:5:11: error: context: not modelled with torchtitan yet\n  hint: leave it out");
  EXPECT_EQ(problem("", "", "tensor = 2\nsequence_parallel = false"),
            "job.toml:6:21: error: sequence_parallel: torchtitan's tensor parallelism always cuts the sequence too\n"
            "  hint: leave it out");
  EXPECT_EQ(problem("optimizer = \"sgd\""),
            "job.toml:8:13: error: optimizer: torchtitan has Adam and AdamW only\n  hint: leave it out");
  EXPECT_EQ(problem("precision = \"fp32\""),
            "job.toml:8:13: error: precision: attention by matrix products, as torchtitan 0.2.2 has it in fp32, is not "
            "modelled\n  hint: \"bf16\"");
  EXPECT_NE(problem("", "use_cache = true").find("use_cache"), std::string::npos);
  EXPECT_NE(problem("", "", "", "mistral-7b-v0.1").find("is none of torchtitan's models"), std::string::npos);
}

TEST(ScenarioReader, KeysOfTheFormatThatAreNotModelledAreRefused) {
  const std::string layout = "job.toml:6:";
  EXPECT_EQ(with("[layout]", "expert = 8"), layout + "10: error: the model has no experts\n  hint: leave it out");
  EXPECT_EQ(with("[layout]", "schedule = \"zb-v\""), layout +
                                                         "12: error: schedule = \"zb-v\" is not modelled yet\n  hint: "
                                                         "\"1f1b\", \"gpipe\", \"interleaved\" or \"zb-h1\" would do");
  EXPECT_EQ(with("[layout]", "schedule = \"zb-x\""), layout +
                                                         "12: error: schedule = \"zb-x\" is not known\n  hint: "
                                                         "\"1f1b\", \"gpipe\", \"interleaved\" or \"zb-h1\" would do");
  for (const char* line :
       {"precision = \"fp8-hybrid\"", "master_dtype = \"fp16\"", "moment_dtypes = [\"bf16\", \"bf16\"]"}) {
    EXPECT_NE(with("[train]", line).find("not modelled yet"), std::string::npos) << line;
  }
  EXPECT_EQ(problems_of(std::string(job) + "[offload]\noptimizer = \"cpu\""),
            "job.toml:21:13: error: optimizer = \"cpu\" is not modelled yet\n  hint: \"none\" would do");
  for (const char* table : {"adapter", "quantization", "rollout"}) {
    const std::string text = std::string(job) + "[" + table + "]\nx = 1";
    EXPECT_NE(problems_of(text).find("[" + std::string(table) + "]: "), std::string::npos) << problems_of(text);
  }
}

TEST(ScenarioReader, SettingsOfTheAllocatorAreThoseOfPyTorch) {
  EXPECT_EQ(with("[runtime]", "allocator = \"expandable_segments:True,max_split_size_mb:128\""), "no problem");
  EXPECT_EQ(with("[runtime]", "allocator = \"expandable_segments:true\""),
            "job.toml:19:13: error: character 21: Expected 'True' or 'False' at index 2 in ConfigTokenizer but got "
            "'true'\n  hint: capitalized, as Python writes them");
  EXPECT_EQ(with_variable("PYTORCH_CUDA_ALLOC_CONF = \"expandable_segments:True\""), "no problem");
  EXPECT_EQ(
      with_variable("PYTORCH_ALLOC_CONF = \"backend:cudaMallocAsync\""),
      "job.toml:21:22: error: character 9: backend:cudaMallocAsync is not modelled: its pool is the driver's, with "
      "rules of its own\n  hint: leave it out for the native allocator");
  EXPECT_EQ(with("[runtime]",
                 "allocator = \"max_split_size_mb:64\"\n"
                 "environment.PYTORCH_ALLOC_CONF = \"max_split_size_mb:128\""),
            "job.toml:19:13: error: allocator = \"max_split_size_mb:64\", and the environment says "
            "\"max_split_size_mb:128\"\n  hint: leave one of them out");
}

TEST(ScenarioReader, KeysThatAskForNothingAreAccepted) {
  EXPECT_EQ(with("[layout]",
                 "context = 1\ncontext_kind = \"p2p\"\nexpert = 1\nexpert_tensor = 1\nchunks = 1\nschedule = \"1f1b\"\n"
                 "order = \"tp-cp-ep-dp-pp\"\ndata = 2"),
            "no problem");
  EXPECT_EQ(
      with("[train]",
           "precision = \"bf16\"\nmaster_dtype = \"fp32\"\nmoment_dtypes = [\"fp32\", \"fp32\"]\nrecompute = \"none\"\n"
           "recompute_layers = 0\nrecompute_modules = []\nattention = \"auto\"\nsteps = 2\noptimizer = \"adamw\""),
      "no problem");
  EXPECT_EQ(
      problems_of(
          std::string(job) +
          "[offload]\noptimizer = \"none\"\noptimizer_fraction = 0.0\nparameters = \"none\"\nactivations = \"none\""),
      "no problem");
}

TEST(ScenarioReader, SchedulesAndStages) {
  for (const char* lines : {"stage_layers = [20, 20, 20, 20]", "first_stage_layers = 17\nlast_stage_layers = 21",
                            "chunks = 5", "chunks = 2\nschedule = \"interleaved\"", "schedule = \"gpipe\""})
    EXPECT_EQ(with("[layout]", lines), "no problem") << lines;
  const auto complains = [](const std::string& lines, const std::string& words) {
    EXPECT_NE(with("[layout]", lines).find(words), std::string::npos) << with("[layout]", lines);
  };
  complains("chunks = 3", "20 layers of pipeline rank 0 do not divide into 3 chunks");
  complains("schedule = \"interleaved\"", "with one chunk on each rank");
  complains("schedule = \"1f1b\"\nchunks = 2", "runs one chunk on each rank, and chunks = 2");
  complains("stage_layers = [20, 20, 20]", "stage_layers names 3 stages, and there are 4");
  complains("stage_layers = [20, 20, 20, 19]", "stage_layers sums to 79 layers, and the model has 80");
  complains("stage_layers = \"even\"", "stage_layers takes a list");
  complains("first_stage_layers = 18", "62 layers are left for 3 stages");
  complains("first_stage_layers = 17\ncount_loss = true", "do not go with");
}

TEST(ScenarioReader, Recomputation) {
  for (const char* lines :
       {"recompute = \"full\"", "recompute = \"full\"\nrecompute_method = \"block\"\nrecompute_layers = 3",
        "recompute = \"selective\"", "recompute = \"selective\"\nrecompute_modules = [\"mlp\", \"core_attn\"]"})
    EXPECT_EQ(with("[train]", lines), "no problem") << lines;
  const auto complains = [](const std::string& lines, const std::string& words) {
    EXPECT_NE(with("[train]", lines).find(words), std::string::npos) << with("[train]", lines);
  };
  complains("recompute = \"full\"\nrecompute_layers = 0", "recompute_layers = 0 recomputes nothing");
  complains("recompute_layers = 2", "recompute_layers is for recompute = \"full\"");
  complains("recompute = \"selective\"\nrecompute_method = \"block\"", "recompute_method is for recompute = \"full\"");
  complains("recompute = \"full\"\nrecompute_modules = [\"mlp\"]", "recompute_modules is for");
  complains("recompute = \"selective\"\nrecompute_modules = []", "with nothing to recompute");
  complains("recompute = \"selective\"\nrecompute_modules = [\"fc1\"]", "\"fc1\" is no module that can be recomputed");
  complains("recompute = \"selective\"\nrecompute_modules = \"mlp\"", "takes a list of names");
  for (const char* module : {"moe", "moe_act", "shared_experts"})
    complains(fmt::format("recompute = \"selective\"\nrecompute_modules = [\"{}\"]", module),
              "the model has no experts");
  complains("recompute = \"selective\"\nrecompute_modules = [\"mla_up_proj\"]", "the model has no latent attention");
}

TEST(ScenarioReader, UnknownKeysComeWithASuggestion) {
  EXPECT_EQ(problems({{"micro_batch = 1", "micro_batchs = 1"}}),
            "job.toml:10:1: error: micro_batch is missing in [train]\n  hint: give a whole number\n"
            "job.toml:12:1: error: unknown key \"micro_batchs\" in [train]\n  hint: did you mean micro_batch?");
  EXPECT_EQ(problems({{"[layout]", "[layuot]"}, {"pipeline = 4", "pipeline = 1"}}).substr(0, 69),
            "job.toml:5:2: error: unknown key \"layuot\"\n  hint: did you mean layout");
  EXPECT_EQ(with("[runtime]", "versions = {pytorch = \"2.9\"}"),
            "job.toml:19:13: error: unknown key \"pytorch\" in [runtime.versions]\n  hint: did you mean torch?");
}

TEST(ScenarioReader, AllProblemsAreReportedAtOnce) {
  EXPECT_EQ(
      problems_of(R"(model = "models/llama-3.1-7b.json"
cluster = 5
gpus = 0
color = "blue"
[layout]
tensor = "two"
sharding = "zero9"
[train]
sequence_length = 4096.5
steps = 1
[runtime]
headroom = 2
)"),
      "job.toml:1:9: error: model = \"models/llama-3.1-7b.json\" is neither in the scenario's folder nor in the data "
      "root\n"
      "  hint: did you mean \"models/llama-3.1-70b.json\"?\n"
      "job.toml:2:11: error: cluster takes a text between quotes, not 5\n"
      "  hint: between quotes: cluster = \"...\"\n"
      "job.toml:3:8: error: gpus = 0 is out of range\n"
      "  hint: 1 to 1048576 would do\n"
      "job.toml:4:1: error: unknown key \"color\"\n"
      "  hint: known here: adapter, cluster, gpus, layout, model, model_override, moe, offload, quantization, rollout, "
      "runtime or train\n"
      "job.toml:6:10: error: tensor takes a whole number, not \"two\"\n"
      "  hint: 1 to 1048576 would do\n"
      "job.toml:7:12: error: sharding = \"zero9\" is not known\n"
      "  hint: \"none\", \"zero1\", \"zero2\" or \"zero3\" would do\n"
      "job.toml:8:1: error: micro_batch is missing in [train]\n"
      "  hint: give a whole number\n"
      "job.toml:9:19: error: sequence_length takes a whole number, not 4096.5\n"
      "  hint: 1 to 16777216 would do\n"
      "job.toml:10:9: error: steps = 1 is out of range\n"
      "  hint: 2 to 64 would do\n"
      "job.toml:12:12: error: headroom takes a text with a unit, not 2\n"
      "  hint: such as \"80 GiB\", \"512 MiB\" or \"8519680 B\"");
}

TEST(ScenarioReader, ProblemsOfTheModelStandWithTheScenarios) {
  EXPECT_EQ(
      problems({{"[model_override]", "[model_override]\nnum_hidden_layers = 0\nnum_experts = 8\nrope_scaling = []"},
                {"gpus = 64", "gpus = 65"}}),
      "job.toml:3:8: error: gpus = 65 is not a multiple of tensor x pipeline = 8 x 4 = 32\n  hint: 64 or 96 would\n"
      "job.toml:5:21: error: num_hidden_layers: 0 is out of range\n  hint: 1 to 4096 would do\n"
      "job.toml:6:15: error: num_experts: mixture of experts is not modelled in this family\n"
      "job.toml:7:16: error: rope_scaling takes a number, a text, true or false, not []\n"
      "  hint: other values go into a config.json of your own");
}

TEST(ScenarioReader, LatentAttentionGoesWithKernelsThatTakeItAndWithSequenceParallelism) {
  const std::vector<Edit> latent{
      {"llama-3.1-70b", "deepseek-v3"},
      {"[model_override]", "[model_override]\nnum_hidden_layers = 60\nfirst_k_dense_replace = 60"}};
  EXPECT_EQ(problems(latent), "no problem");
  std::vector<Edit> edits = latent;
  edits.push_back({"sequence_parallel = true\n", ""});
  edits.push_back({"cross_entropy", "attention = \"flash\"\ncross_entropy"});
  EXPECT_EQ(
      problems(edits),
      "job.toml:8:10: error: tensor = 8 without sequence_parallel: Megatron-LM would leave gradients of latent "
      "attention apart\n"
      "  hint: sequence_parallel = true, or tensor = 1\n"
      "job.toml:15:13: error: attention = \"flash\" does not go with latent attention, whose values are not as wide "
      "as its keys\n"
      "  hint: \"auto\", \"fused\" or \"unfused\" would");
  edits = latent;
  edits.push_back({"name = \"megatron\"", "name = \"pytorch\""});
  EXPECT_NE(problems(edits).find("latent attention is not modelled there yet"), std::string::npos) << problems(edits);
}

// context_parallel.py of Transformer Engine 2.11, yarn_rotary_pos_embedding.py of Megatron-LM core 0.14.
TEST(ScenarioReader, LatentAttentionOfPartsOfASequenceGoesRoundRings) {
  const auto with = [&](const std::string& layout, const std::string& model = "", const std::string& runtime = "") {
    return problems(
        {{"llama-3.1-70b", "deepseek-v3"},
         {"[model_override]",
          "[model_override]\nnum_hidden_layers = 60\nfirst_k_dense_replace = 60\nnum_nextn_predict_layers = 0" + model},
         {"tensor = 8\n", "tensor = 4\n" + layout + "\n"},
         {"name = \"megatron\"", "name = \"megatron\"\n" + runtime}});
  };
  for (const char* rings : {"context = 2", "context = 4\ncontext_kind = \"a2a+p2p\"\ncontext_inner = 2"})
    EXPECT_EQ(with(rings), "no problem");
  for (const std::string kind : {"a2a", "all_gather"}) {
    EXPECT_EQ(with("context = 2\ncontext_kind = \"" + kind + "\""),
              "job.toml:11:16: error: context_kind = \"" + kind +
                  "\": Transformer Engine takes no latent attention that way, where values are not as wide as keys\n"
                  "  hint: \"p2p\" or \"a2a+p2p\" would do");
    EXPECT_EQ(with("context = 2\ncontext_kind = \"" + kind + "\"", "\nv_head_dim = 192"), "no problem");
  }
  EXPECT_EQ(with("context = 2", "", "versions.transformer_engine = \"2.4\""),
            "job.toml:10:11: error: context = 2: Transformer Engine 2.4 takes no values that are not as wide as keys\n"
            "  hint: transformer_engine = \"2.5\" in [runtime.versions] would do");
}

TEST(ScenarioReader, SyntaxErrorsHaveAPlace) {
  EXPECT_EQ(problems({{"gpus = 64", "gpus = "}}).substr(0, 21), "job.toml:3:8: error: ");
  EXPECT_EQ(problems({{"gpus = 64", "gpus = 64\ngpus = 64"}}).substr(0, 21), "job.toml:4:8: error: ");
  EXPECT_EQ(problems({{"[layout]", "[$layout]"}}).substr(0, 21), "job.toml:5:2: error: ");
  EXPECT_EQ(problems({{"gpus = 64", "gpus = 99999999999999999999"}}).substr(0, 15), "job.toml:3:28: ");
}

TEST(ScenarioReader, CharactersBeyondAsciiBelongInCommentsAndStrings) {
  EXPECT_EQ(problems({{"gpus = 64", "gpus = 64  # caf\u00e9 \u02cb"}}), "no problem");
  EXPECT_EQ(problems({{"\"megatron\"", "\"m\u00e9gatron\u02cb\""}}),
            "job.toml:19:8: error: name = \"m\u00e9gatron\u02cb\" is not known\n  hint: \"megatron\", \"pytorch\", "
            "\"fsdp2\", \"fsdp\", \"torchtitan\" or \"deepspeed\" would do");
  // Of each of these toml++ asks whether it is white space, and has no answer in its tables.
  const auto error = [](const std::string& from, const std::string& to) {
    const std::string all = problems({{from, to}});
    return all.substr(0, all.find(" while parsing"));
  };
  EXPECT_EQ(error("gpus = 64", "gpus\u02cb = 64"), "job.toml:3:5: error: Error");
  EXPECT_EQ(error("\"megatron\"", "\"\u00e9\" \u00a0"), "job.toml:19:12: error: Error");
  EXPECT_EQ(error("\"megatron\"", "\"\"\"a\\\u02cb\"\"\""), "job.toml:19:13: error: Error");
  EXPECT_EQ(error("\"megatron\"", "\"\"\"a\"\"\"\"\"\u02cb"), "job.toml:19:17: error: Error");
  EXPECT_EQ(error("gpus = 64", "gpus = 64\"h100\u00cc\""), "job.toml:3:10: error: Error");
  EXPECT_EQ(error("gpus = 64", "gpus = 64 'h100\u00cc'"), "job.toml:3:11: error: Error");
  EXPECT_EQ(error("gpus = 64", "gpus = 4\bs='\u00cc'"), "job.toml:3:9: error: Error");
  EXPECT_EQ(problems({{"\"megatron\"", "\"\"\"m\u00e9gatron\u02cb\"\"\""}}),
            "job.toml:19:8: error: name = \"m\u00e9gatron\u02cb\" is not known\n  hint: \"megatron\", \"pytorch\", "
            "\"fsdp2\", \"fsdp\", \"torchtitan\" or \"deepspeed\" would do");
  EXPECT_EQ(problems({{"model =", "\ufeffmodel ="}}), "no problem");
}

TEST(ScenarioReader, ExtremesAreInputErrors) {
  for (const char* value : {"-1", "0", "9223372036854775807", "-9223372036854775808", "nan", "inf", "1e300",
                            "1979-05-27", "[64]", "{a = 1}", "true", "\"64\""}) {
    EXPECT_NE(problems({{"gpus = 64", "gpus = " + std::string(value)}}), "no problem") << value;
    EXPECT_NE(problems({{"tensor = 8", "tensor = " + std::string(value)}}), "no problem") << value;
    EXPECT_NE(problems({{"= 8192", "= " + std::string(value)}}), "no problem") << value;
  }
  EXPECT_NE(problems_of(""), "no problem");
  EXPECT_NE(problems_of(std::string("\0\1\2\xff", 4)), "no problem");
  EXPECT_NE(problems_of("layout = " + std::string(10000, '[')), "no problem");
  EXPECT_NE(problems({{"models/llama-3.1-70b.json", ""}}), "no problem");
  EXPECT_NE(problems({{"models/llama-3.1-70b.json", "/dev/zero"}}), "no problem");
  EXPECT_NE(problems({{"models/llama-3.1-70b.json", "a\\u0000b"}}), "no problem");
  EXPECT_NE(problems({{"models/llama-3.1-70b.json", std::string(10000, 'a')}}), "no problem");
  EXPECT_THROW(read_scenario("no/such/scenario.toml", folders.data_root), InputError);
}

TEST(ScenarioReader, JobsBeyond64BitsAreRefused) {
  EXPECT_EQ(problems({{"= 8192", "= 16777216"},
                      {"micro_batch = 1", "micro_batch = 4096"},
                      {"= 128", "= 8192"},
                      {"[model_override]",
                       "[model_override]\nvocab_size = 4194304\nhidden_size = 262144\nintermediate_size = "
                       "1048576\nhead_dim = 128"}}),
            "job.toml:15:19: error: the job is too large to simulate: one rank could need more than an exabyte");
  EXPECT_EQ(problems({{"= 128", "= 16777216"}}),
            "job.toml:13:16: error: the job is too long to simulate: 335544320 passes through a layer on one rank\n"
            "  hint: at most 1048576 would do: fewer sequences, or fewer steps");
}

TEST(ScenarioReader, SwitchesThatRepeatAKeyHaveToAgree) {
  EXPECT_EQ(
      with_switch(
          "tensor-model-parallel-size = 8\npipeline-model-parallel-size = 4\nsequence-parallel = true\n"
          "use-distributed-optimizer = true\nmicro-batch-size = 1\nglobal-batch-size = 128\nseq-length = 8192\n"
          "bf16 = true\nfp16 = false\naccumulate-allreduce-grads-in-fp32 = true\noptimizer = \"adam\"\n"
          "cross-entropy-loss-fusion = true\ncross-entropy-fusion-impl = \"te\"\nattention-backend = \"auto\"\n"
          "num-layers = 80\nhidden-size = 8192\nffn-hidden-size = 28672\nnum-attention-heads = 64\n"
          "group-query-attention = true\nnum-query-groups = 8\nkv-channels = 128\nrotary-percent = 1.0\nvocab-size = "
          "128256\n"
          "make-vocab-size-divisible-by = 128\nuntie-embeddings-and-output-weights = true\nadd-qkv-bias = false\n"
          "disable-bias-linear = true\nswiglu = true\nnormalization = \"RMSNorm\"\nposition-embedding-type = \"rope\"\n"
          "hidden-dropout = 0.0\nattention-dropout = 0\ncontext-parallel-size = 1\noverlap-grad-reduce = false\n"
          "no-create-attention-mask-in-dataloader = true\ntransformer-impl = \"transformer_engine\"\n"
          "use-mcore-models = true\nlr = 1e-4\ntokenizer-type = \"HuggingFaceTokenizer\""),
      "no problem");
  EXPECT_EQ(with_switch("tensor-model-parallel-size = 4"),
            "job.toml:21:30: error: tensor-model-parallel-size = 4 disagrees with tensor in [layout]\n  hint: leave it "
            "out, or set 8");
  EXPECT_EQ(with_switch("use-distributed-optimizer = false"),
            "job.toml:21:29: error: use-distributed-optimizer = false disagrees with sharding in [layout]\n  hint: "
            "leave it out, or set true");
  EXPECT_EQ(with_switch("normalization = \"LayerNorm\""),
            "job.toml:21:17: error: normalization = \"LayerNorm\" disagrees with the model's normalization\n  hint: "
            "leave it out, or set \"RMSNorm\"");
  EXPECT_EQ(with_switch("tokenizer-type = \"NullTokenizer\""),
            "job.toml:21:18: error: tokenizer-type = \"NullTokenizer\" adds a token to the vocabulary, and the model "
            "has none added\n"
            "  hint: set vocabulary_extra = 1 in [model_override]");
}

TEST(ScenarioReader, ASwitchAgreesWithWhatWasAskedForNotWithWhatMegatronMakesOfIt) {
  const std::string one_rank = edited({{"tensor = 8", "tensor = 1"}});
  EXPECT_EQ(problems_of(one_rank + "[runtime.switches]\nsequence-parallel = true"), "no problem");
}

TEST(ScenarioReader, SwitchesThatAreUnknownOrNotModelledAreRefused) {
  EXPECT_EQ(with_switch("tp-comm-overlap = true"),
            "job.toml:21:19: error: tp-comm-overlap = true: TransformerEngine's user buffers are not modelled yet\n  "
            "hint: leave it out, or set false");
  EXPECT_EQ(with_switch("num-experts = 8"),
            "job.toml:21:15: error: num-experts = 8 disagrees with the model's number of experts\n  hint: leave it "
            "out, or set 0");
  EXPECT_EQ(with_switch("use-distributed-optimiser = true"),
            "job.toml:21:29: error: \"use-distributed-optimiser\" is not a flag of Megatron's that is known here\n"
            "  hint: did you mean use-distributed-optimizer?");
  EXPECT_EQ(with_switch("\"\" = 1"),
            "job.toml:21:6: error: \"\" is not a flag of Megatron's that is known here\n  hint: leave it out, if it "
            "does not change memory");
}

TEST(ScenarioReader, EnvironmentVariablesAreUnderstoodHarmlessOrRefused) {
  EXPECT_EQ(
      with_variable(
          "OMP_NUM_THREADS = 4\nNCCL_DEBUG = \"INFO\"\nPYTORCH_CUDA_ALLOC_CONF = \"\"\nCUDA_MODULE_LOADING = \"LAZY\""),
      "no problem");
  EXPECT_EQ(with_variable("CUBLAS_WORKSPACE_CONFIG = \"4096:8\""),
            "job.toml:21:27: error: CUBLAS_WORKSPACE_CONFIG = \"4096:8\" is not :SIZE:COUNT, once or more often, SIZE "
            "in KiB\n"
            "  hint: such as \":4096:8\" or \":4096:2:16:8\"");
  EXPECT_EQ(with_variable("NCCL_BUFFSIZE = \"8388608\""), "no problem");
  EXPECT_EQ(with_variable("NVTE_FLASH_ATTN = \"0\""),
            "job.toml:21:19: error: \"NVTE_FLASH_ATTN\" is not modelled yet\n  hint: leave it out, if it does not "
            "change memory");
  EXPECT_EQ(with_variable("CUDA_MODULE_LOADING = \"EAGER\""),
            "job.toml:21:23: error: CUDA_MODULE_LOADING = \"EAGER\" is not modelled yet\n  hint: leave it out, or set "
            "\"LAZY\"");
  EXPECT_EQ(with_variable("OMP_NUM_THREADS = 1.5"), "job.toml:21:19: error: OMP_NUM_THREADS takes a text, not 1.5");
}

TEST(Environment, CublasWorkspaceGrammar) {
  for (const char* good : {":4096:8", ":4096:2:16:8", ":16:8", ":0:0"})
    EXPECT_TRUE(is_cublas_workspace_config(good)) << good;
  for (const char* bad : {"", ":", ":4096", ":4096:", "4096:8", ":4096:8:", ":4096:8:16", ":-1:8", ": 4096:8",
                          ":4096:8 ", ":a:b", ":99999999999999999999:8", ":1073741824:1073741824"}) {
    EXPECT_FALSE(is_cublas_workspace_config(bad)) << bad;
  }
}

TEST(ScenarioReader, VersionsAreReleaseNumbers) {
  EXPECT_EQ(with("[runtime]", "versions = {megatron = \"core_r0.14\"}"),
            "job.toml:19:24: error: megatron = \"core_r0.14\" is not a version\n  hint: such as \"0.14\"");
  EXPECT_EQ(
      with("[runtime]", "versions = {torch = 2.9}"),
      "job.toml:19:21: error: torch takes a text between quotes, not 2.9\n  hint: between quotes: torch = \"...\"");
}

TEST(ScenarioReader, FilesOfTheScenariosOwnFolderComeFirst) {
  const std::filesystem::path own = std::filesystem::path(testing::TempDir()) / "own_folder";
  std::filesystem::create_directories(own / "models");
  std::filesystem::copy_file(source / "scenarios/models/llama-3.1-8b.json", own / "models/llama-3.1-70b.json",
                             std::filesystem::copy_options::overwrite_existing);
  const Scenario s = parse_scenario(job, "job.toml", {own, source / "scenarios"});
  EXPECT_EQ(s.model.hidden, 4096);
  EXPECT_EQ(s.model.name, "llama-3.1-70b");
}

// Megatron-LM core_v0.14.0, megatron/training/arguments.py: _add_moe_args, _add_mla_args, and of the others those that
// name context parallelism, latent attention or further tokens.
TEST(Switches, EveryFlagOfExpertsLatentsAndSequencesInPartsIsKnown) {
  for (const char* flag : {"expert-model-parallel-size",
                           "expert-tensor-parallel-size",
                           "num-experts",
                           "moe-layer-freq",
                           "moe-ffn-hidden-size",
                           "moe-shared-expert-intermediate-size",
                           "moe-shared-expert-overlap",
                           "moe-grouped-gemm",
                           "moe-use-legacy-grouped-gemm",
                           "moe-layer-recompute",
                           "moe-extended-tp",
                           "moe-use-upcycling",
                           "moe-router-load-balancing-type",
                           "moe-router-dtype",
                           "moe-router-fusion",
                           "moe-router-score-function",
                           "moe-router-topk",
                           "moe-router-pre-softmax",
                           "moe-router-num-groups",
                           "moe-router-group-topk",
                           "moe-router-topk-scaling-factor",
                           "moe-router-enable-expert-bias",
                           "moe-router-bias-update-rate",
                           "moe-router-force-load-balancing",
                           "moe-router-padding-for-fp8",
                           "moe-aux-loss-coeff",
                           "moe-z-loss-coeff",
                           "moe-input-jitter-eps",
                           "moe-per-layer-logging",
                           "moe-token-dispatcher-type",
                           "moe-enable-deepep",
                           "moe-deepep-num-sms",
                           "moe-permute-fusion",
                           "moe-expert-capacity-factor",
                           "moe-pad-expert-input-to-capacity",
                           "moe-token-drop-policy",
                           "moe-apply-probs-on-input",
                           "overlap-moe-expert-parallel-comm",
                           "delay-wgrad-compute",
                           "moe-upcycling-granularity",
                           "q-lora-rank",
                           "kv-lora-rank",
                           "qk-head-dim",
                           "qk-pos-emb-head-dim",
                           "v-head-dim",
                           "rotary-scaling-factor",
                           "mscale",
                           "mscale-all-dim",
                           "cache-mla-latents",
                           "multi-latent-attention",
                           "rope-type",
                           "mtp-num-layers",
                           "mtp-loss-scaling-factor",
                           "context-parallel-size",
                           "cp-comm-type",
                           "hierarchical-context-parallel-sizes"})
    EXPECT_EQ(with_switch(std::string(flag) + " = \"?\"").find("is not a flag of Megatron's"), std::string::npos)
        << flag;
}

TEST(Switches, FlagsOfExpertsSayWhatTheModelSays) {
  const std::string deepseek =
      "model = \"models/deepseek-v2-lite.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 1\n"
      "[model_override]\nnum_hidden_layers = 3\n[train]\nsequence_length = 1024\nmicro_batch = 1\n[runtime]\nname = "
      "\"megatron\"\n"
      "[runtime.switches]\n";
  const std::string agreeing = R"flags(moe-layer-freq = "([0]*1+[1]*2)"
moe-router-score-function = "softmax"
moe-router-pre-softmax = true
moe-router-topk-scaling-factor = 1.0
moe-router-enable-expert-bias = false
rope-type = "yarn"
moe-z-loss-coeff = 0.0
moe-token-drop-policy = "probs"
moe-deepep-num-sms = 20
)flags";
  EXPECT_EQ(problems_of(deepseek + agreeing), "no problem");
  for (const char* flag :
       {"moe-layer-freq = 1", "moe-router-score-function = \"sigmoid\"", "moe-router-topk-scaling-factor = 2.5",
        "moe-router-enable-expert-bias = true", "rope-type = \"rope\""})
    EXPECT_NE(problems_of(deepseek + flag).find("disagrees with the model's"), std::string::npos) << flag;
  for (const char* flag : {"moe-z-loss-coeff = 0.001", "moe-enable-deepep = true", "moe-shared-expert-overlap = true"})
    EXPECT_NE(problems_of(deepseek + flag).find("not modelled yet"), std::string::npos) << flag;
}

}  // namespace
}  // namespace tidemark::tests
