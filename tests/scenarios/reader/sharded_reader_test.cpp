#include <string>

#include <gtest/gtest.h>

#include "scenarios/predict/prediction.hpp"
#include "tests/scenarios/one_job.hpp"

// What runtimes of PyTorch that shard parameters are told.

namespace tidemark::tests::sharded_reader_test {
namespace {

using namespace literals;
using namespace one_job;

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

TEST(ShardedReader, WhatIsFullySharded) {
  EXPECT_EQ(fully_sharded("").layout.sharding, Sharding::Zero3);
  EXPECT_EQ(fully_sharded("sharding = \"zero2\"").layout.sharding, Sharding::Zero2);
  EXPECT_EQ(fully_sharded("", "reshard_after_forward = false").layout.sharding, Sharding::Zero2);
  EXPECT_FALSE(fully_sharded("sharding = \"zero2\"").runtime.eager.fully_shard.reshards_after_forward);
  EXPECT_EQ(fully_sharded("shard_group = 8").layout.shards(), 8);
  const auto problem = [](const std::string& layout, const std::string& switches = "") {
    return problem_of([&] { return fully_sharded(layout, switches); });
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

TEST(ShardedReader, WhatIsReshardedToFewerRanks) {
  const auto behavior = [](const std::string& layout, const std::string& switches) {
    return fully_sharded(layout, switches).runtime.eager.fully_shard;
  };
  EXPECT_EQ(behavior("", "reshard_after_forward = 4").ranks_after_forward, 4);
  EXPECT_EQ(behavior("", "reshard_after_forward = 16").ranks_after_forward, 0);  // of all ranks it is the same as true
  EXPECT_EQ(behavior("shard_group = 8", "reshard_after_forward = 8").ranks_after_forward, 0);
  EXPECT_EQ(fully_sharded("", "reshard_after_forward = 1").layout.sharding, Sharding::Zero2);
  EXPECT_TRUE(behavior("", "reshard_after_forward = \"default\"").keeps_root);
  EXPECT_FALSE(behavior("", "reshard_after_forward = true").keeps_root);
  EXPECT_EQ(behavior("", "num_to_forward_prefetch = 2").forward_prefetch, 2);
  EXPECT_EQ(behavior("", "num_to_backward_prefetch = 1").backward_prefetch, 1);
  const auto problem = [](const std::string& layout, const std::string& switches) {
    return problem_of([&] { return fully_sharded(layout, switches); });
  };
  EXPECT_NE(problem("", "reshard_after_forward = 3").find("reshard_after_forward = 3 does not divide 16 ranks"),
            std::string::npos);
  EXPECT_NE(problem("shard_group = 8", "reshard_after_forward = 16").find("does not divide 8 ranks"),
            std::string::npos);
  EXPECT_NE(problem("", "reshard_after_forward = \"none\"").find("is not a value of fully_shard's"), std::string::npos);
  EXPECT_NE(problem("sharding = \"zero2\"", "reshard_after_forward = 4").find("disagrees with"), std::string::npos);
  EXPECT_NE(problem("", "reshard_after_forward = 4\n[offload]\nparameters = \"cpu\"\n").find("with shards on the host"),
            std::string::npos);
}

Scenario flat(const std::string& layout, const std::string& switches = "", const std::string& train = "") {
  return parse_scenario(
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 16\n"
      "[layout]\n" +
          layout + "\n[train]\nsequence_length = 4096\nmicro_batch = 1\n" + train +
          "\n[runtime]\nname = \"fsdp\"\n[runtime.switches]\n" + switches,
      "job.toml", folders);
}

TEST(FullySharded, LossesInFp16AreScaled) {
  Scenario scenario = fully_sharded("");
  scenario.model.layers.resize(2);
  scenario.train.precision = DType::FP16;
  const Prediction prediction = predict(scenario);
  EXPECT_TRUE(prediction.fits);
  EXPECT_GT(prediction.highest().memory.allocated.bytes, 2_GiB);
}

TEST(ShardedReader, WhatAreFlatParameters) {
  const FlatParameterBehavior usual = flat("").runtime.eager.flat;
  EXPECT_EQ(flat("").layout.sharding, Sharding::Zero3);
  EXPECT_TRUE(usual.reshards_after_forward && usual.limits_all_gathers && !usual.whole && !usual.original_parameters);
  EXPECT_EQ(usual.backward_prefetch, BackwardPrefetch::Pre);
  EXPECT_EQ(usual.param_dtype, DType::BF16);
  EXPECT_EQ(usual.reduce_dtype, DType::BF16);
  EXPECT_TRUE(flat("sharding = \"none\"").runtime.eager.flat.whole);
  EXPECT_FALSE(flat("sharding = \"zero2\"").runtime.eager.flat.reshards_after_forward);
  EXPECT_EQ(flat("", "reduce_dtype = \"fp32\"").runtime.eager.flat.reduce_dtype, DType::FP32);
  EXPECT_EQ(flat("", "autocast = true\nparam_dtype = \"fp32\"").runtime.eager.flat.reduce_dtype, DType::FP32);
  const auto problem = [](const std::string& layout, const std::string& switches = "", const std::string& train = "") {
    return problem_of([&] { return flat(layout, switches, train); });
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
  return parse_scenario("model = \"models/" + model +
                            ".json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 16\n[layout]\n" + layout +
                            "\n[train]\nsequence_length = 4096\n" + train +
                            "\nmicro_batch = 1\n[runtime]\nname = \"torchtitan\"\nversions = { torch = \"2.15\", "
                            "torchtitan = \"0.2.2\" }\n"
                            "[runtime.switches]\n" +
                            switches,
                        "job.toml", folders);
}

TEST(ShardedReader, WhatTorchtitanTrains) {
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
  EXPECT_EQ(of_torchtitan("", "compile = true\nmemory_budget = 0.25").runtime.eager.titan.memory_budget, 0.25);
  EXPECT_EQ(of_torchtitan("", "fsdp_reshard_after_forward = \"never\"").layout.sharding, Sharding::Zero2);
  EXPECT_EQ(of_torchtitan("", "", "sharding = \"zero2\"").runtime.eager.titan.reshard, ReshardPolicy::Never);
  EXPECT_EQ(of_torchtitan("", "", "context = 8").layout.data, 2);
  EXPECT_FALSE(of_torchtitan("", "context_parallel_load_balancer = \"None\"", "context = 2")
                   .runtime.eager.titan.balances_context);
  EXPECT_EQ(of_torchtitan("", "", "tensor = 4", "qwen3-32b").model.architecture, "qwen3");
}

// 32 layers and the ends.
// Autocast, which one device has, and what FSDP2 would do.
TEST(ShardedReader, WhatTorchtitanTrainsOnOneDevice) {
  const auto alone = [](const std::string& keys) {
    return parse_scenario(
        "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 1\n"
        "[train]\nsequence_length = 4096\nmicro_batch = 1\n[runtime]\nname = \"torchtitan\"\n" +
            keys,
        "job.toml", folders);
  };
  EXPECT_EQ(alone("").train.precision, DType::BF16);
  EXPECT_EQ(alone("").layout.sharding, Sharding::None);
  EXPECT_NE(
      problem_of([&] { return alone("[runtime.switches]\ncompile = true"); }).find("torch.compile under autocast"),
      std::string::npos);
  EXPECT_NE(problem_of([&] {
              return alone("[offload]\nparameters = \"cpu\"");
            }).find("CPUOffloadPolicy needs data-parallel ranks"),
            std::string::npos);
}

// DistributedDataParallel.
TEST(ShardedReader, WhatTorchtitanReplicates) {
  const Scenario read = of_torchtitan("", "", "sharding = \"none\"");
  EXPECT_EQ(read.layout.sharding, Sharding::None);
  EXPECT_EQ(read.train.precision, DType::BF16);
  const auto problem = [](const std::string& layout, const std::string& switches = "") {
    return problem_of([&] { return of_torchtitan("", switches, "sharding = \"none\"\n" + layout); });
  };
  EXPECT_NE(problem("tensor = 2").find("torchtitan supports pure replicas along one axis only"), std::string::npos);
  EXPECT_NE(problem("shard_group = 4").find("shards nothing within groups"), std::string::npos);
  EXPECT_NE(problem("", "compile = true").find("torch.compile under autocast"), std::string::npos);
}

TEST(ShardedReader, ExpertsInTorchtitansPipelines) {
  const Scenario read = of_torchtitan("global_batch = 64", "", "pipeline = 2\nexpert = 8", "qwen3-30b-a3b");
  EXPECT_EQ(read.layout.expert, 8);
  EXPECT_EQ(read.layout.stage_layers, (std::vector<std::int32_t>{24, 24}));
}

TEST(ShardedReader, HowTorchtitanDealsOutLayers) {
  const auto stages = [](const std::string& layout, const std::string& switches = "") {
    return of_torchtitan("global_batch = 64", switches, layout).layout.stage_layers;
  };
  using Layers = std::vector<std::int32_t>;
  EXPECT_EQ(stages("pipeline = 2"), (Layers{16, 16}));
  EXPECT_EQ(stages("pipeline = 4"), (Layers{8, 9, 8, 7}));
  EXPECT_EQ(stages("pipeline = 4", "pipeline_parallel_last_stage_less_layers = 3"), (Layers{8, 9, 9, 6}));
  EXPECT_EQ(stages("pipeline = 2\nschedule = \"interleaved\""), (Layers{8, 9, 8, 7}));
  EXPECT_EQ(stages("pipeline = 2\nschedule = \"interleaved\"", "pipeline_parallel_layers_per_stage = 6"),
            (Layers{5, 6, 6, 6, 5, 4}));
  EXPECT_EQ(stages("pipeline = 2\nschedule = \"looped-bfs\""), (Layers{8, 9, 8, 7}));
  EXPECT_EQ(stages("pipeline = 2\nstage_layers = [20, 12]"), (Layers{20, 12}));
  const Scenario interleaved = of_torchtitan("global_batch = 80", "", "pipeline = 4\nschedule = \"interleaved\"");
  EXPECT_EQ(interleaved.layout.chunks, 2);
  EXPECT_EQ(interleaved.layout.chunk_group, 4);  // 20 micro-batches in 5 rounds
  EXPECT_TRUE(interleaved.runtime.eager.titan.pipelined);
}

TEST(ShardedReader, PipelinesThatTorchtitanDoesNotRun) {
  const auto problem = [](const std::string& layout, const std::string& train = "global_batch = 64",
                          const std::string& switches = "", const std::string& model = "llama-3.1-8b") {
    return problem_of([&] { return of_torchtitan(train, switches, layout, model); });
  };
  EXPECT_EQ(problem("pipeline = 4", "global_batch = 8"),
            "job.toml:5:12: error: PyTorch's 1F1B refuses fewer micro-batches (2) than stages (4)\n"
            "  hint: global_batch = 16 would do");
  EXPECT_EQ(problem("pipeline = 4\nschedule = \"zb-h1\""),
            "job.toml:6:12: error: PyTorch has no ZB-H1\n  hint: \"1f1b\", \"interleaved-zb\" or \"zb-v\"");
  EXPECT_EQ(problem("pipeline = 2\nschedule = \"interleaved\"", "global_batch = 40"),
            "job.toml:6:12: error: PyTorch's Interleaved1F1B takes 5 micro-batches in 2 rounds of as many\n"
            "  hint: a multiple of 2 micro-batches would do");
  EXPECT_EQ(problem("pipeline = 2\nschedule = \"looped-bfs\"", "global_batch = 40"), "no problem");
  EXPECT_EQ(problem("pipeline = 2\nschedule = \"zb-v\"", "global_batch = 40"), "no problem");
  EXPECT_NE(problem("pipeline = 2\nschedule = \"interleaved-zb\"", "global_batch = 40")
                .find("PyTorch's InterleavedZeroBubble takes 5 micro-batches in 2 rounds"),
            std::string::npos);
  EXPECT_NE(
      problem("pipeline = 2\nschedule = \"zb-v\"\nchunks = 4").find("runs two chunks on each rank, and chunks = 4"),
      std::string::npos);
  const auto parted = [&](const std::string& train, const std::string& switches = "") {
    return problem("pipeline = 2\nschedule = \"zb-v\"", "global_batch = 64\n" + train, switches);
  };
  EXPECT_NE(parted("", "compile = true").find("does not split the backward passes of compiled layers"),
            std::string::npos);
  EXPECT_EQ(parted("", "compile = \"loss\""), "no problem");
  EXPECT_NE(parted("recompute = \"selective\"").find("PyTorch stops at the second part"), std::string::npos);
  EXPECT_NE(
      problem("pipeline = 2\nschedule = \"dualpipe-v\"").find("pipeline_parallel_expert_parallel_overlap = false"),
      std::string::npos);
  EXPECT_EQ(problem("pipeline = 2\nschedule = \"dualpipe-v\"", "global_batch = 64",
                    "pipeline_parallel_expert_parallel_overlap = false"),
            "no problem");
  EXPECT_NE(problem("pipeline = 2\nschedule = \"dualpipe-v\"", "global_batch = 24",
                    "pipeline_parallel_expert_parallel_overlap = false")
                .find("DualPipeV refuses fewer micro-batches (3) than stages (4)"),
            std::string::npos);
  EXPECT_NE(parted("recompute = \"full\"").find("not modelled yet"), std::string::npos);
  EXPECT_NE(parted("recompute = \"selective\"", "selective_ac_option = 2").find("not modelled yet"), std::string::npos);
  EXPECT_NE(parted("", "fsdp_reshard_after_forward = \"always\"").find("computes no gradients for them"),
            std::string::npos);
  EXPECT_NE(problem("pipeline = 2", "global_batch = 64", "pipeline_parallel_layers_per_stage = 12")
                .find("pipeline_parallel_layers_per_stage = 12 makes 3 stages of 34 layers"),
            std::string::npos);
  EXPECT_NE(
      problem("pipeline = 2\nfirst_stage_layers = 3").find("first_stage_layers: torchtitan takes the number of layers"),
      std::string::npos);
  EXPECT_NE(problem("schedule = \"gpipe\"").find("schedule without a pipeline"), std::string::npos);
  EXPECT_EQ(problem("pipeline = 16", "global_batch = 64"), "no problem");
  EXPECT_NE(problem("pipeline = 8\ntensor = 2", "global_batch = 64")
                .find("a pipeline of tensors in parts without data-parallel ranks is not modelled yet"),
            std::string::npos);
  EXPECT_NE(problem("pipeline = 8\nchunks = 8\nschedule = \"interleaved\"").find("leave no place for an end"),
            std::string::npos);
}

TEST(ShardedReader, WhatTorchtitanDoesNotTrain) {
  const auto problem = [](const std::string& train, const std::string& switches = "", const std::string& layout = "",
                          const std::string& model = "llama-3.1-8b") {
    return problem_of([&] { return of_torchtitan(train, switches, layout, model); });
  };
  EXPECT_EQ(problem("", "selective_ac_option = \"ops\""),
            "job.toml:14:23: error: selective_ac_option = \"ops\" is not a way to checkpoint\n  hint: \"op\", or every "
            "how many layers: 2");
  EXPECT_EQ(
      problem("", "compile = \"head\""),
      "job.toml:14:11: error: compile = \"head\" is not a part of a training that is compiled\n  hint: true, false, "
      "or one of its components: \"model\", \"loss\"");
  EXPECT_EQ(problem("", "memory_budget = 0.5"),
            "job.toml:13:1: error: switches: memory_budget applies to torch.compile only\n  hint: compile = true");
  EXPECT_EQ(problem("recompute = \"full\"", "compile = true\nmemory_budget = 0.5"),
            "job.toml:8:13: error: recompute: a memory_budget takes the place of checkpointing\n  hint: leave it out");
  EXPECT_EQ(problem("", "compile = true", "tensor = 2"),
            "job.toml:5:10: error: tensor: torch.compile of a model that is split over ranks is not modelled yet\n  "
            "hint: 1, or "
            "without the switch compile");
  EXPECT_EQ(problem("", "fsdp_reshard_after_forward = \"never\"", "sharding = \"zero3\""),
            "job.toml:5:12: error: sharding = \"zero3\" is not what torchtitan does with fsdp_reshard_after_forward = "
            "\"never\"\n  hint: \"zero2\" is");
  EXPECT_EQ(problem("", "compile = true", "context = 2"),
            "job.toml:5:11: error: context: torch.compile of a model that is split over ranks is not modelled yet\n  "
            "hint: 1, or "
            "without the switch compile");
  EXPECT_EQ(
      problem("", "context_parallel_load_balancer = \"ptrr\"", "context = 2"),
      "job.toml:14:34: error: context_parallel_load_balancer = \"ptrr\" balances no scaled_dot_product_attention\n"
      "  hint: \"headtail\" or \"None\"");
  EXPECT_EQ(problem("", "context_parallel_rotate_method = \"alltoall\"", "context = 2"),
            "job.toml:14:34: error: context_parallel_rotate_method = \"alltoall\" is not modelled\n  hint: "
            "\"allgather\": torchtitan 0.2.2 trains with nothing else");
  EXPECT_EQ(problem("", "", "tensor = 2\nsequence_parallel = false"),
            "job.toml:6:21: error: sequence_parallel: torchtitan's tensor parallelism always cuts the sequence too\n"
            "  hint: leave it out");
  EXPECT_EQ(problem("optimizer = \"sgd\""),
            "job.toml:8:13: error: optimizer: torchtitan has Adam and AdamW only\n  hint: leave it out");
  EXPECT_NE(problem("", "use_cache = true").find("use_cache"), std::string::npos);
  EXPECT_NE(problem("", "", "", "mistral-7b-v0.1").find("is none of torchtitan's models"), std::string::npos);
  EXPECT_NE(problem("", "", "[model_override]\ntie_word_embeddings = true", "qwen3-8b").find("refuses a parameter"),
            std::string::npos);
  EXPECT_NE(problem("", "", "", "mixtral-8x7b").find("is none of torchtitan's models"), std::string::npos);
}

}  // namespace
}  // namespace tidemark::tests::sharded_reader_test
