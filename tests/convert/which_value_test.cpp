#include <algorithm>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "tests/convert/recipes.hpp"

// A value of another type than its framework takes, one that other keys overrule, and an expression that only running
// would tell: none of them is a key that was left out.

namespace tidemark::tests::which_value_test {
namespace {

// Of Qwen2.5 0.5B (tests/convert/ten_tools_test.cpp).
constexpr double all = 494'032'768;

std::string problem_of(const ConvertRequest& requested) {
  try {
    const Converted converted = convert(requested);
    const auto refused = std::ranges::find(converted.remarks, RemarkKind::NotExpressed, &Remark::kind);
    if (refused != converted.remarks.end())
      return (refused->is_not_modelled() ? "open: " : "wrong: ") + refused->what + ": " + refused->why;
    (void)scenario_of(converted, shipped_data());
    return "no problem";
  } catch (const InputError& error) {
    return (error.leaves_open() ? "open: " : "wrong: ") + error.problems().front().message;
  }
}
std::string problem_of(const std::string& file, const std::string& text) {
  return problem_of(requested_of(file, text));
}
Scenario scenario_in(const std::string& file, const std::string& text) {
  return scenario_of(convert(requested_of(file, text)), shipped_data());
}
bool has(const std::string& file, const std::string& text, RemarkKind kind, std::string_view what) {
  return std::ranges::any_of(convert(requested_of(file, text)).remarks, [&](const Remark& its) {
    return its.kind == kind && its.what.find(what) != std::string::npos;
  });
}
std::string with(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}
double bytes_of(const Scenario& scenario, Category category) {
  return static_cast<double>(predict(scenario).groups.front().memory.allocated.composition[category].count());
}

const std::string verl =
    "torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.train_files=a.parquet "
    "data.val_files=b.parquet data.micro_batch_size_per_gpu=4 model.partial_pretrain=Qwen/Qwen2.5-0.5B-Instruct ";

// fsdp_sft_trainer.py: CPUOffload(offload_params=…), whose default in sft_trainer.yaml is false.
TEST(WhichValue, VerlsCpuOffloadOffloadsWhatOffloadParamsSays) {
  const std::string fsdp = verl + "model.strategy=fsdp ";
  const Scenario none = scenario_in("run.sh", fsdp);
  EXPECT_EQ(scenario_in("run.sh", fsdp + "model.fsdp_config.cpu_offload=True\n"), none);
  EXPECT_EQ(scenario_in("run.sh", fsdp + "model.fsdp_config.offload_params=True\n"), none);
  const Scenario offloaded =
      scenario_in("run.sh", fsdp + "model.fsdp_config.cpu_offload=True model.fsdp_config.offload_params=True\n");
  EXPECT_GE(bytes_of(none, Category::OptimizerMoments), all * 8 / 8);
  EXPECT_EQ(bytes_of(offloaded, Category::OptimizerMoments), 0) << "they are on the host, where parameters are";
  EXPECT_TRUE(problem_of("run.sh", verl + "model.fsdp_config.cpu_offload=True\n")
                  .starts_with("open: model.fsdp_config.cpu_offload"))
      << "fully_shard does not read FSDP's CPUOffload";
}

// Shards stay in the type that is loaded: an eighth of two moments of two bytes, not four.
TEST(WhichValue, VerlsShardsAreOfTheTypeThatItLoads) {
  for (const std::string strategy : {"fsdp", "fsdp2"}) {
    const Scenario s =
        scenario_in("run.sh", verl + "model.fsdp_config.model_dtype=bf16 model.strategy=" + strategy + "\n");
    EXPECT_EQ(s.train.master_dtype, DType::BF16) << strategy;
    const double moments = bytes_of(s, Category::OptimizerMoments);
    EXPECT_GE(moments, all * 4 / 8);
    EXPECT_LE(moments, 1.04 * all * 4 / 8 + (1 << 20)) << strategy;
  }
  EXPECT_EQ(scenario_in("run.sh", verl + "model.fsdp_config.model_dtype=fp32\n"), scenario_in("run.sh", verl));
  EXPECT_TRUE(problem_of("run.sh", verl + "model.fsdp_config.model_dtype=fp16\n").starts_with("open: "));
  EXPECT_TRUE(problem_of("run.sh", verl + "model.fsdp_config.model_dtype=half\n").starts_with("wrong: "));
}

const std::string litgpt =
    "checkpoint_dir: checkpoints/Qwen/Qwen2.5-0.5B\nout_dir: out\nprecision: bf16-true\nnum_nodes: 1\n"
    "data:\n  class_path: litgpt.data.Alpaca2k\ntrain:\n  global_batch_size: 8\n  micro_batch_size: 1\n"
    "  max_seq_length: 512\n  max_norm:\ndevices: ";

TEST(WhichValue, LitGptsDevicesAreANumberInQuotesToo) {
  EXPECT_EQ(scenario_in("full.yaml", litgpt + "\"4\"\n").gpus, 4);
  EXPECT_EQ(scenario_in("full.yaml", litgpt + "4\n").gpus, 4);
  EXPECT_EQ(scenario_in("full.yaml", litgpt + "auto\n").gpus, 8);
  EXPECT_EQ(scenario_in("full.yaml", litgpt + "-1\n").gpus, 8);
  for (const std::string devices : {"foo", "[0, 1]", "0", "-2", "\"none\"", "1.5"})
    EXPECT_TRUE(problem_of("full.yaml", litgpt + devices + "\n").starts_with("wrong: devices takes ")) << devices;
}

const std::string nanotron =
    "general:\n  project: a\nmodel:\n  dtype: bfloat16\n  model_config:\n    hidden_size: 512\n"
    "    intermediate_size: 2048\n    num_attention_heads: 8\n    num_hidden_layers: 4\n    num_key_value_heads: 8\n"
    "    max_position_embeddings: 1024\n    vocab_size: 32000\n    tie_word_embeddings: false\n"
    "optimizer:\n  zero_stage: 1\n  accumulate_grad_in_fp32: true\n  optimizer_factory:\n    name: adamW\n"
    "    adam_eps: 1.0e-8\n    torch_adam_is_fused: true\nparallelism:\n  dp: 4\n  pp: 1\n  tp: 2\n"
    "  tp_mode: REDUCE_SCATTER\ntokens:\n  sequence_length: 1024\n  micro_batch_size: 1\n"
    "  batch_accumulation_per_replica: 2\n";

TEST(WhichValue, NanotronsNumbersInQuotesAreErrors) {
  EXPECT_EQ(scenario_in("config.yaml", nanotron).gpus, 8);
  EXPECT_EQ(problem_of("config.yaml", with(nanotron, "dp: 4", "dp: \"4\"")),
            "wrong: parallelism.dp = \"4\" is a text where a whole number is expected");
  EXPECT_EQ(problem_of("config.yaml", with(nanotron, "zero_stage: 1", "zero_stage: \"1\"")),
            "wrong: optimizer.zero_stage = \"1\" is a text where a whole number is expected");
  EXPECT_EQ(problem_of("config.yaml", with(nanotron, "replica: 2", "replica: 2.5")),
            "wrong: tokens.batch_accumulation_per_replica = 2.5 is a number with a fraction where a whole number is "
            "expected");
  EXPECT_EQ(problem_of("config.yaml", with(nanotron, "in_fp32: true", "in_fp32: \"false\"")),
            "wrong: optimizer.accumulate_grad_in_fp32 = \"false\" is a text where true or false is expected");
  EXPECT_EQ(problem_of("config.yaml", with(nanotron,
                                           "parallelism:\n  dp: 4\n  pp: 1\n  tp: 2\n  tp_mode: "
                                           "REDUCE_SCATTER\n",
                                           "parallelism: 4\n")),
            "wrong: parallelism = 4 is a whole number where a table is expected");
}

// torch.optim.SGD without momentum has no state; nanotron raises at a third name.
TEST(WhichValue, NanotronsOptimizerIsTheFactorysName) {
  const std::string sgd =
      with(nanotron, "    name: adamW\n    adam_eps: 1.0e-8\n    torch_adam_is_fused: true\n", "    name: sgd\n");
  EXPECT_EQ(scenario_in("config.yaml", sgd).train.optimizer, Optimizer::Sgd);
  EXPECT_EQ(bytes_of(scenario_in("config.yaml", sgd), Category::OptimizerMoments), 0);
  EXPECT_EQ(scenario_in("config.yaml", nanotron).train.optimizer, Optimizer::AdamW);
  EXPECT_EQ(problem_of("config.yaml", with(nanotron, "name: adamW", "name: lamb")),
            "wrong: optimizer.optimizer_factory.name = \"lamb\" is a text where adamW or sgd is expected");
}

TEST(WhichValue, NanotronsOtherKeysAreReadOrListed) {
  EXPECT_TRUE(has("config.yaml", with(nanotron, "  pp: 1\n", "  pp: 1\n  recompute_granularity: selective\n"),
                  RemarkKind::NotJudged, "parallelism.recompute_granularity"));
  EXPECT_TRUE(has("config.yaml", with(nanotron, "  pp: 1\n", "  pp: 2\n"), RemarkKind::NotJudged, "pp_engine"));
  EXPECT_FALSE(has("config.yaml", with(nanotron, "  pp: 1\n", "  pp: 2\n  pp_engine: 1f1b\n"), RemarkKind::NotJudged,
                   "pp_engine"));
  EXPECT_TRUE(scenario_in("config.yaml", with(nanotron, "REDUCE_SCATTER", "reduce_scatter")).layout.sequence_parallel)
      << "its name is made of capitals";
  EXPECT_EQ(scenario_in("config.yaml", with(nanotron, "  dtype: bfloat16\n", "")).train.precision, DType::BF16)
      << "its default";
}

const std::string swift =
    "NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-0.5B --tuner_type full --dataset d --deepspeed zero3 "
    "--per_device_train_batch_size 1 --gradient_accumulation_steps 4 --max_length 1024 --output_dir o ";

// swift/arguments/base_args/model_args.py: fp16 of both, unless it is said.
TEST(WhichValue, SwiftTrainsFloat32InFp16) {
  EXPECT_EQ(scenario_in("run.sh", swift).train.precision, DType::BF16);
  EXPECT_EQ(scenario_in("run.sh", swift + "--torch_dtype float16").train.precision, DType::FP16);
  EXPECT_EQ(scenario_in("run.sh", swift + "--torch_dtype float32").train.precision, DType::FP16);
  EXPECT_EQ(scenario_in("run.sh", swift + "--torch_dtype float32 --fp16 false").train.precision, DType::FP32);
  EXPECT_TRUE(problem_of("run.sh", swift + "--bf16 false").starts_with("open: --bf16 = false"));
  EXPECT_TRUE(problem_of("run.sh", swift + "--fp16 true").starts_with("wrong: --fp16 = true"));
  EXPECT_TRUE(problem_of("run.sh", swift + "--torch_dtype float8").starts_with("wrong: --torch_dtype"));
}

TEST(WhichValue, SwiftOnMegatronTrainsFloat16InFp16) {
  const std::string megatron =
      "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-0.5B --max_length 1024 --global_batch_size 16 ";
  EXPECT_EQ(scenario_in("run.sh", megatron).train.precision, DType::BF16);
  EXPECT_EQ(scenario_in("run.sh", megatron + "--torch_dtype bfloat16").train.precision, DType::BF16);
  EXPECT_EQ(scenario_in("run.sh", megatron + "--torch_dtype float16").train.precision, DType::FP16);
  EXPECT_EQ(scenario_in("run.sh", megatron + "--torch_dtype float32").train.precision, DType::FP16);
  EXPECT_TRUE(problem_of("run.sh", megatron + "--torch_dtype 4").starts_with("wrong: --torch_dtype = 4"));
}

TEST(WhichValue, DeepSpeedsConfigurationMayStandInTheCommand) {
  const std::string json =
      with(swift, "zero3", "'{\"zero_optimization\": {\"stage\": 2}, \"bf16\": {\"enabled\": \"auto\"}}'");
  EXPECT_EQ(scenario_in("run.sh", json).layout.sharding, Sharding::Zero2);
}

// Python's int takes 8_192.
TEST(WhichValue, NumbersMayBeGroupedByUnderscores) {
  const std::string megatron =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 "
      "--micro-batch-size 1 --global-batch-size 8 --vocab-size 32000 --max-position-embeddings 8192 --seq-length ";
  EXPECT_EQ(scenario_in("run.sh", megatron + "8_192").train.sequence_length, 8192);
  EXPECT_NE(problem_of("run.sh", megatron + "8__192"), "no problem");
}

const std::string bridge =
    "from megatron.bridge import AutoBridge\n\n"
    "def llama2_7b_pretrain_8gpu_config() -> ConfigContainer:\n    cfg = _pretrain_common()\n"
    "    cfg.model = AutoBridge.from_hf_pretrained(\"meta-llama/Llama-2-7b-hf\").get_model_config()\n"
    "    cfg.model.tensor_model_parallel_size = 2\n    cfg.train.micro_batch_size = 1\n    return cfg\n";

TEST(WhichValue, BridgesHelpersMayChangeAnything) {
  EXPECT_FALSE(has("llama2.py", bridge, RemarkKind::NotJudged, ""));
  EXPECT_TRUE(
      has("llama2.py", with(bridge, "return cfg", "return helper(cfg)"), RemarkKind::NotJudged, "return helper(cfg)"));
  EXPECT_TRUE(has("llama2.py", with(bridge, "    return", "    cfg.model = helper(cfg.model)\n    return"),
                  RemarkKind::NotJudged, "cfg.model = helper(cfg.model)"));
  EXPECT_TRUE(has("llama2.py", with(bridge, "    return", "    changed = helper(cfg)\n    return"),
                  RemarkKind::NotJudged, "changed = helper(cfg)"));
  EXPECT_TRUE(has("llama2.py", with(bridge, "    return", "    cfg.ddp = DDPConfig(*usual)\n    return"),
                  RemarkKind::NotJudged, "cfg.ddp"));
}

}  // namespace
}  // namespace tidemark::tests::which_value_test
