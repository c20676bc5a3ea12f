#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/frameworks/megatron/megatron_flags.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"
#include "tests/convert/recipes.hpp"

// What a launch file asks for and nobody has judged: it is told, and the rest is answered.

namespace tidemark::tests::not_judged_test {
namespace {

const std::string small =
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 "
    "--seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 1 --bf16";

ConvertRequest requested_of(const std::string& script) {
  ConvertRequest requested;
  requested.files = {"job.sh"};
  requested.texts = {{"job.sh", script}};
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  return requested;
}

// "3: --use-mpi", …
std::vector<std::string> reported(const Converted& converted, RemarkKind kind) {
  std::vector<std::string> found;
  for (const Remark& remark : converted.remarks)
    if (remark.kind == kind) found.push_back(fmt::format("{}: {}", remark.place.line, remark.what));
  return found;
}
std::vector<std::string> not_judged(const ConvertRequest& requested) {
  return reported(convert(requested), RemarkKind::NotJudged);
}
std::string problem_of(const ConvertRequest& requested) {
  try {
    (void)scenario_of(convert(requested), shipped_data());
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}

// Other words of forks for what Megatron-LM has: bigcode's one head of keys and values, Megatron-LLaMA's norm,
// Megatron-DeepSpeed's one expert, which is none, and its tokenizer's name.
TEST(NotJudged, WordsOfForksAreReadAsMegatronsOwn) {
  ConvertRequest requested = requested_of(
      "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 "
      "--seq-length 1024 --max-position-embeddings 1024 --tokenizer-name-or-path t5-small --micro-batch-size 1 --bf16 "
      "--attention-head-type multiquery --num-experts 1 --moe-expert-parallel-size 1 --mlp-type standard "
      "--DDP-impl local --mmap-warmup --fragment-fim-rate 0.5\n");
  EXPECT_EQ(not_judged(requested), (std::vector<std::string>{"1: --mlp-type = \"standard\""}));
  const Scenario scenario = scenario_of(convert(requested), shipped_data());
  EXPECT_EQ(scenario.model.kv_heads, 1);
  EXPECT_EQ(scenario.model.vocabulary, 32'100);
  EXPECT_FALSE(scenario.model.experts());
}

// bigcode's pretrain_bigcode_1b.slurm: santacoder's shape, whose positions reach further here.
TEST(NotJudged, LearnedPositionsReachAsFarAsTheScriptSays) {
  const Scenario scenario =
      scenario_of(convert(requested_of("torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 "
                                       "--num-attention-heads 16 --attention-head-type multiquery --seq-length 8192 "
                                       "--max-position-embeddings 8192 --micro-batch-size 1 --bf16\n")),
                  shipped_data());
  EXPECT_EQ(scenario.model.max_positions, 8192);
  EXPECT_EQ(scenario.train.sequence_length, 8192);
}

// Whatever it comes to, what stands behind --train-data-path is data.
TEST(NotJudged, SubstitutionsBehindPathsOfDataAreData) {
  EXPECT_EQ(problem_of(requested_of(small + " --train-data-path $(echo \"${FILES[@]}\") --lr 1\n")), "no problem");
  EXPECT_NE(problem_of(requested_of(small + " --lr $(echo \"${FILES[@]}\") --bf16\n")), "no problem");
}

TEST(NotJudged, ANameInNoTableIsToldWithItsPlaceAndTheRestIsAScenario) {
  const ConvertRequest requested = requested_of(small + " \\\n  --no-such-flag 3 \\\n  --fp4-format e2m1\n");
  EXPECT_EQ(not_judged(requested), (std::vector<std::string>{"3: --fp4-format = \"e2m1\"", "2: --no-such-flag = 3"}));
  EXPECT_EQ(problem_of(requested), "no problem");
  ConvertRequest strict = requested;
  strict.strict = true;
  EXPECT_NE(problem_of(strict), "no problem");
}

TEST(NotJudged, WhatIsSaidToBeOfNoMatterIsJudged) {
  ConvertRequest requested = requested_of(small + " --no-such-flag 3 --fp4-format e2m1\n");
  requested.ignored = {"--fp4_format", "no-such-flag"};
  EXPECT_EQ(not_judged(requested), std::vector<std::string>{});
  requested.ignored = {"fp4-formt"};
  EXPECT_EQ(
      problem_of(requested),
      "--ignore: error: \"fp4-formt\" is none of the names that are not judged\n  hint: did you mean fp4-format?");
  requested.ignored = {"tensor-model-parallel-size"};
  EXPECT_NE(problem_of(requested), "no problem") << "what is read cannot be ignored";
}

TEST(NotJudged, ANameOneSlipAwayIsRefusedUnlessItIsSaidToBeOfNoMatter) {
  ConvertRequest requested = requested_of(small + " --sequence-paralel\n");
  EXPECT_NE(problem_of(requested).find("did you mean --sequence-parallel?"), std::string::npos);
  requested.ignored = {"sequence-paralel"};
  EXPECT_EQ(problem_of(requested), "no problem");
  // Letters apart is no slip.
  EXPECT_EQ(problem_of(requested_of(small + " --log-batches-to-tensorboard\n")), "no problem");
}

TEST(NotJudged, WhatSaysWhichJobItIsStaysRefused) {
  for (const std::string flag :
       {"--spec a.module a_spec", "--use-checkpoint-args", "--yaml-cfg a.yaml", "--hybrid-layer-pattern M*-M",
        "--tensor-model-parallel-size $(nproc)", "--model-parallel-size 2", "--skip-train"})
    EXPECT_NE(problem_of(requested_of(small + " " + flag + "\n")), "no problem") << flag;
}

TEST(NotJudged, WhatChangesNothingIsOfNoMatter) {
  EXPECT_EQ(not_judged(requested_of(
                small + " --loss-scale 4096 --hysteresis 2 --record-memory-history --memory-snapshot-path s.pickle "
                        "--exit-on-missing-checkpoint --non-persistent-save-interval 100 --one-logger-async "
                        "--no-async-tensor-model-parallel-allreduce --wandb-entity team --calculate-per-token-loss "
                        "--max-padding-length 1024 --use-mpi --log-batch-size-to-tensorboard\n")),
            std::vector<std::string>{});
}

TEST(NotJudged, VariablesAreReadOrOfNoMatterOrTold) {
  const auto with = [](const std::string& variables) {
    return requested_of("export " + variables + "\n" + small + "\n");
  };
  EXPECT_EQ(not_judged(with("NCCL_ASYNC_ERROR_HANDLING=1 CUDA_LAUNCH_BLOCKING=1 TORCH_NCCL_TRACE_BUFFER_SIZE=2000 "
                            "TORCH_NCCL_AVOID_RECORD_STREAMS=1 NCCL_DEBUG=INFO")),
            std::vector<std::string>{});
  EXPECT_EQ(not_judged(with("NCCL_NO_SUCH=1 TORCH_NO_SUCH_SWITCH=1")),
            (std::vector<std::string>{"1: NCCL_NO_SUCH = \"1\"", "1: TORCH_NO_SUCH_SWITCH = \"1\""}));
  // A tuner may choose any algorithm, so that all are taken as connected; NCCL reads nothing that is called so.
  EXPECT_EQ(not_judged(with("NCCL_TUNER_PLUGIN=tuner.so NCCL_BUFFERSIZE=8388608")), std::vector<std::string>{});
  const Scenario tuned = scenario_of(convert(with("NCCL_TUNER_PLUGIN=tuner.so")), shipped_data());
  EXPECT_FALSE(tuned.runtime.nccl.connect_at_use);
  EXPECT_NE(problem_of(with("NVTE_FUSED_ATN=0")).find("did you mean"), std::string::npos);
  const auto attention = [&](const std::string& variables, const std::string& flag = "") {
    return scenario_of(convert(requested_of("export " + variables + "\n" + small + flag + "\n")), shipped_data())
        .train.attention;
  };
  EXPECT_EQ(attention("NVTE_FLASH_ATTN=1 NVTE_FUSED_ATTN=0"), AttentionKernel::Flash);
  EXPECT_EQ(attention("NVTE_FLASH_ATTN=0"), AttentionKernel::Fused);
  EXPECT_EQ(attention("NVTE_FLASH_ATTN=0 NVTE_FUSED_ATTN=0"), AttentionKernel::Unfused);
  EXPECT_EQ(attention("NVTE_FLASH_ATTN=1"), AttentionKernel::Auto);
  EXPECT_EQ(attention("NVTE_FUSED_ATTN=0", " --attention-backend flash"), AttentionKernel::Flash);
  EXPECT_NE(problem_of(requested_of("export NVTE_FUSED_ATTN=0\n" + small + " --attention-backend fused\n")),
            "no problem");
  // Values of latent attention are narrower than its keys, for which FlashAttention pads them.
  const Converted latent = convert(requested_of(
      "export NVTE_FLASH_ATTN=1 NVTE_FUSED_ATTN=0\ntorchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 27 "
      "--hidden-size 2048 --ffn-hidden-size 10944 --num-attention-heads 16 --multi-latent-attention --kv-channels 16 "
      "--kv-lora-rank 512 "
      "--qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --qk-layernorm --num-experts 64 --moe-router-topk 6 "
      "--moe-ffn-hidden-size 1408 --moe-shared-expert-intermediate-size 2816 --swiglu --normalization RMSNorm "
      "--disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 102400 "
      "--seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 1 --bf16 --moe-layer-freq "
      "'([0]*1+[1]*26)'\n"));
  EXPECT_EQ(reported(latent, RemarkKind::Bounded),
            (std::vector<std::string>{"2: --moe-router-pre-softmax", "1: NVTE_FLASH_ATTN = 1, NVTE_FUSED_ATTN = 0"}));
  EXPECT_EQ(scenario_of(latent, shipped_data()).model.latent()->value_head, 128) << "kv-channels is of other attention";
}

TEST(NotJudged, KeysAreSetBesideALaunchFile) {
  ConvertRequest requested = requested_of(small + "\n");
  requested.overrides = {"layout.tensor=4", "train.micro_batch=2", "train.precision=fp16"};
  const Scenario scenario = scenario_of(convert(requested), shipped_data());
  EXPECT_EQ(scenario.layout.tensor, 4);
  EXPECT_EQ(scenario.train.micro_batch, 2);
  EXPECT_EQ(scenario.train.precision, DType::FP16);
  requested.overrides = {"layout.tensr=4"};
  EXPECT_NE(problem_of(requested).find("tensr"), std::string::npos) << "an unknown key stays an error";
  EXPECT_TRUE(is_override("layout.tensor=4") && is_override("gpus=8"));
  EXPECT_FALSE(is_override("runs/a=b.sh") || is_override("job.sh") || is_override("--gpus=8"));
}

TEST(MegatronFlags, EveryArgumentOfEachReleaseIsInOneClass) {
  using Kind = MegatronArgument::Kind;
  std::size_t in_014 = 0, unclassified = 0;
  std::set<std::string_view> names;
  for (const MegatronArgument& its : megatron_arguments_known()) {
    EXPECT_TRUE(names.insert(its.flag).second || its.of_fork) << its.flag << " is there twice";
    if (its.of_fork) {
      EXPECT_NE(its.why, "") << its.flag;
      continue;
    }
    EXPECT_TRUE(its.whose.starts_with("0.1")) << its.flag;
    EXPECT_NE(its.place, "") << its.flag;
    // "0.10-0.19": 0.14 lies within.
    const bool has_014 = its.whose.find("0.14") != std::string_view::npos ||
                         (its.whose.starts_with("0.1") && its.whose.substr(0, 4) < "0.14" && its.whose.size() == 9 &&
                          its.whose.substr(5) > "0.14");
    in_014 += has_014 ? 1U : 0U;
    unclassified += has_014 && its.kind == Kind::Unclassified ? 1U : 0U;
    const std::optional<MegatronFlag> flag = megatron_flag(its.flag);
    const bool of_reader = its.flag == "tokenizer-type" ||
                           its.flag == "padded-vocab-size" ||  // scenarios say it otherwise
                           its.flag == "hybrid-attention-ratio" || its.flag == "hybrid-mlp-ratio";
    ASSERT_TRUE(flag || of_reader) << its.flag;
    if (of_reader) continue;
    const auto expected = its.kind == Kind::Nothing    ? MegatronFlag::Kind::NoMatter
                          : its.kind == Kind::Bound    ? MegatronFlag::Kind::Bound
                          : its.kind == Kind::Modelled ? flag->kind
                                                       : MegatronFlag::Kind::Unmodelled;
    EXPECT_EQ(flag->kind, expected) << its.flag;
  }
  EXPECT_GE(in_014, 500U);
  EXPECT_LE(unclassified, in_014 / 10);
}

// tests/convert/nothing_drawn.tsv: what was read of each is there.
TEST(MegatronFlags, FiftyThatWereDrawnChangeNothingWhereTheyAreRead) {
  std::istringstream lines(read_text(convert_folder() / "nothing_drawn.tsv"));
  std::string line;
  std::set<std::string> drawn;
  while (std::getline(lines, line)) {
    if (line.starts_with('#')) continue;
    const std::size_t first = line.find('\t'), second = line.find('\t', first + 1);
    ASSERT_NE(second, std::string::npos) << line;
    const std::string flag = line.substr(0, first), place = line.substr(first + 1, second - first - 1);
    const MegatronArgument* const its = megatron_argument(flag);
    ASSERT_NE(its, nullptr) << flag;
    EXPECT_EQ(its->kind, MegatronArgument::Kind::Nothing) << flag;
    EXPECT_EQ(its->place.substr(0, its->place.find(':')), place.substr(0, place.find(':'))) << flag;
    EXPECT_GT(line.size() - second, 10U) << flag << ": what is done there";
    drawn.insert(flag);
  }
  EXPECT_EQ(drawn.size(), 49U) << "one of them was wrong, which the file tells";
}

}  // namespace
}  // namespace tidemark::tests::not_judged_test
