#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/scenario/memory_bounds.hpp"
#include "scenarios/scenario/memory_bounds_below.hpp"
#include "tests/convert/recipes.hpp"

// Launch files of training by pairs of answers, and other parts of a job that are bounded: what is simulated, and how
// much more there may be, worked out by hand.

namespace tidemark::tests::preferences_test {
namespace {

using namespace literals;

std::vector<std::string> bounds_of(const Converted& its) {
  std::vector<std::string> found;
  for (const Remark& remark : its.remarks)
    if (remark.kind == RemarkKind::Bounded) found.push_back(remark.bound);
  return found;
}
bool not_judged(const Converted& its) {
  return std::ranges::any_of(its.remarks, [](const Remark& remark) {
    return remark.kind == RemarkKind::NotJudged || remark.kind == RemarkKind::NotExpressed;
  });
}

// Batches are of sequences: two of each pair.
void expect_batch(const Converted& its, std::int64_t micro, std::int64_t global) {
  const Scenario s = scenario_of(its, shipped_data());
  EXPECT_FALSE(not_judged(its));
  EXPECT_EQ(s.train.micro_batch, micro);
  EXPECT_EQ(s.train.global_batch, global);
}

TEST(Preferences, OfLlamaFactoryAreBothAnswersOfEachPair) {
  const std::string file =
      "model_name_or_path: Qwen/Qwen3-4B\nfinetuning_type: lora\nlora_rank: 8\nlora_target: all\npref_beta: 0.1\n"
      "pref_loss: sigmoid\ndataset: d\ntemplate: qwen3\ncutoff_len: 2048\noutput_dir: o\nbf16: true\n"
      "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n";
  ConvertRequest requested = requested_of("job.yaml", file + "stage: dpo\n");
  requested.gpus = 4;
  const Converted pairs = convert(requested);
  expect_batch(pairs, 2, 2 * 8 * 4);
  EXPECT_EQ(bounds_of(pairs), std::vector<std::string>{"preferences-whole:0"}) << "adapters are turned off instead";
  requested.texts = {{"job.yaml", file + "stage: kto\n"}};
  expect_batch(convert(requested), 1, 8 * 4);
  requested.texts = {{"job.yaml", file + "stage: rm\n"}};
  expect_batch(convert(requested), 2, 2 * 8 * 4);
  EXPECT_EQ(bounds_of(convert(requested)), std::vector<std::string>{"ranked-pairs"});
}

TEST(Preferences, OfTrlHaveAReferenceInTheTypeThatModelsAreLoadedIn) {
  const std::string file =
      "model_name_or_path: mistralai/Mistral-7B-v0.1\nbeta: 0.01\nmax_length: 1024\nmax_prompt_length: 512\n"
      "per_device_train_batch_size: 8\ngradient_accumulation_steps: 2\nbf16: true\ngradient_checkpointing: true\n"
      "output_dir: o\nloss_type: sigmoid\n";
  ConvertRequest requested = requested_of("job.yaml", file);
  requested.gpus = 8;
  const Converted whole = convert(requested);
  expect_batch(whole, 16, 2 * 8 * 2 * 8);
  EXPECT_EQ(bounds_of(whole), std::vector<std::string>{"preferences:4"}) << "loaded in fp32, which nobody says";
  EXPECT_EQ(scenario_of(whole, shipped_data()).train.sequence_length, 1024);
  requested.texts = {{"job.yaml", file + "torch_dtype: bfloat16\n"}};
  EXPECT_EQ(bounds_of(convert(requested)), std::vector<std::string>{"preferences:2"});
  // Answers are judged by logits, which Liger's loss would spare.
  requested.texts = {{"job.yaml", file + "torch_dtype: bfloat16\nuse_liger_kernel: true\n"}};
  const Converted liger = convert(requested);
  EXPECT_EQ(bounds_of(liger), (std::vector<std::string>{"liger-kernel", "preferences:2"}));
  EXPECT_FALSE(scenario_of(liger, shipped_data()).runtime.eager.liger.has(FusedModule::LinearCrossEntropy));
}

TEST(Preferences, OfSwiftAndAxolotlAreReadAsTheirSupervisedTuningIs) {
  ConvertRequest requested =
      requested_of("job.sh",
                   "NPROC_PER_NODE=4 swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B-Instruct --tuner_type full "
                   "--dataset d --torch_dtype bfloat16 --per_device_train_batch_size 4 --gradient_accumulation_steps 1 "
                   "--max_length 8192 --output_dir o --deepspeed zero3 --attn_impl flash_attn --rpo_alpha 0.1\n");
  expect_batch(convert(requested), 8, 2 * 4 * 4);
  requested =
      requested_of("job.yaml",
                   "base_model: NousResearch/Meta-Llama-3-8B\nrl: dpo\nsequence_len: 4096\nadapter: lora\n"
                   "lora_r: 32\nlora_alpha: 16\nlora_target_linear: true\nlora_mlp_kernel: true\nmicro_batch_size: 2\n"
                   "gradient_accumulation_steps: 4\noptimizer: adamw_torch\nbf16: true\ndatasets: []\n");
  requested.gpus = 2;
  const Converted axolotl = convert(requested);
  expect_batch(axolotl, 4, 2 * 2 * 4 * 2);
  EXPECT_EQ(bounds_of(axolotl), (std::vector<std::string>{"lora-kernels", "preferences:0"}));
}

// Mixtral 8x7B: 32 layers of 8 experts, of which a token chooses two.
TEST(Preferences, AndTheRoutersLossOfExpertsIsBounded) {
  const auto with_keys = [](const std::string& more) {
    ConvertRequest requested = requested_of(
        "job.yaml",
        "base_model: mistralai/Mixtral-8x7B-v0.1\nsequence_len: 1024\nadapter: lora\nlora_r: 8\n"
        "lora_alpha: 16\nlora_dropout: 0.05\nlora_target_linear: true\nlora_mlp_kernel: false\nmicro_batch_size: 2\n"
        "gradient_accumulation_steps: 1\noptimizer: adamw_torch\nbf16: true\ndatasets: []\n" +
            more);
    requested.model = {};
    requested.gpus = 8;
    return convert(requested);
  };
  const Converted its = with_keys("model_config:\n  output_router_logits: true\n");
  EXPECT_EQ(bounds_of(its), std::vector<std::string>{"router-loss"});
  EXPECT_EQ(most_more("router-loss", scenario_of(its, shipped_data())),
            Bytes{2048 * 32 * (48 * 8 + 2 * (16 + 24 * 8))});
  EXPECT_TRUE(bounds_of(with_keys("model_config:\n  output_router_logits: false\n")).empty());
  const Converted another = with_keys("model_config:\n  hidden_act: gelu\n");
  EXPECT_TRUE(std::ranges::any_of(another.remarks, [](const Remark& remark) {
    return remark.kind == RemarkKind::NotExpressed || remark.kind == RemarkKind::NotJudged;
  }));
}

TEST(Preferences, TasksThatGenerateStayOpen) {
  for (const std::string task : {"rl: grpo\n", "rl: gdpo\n"})
    EXPECT_THROW((void)scenario_of(convert(requested_of("job.yaml", "base_model: a/b\nsequence_len: 512\n" + task)),
                                   shipped_data()),
                 InputError)
        << task;
}

// torchtune trains in one type, the reference too; each device has a part of it.
TEST(Preferences, OfTorchtuneAreItsRecipeOfTwoModels) {
  ConvertRequest requested =
      requested_of("8B_full_dpo.yaml",
                   "model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
                   "tokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n  max_seq_len: 1024\n"
                   "ref_checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\nbatch_size: 4\n"
                   "optimizer:\n  _component_: torch.optim.AdamW\n  fused: True\n  lr: 2e-5\n"
                   "loss:\n  _component_: torchtune.rlhf.loss.DPOLoss\n  beta: 0.05\n  label_smoothing: 0\n"
                   "gradient_accumulation_steps: 8\ndtype: bf16\nenable_activation_checkpointing: True\n");
  requested.gpus = 8;
  const Converted its = convert(requested);
  expect_batch(its, 8, 2 * 4 * 8 * 8);
  EXPECT_EQ(bounds_of(its), (std::vector<std::string>{"torchtune", "preferences-whole:2"}));
}

// Llama 3.1 8B: 128,256 tokens and 1,024 more, 4,096 wide, 32 layers of 32 and 8 heads of 128, gated MLPs of 14,336.
TEST(Preferences, AndOtherBoundsAreWorkedOutByHand) {
  ConvertRequest requested =
      requested_of("job.yaml",
                   "output_dir: o\nbf16: true\nper_device_train_batch_size: 2\ngradient_checkpointing: true\n"
                   "attn_implementation: flash_attention_2\n");
  requested.model = "models/llama-3.1-8b.json";
  requested.sequence_length = 1024;
  requested.gpus = 1;
  const Scenario s = scenario_of(convert(requested), shipped_data());
  constexpr std::int64_t tokens = 2048, words = 129'280, hidden = 4096, gated = 2 * 14'336;
  constexpr std::int64_t layer = hidden * (32 + 8) * 256 + 8 * hidden + 3 * hidden * 14'336;
  constexpr std::int64_t parameters = 32 * layer + 2 * words * hidden;
  constexpr std::int64_t at_work = 4 * tokens * (6 * hidden + 3 * gated + 3 * 32 * 128);
  EXPECT_EQ(most_more("preferences:0", s), Bytes{at_work + 8 * tokens * words + 8 * 1024 * words});
  EXPECT_EQ(most_more("preferences:2", s), most_more("preferences:0", s) + Bytes{2 * parameters});
  EXPECT_EQ(most_more("preferences-whole:4", s), Bytes{4 * parameters + at_work + 20 * tokens * words});
  constexpr std::int64_t rows = tokens * 20 * words + 2 * at_work + tokens * 2 * hidden * 32;
  EXPECT_EQ(most_less("preferences:2", s), Bytes{rows});
  EXPECT_EQ(most_more("ranked-pairs", s), Bytes{8 * tokens * hidden});
  EXPECT_EQ(most_less("ranked-pairs", s), Bytes{rows + 4 * words * hidden + 16 * words * hidden});
  EXPECT_EQ(most_more("lora-kernels", s), Bytes{2 * (tokens * 4 * (gated + hidden) + 2 * hidden * gated)});
  EXPECT_EQ(most_more("float8-linears", s), Bytes{2 * (2 * tokens * gated + hidden * gated)});
  EXPECT_EQ(most_more("async-tensor", s), Bytes{6 * tokens * hidden});
  EXPECT_EQ(most_more("tied-ends", s), Bytes{8 * words * hidden});
  EXPECT_EQ(most_less("tied-ends", s), Bytes{16 * words * hidden + 6 * words * hidden});
  constexpr std::int64_t results = 2 * (12 * hidden + 4 * hidden + 7 * (32 + 8) * 128 + 2 * gated);
  EXPECT_EQ(most_more("compiled-layers", s), Bytes{tokens * results});
  EXPECT_EQ(most_less("compiled-layers", s), Bytes{tokens * (2 * results + 16 * words)});
  // Rounded inputs and weights in fp32 with a byte each, of a layer and the one at work, and of the head.
  constexpr std::int64_t inputs = 5 * hidden + 32 * 128 + gated, of_layer = (parameters + 31) / 32;
  EXPECT_EQ(most_more("fake-quantized", s),
            Bytes{2 * 5 * (tokens * inputs + of_layer) + 5 * hidden * (tokens + words) + 16 * hidden * words});
}

// GPT of 512, tied: 50,257 tokens where 262,208 and 1,024 are the most; parameters with 18 bytes, logits with 16.
TEST(Preferences, AVocabularyThatNobodySaysIsNoLargerThanTheLargest) {
  ConvertRequest requested = requested_of(
      "job.sh",
      "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 "
      "--seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 1 --bf16 --tokenizer-type "
      "HuggingFaceTokenizer "
      "--tokenizer-model /data/tokenizer\n");
  const Converted its = convert(requested);
  ASSERT_EQ(bounds_of(its), std::vector<std::string>{"vocabulary"});
  const Scenario s = scenario_of(its, shipped_data());
  const auto of = [](std::int64_t words) { return Bytes{18 * words * 512 + 1024 * words * 16}; };
  EXPECT_EQ(most_more("vocabulary", s), of(262'208 + 1024 - s.model.vocabulary));
  EXPECT_EQ(most_less("vocabulary", s), of(s.model.vocabulary));
}

TEST(Preferences, TorchtitanIsSimulatedWithoutItsCompilerWhereRanksCutTheModel) {
  const std::string file =
      "[model]\nname = \"llama2\"\nflavor = \"13B\"\n[training]\nbatch_size = 2\nseq_len = 4096\n"
      "tensor_parallel_degree = 2\ncompile = true\nfp8_linear = \"\"\nenable_async_tensor_parallel = true\n"
      "[float8]\nenable_float8_linear = true\n[activation_checkpoint]\nmode = \"full\"\n";
  ConvertRequest requested = requested_of("job.toml", file);
  requested.gpus = 8;
  const Converted its = convert(requested);
  const Scenario s = scenario_of(its, shipped_data());
  EXPECT_EQ(bounds_of(its), (std::vector<std::string>{"async-tensor", "compiled-layers", "float8-linears"}));
  EXPECT_FALSE(not_judged(its));
  EXPECT_EQ(s.model.hidden, 5120);
  EXPECT_EQ(s.layout.tensor, 2);
  EXPECT_EQ(s.layout.data, 4);
  EXPECT_FALSE(s.runtime.eager.titan.compile_layers);
}

TEST(Preferences, TorchtitansTiedEndsAreSimulatedApart) {
  ConvertRequest requested = requested_of("job.toml",
                                          "[model]\nname = \"qwen3\"\nflavor = \"0.6B\"\n[training]\n"
                                          "local_batch_size = 4\nseq_len = 4096\n");
  requested.gpus = 8;
  const Converted its = convert(requested);
  EXPECT_EQ(bounds_of(its), std::vector<std::string>{"tied-ends"});
  EXPECT_FALSE(scenario_of(its, shipped_data()).model.tied_embeddings);
}

TEST(Preferences, DevicesAreThoseThatSlurmGivesWhereTheLaunchDoesNotSay) {
  const std::string launch =
      " pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 "
      "--max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 1 --bf16\n";
  const std::string script =
      "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n"
      "EACH=$(echo $SLURM_TASKS_PER_NODE | cut -d '(' -f 1)\nmpirun -np $((4 * EACH)) python";
  EXPECT_EQ(scenario_of(convert(requested_of("job.sh", script + launch)), shipped_data()).layout.data, 32);
}

TEST(Preferences, StrategiesOfMegatronsFsdpCountWithItOnly) {
  const std::string job =
      "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 "
      "--seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 1 --bf16 "
      "--data-parallel-sharding-strategy optim_grads_params";
  EXPECT_FALSE(not_judged(convert(requested_of("job.sh", job + "\n"))));
  const Converted with_it = convert(requested_of("job.sh", job + " --use-megatron-fsdp\n"));
  for (const std::string flag : {"--use-megatron-fsdp", "--data-parallel-sharding-strategy"})
    EXPECT_TRUE(std::ranges::any_of(with_it.remarks, [&](const Remark& its) {
      return its.kind == RemarkKind::NotJudged && its.what.starts_with(flag);
    })) << flag;
}

TEST(Preferences, AModelThatPythonMakesIsNotModelled) {
  const auto open = [](const std::string& model) {
    try {
      (void)scenario_of(convert(requested_of("job.py", "def vanilla_gpt_pretrain_8gpu_config():\n    cfg = " + model +
                                                           "\n    cfg.train.global_batch_size = 8\n    return cfg\n")),
                        shipped_data());
      return false;
    } catch (const InputError& error) {
      return error.leaves_open();
    }
  };
  EXPECT_TRUE(open("ConfigContainer(model=GPTModelProvider())"));
  EXPECT_FALSE(open("_pretrain_common()")) << "nothing says it";
}

TEST(Preferences, NemosNormsAroundOneAreMegatrons) {
  const Converted its =
      convert(requested_of("job.yaml",
                           "trainer:\n  devices: 8\n  num_nodes: 1\n  precision: bf16\nmodel:\n  micro_batch_size: 1\n"
                           "  global_batch_size: 8\n  encoder_seq_length: 1024\n  max_position_embeddings: 1024\n"
                           "  num_layers: 2\n  hidden_size: 512\n  ffn_hidden_size: 2048\n  num_attention_heads: 8\n"
                           "  override_vocab_size: 50257\n  layernorm_zero_centered_gamma: true\n"
                           "  hybrid_mlp_ratio: 0.0\n  pipeline_model_parallel_split_rank: 0\n"));
  EXPECT_FALSE(not_judged(its));
  EXPECT_TRUE(std::ranges::any_of(its.remarks, [](const Remark& one) {
    return one.what == "--apply-layernorm-1p" && one.kind == RemarkKind::NoMatter;
  })) << "Transformer Engine's norms add it in their kernels";
  EXPECT_EQ(scenario_of(its, shipped_data()).layout.data, 8);
}

}  // namespace
}  // namespace tidemark::tests::preferences_test
