#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/scenarios/one_job.hpp"

// Layouts and training as files ask for them: what goes together, and what is said where it does not.

namespace tidemark::tests::layout_reader_test {
namespace {

using namespace literals;
using namespace one_job;

TEST(LayoutReader, GradientsFollowThePrecisionAsMegatronHasIt) {
  EXPECT_EQ(scenario().train.gradient_dtype, DType::FP32);
  EXPECT_EQ(scenario({{"micro_batch", "precision = \"fp16\"\nmicro_batch"}}).train.gradient_dtype, DType::FP16);
  EXPECT_EQ(scenario({{"micro_batch", "gradient_dtype = \"bf16\"\nmicro_batch"}}).train.gradient_dtype, DType::BF16);
  EXPECT_EQ(with("[train]", "gradient_dtype = \"fp16\""),
            "job.toml:11:18: error: gradient_dtype = \"fp16\" is neither \"fp32\" nor precision = \"bf16\"");
}

TEST(LayoutReader, SequenceParallelIsOffWithOneTensorRank) {
  EXPECT_FALSE(scenario({{"tensor = 8", "tensor = 1"}}).layout.sequence_parallel);
  // Then the sequence need not divide either.
  EXPECT_EQ(problems({{"tensor = 8", "tensor = 1"}, {"8192", "8191"}}), "no problem");
}

TEST(LayoutReader, TensorHasToDivideHeads) {
  EXPECT_EQ(problems({{"tensor = 8", "tensor = 6"}, {"gpus = 64", "gpus = 96"}, {"8192", "8190"}}),
            "job.toml:6:10: error: tensor = 6 does not divide 64 attention heads\n  hint: 1, 2, 4 or 8 would");
  EXPECT_EQ(problems({{"tensor = 8", "tensor = 16"}}),
            "job.toml:6:10: error: tensor = 16 is more than 8 key/value heads: replicated key/value heads are not "
            "modelled yet\n"
            "  hint: 1, 2, 4 or 8 would");
  EXPECT_EQ(problems({{"[model_override]", "[model_override]\nintermediate_size = 28676"}}),
            "job.toml:7:10: error: tensor = 8 does not divide intermediate_size = 28676\n  hint: 1, 2 or 4 would");
}

TEST(LayoutReader, DegreesHaveToFillTheGpus) {
  EXPECT_EQ(
      problems({{"gpus = 64", "gpus = 72"}}),
      "job.toml:3:8: error: gpus = 72 is not a multiple of tensor x pipeline = 8 x 4 = 32\n  hint: 64 or 96 would");
  EXPECT_EQ(with("[layout]", "data = 4"),
            "job.toml:6:8: error: data = 4 disagrees with gpus / (tensor x pipeline) = 64 / 32 = 2\n  hint: leave it "
            "out, or set 2");
}

TEST(LayoutReader, LayersHaveToFillTheStages) {
  EXPECT_EQ(problems({{"pipeline = 4", "pipeline = 3"}, {"gpus = 64", "gpus = 48"}}),
            "job.toml:8:12: error: pipeline = 3 does not divide 80 layers\n  hint: 1 or 2 would; or last_stage_layers "
            "= 26, with "
            "27 in each of the others");
  EXPECT_EQ(with("[layout]", "count_embedding = true"),
            "job.toml:9:12: error: pipeline = 4 does not divide 80 layers + 1 for the embedding\n  hint: 1 would");
  EXPECT_EQ(with("[layout]", "count_embedding = true\ncount_loss = true"),
            "job.toml:10:12: error: pipeline = 4 does not divide 80 layers + 1 for the embedding + 1 for the loss\n  "
            "hint: 1 or 2 would");
}

TEST(LayoutReader, BatchesAndSequencesHaveToAddUp) {
  EXPECT_EQ(problems({{"global_batch = 128", "global_batch = 127"}}),
            "job.toml:13:16: error: global_batch = 127 is not a multiple of micro_batch x data = 1 x 2 = 2\n  hint: "
            "126 or 128 would");
  EXPECT_EQ(problems({{"8192", "8191"}}),
            "job.toml:11:19: error: sequence_length = 8191 is not a multiple of tensor = 8, over which "
            "sequence_parallel spreads it\n"
            "  hint: 8184 or 8192 would");
}

TEST(LayoutReader, TheOrderOfAxesNamesEachOnce) {
  EXPECT_EQ(with("[layout]", "order = \"tp-pp-dp\""), "no problem");
  EXPECT_EQ(with("[layout]", "order = \"tp-dp\""),
            "job.toml:6:9: error: order = \"tp-dp\" does not name tp, dp and pp once each\n"
            "  hint: \"tp-cp-ep-dp-pp\" is Megatron's default");
}

TEST(LayoutReader, HeadroomHasToLeaveSomething) {
  EXPECT_EQ(with("[runtime]", "headroom = \"80 GiB\""),
            "job.toml:19:12: error: headroom = \"80 GiB\" leaves nothing of a device's 79.10 GiB");
}

TEST(LayoutReader, DropoutLeftOutIsMegatronsTenth) {
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

TEST(LayoutReader, LearnedPositionsBoundTheSequence) {
  const auto requested = [](const char* length) {
    return problems({{"models/llama-3.1-70b.json", "models/gpt3-175b.json"}, {"8192", length}});
  };
  EXPECT_EQ(requested("2048"), "no problem");
  EXPECT_NE(requested("2049").find("is more than the 2048 positions that the model has learned"), std::string::npos);
}

TEST(LayoutReader, ContextParallelRanksShareOutEverySequence) {
  const auto requested = [](const std::string& keys, const std::string& sequence = "8192") {
    return problems(
        {{"tensor = 8", "tensor = 4\n" + keys}, {"sequence_length = 8192", "sequence_length = " + sequence}});
  };
  EXPECT_EQ(requested("context = 2"), "no problem");
  EXPECT_EQ(requested("context = 2\ncontext_kind = \"a2a\""), "no problem");
  EXPECT_EQ(requested("context = 4\ncontext_kind = \"a2a+p2p\"\ncontext_inner = 2"), "no problem");
  const auto says = [](const std::string& answer, const std::string& text) {
    EXPECT_NE(answer.find(text), std::string::npos) << answer;
  };
  says(requested("context = 2", "8190"),
       "sequence_length = 8190 is not a multiple of 8: each of context = 2 ranks takes two "
       "equal chunks, which tensor = 4 ranks spread\n  hint: 8184 or 8192 would");
  says(requested("context = 4\ncontext_kind = \"a2a\""),
       "context = 4 does not divide the 16 attention and 2 key/value heads of a rank\n  hint: 1 or 2 would");
  says(requested("context = 4\ncontext_kind = \"a2a+p2p\""),
       "needs context_inner: how many of the 4 ranks each all-to-all joins\n  hint: 2 would");
  says(requested("context = 4\ncontext_kind = \"a2a+p2p\"\ncontext_inner = 3"),
       "context_inner = 3 does not cut context = 4 into several groups of several ranks\n  hint: 2 would");
  says(requested("context = 2\ncontext_inner = 2"), "context_inner says how a2a+p2p divides ranks");
  says(problems({{"tensor = 8", "tensor = 4\ncontext = 2"}, {"[train]", "[train]\nattention = \"unfused\""}}),
       "context = 2: attention kernels that store scores cannot split a sequence");
  says(requested("context = 3"), "is not a multiple of tensor x context x pipeline = 4 x 3 x 4 = 48");
  // core/parallel_state.py: experts' ranks of a stage are those of the model's.
  says(requested("context = 2\norder = \"tp-cp-ep-pp-dp\""),
       "does not end with pp: Megatron takes that only where experts have as many data-parallel ranks as all else, and "
       "they are");
  says(requested("context = 2\norder = \"tp-cp-ep-pp-dp\""),
       "hint: expert_tensor = 8 would, or an order that ends with pp");
  says(
      requested("context = 2\nexpert_tensor = 8\norder = \"tp-pp-cp-ep-dp\""),
      "with expert_tensor = 8 the ranks of a stage are others to experts, which Megatron refuses for dense models too");
  EXPECT_EQ(requested("context = 2\nexpert_tensor = 8\norder = \"tp-cp-ep-pp-dp\""), "no problem");
}

// On A100 nothing but unfused attention takes heads whose values are not as wide as keys, and that takes no parts.
TEST(LayoutReader, LatentAttentionOfPartsTakesADeviceThatFusesIt) {
  const auto requested = [](const char* cluster) {
    return problems_of(fmt::format(R"(model = "models/deepseek-v2-lite.json"
cluster = "clusters/{}.toml"
gpus = 4
[layout]
context = 4
[train]
sequence_length = 8192
micro_batch = 1
)",
                                   cluster));
  };
  EXPECT_EQ(requested("h100-sxm-80g"), "no problem");
  EXPECT_EQ(requested("a100-sxm-80g"),
            "job.toml:5:11: error: context = 4: attention kernels that store scores cannot split a sequence\n  hint: "
            "leave it out: the device has no other attention kernel for such heads");
}

TEST(LayoutReader, MegatronShardsNoParameters) {
  EXPECT_EQ(problems({{"zero1", "zero3"}}),
            "job.toml:9:12: error: sharding = \"zero3\": megatron shards no parameters here\n  hint: [runtime] name = "
            "\"fsdp2\", \"fsdp\" or \"deepspeed\" does");
}

TEST(LayoutReader, OptimizerInstancesAreGroupsOfAShardedOptimizer) {
  EXPECT_EQ(with("[layout]", "shard_group = 8"),
            "job.toml:6:15: error: shard_group = 8 does not divide data = 2\n  hint: 1 or 2 would");
  const auto requested = [](const std::string& layout, const std::string& switches = "") {
    return problems(
        {{"[layout]", "[layout]\n" + layout}, {"tensor = 8", "tensor = 4"}, {"[runtime]", "[runtime]\n" + switches}});
  };
  EXPECT_EQ(requested("shard_group = 2", "switches.num-distributed-optimizer-instances = 2"), "no problem");
  const auto says = [](const std::string& answer, const std::string& text) {
    EXPECT_NE(answer.find(text), std::string::npos) << answer;
  };
  says(requested("", "switches.num-distributed-optimizer-instances = 2"),
       "num-distributed-optimizer-instances = 2 disagrees with shard_group");
  says(problems({{"[layout]", "[layout]\nshard_group = 1"}, {"zero1", "none"}}),
       "shard_group: there is no sharding within groups here\n  hint: leave it out; [runtime] name = \"fsdp2\" or "
       "\"fsdp\" has it, and megatron with sharding = \"zero1\"");
}

TEST(LayoutReader, SchedulesAndStages) {
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

TEST(LayoutReader, Recomputation) {
  for (const char* lines :
       {"recompute = \"full\"", "recompute = \"full\"\nrecompute_method = \"block\"\nrecompute_layers = 3",
        "recompute = \"selective\"", "recompute = \"selective\"\nrecompute_modules = [\"mlp\", \"core_attn\"]"})
    EXPECT_EQ(with("[train]", lines), "no problem") << lines;
  const auto complains = [](const std::string& lines, const std::string& words) {
    EXPECT_NE(with("[train]", lines).find(words), std::string::npos) << with("[train]", lines);
  };
  complains("recompute = \"full\"\nrecompute_layers = 0", "recompute_layers = 0 recomputes nothing");
  complains("recompute_layers = 2", "recompute_layers is for recompute = \"full\"");
  complains("recompute_method = \"uniform\"", "recompute_method is for recompute = \"full\"");
  complains("recompute = \"selective\"\nrecompute_method = \"block\"", "recompute_method is for recompute = \"full\"");
  complains("recompute = \"full\"\nrecompute_modules = [\"mlp\"]", "recompute_modules is for");
  complains("recompute = \"selective\"\nrecompute_modules = []", "with nothing to recompute");
  complains("recompute = \"selective\"\nrecompute_modules = [\"fc1\"]",
            "\"fc1\" is not a module that can be recomputed");
  complains("recompute = \"selective\"\nrecompute_modules = \"mlp\"", "takes a list of names");
  for (const char* module : {"moe", "moe_act", "shared_experts"})
    complains(fmt::format("recompute = \"selective\"\nrecompute_modules = [\"{}\"]", module),
              "the model has no experts");
  complains("recompute = \"selective\"\nrecompute_modules = [\"mla_up_proj\"]", "the model has no latent attention");
}

TEST(LayoutReader, LatentAttentionGoesWithKernelsThatTakeItAndWithSequenceParallelism) {
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
TEST(LayoutReader, LatentAttentionOfPartsOfASequenceGoesRoundRings) {
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

}  // namespace
}  // namespace tidemark::tests::layout_reader_test
