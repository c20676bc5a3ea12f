#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "tests/convert/recipes.hpp"

// What a file starts, where one of its lines says something else: defaults of its tool, settings that others overwrite,
// and jobs that their framework refuses.

namespace tidemark::tests::meant_settings_test {
namespace {

Scenario meant(const std::string& file, const std::string& text) {
  ConvertRequest requested = requested_of(file, text);
  requested.data_root = shipped_data();
  return scenario_of(convert(requested), shipped_data());
}
std::string problem_of(ConvertRequest requested) {
  requested.data_root = shipped_data();
  try {
    (void)convert(requested);
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}
bool tells(const std::string& file, const std::string& text, const std::string& part) {
  ConvertRequest requested = requested_of(file, text);
  requested.data_root = shipped_data();
  const Converted converted = convert(requested);
  return std::ranges::any_of(converted.remarks, [&](const Remark& its) {
    return fmt::format("{}: {}", its.what, its.why).find(part) != std::string::npos;
  });
}

std::string bridge_recipe(const std::string& lines) {
  return "from megatron.bridge import AutoBridge\n\n"
         "def llama2_7b_pretrain_8gpu_config() -> ConfigContainer:\n    cfg = _pretrain_common()\n"
         "    cfg.model = AutoBridge.from_hf_pretrained(\"meta-llama/Llama-2-7b-hf\").get_model_config()\n" +
         lines + "    return cfg\n";
}
std::string gradients_of(const std::string& lines) {
  const Scenario s = meant("llama2.py", bridge_recipe(lines));
  return std::string(sim::name(s.train.precision)) + " with " + std::string(sim::name(s.train.gradient_dtype));
}

// megatron/bridge/training/mixed_precision.py: the precision writes its fields over DDP's.
TEST(MeantSettings, MixedPrecisionOfMegatronBridgeSaysInWhichTypeGradientsAreSummed) {
  EXPECT_EQ(gradients_of(""), "bf16 with fp32");
  EXPECT_EQ(gradients_of("    cfg.ddp.grad_reduce_in_fp32 = False\n"), "bf16 with fp32");
  EXPECT_TRUE(tells("llama2.py", bridge_recipe("    cfg.ddp.grad_reduce_in_fp32 = False\n"),
                    "ddp.grad_reduce_in_fp32 = false: has no effect: the mixed precision writes true over it"));
  EXPECT_EQ(
      gradients_of("    cfg.mixed_precision = bf16_mixed()\n    cfg.mixed_precision.grad_reduce_in_fp32 = False\n"),
      "bf16 with bf16");
  EXPECT_EQ(gradients_of("    cfg.mixed_precision = get_mixed_precision_config(\"bf16_mixed\")\n"
                         "    cfg.mixed_precision.grad_reduce_in_fp32 = False\n"),
            "bf16 with bf16");
  EXPECT_EQ(gradients_of("    cfg.mixed_precision = MixedPrecisionConfig(bf16=True, params_dtype=torch.bfloat16, "
                         "grad_reduce_in_fp32=False)\n"),
            "bf16 with bf16");
  EXPECT_EQ(gradients_of("    cfg.mixed_precision = \"fp16_mixed\"\n"), "fp16 with fp16");
}

// gpt_step.py takes a mask only where the dataset is told to make one.
TEST(MeantSettings, MegatronBridgesDatasetsMakeNoMasks) {
  EXPECT_FALSE(meant("llama2.py", bridge_recipe("")).runtime.attention_mask);
  EXPECT_TRUE(meant("llama2.py", bridge_recipe("    cfg.dataset.skip_getting_attention_mask_from_dataset = False\n"))
                  .runtime.attention_mask);
}

// src/axolotl/utils/schemas/config.py: bf16 is "auto" where nobody says it.
TEST(MeantSettings, AxolotlTrainsInBf16WhereNobodySays) {
  const std::string rest = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\ngradient_checkpointing: true\n";
  EXPECT_EQ(meant("job.yaml", rest).train.precision, DType::BF16);
  EXPECT_EQ(meant("job.yaml", rest + "bf16: auto\n").train.precision, DType::BF16);
  EXPECT_EQ(meant("job.yaml", rest + "bf16: false\n").train.precision, DType::FP32);
  EXPECT_EQ(meant("job.yaml", rest + "fp16: true\n").train.precision, DType::FP16);
}

// transformers/trainer.py raises a ValueError.
TEST(MeantSettings, TwoKindsOfCheckpointingUnderFsdpAreRefused) {
  ConvertRequest requested;
  requested.files = {"train.sh", "fsdp.yaml"};
  requested.texts["fsdp.yaml"] =
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_activation_checkpointing: true\n  fsdp_version: 1\n"
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_sharding_strategy: FULL_SHARD\n"
      "mixed_precision: bf16\nnum_processes: 8\n";
  requested.cluster = "clusters/h100-sxm-80g.toml";
  const std::string start =
      "accelerate launch --config_file fsdp.yaml sft.py --model_name_or_path meta-llama/Llama-3.1-8B --max_length 4096 "
      "--bf16 ";
  requested.texts["train.sh"] = start + "--gradient_checkpointing True";
  EXPECT_NE(problem_of(requested).find("are both on, at which transformers stops"), std::string::npos);
  requested.texts["train.sh"] = start + "--gradient_checkpointing False";
  EXPECT_EQ(problem_of(requested), "no problem");
}

TEST(MeantSettings, MoreProcessesThanVisibleDevicesAreRefused) {
  const std::string rest =
      " sft.py --model_name_or_path meta-llama/Llama-3.1-8B --max_length 4096 --bf16 --gradient_checkpointing False";
  const auto problem = [&](const std::string& launcher) {
    return problem_of(requested_of("train.sh", "CUDA_VISIBLE_DEVICES=0,1 " + launcher + rest));
  };
  EXPECT_NE(problem("torchrun --nproc_per_node 8").find("leaves 2 devices visible, and torchrun starts 8 processes"),
            std::string::npos);
  EXPECT_NE(problem("accelerate launch --num_processes 4").find("leaves 2 devices visible"), std::string::npos);
  EXPECT_EQ(problem("torchrun --nproc_per_node 2"), "no problem");
  EXPECT_EQ(problem("torchrun --nnodes 4 --nproc_per_node 2"), "no problem");
}

const std::string gpt =
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 "
    "--seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 4 --vocab-file v.json --merge-file m.txt "
    "--fp16 ";

// megatron/arguments.py before core 0.2: --transformer-impl is local, and --use-flash-attn off.
TEST(MeantSettings, ScriptsThatOnlyAnOldMegatronRunsHaveItsLayers) {
  EXPECT_NE(meant("job.sh", gpt).train.attention, meant("job.sh", gpt + "--data-impl mmap").train.attention);
  EXPECT_EQ(meant("job.sh", gpt + "--transformer-impl local").train.attention,
            meant("job.sh", gpt + "--data-impl mmap").train.attention);
  EXPECT_EQ(meant("job.sh", gpt).train.attention,
            meant("job.sh", gpt + "--data-impl mmap --use-flash-attn").train.attention);
  EXPECT_TRUE(tells("job.sh", gpt + "--DDP-impl local", "is of Megatron-LM before core 0.2"));
}

// Tensor parallelism of 4 on nodes of which one device is taken goes over the network.
TEST(MeantSettings, ProcessesOfANodeSayWhereRanksAre) {
  const auto with = [&](const std::string& launcher) {
    return meant("job.sh", launcher + gpt.substr(gpt.find(" pretrain_gpt.py")) + "--tensor-model-parallel-size 4");
  };
  const Scenario one = with("torchrun --nnodes 8 --nproc_per_node 1"),
                 four = with("torchrun --nnodes 2 --nproc_per_node 4"),
                 all = with("torchrun --nnodes 1 --nproc_per_node 8");
  EXPECT_EQ(one.cluster.node.devices, 1);
  EXPECT_EQ(four.cluster.node.devices, 4);
  EXPECT_EQ(four.cluster.node.nics, all.cluster.node.nics / 2);
  EXPECT_EQ(all.cluster.node.devices, 8);
  EXPECT_EQ(with("torchrun --nnodes 4 --nproc_per_node 8").cluster.node.devices, 8);
  EXPECT_GT(predict(one).step.step, predict(all).step.step);
  EXPECT_TRUE(tells("job.sh", "torchrun --nnodes 2 --nproc_per_node 16" + gpt.substr(gpt.find(" pretrain_gpt.py")),
                    "16, of which a node of this cluster has room for 8"));
}

// Of the shape of Llama 2 7B is Baichuan 2, too, with a vocabulary of four times as many tokens.
TEST(MeantSettings, AVocabularyOfAnotherFamilyIsWithinABound) {
  const std::string llama =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 "
      "--num-attention-heads 32 --swiglu --normalization RMSNorm --disable-bias-linear --seq-length 4096 "
      "--untie-embeddings-and-output-weights --position-embedding-type rope --micro-batch-size 1 --bf16 "
      "--attention-dropout 0 --hidden-dropout 0 --norm-epsilon 1e-5 --tokenizer-type Llama2Tokenizer ";
  const auto is_bounded = [&](const std::string& file, const std::string& tokenizer) {
    ConvertRequest requested = requested_of(file, llama + tokenizer);
    requested.data_root = shipped_data();
    const Converted converted = convert(requested);
    return std::ranges::any_of(converted.remarks, [](const Remark& its) { return its.bound == "vocabulary"; });
  };
  EXPECT_TRUE(is_bounded("baichuan2.sh", ""));
  EXPECT_FALSE(is_bounded("llama2.sh", ""));
  EXPECT_FALSE(is_bounded("job.sh", "--tokenizer-model /data/llama/tokenizer.model"));
  EXPECT_TRUE(is_bounded("job.sh", "--tokenizer-model /data/llm-jp-100k.model"));
}

// transformers has bitsandbytes keep the state of each nn.Embedding in fp32, copies that PEFT trains among them: of
// Llama 3.2 1B's embedding of 128,256 by 2,048, 2,101,346,304 bytes.
TEST(MeantSettings, CopiesOfEmbeddingsKeepTheirStateInFp32) {
  const Scenario s = meant("job.yaml",
                           "base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n"
                           "lora_modules_to_save: [embed_tokens]\noptimizer: adamw_bnb_8bit\nsequence_len: 512\n"
                           "bf16: true\n");
  const Bytes moments = predict(s).groups.front().memory.allocated.composition[Category::OptimizerMoments];
  EXPECT_GE(moments.count(), 2'101'346'304);
}

}  // namespace
}  // namespace tidemark::tests::meant_settings_test
