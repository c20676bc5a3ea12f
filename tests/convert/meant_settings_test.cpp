#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

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

// models/llama/llama_bridge.py, models/gpt_provider.py: where Megatron-LM's own flags would drop a tenth.
TEST(MeantSettings, ModelsOfMegatronBridgeDropNothingAndFuseTheirLoss) {
  const Scenario usual = meant("llama2.py", bridge_recipe(""));
  EXPECT_EQ(usual.train.hidden_dropout, 0);
  EXPECT_EQ(usual.train.attention_dropout, 0);
  EXPECT_EQ(usual.train.cross_entropy, CrossEntropy::Fused);
  const Scenario said = meant("llama2.py", bridge_recipe("    cfg.model.hidden_dropout = 0.2\n"
                                                         "    cfg.model.cross_entropy_loss_fusion = False\n"));
  EXPECT_EQ(said.train.hidden_dropout, 0.2);
  EXPECT_EQ(said.train.cross_entropy, CrossEntropy::Unfused);
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

// src/axolotl/core/builders/base.py, utils/schemas/validation.py: fsdp_config alone asks for FSDP, the first unless a
// version stands beside it or in it.
TEST(MeantSettings, AxolotlsConfigurationOfFsdpAsksForIt) {
  const std::string rest =
      "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\nbf16: true\noptimizer: adamw_torch_fused\n"
      "fsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  reshard_after_forward: true\n";
  const auto runtime = [&](const std::string& lines) {
    const Scenario s = meant("job.yaml", rest + lines);
    return s.runtime.name + " " + std::string(s.layout.sharding == Sharding::Zero3 ? "full" : "other");
  };
  EXPECT_EQ(runtime("fsdp_version: 2\n"), "fsdp2 full");
  EXPECT_EQ(runtime("  fsdp_version: 2\n"), "fsdp2 full");
  EXPECT_EQ(runtime("fsdp:\n"), "fsdp full");
  EXPECT_EQ(runtime("fsdp: []\nfsdp_version: 2\n"), "fsdp2 full");
  EXPECT_EQ(runtime("fsdp:\n  - full_shard\n  - auto_wrap\n"), "fsdp full");
  // torchao's Adam takes DTensors, as bitsandbytes' does not.
  std::string of_8_bits = rest + "fsdp_version: 2\n";
  of_8_bits.replace(of_8_bits.find("adamw_torch_fused"), 17, "adamw_torch_8bit");
  EXPECT_EQ(meant("job.yaml", of_8_bits).train.optimizer, Optimizer::AdamW);
  EXPECT_TRUE(tells("job.yaml", of_8_bits, "torchao's are of 8 or 4 bits"));
  EXPECT_EQ(meant("job.yaml",
                  "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\nfsdp_config:\n"
                  "fsdp_version: 2\n")
                .runtime.name,
            "pytorch");
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

// A rank says how LoRA is, and not that there is one: TRL's use_peft, ms-swift's tuner_type, LLaMA-Factory's
// finetuning_type and axolotl's adapter do.
TEST(MeantSettings, ARankAloneAsksForNoAdapter) {
  const auto adapted = [](const std::string& file, const std::string& text) {
    return meant(file, text).train.adapter.has_value();
  };
  const std::string trl =
      "accelerate launch --num_processes 8 --multi_gpu sft.py --model_name_or_path meta-llama/Llama-3.1-8B "
      "--max_length "
      "4096 --bf16 True --lora_r 16 --lora_alpha 32 --lora_target_modules all-linear";
  EXPECT_FALSE(adapted("train.sh", trl));
  EXPECT_TRUE(tells("train.sh", trl, "lora_r = 16: of LoRA, which nothing asks for"));
  EXPECT_TRUE(adapted("train.sh", trl + " --use_peft"));
  EXPECT_FALSE(adapted("train.sh", trl + " --use_peft False"));
  const std::string peft =
      "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B --max_length 4096 --bf16 True "
      "--chat_template_format none --lora_r 8 ";
  EXPECT_FALSE(adapted("train.sh", peft));
  EXPECT_TRUE(adapted("train.sh", peft + "--use_peft_lora True"));
  const std::string swift =
      "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --max_length 2048 --lora_rank 8 --lora_alpha 32 "
      "--target_modules all-linear ";
  EXPECT_TRUE(adapted("train.sh", swift));
  EXPECT_FALSE(adapted("train.sh", swift + "--tuner_type full"));
  EXPECT_FALSE(adapted("train.sh", swift + "--train_type full"));
  const std::string factory =
      "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ndo_train: true\ncutoff_len: 2048\nbf16: true\nlora_rank: 8\n"
      "lora_target: all\nfinetuning_type: ";
  EXPECT_TRUE(adapted("job.yaml", factory + "lora\n"));
  EXPECT_FALSE(adapted("job.yaml", factory + "full\n"));
  const std::string axolotl =
      "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\nflash_attention: true\nlora_r: 16\nlora_alpha: 32\n"
      "lora_target_linear: true\n";
  EXPECT_FALSE(adapted("job.yaml", axolotl));
  EXPECT_FALSE(adapted("job.yaml", axolotl + "adapter:\n"));
  EXPECT_TRUE(adapted("job.yaml", axolotl + "adapter: lora\n"));
}

// A script that nobody knows may make adapters by itself: whether it does is not judged.
TEST(MeantSettings, ARankOfAnUnknownScriptIsNotJudged) {
  const auto judged = [](const std::string& script) {
    return !tells("train.sh",
                  "torchrun --nproc_per_node 8 " + script +
                      " --model_name_or_path meta-llama/Llama-3.1-8B --model_max_length 4096 --bf16 True --lora_r 8",
                  "asks for LoRA where the script makes adapters by itself");
  };
  EXPECT_FALSE(judged("tune.py"));
  EXPECT_TRUE(judged("train_lora.py"));
}

// src/axolotl/utils/schemas/peft.py.
TEST(MeantSettings, AxolotlsQloraNeedsFourBits) {
  const std::string rest = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\nadapter: qlora\nlora_r: 8\n";
  EXPECT_NE(problem_of(requested_of("job.yaml", rest)).find("axolotl does not start without load_in_4bit"),
            std::string::npos);
  EXPECT_EQ(problem_of(requested_of("job.yaml", rest + "load_in_4bit: true\n")), "no problem");
}

// src/axolotl/loaders/model.py: embeddings, the head and norms stay in fp32.
TEST(MeantSettings, AxolotlWithoutFlashAttentionKeepsEmbeddingsWide) {
  const std::string rest = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\nbf16: auto\n";
  constexpr const char* wide = "keeps embeddings, the head, norms and what flows between layers in fp32";
  EXPECT_TRUE(tells("job.yaml", rest, wide));
  EXPECT_TRUE(tells("job.yaml", rest + "sdp_attention: true\n", wide));
  EXPECT_FALSE(tells("job.yaml", rest + "flash_attention: true\n", wide));
  EXPECT_FALSE(tells("job.yaml", rest + "fsdp:\n  - full_shard\n  - auto_wrap\n", wide));
  EXPECT_FALSE(tells("job.yaml", "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\nbf16: false\n", wide));
  EXPECT_FALSE(tells("job.yaml", rest + "adapter: lora\nlora_r: 8\nlora_target_linear: true\n", wide));
}

// accelerate's own switches take no value, and say how it trains; its file's "NO" starts one process.
TEST(MeantSettings, SwitchesOfAccelerateSayWhoShards) {
  const std::string rest =
      " trl/scripts/sft.py --model_name_or_path Qwen/Qwen2.5-7B --max_length 2048 --gradient_checkpointing True --bf16 "
      "True --per_device_train_batch_size 1";
  const auto of = [&](const std::string& launcher) {
    const Scenario s = meant("train.sh", "accelerate launch " + launcher + rest);
    const int stage = s.layout.sharding == Sharding::Zero3 ? 3 : s.layout.sharding == Sharding::Zero2 ? 2 : 0;
    return fmt::format("{} of stage {} on {}", s.runtime.name, stage, s.layout.data);
  };
  EXPECT_EQ(of("--multi_gpu --num_processes 8"), "pytorch of stage 0 on 8");
  EXPECT_EQ(of("--use_fsdp --fsdp_sharding_strategy FULL_SHARD --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP "
               "--num_processes 8 --mixed_precision bf16"),
            "fsdp of stage 3 on 8");
  EXPECT_EQ(of("--use_deepspeed --num_processes 8 --mixed_precision bf16"), "deepspeed of stage 2 on 8")
      << "accelerate/utils/dataclasses.py: stage 2 unless it is said";
  EXPECT_EQ(of("--use_deepspeed --zero_stage 3 --num_processes 8 --mixed_precision bf16"), "deepspeed of stage 3 on 8");
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / fmt::format("switches_of_accelerate.{}", ::getpid());
  std::filesystem::create_directories(folder);
  const auto with = [&](const std::string& configuration) {
    std::ofstream(folder / "job.yaml") << configuration;
    std::ofstream(folder / "train.sh") << "accelerate launch --config_file job.yaml --num_processes 8" << rest
                                       << " --gradient_accumulation_steps 4\n";
    ConvertRequest requested = requested_of("train.sh", "");
    requested.texts.clear();
    requested.files = {folder / "train.sh"};
    return convert(requested);
  };
  EXPECT_EQ(scenario_of(with("distributed_type: \"NO\"\nmixed_precision: no\n"), shipped_data()).layout.data, 1);
  const Converted differs = with(
      "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\n"
      "  gradient_accumulation_steps: 8\n");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(scenario_of(differs, shipped_data()).train.global_batch, 32);
  EXPECT_TRUE(std::ranges::any_of(differs.remarks, [](const Remark& its) {
    return its.why.find("DeepSpeed's configuration says 8, and transformers does not start") != std::string::npos;
  }));
}

// src/axolotl/utils/schemas/config.py, core/builders/base.py: kernels for LoRA are on where nothing says otherwise, and
// a part of the rows is evaluated, as many at once as the file says.
TEST(MeantSettings, AxolotlTakesItsKernelsAndEvaluatesWhereNothingSaysOtherwise) {
  const std::string rest =
      "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\nmicro_batch_size: 2\nflash_attention: true\n";
  const std::string lora = rest + "adapter: lora\nlora_r: 8\nlora_target_linear: true\n";
  constexpr const char* kernels = "lora_mlp_kernel: is not said, and axolotl then takes its kernels";
  EXPECT_TRUE(tells("job.yaml", lora, kernels));
  EXPECT_FALSE(tells("job.yaml", rest, kernels));
  EXPECT_FALSE(tells("job.yaml", lora + "lora_mlp_kernel: false\n", kernels));
  EXPECT_FALSE(tells("job.yaml", lora + "load_in_8bit: true\n", kernels));
  EXPECT_FALSE(tells("job.yaml", lora + "fsdp:\n  - full_shard\n  - auto_wrap\n", kernels));
  const std::string evaluated = "per_device_eval_batch_size = 16: evaluation is not simulated, and has 16 sequences";
  EXPECT_TRUE(tells("job.yaml", rest + "val_set_size: 0.1\neval_batch_size: 16\n", evaluated));
  EXPECT_FALSE(tells("job.yaml", rest + "val_set_size: 0\neval_batch_size: 16\n", evaluated));
  EXPECT_FALSE(tells("job.yaml", rest + "val_set_size: 0.1\n", "evaluation is not simulated"));
}

// swift/arguments/sft_args.py: rows to evaluate are evaluated.
TEST(MeantSettings, SwiftEvaluatesWhereThereAreRowsTo) {
  const std::string rest =
      "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --max_length 2048 --per_device_eval_batch_size 32 ";
  constexpr const char* evaluated = "evaluation is not simulated, and has 32 sequences";
  EXPECT_TRUE(tells("train.sh", rest + "--val_dataset rows.jsonl", evaluated));
  EXPECT_TRUE(tells("train.sh", rest + "--split_dataset_ratio 0.01", evaluated));
  EXPECT_FALSE(tells("train.sh", rest, evaluated));
}

// accelerate/utils/launch.py: gpu_ids are CUDA_VISIBLE_DEVICES.
TEST(MeantSettings, MoreProcessesThanDevicesOfAccelerateAreRefused) {
  const std::string rest =
      " sft.py --model_name_or_path meta-llama/Llama-3.1-8B --max_length 4096 --bf16 --gradient_checkpointing False";
  const auto problem = [&](const std::string& launcher) {
    return problem_of(requested_of("train.sh", "accelerate launch --multi_gpu " + launcher + rest));
  };
  EXPECT_NE(problem("--gpu_ids 0,1 --num_processes 8").find("gpu_ids leaves 2 devices visible"), std::string::npos);
  EXPECT_EQ(problem("--gpu_ids 0,1 --num_processes 2"), "no problem");
  EXPECT_EQ(problem("--gpu_ids all --num_processes 8"), "no problem");
}

// litgpt/model.py: a head of its own, whatever the checkpoint ties. Llama 3.2 1B has an embedding of 128,256 x 2,048.
// litgpt/args.py: a device takes its share of the global batch, of whole micro-batches.
TEST(MeantSettings, LitGptHasAHeadOfItsOwnAndSharesTheBatch) {
  const std::string rest =
      "checkpoint_dir: checkpoints/meta-llama/Llama-3.2-1B\nprecision: bf16-true\ntrain:\n  global_batch_size: 20\n"
      "  micro_batch_size: 4\n  max_seq_length: 512\n";
  EXPECT_EQ(predict(meant("full.yaml", "devices: 1\n" + rest)).parameters, 1'235'814'400 + 128'256 * 2048);
  EXPECT_EQ(meant("full.yaml", "devices: 2\n" + rest).train.global_batch, 16);
  EXPECT_NE(problem_of(requested_of("full.yaml", "devices: auto\n" + rest))
                .find("LitGPT does not start with less than a micro-batch of 4 for each of 8 devices"),
            std::string::npos);
}

// primus/configs/modules/megatron/trainer_base.yaml makes masks in the data loader.
TEST(MeantSettings, PrimusMakesMasksUnlessItIsToldNotTo) {
  const auto masks = [](const std::string& line) {
    ConvertRequest requested =
        requested_of("job.yaml",
                     "modules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n"
                     "    model: llama3.1_8B.yaml\n    overrides:\n      seq_length: 8192\n      micro_batch_size: 1\n"
                     "      global_batch_size: 16\n" +
                         line);
    requested.gpus = 8;
    return scenario_of(convert(requested), shipped_data()).runtime.attention_mask;
  };
  EXPECT_TRUE(masks(""));
  EXPECT_TRUE(masks("      create_attention_mask_in_dataloader: true\n"));
  EXPECT_FALSE(masks("      create_attention_mask_in_dataloader: false\n"));
}

}  // namespace
}  // namespace tidemark::tests::meant_settings_test
