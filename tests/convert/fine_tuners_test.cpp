#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/scenario/memory_bounds.hpp"
#include "tests/convert/recipes.hpp"

// Files of torchtune, LitGPT, OpenRLHF, verl, DeepSpeed-Chat and LLaMA-Factory's second trainer in the style of their
// own, with what they come to worked out by hand.
//
// Qwen2.5 0.5B: 24 layers of 896 with 14 heads of queries and 2 of keys and values, 64 wide, biases on these, an MLP of
// 4,864, and an embedding of 151,936 that is the head, too: 494,032,768 parameters (tests/convert/ten_tools_test.cpp).

namespace tidemark::tests::fine_tuners_test {
namespace {

constexpr double all = 494'032'768;

struct Worked {
  std::string file, text;
  std::int64_t parameters = 0;
  std::int32_t data = 1;
  std::int64_t sequence = 0, micro = 0, global = 0;
  /// Bytes of parameters, the optimizer's own copy and its moments on rank 0; -1: what is gathered comes and goes.
  std::array<double, 3> bytes{};
};

ConvertRequest requested_of(const std::string& file, const std::string& text, std::int64_t gpus = 0) {
  ConvertRequest requested;
  requested.files = {file};
  requested.texts[file] = text;
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  if (gpus > 0) requested.gpus = gpus;
  return requested;
}

Scenario holds(const Worked& its) {
  SCOPED_TRACE(its.file);
  const Scenario s = scenario_of(convert(requested_of(its.file, its.text)), shipped_data());
  const Prediction p = predict(s);
  EXPECT_EQ(p.parameters, its.parameters);
  EXPECT_EQ(
      fmt::format("{}: {} {} {}", s.layout.data, s.train.sequence_length, s.train.micro_batch, s.train.global_batch),
      fmt::format("{}: {} {} {}", its.data, its.sequence, its.micro, its.global));
  const Composition& made = p.groups.front().memory.allocated.composition;
  const std::array categories{Category::Parameters, Category::OptimizerMaster, Category::OptimizerMoments};
  for (std::size_t i = 0; i < categories.size(); ++i) {
    if (its.bytes[i] < 0) continue;
    const auto found = static_cast<double>(made[categories[i]].count());
    EXPECT_GE(found, 0.999 * its.bytes[i]) << category_names[i];
    EXPECT_LE(found, 1.04 * its.bytes[i] + (1 << 20)) << category_names[i];
  }
  return s;
}

bool has_remark(const Converted& converted, RemarkKind kind, std::string_view what) {
  return std::ranges::any_of(converted.remarks,
                             [&](const Remark& its) { return its.kind == kind && its.what.starts_with(what); });
}

const std::string tune_common =
    "output_dir: /tmp/out\nseed: null\nshuffle: True\nresume_from_checkpoint: False\nepochs: 1\n"
    "max_steps_per_epoch: null\ndevice: cuda\ndtype: bf16\nenable_activation_checkpointing: True\n"
    "enable_activation_offloading: False\nclip_grad_norm: null\ncompile: False\nlog_every_n_steps: 1\nlog_level: INFO\n"
    "dataset:\n  _component_: torchtune.datasets.alpaca_cleaned_dataset\n  packed: False\n"
    "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n  output_dir: ${output_dir}\n"
    "loss:\n  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\n"
    "optimizer:\n  _component_: torch.optim.AdamW\n  fused: True\n  lr: 2e-5\n";

// In bf16 throughout: an eighth of two moments of two bytes; four micro-batches of two rows on eight devices.
TEST(FineTuners, TorchtuneOnANodeIsFullyShardInOneType) {
  const Scenario s =
      holds({"0.5B_full.yaml",
             tune_common + "tokenizer:\n  _component_: torchtune.models.qwen2_5.qwen2_5_tokenizer\n"
                           "  max_seq_len: 1024\nmodel:\n  _component_: torchtune.models.qwen2_5.qwen2_5_0_5b\n"
                           "batch_size: 2\ngradient_accumulation_steps: 4\n",
             494'032'768,
             8,
             1024,
             2,
             64,
             {-1, 0, all * 4 / 8}});
  EXPECT_EQ(s.runtime.name, "fsdp2");
  EXPECT_EQ(s.layout.sharding, Sharding::Zero3);
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full);
}

// LoRA of rank 8 on queries (896 to 896) and values (896 to 128): 24 x 8 x (1,792 + 1,024) = 540,672.
const std::string tune_lora = tune_common +
                              "tokenizer:\n  max_seq_len: null\nmodel:\n"
                              "  _component_: torchtune.models.qwen2_5.lora_qwen2_5_0_5b\n"
                              "  lora_attn_modules: ['q_proj', 'v_proj']\n  apply_lora_to_mlp: False\n"
                              "  lora_rank: 8\n  lora_alpha: 16\n  lora_dropout: 0.0\n"
                              "batch_size: 2\ngradient_accumulation_steps: 8\n";

TEST(FineTuners, TorchtuneOnOneDeviceTrainsAdaptersInTheirBasesType) {
  const Scenario s = holds({"0.5B_lora_single_device.yaml",
                            tune_lora,
                            494'032'768 + 540'672,
                            1,
                            2048,
                            2,
                            16,
                            {(all + 540'672) * 2, 0, 540'672 * 4.0}});
  EXPECT_EQ(s.runtime.name, "pytorch");
}

TEST(FineTuners, TorchtuneThatSaysNoLengthIsShownAndNotJudged) {
  ConvertRequest requested = requested_of("0.5B_lora_single_device.yaml", tune_lora);
  EXPECT_TRUE(has_remark(convert(requested), RemarkKind::NotJudged, "tokenizer.max_seq_len"));
  requested.sequence_length = 4096;
  const Converted said = convert(requested);
  EXPECT_FALSE(has_remark(said, RemarkKind::NotJudged, "tokenizer.max_seq_len"));
  EXPECT_EQ(scenario_of(said, shipped_data()).train.sequence_length, 4096);
}

TEST(FineTuners, TorchtunesOtherTasksAreNotModelled) {
  for (const char* more : {"kd_ratio: 0.5\nteacher_model:\n  a: 1\n", "grpo_samples: 4\n"}) try {
      (void)convert(requested_of("8B.yaml", tune_lora + more));
      ADD_FAILURE() << more;
    } catch (const InputError& error) {
      EXPECT_TRUE(error.leaves_open()) << error.what();
    }
}

TEST(FineTuners, TorchtunesQuantizationWhileItTrainsIsBounded) {
  const Converted its = convert(requested_of(
      "0.5B_lora_single_device.yaml", tune_lora + "quantizer:\n  groupsize: 256\nfake_quant_after_n_steps: 1000\n"));
  EXPECT_TRUE(std::ranges::any_of(its.remarks, [](const Remark& one) { return one.bound == "fake-quantized"; }));
}

const std::string lit_common =
    "checkpoint_dir: checkpoints/Qwen/Qwen2.5-0.5B\nout_dir: out\nprecision: bf16-true\nnum_nodes: 1\n"
    "data:\n  class_path: litgpt.data.Alpaca2k\ntrain:\n  global_batch_size: 8\n  micro_batch_size: 2\n"
    "  max_seq_length: 512\n  max_norm:\n  min_lr: 6.0e-05\neval:\n  interval: 25\nlogger_name: csv\nseed: 1337\n"
    "optimizer:\n  class_path: torch.optim.AdamW\n  init_args:\n    lr: 0.0002\n    weight_decay: 0.0\n    betas:\n"
    "      - 0.9\n      - 0.95\n";

// litgpt/model.py does not tie it.
constexpr std::int64_t own_head = 151'936 * 896;

// One device, four micro-batches of two rows; nothing is computed again.
TEST(FineTuners, LitGptOnOneDeviceWrapsNothing) {
  const Scenario s = holds({"full.yaml",
                            lit_common + "devices: 1\n",
                            494'032'768 + own_head,
                            1,
                            512,
                            2,
                            8,
                            {(all + own_head) * 2, 0, (all + own_head) * 4}});
  EXPECT_EQ(s.runtime.name, "pytorch");
  EXPECT_EQ(s.train.recompute.kind, Recompute::None);
}

// Rank 32 on queries and values: 24 x 32 x 2,816 = 2,162,688, under fully_shard on four devices, layers computed again.
TEST(FineTuners, LitGptsAdaptersOnSeveralDevicesAreUnderFullyShard) {
  const Scenario s = holds({"lora.yaml",
                            lit_common + "devices: 4\nlora_r: 32\nlora_alpha: 16\nlora_dropout: 0.05\n"
                                         "lora_query: true\nlora_key: false\nlora_value: true\nlora_projection: false\n"
                                         "lora_mlp: false\nlora_head: false\n",
                            494'032'768 + own_head + 2'162'688,
                            4,
                            512,
                            2,
                            8,
                            {-1, 0, 2'162'688 * 4.0 / 4}});
  EXPECT_EQ(s.runtime.name, "fsdp2");
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full);
}

// Their types are words of a configuration that is made of them: no other word gets in.
TEST(FineTuners, OnlyTakeHalfTypes) {
  for (const std::string type : {"fp32", "x\": {\"enabled\": true}, \"bf16"})
    for (const std::string& program :
         {"deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-0.5B --param_dtype '" + type + "'\n",
          "deepspeed main.py --data_path a b --data_split 2,4,4 --model_name_or_path Qwen/Qwen2.5-0.5B "
          "--max_seq_len 512 --zero_stage 3 --deepspeed --output_dir out --dtype '" +
              type + "'\n"})
      EXPECT_TRUE(std::ranges::any_of(convert(requested_of("sft.sh", program)).remarks, [](const Remark& its) {
        return its.kind == RemarkKind::NotExpressed && its.why.find("takes bf16 or fp16") != std::string::npos;
      })) << program;
}

// ZeRO-2 on the eight devices of a node: bf16 parameters, eighths of fp32 ones and of moments.
TEST(FineTuners, OpenRlhfIsTransformersUnderZero) {
  const std::string older =
      "deepspeed --module openrlhf.cli.train_sft --max_len 1024 --dataset a --input_key q --output_key r "
      "--train_batch_size 256 --micro_train_batch_size 2 --pretrain Qwen/Qwen2.5-0.5B --save_path out --save_steps -1 "
      "--logging_steps 1 --eval_steps -1 --zero_stage 2 --max_epochs 1 --bf16 --attn_implementation flash_attention_2 "
      "--learning_rate 5e-6 --gradient_checkpointing\n";
  const std::string newer =
      "deepspeed --module openrlhf.cli.train_sft --data.max_len 1024 --data.dataset a --train.batch_size 256 "
      "--train.micro_batch_size 2 --model.model_name_or_path Qwen/Qwen2.5-0.5B --ckpt.output_dir out --ds.zero_stage 2 "
      "--train.max_epochs 1 --ds.param_dtype bf16 --adam.lr 5e-6 --model.gradient_checkpointing_enable\n";
  for (const std::string& text : {older, newer}) {
    const Scenario s = holds({"sft.sh", text, 494'032'768, 8, 1024, 2, 256, {all * 2, all * 4 / 8, all * 8 / 8}});
    EXPECT_EQ(s.train.attention, AttentionKernel::Flash);
    EXPECT_EQ(s.layout.sharding, Sharding::Zero2);
  }
}

// fp32 shards, gathered in bf16; 256 sequences a step where nobody says how many.
TEST(FineTuners, VerlsSupervisedStepIsFullyShardOverFp32) {
  const Scenario s =
      holds({"run.sh",
             "torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer "
             "data.train_files=a.parquet data.val_files=b.parquet data.prompt_key=extra_info optim.lr=1e-4 "
             "data.prompt_dict_keys=['question'] +data.response_dict_keys=['answer'] data.micro_batch_size_per_gpu=4 "
             "model.partial_pretrain=Qwen/Qwen2.5-0.5B-Instruct trainer.project_name=a trainer.total_epochs=1\n",
             494'032'768,
             8,
             1024,
             4,
             256,
             {-1, 0, all * 8 / 8}});
  EXPECT_EQ(s.runtime.name, "fsdp2");
  EXPECT_EQ(s.train.attention, AttentionKernel::Flash);
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full);
}

// fp16 unless --dtype says otherwise, ZeRO-3 over eight devices.
TEST(FineTuners, DeepSpeedChatMakesItsConfigurationItself) {
  const Scenario s =
      holds({"run.sh",
             "deepspeed main.py --data_path a b --data_split 2,4,4 --model_name_or_path Qwen/Qwen2.5-0.5B "
             "--per_device_train_batch_size 4 --per_device_eval_batch_size 4 --max_seq_len 512 --learning_rate 9.65e-6 "
             "--weight_decay 0. --num_train_epochs 4 --gradient_accumulation_steps 2 --lr_scheduler_type cosine "
             "--num_warmup_steps 0 --seed 1234 --gradient_checkpointing --zero_stage 3 --deepspeed --output_dir out\n",
             494'032'768,
             8,
             512,
             4,
             64,
             {-1, all * 4 / 8, all * 8 / 8}});
  EXPECT_EQ(s.train.precision, DType::FP16);
  EXPECT_EQ(s.layout.sharding, Sharding::Zero3);
}

// fp32 shards that are gathered in bf16: eighths of moments.
TEST(FineTuners, LlamaFactorysSecondTrainerIsFullyShardOverFp32) {
  const Scenario s = holds({"train.yaml",
                            "model: Qwen/Qwen2.5-0.5B\nmodel_class: llm\nkernel_config:\n  name: auto\n"
                            "quant_config: null\ndist_config:\n  name: fsdp2\n  dcp_path: null\ntrain_dataset: a.yaml\n"
                            "output_dir: out\nmicro_batch_size: 2\ncutoff_len: 1024\nlearning_rate: 1.0e-4\n"
                            "max_steps: 10\n",
                            494'032'768,
                            8,
                            1024,
                            2,
                            16,
                            {-1, 0, all * 8 / 8}});
  EXPECT_EQ(s.runtime.name, "fsdp2");
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full);
}

// 1,024 tokens of 8 heads, 64 wide: twelve fp32 numbers of each turned pair of heads at work, keys and values once more
// in each of two layers and the one at work; embedding and head of 512 by 50,257 and padding.
TEST(FineTuners, BoundsAreWhatTheirSourcesComeTo) {
  ConvertRequest requested = requested_of(
      "job.sh",
      "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 "
      "--seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 1 --bf16\n");
  const Scenario s = scenario_of(convert(requested), shipped_data());
  constexpr std::int64_t vocabulary = 50'257 + 1024;
  EXPECT_EQ(most_more("torchtune", s), Bytes{1024 * (6 * 4 * 16 * 64 + 2 * 2 * 8 * 64 * 3) + 2 * 2 * vocabulary * 512});
  EXPECT_EQ(most_more("optimizer-in-backward", s), Bytes{0});
  EXPECT_EQ(most_more("openrlhf", s), Bytes{3 * 4 * 1024 * vocabulary});
  EXPECT_EQ(most_more("copied-logits", s), Bytes{2 * 4 * 1024 * vocabulary});
  // Norms in fp32, one tensor of 24 heads, and repeated keys and values.
  EXPECT_EQ(most_more("litgpt", s),
            Bytes{1024 * ((2 * 4 * 512 + 2 * (24 * 64 + 2 * 8 * 64)) * 3 + 6 * 2 * 24 * 64 + 4 * 4 * 512) +
                  2 * vocabulary * 512});
}

}  // namespace
}  // namespace tidemark::tests::fine_tuners_test
