#include "parallel/frameworks/transformers/adapters.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/explanation.hpp"
#include "sim/program/verify.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// [adapter]: what is read, and programs against what a reader of PEFT's sources expects.

namespace tidemark::tests::adapters_test {
namespace {

struct Requested {
  std::string adapter{};
  std::string model = "llama-2-7b", train = "master_dtype = \"bf16\"", switches{}, runtime = "pytorch";
  int gpus = 1;
  std::string versions{};
};

Scenario parsed(const Requested& a) {
  const std::string text = fmt::format(
      "model = \"models/{}.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = {}\n[adapter]\n{}\n"
      "[model_override]\nnum_hidden_layers = 2\nvocab_size = 4096\n"
      "[train]\nsequence_length = 512\nmicro_batch = 2\nglobal_batch = {}\n{}\n[runtime]\nname = \"{}\"\n{}\n"
      "[runtime.switches]\nuse_cache = false\n{}\n",
      a.model, a.gpus, a.adapter, 2 * a.gpus, a.train, a.runtime, a.versions, a.switches);
  return parse_scenario(text, "job.toml", folders);
}

std::string problems(const Requested& a) {
  try {
    (void)parsed(a);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}

Program program_of(const Requested& a) {
  const Job job(parsed(a));
  Program program = lower_role(job.lowering(), job.roles.front());
  EXPECT_TRUE(verify(program).empty());
  return program;
}

// Bytes of what is allocated in that step, of those that `counts` says.
std::int64_t allocated(const Program& program, int step,
                       const std::function<bool(const std::string&, Category)>& counts) {
  std::int64_t bytes = 0;
  int now = 0;
  for (const Op& op : program.ops) {
    if (const Mark* mark = std::get_if<Mark>(&op)) now = mark->step;
    const Alloc* alloc = std::get_if<Alloc>(&op);
    if (alloc != nullptr && now == step && counts(program[alloc->label], alloc->category)) bytes += alloc->size.count();
  }
  return bytes;
}

std::int64_t of_category(const Program& program, int step, Category category) {
  return allocated(program, step, [&](const std::string&, Category its) { return its == category; });
}

constexpr std::int64_t hidden = 4096, layers = 2, tokens = 1024;

TEST(Adapters, OnlyTheyHaveGradientsAndState) {
  const Program program = program_of({.adapter = "rank = 16"});
  constexpr std::int64_t trained = layers * 2 * 16 * (hidden + hidden);  // q_proj and v_proj
  EXPECT_EQ(of_category(program, 0, Category::Adapters), 4 * trained);
  EXPECT_EQ(of_category(program, 1, Category::OptimizerMoments), 8 * trained);
  EXPECT_EQ(of_category(program, 1, Category::Gradients), 4 * trained);
  EXPECT_EQ(of_category(program, 2, Category::Gradients), 4 * trained);
}

TEST(Adapters, TheirTypeIsFp32UnlessTheyStayAsTheirLinearsAre) {
  constexpr std::int64_t trained = layers * 2 * 8 * (hidden + hidden);
  EXPECT_EQ(of_category(program_of({}), 0, Category::Adapters), 4 * trained);
  EXPECT_EQ(of_category(program_of({.adapter = "dtype = \"bf16\""}), 0, Category::Adapters), 2 * trained);
  EXPECT_NE(problems({.adapter = "dtype = \"fp16\""}).find("\"bf16\" or \"fp32\" would do"), std::string::npos);
}

// Layers that are checkpointed pass no gradient on where nothing asks for one.
TEST(Adapters, CheckpointedLayersWantAGradientOfWhatTheyAreGiven) {
  EXPECT_NE(problems({.train = "recompute = \"full\"", .switches = "enable_input_require_grads = false"})
                .find("enable_input_require_grads = false where layers are checkpointed is not modelled yet"),
            std::string::npos);
}

// What a frozen linear is given is not saved: without adapters beside them, an MLP's gate, silu and up are, and their
// product is not.
TEST(Adapters, InputsOfFrozenLinearsAreNotSaved) {
  const auto of_mlp = [](const std::string& adapter) {
    return allocated(program_of({.adapter = adapter}), 1, [](const std::string& label, Category category) {
      return category == Category::SavedActivations && label.find(".mlp.") != std::string::npos;
    });
  };
  constexpr std::int64_t wide = 2 * tokens * 11008;
  EXPECT_EQ(of_mlp("rank = 8"), layers * 3 * wide);
  // The adapter beside down_proj casts its input to fp32, and keeps that and its narrow product.
  EXPECT_EQ(of_mlp("rank = 8\ntarget_modules = [\"q_proj\", \"down_proj\"]"),
            layers * (3 * wide + 2 * wide + 4 * tokens * 8));
}

TEST(Adapters, DropoutKeepsAMaskForEachTarget) {
  const auto masks = [](const std::string& adapter) {
    return allocated(program_of({.adapter = adapter}), 1,
                     [](const std::string& label, Category) { return label.ends_with("lora.dropout_mask"); });
  };
  EXPECT_EQ(masks("rank = 8"), 0);
  EXPECT_EQ(masks("rank = 8\ndropout = 0.1"), layers * 2 * tokens * hidden);
}

// Under autocast the adapter's products, and so what is saved for them, are bf16.
TEST(Adapters, AutocastMayBeAroundABaseOfTheSameType) {
  const auto saved = [](const std::string& switches) {
    return allocated(program_of({.adapter = "rank = 8", .switches = switches}), 1,
                     [](const std::string& label, Category category) {
                       return category == Category::SavedActivations && label.ends_with("lora.mm");
                     });
  };
  EXPECT_EQ(saved(""), layers * 2 * 4 * tokens * 8);
  EXPECT_EQ(saved("autocast = true"), layers * 2 * 2 * tokens * 8);
  EXPECT_NE(problems({.train = "", .switches = "autocast = false"}).find("nothing would compute"), std::string::npos);
}

// Adapters in fp32 beside whole modules in bf16: reducer.cpp compute_bucket_assignment_by_size has buckets of one type
// each, all that there are of it before the order of gradients is known.
TEST(Adapters, DistributedDataParallelHasBucketsOfEachType) {
  const Program program = program_of({.adapter = "rank = 8\nmodules_to_save = [\"embed_tokens\", \"lm_head\"]",
                                      .switches = "autocast = true",
                                      .gpus = 2});
  std::vector<std::int64_t> buckets;
  for (const Op& op : program.ops)
    if (const Alloc* alloc = std::get_if<Alloc>(&op); alloc != nullptr && program[alloc->label].ends_with("bucket"))
      buckets.push_back(alloc->size.count());
  ASSERT_GE(buckets.size(), 2U);
  constexpr std::int64_t vocabulary = 4096, whole = 2 * vocabulary * hidden, adapted = layers * 2 * 8 * (2 * hidden);
  EXPECT_EQ(buckets[0], 2 * whole);
  EXPECT_EQ(buckets[1], 4 * adapted);
}

TEST(Adapters, ModulesMayBeTrainedWhole) {
  const std::string adapter = "rank = 8\nmodules_to_save = [\"embed_tokens\", \"lm_head\"]";
  const Program program = program_of({.adapter = adapter});
  constexpr std::int64_t ends = 2 * 4096 * hidden;
  constexpr std::int64_t trained = layers * 2 * 8 * (hidden + hidden);
  EXPECT_EQ(of_category(program, 0, Category::Adapters), 4 * trained + 2 * ends);
  EXPECT_EQ(of_category(program, 1, Category::Gradients), 4 * trained + 2 * ends);
}

TEST(Adapters, CheckpointedLayersTrainThemWithReentranceToo) {
  for (const std::string reentrant : {"true", "false"}) {
    const Program program = program_of({.adapter = "rank = 8",
                                        .train = "master_dtype = \"bf16\"\nrecompute = \"full\"",
                                        .switches = "use_reentrant = " + reentrant});
    EXPECT_EQ(of_category(program, 1, Category::Gradients), 4 * layers * 2 * 8 * (hidden + hidden)) << reentrant;
  }
}

TEST(Adapters, BucketsOfDataParallelismHoldThemAlone) {
  const Program program = program_of({.adapter = "rank = 8", .gpus = 2});
  const auto buckets = [](const std::string& label, Category) { return label == "reducer.bucket"; };
  EXPECT_EQ(allocated(program, 0, buckets), 4 * layers * 2 * 8 * (hidden + hidden));
}

// A rank's part of them, copied in what is computed in and then in fp32; the engine casts adapters, too.
TEST(Adapters, UnderZeroMastersAreOfThemAlone) {
  constexpr const char* zero2 = "[layout]\nsharding = \"zero2\"";
  const Requested requested{.adapter = "rank = 8", .train = zero2, .runtime = "deepspeed", .gpus = 2};
  constexpr std::int64_t of_rank = layers * 2 * 8 * (hidden + hidden) / 2;
  EXPECT_EQ(of_category(program_of(requested), 0, Category::OptimizerMaster), (2 + 4) * of_rank);
  EXPECT_NE(problems({.adapter = "dtype = \"fp32\"", .train = zero2, .runtime = "deepspeed", .gpus = 2})
                .find("DeepSpeed casts adapters, too, to \"bf16\""),
            std::string::npos);
}

// zero.Init has partitioned what is frozen, and the engine casts nothing: adapters in fp32 are copied as they are,
// those in 16 bits are converted first.
TEST(Adapters, UnderStage3AdaptersLieTogetherAndWhatIsFrozenApart) {
  constexpr const char* zero3 = "[layout]\nsharding = \"zero3\"";
  constexpr std::int64_t of_rank = layers * 2 * 8 * (hidden + hidden) / 2;
  const Program wide = program_of({.adapter = "rank = 8", .train = zero3, .runtime = "deepspeed", .gpus = 2});
  EXPECT_EQ(of_category(wide, 0, Category::OptimizerMaster), 4 * of_rank);
  EXPECT_EQ(of_category(wide, 1, Category::OptimizerMoments), 2 * 4 * of_rank);
  const Program narrow =
      program_of({.adapter = "rank = 8\ndtype = \"bf16\"", .train = zero3, .runtime = "deepspeed", .gpus = 2});
  EXPECT_EQ(of_category(narrow, 0, Category::OptimizerMaster), 2 * 4 * of_rank);
}

// What is frozen stays in memory of the host, part by part; adapters in fp32 are copied from their buffer there.
TEST(Adapters, UnderStage3WhatIsFrozenIsOnTheHost) {
  const std::string offload = "[layout]\nsharding = \"zero3\"\n[offload]\nparameters = \"cpu\"\noptimizer = ";
  constexpr std::int64_t of_rank = layers * 2 * 8 * (hidden + hidden) / 2;
  const Program program =
      program_of({.adapter = "rank = 8", .train = offload + "\"cpu\"", .runtime = "deepspeed", .gpus = 2});
  EXPECT_EQ(of_category(program, 0, Category::OptimizerMaster), 4 * of_rank);
  constexpr std::int64_t count_of_steps = 4;
  EXPECT_EQ(of_category(program, 1, Category::OptimizerMoments), 2 * 4 * of_rank + count_of_steps);
  EXPECT_NE(problems({.train = offload + "\"nvme\"", .runtime = "deepspeed"})
                .find("under DeepSpeed's stage 3 on NVMe is not modelled yet"),
            std::string::npos);
}

// Half of each part in twos, of all linears that are frozen.
TEST(Adapters, UnderStage3NeighboursKeepWhatIsFrozen) {
  const Program program = program_of({.adapter = "rank = 8",
                                      .train = "[layout]\nsharding = \"zero3\"",
                                      .switches = "zero_hpz_partition_size = 2",
                                      .runtime = "deepspeed",
                                      .gpus = 4});
  const auto secondary = [](const std::string& label, Category) { return label.ends_with("q_proj.weight.secondary"); };
  EXPECT_EQ(allocated(program, 0, secondary), layers * 2 * hidden * hidden / 2);
  EXPECT_EQ(allocated(program, 1, secondary), 0);
}

// DoRA: a magnitude for each output; the frozen weight is converted, and added to the adapter's, in each pass.
TEST(Adapters, DecomposedOnesHaveMagnitudes) {
  const std::string dora = "method = \"dora\"\nrank = 16";
  const Program program = program_of({.adapter = dora});
  constexpr std::int64_t trained = layers * 2 * (16 * (hidden + hidden) + hidden);
  EXPECT_EQ(of_category(program, 0, Category::Adapters), 4 * trained);
  EXPECT_EQ(of_category(program, 1, Category::OptimizerMoments), 8 * trained);
  const Scenario scenario = parsed({.adapter = dora});
  EXPECT_EQ(parallel::transformers::counts_of_adapted(scenario.model, *scenario.train.adapter, true).trained, trained);
  const auto of_squares = [&](const Program& its) {
    return allocated(its, 1, [](const std::string& label, Category) { return label.ends_with("lora.to"); });
  };
  // The base's weight in fp32, beside x, which LoRA converts, too.
  const Program plain = program_of({.adapter = "rank = 16"});
  EXPECT_GE(of_squares(program) - of_squares(plain), layers * 2 * 4 * hidden * hidden);
}

TEST(Adapters, DecomposedOnesAreNotModelledEverywhere) {
  const std::string dora = "method = \"dora\"";
  EXPECT_NE(problems({.adapter = dora, .runtime = "fsdp2", .gpus = 2}).find("DoRA under fsdp2 is not modelled yet"),
            std::string::npos);
  EXPECT_NE(problems({.adapter = dora, .model = "gpt2"}).find("DoRA beside transformers' Conv1D is not modelled yet"),
            std::string::npos);
  EXPECT_NE(problems({.adapter = dora + "\n[quantization]\nformat = \"nf4\""})
                .find("DoRA beside quantized linears is not modelled yet"),
            std::string::npos);
}

// Within FSDP's wrappers checkpoints are what transformers makes of them from 4.53 on, and what the switch asks for
// before.
TEST(Adapters, CheckpointsWithinWrappersAreThoseOfLaterReleases) {
  const auto program = [](const std::string& transformers, const std::string& switches) {
    return program_of({.adapter = "rank = 8\ntarget_modules = [\"q_proj\"]",
                       .train = "master_dtype = \"bf16\"\nrecompute = \"full\"",
                       .switches = "use_reentrant = true\n" + switches,
                       .runtime = "fsdp",
                       .gpus = 2,
                       .versions = "versions = { transformers = \"" + transformers + "\" }"});
  };
  const Program within = program("4.52", "fsdp_activation_checkpointing = true");
  EXPECT_TRUE(within.ops == program("4.53", "").ops);
  EXPECT_FALSE(within.ops == program("4.52", "").ops);
}

TEST(Adapters, TargetsAreNamesAndEndsOfNames) {
  const auto trained = [](const std::string& adapter, const std::string& model = "llama-2-7b") {
    const Scenario scenario = parsed({.adapter = adapter, .model = model});
    return parallel::transformers::counts_of_adapted(scenario.model, *scenario.train.adapter, true).trained;
  };
  constexpr std::int64_t square = 8 * (hidden + hidden), wide = 8 * (hidden + 11008);
  EXPECT_EQ(trained("target_modules = [\"self_attn.q_proj\"]"), layers * square);
  EXPECT_EQ(trained("target_modules = [\"model.layers.1.self_attn.q_proj\", \"down_proj\"]"), square + layers * wide);
  EXPECT_EQ(trained("target_modules = \"all-linear\""), layers * (4 * square + 3 * wide));
  EXPECT_EQ(trained("target_modules = [\"lm_head\"]"), 8 * (hidden + 4096));
  EXPECT_EQ(trained("", "gpt2"), layers * 8 * (768 + 3 * 768));  // c_attn
}

TEST(Adapters, WhatTheModelDoesNotHave) {
  EXPECT_EQ(
      problems({.adapter = "target_modules = [\"q_porj\"]"}),
      "job.toml:5:18: error: target_modules: resized llama-2-7b has no linear module \"q_porj\"\n  hint: did you mean "
      "\"q_proj\"?");
  EXPECT_EQ(
      problems({.adapter = "target_modules = [\"embed_tokens\"]"}),
      "job.toml:5:18: error: target_modules: resized llama-2-7b has no linear module \"embed_tokens\"\n  hint: it has "
      "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head");
  EXPECT_NE(problems({.adapter = "modules_to_save = [\"score\"]"}).find("has no such module \"score\""),
            std::string::npos);
  EXPECT_NE(problems({.adapter = "target_modules = [\"lm_head\"]\nmodules_to_save = [\"lm_head\"]"})
                .find("no linear is left to adapt"),
            std::string::npos);
  EXPECT_NE(problems({.adapter = "", .model = "phi-3-mini-4k"}).find("PEFT knows no target_modules for models of type"),
            std::string::npos);
  EXPECT_NE(problems({.adapter = "rank = 0"}).find("rank = 0 is out of range"), std::string::npos);
}

TEST(Adapters, ExplainCountsWhatIsTrained) {
  const std::string text = model_text(parsed({.adapter = "rank = 8\ntarget_modules = [\"q_proj\"]"}));
  EXPECT_NE(text.find("25 parameters with 438456320 elements, of which 4 with 131072 are trained"), std::string::npos)
      << text.substr(0, text.find('\n'));
  EXPECT_NE(text.find("\nfrozen layers.0.self_attn.q_proj.weight 4096x4096 bf16\n"
                      "frozen layers.0.self_attn.k_proj.weight"),
            std::string::npos);
  EXPECT_NE(text.find("\nparameter layers.0.self_attn.q_proj.lora_A 8x4096 fp32\n"), std::string::npos);
}

}  // namespace
}  // namespace tidemark::tests::adapters_test
