#include <algorithm>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/convert/recipes.hpp"

// What launch files said that nobody here had seen: each comes to what its own tool makes of it, worked out by hand.

namespace tidemark::tests::unseen_files_test {
namespace {

bool has(const Converted& converted, RemarkKind kind, std::string_view what) {
  return std::ranges::any_of(converted.remarks, [&](const Remark& its) {
    return its.kind == kind && its.what.find(what) != std::string::npos;
  });
}
std::string problem_of(const ConvertRequest& requested) {
  try {
    (void)scenario_of(convert(requested), shipped_data());
    return "no problem";
  } catch (const InputError& error) {
    return (error.leaves_open() ? "open: " : "wrong: ") + error.problems().front().message;
  }
}
std::string problem_of(const std::string& file, const std::string& text) {
  return problem_of(requested_of(file, text));
}
Scenario read(const ConvertRequest& requested) { return scenario_of(convert(requested), shipped_data()); }
Scenario read(const std::string& file, const std::string& text) { return read(requested_of(file, text)); }

// Four layers of 512 with eight heads, each an MLP of 2,048 with gates, 32,000 words: 49,549,824 parameters.
const std::string dense =
    "--num-layers 4 --hidden-size 512 --ffn-hidden-size 2048 --num-attention-heads 8 --swiglu --normalization RMSNorm "
    "--disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 32000 "
    "--seq-length 1024 --max-position-embeddings 1024 --bf16 --use-distributed-optimizer ";

// Options of a script, which it takes one after the other; then a file that sbatch is given.
TEST(UnseenFiles, AScriptThatReadsItsOptionsInALoop) {
  const std::string script =
      "TP=1 MBS=1 ARGS=()\n"
      "while [[ $# -gt 0 ]]; do\n  case $1 in\n    --tp) TP=$2; shift 2;;\n    --mbs) MBS=$2; shift 2;;\n"
      "    --sp) ARGS+=(--sequence-parallel); shift;;\n    *) echo unknown; exit 1;;\n  esac\ndone\n"
      "cat > job.sbatch <<- EOM\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n"
      "srun python pretrain_gpt.py " +
      dense +
      "--tensor-model-parallel-size $TP --micro-batch-size $MBS --global-batch-size 32 $MORE ${ARGS[@]}\nEOM\n" +
      "sbatch job.sbatch\n";
  ConvertRequest requested = requested_of("submit.sh", script);
  requested.variables = {{"1", "--tp"}, {"2", "2"}, {"3", "--sp"}, {"4", "--mbs"}, {"5", "4"}};
  const Converted converted = convert(requested);
  const Scenario s = scenario_of(converted, shipped_data());
  EXPECT_EQ(s.layout.tensor, 2);
  EXPECT_TRUE(s.layout.sequence_parallel);
  EXPECT_EQ(s.train.micro_batch, 4);
  EXPECT_EQ(s.train.global_batch, 32);
  EXPECT_EQ(s.gpus, 8) << "two nodes with four tasks";
  EXPECT_TRUE(has(converted, RemarkKind::NotJudged, "$MORE")) << "behind a value, and assigned nowhere";
  requested.variables.clear();
  EXPECT_EQ(read(requested).layout.tensor, 1) << "as it stands, without options";
  requested.variables = {{"1", "--pp"}};
  EXPECT_NE(problem_of(requested), "no problem") << "its own check ends it";
}

// A script that gives itself to sbatch unless that runs it, and starts what it calls through a wrapper.
TEST(UnseenFiles, AScriptThatSubmitsItself) {
  const Scenario s = read("job.sh",
                          "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"
                          "if [ -z $SLURM_JOB_ID ]; then\n  mkdir -p logs\n  sbatch \"$0\"\n  exit\nfi\n"
                          "CMD=\" pretrain_gpt.py " +
                              dense +
                              "--tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 16\"\n"
                              "srun --label singularity exec -B \"$PWD\" image.sif ./launch.sh $CMD\n");
  EXPECT_EQ(s.gpus, 16);
  EXPECT_EQ(s.layout.tensor, 4);
}

// Eight ranks of experts in each of four stages are 32 devices: Megatron-LM stops at eight.
TEST(UnseenFiles, DevicesThatExpertsDoNotFill) {
  const std::string experts =
      "--num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 8 "
      "--moe-token-dispatcher-type alltoall --moe-grouped-gemm --group-query-attention "
      "--num-query-groups 2 --pipeline-model-parallel-size 4 ";
  const Converted converted =
      convert(requested_of("job.sh", "torchrun --nproc_per_node 8 pretrain_gpt.py " + dense + experts +
                                         "--micro-batch-size 1 --global-batch-size 8\n"));
  const Scenario s = scenario_of(converted, shipped_data());
  EXPECT_EQ(s.gpus, 32);
  EXPECT_TRUE(has(converted, RemarkKind::NotJudged, "gpus = 8"));
}

// On how many nodes only a scheduler's file says: the least that the layout fills, which the answer says.
TEST(UnseenFiles, NodesThatOnlyRunningItTells) {
  const std::string start = "NODES=$(wc -l < $PBS_NODEFILE)\nmpirun -np $((NODES * 8)) python pretrain_gpt.py " +
                            dense + "--micro-batch-size 1 --global-batch-size 8 ";
  const Converted converted = convert(requested_of("job.sh", start + "--tensor-model-parallel-size 4\n"));
  EXPECT_EQ(scenario_of(converted, shipped_data()).gpus, 4);
  EXPECT_TRUE(has(converted, RemarkKind::Assumed, "gpus"));
  EXPECT_TRUE(problem_of("job.sh", start + "\n").starts_with("wrong: --np: ")) << "any number would do";
}

// nanotron reads by PyYAML, for which the last of two counts; torchtune by OmegaConf, which stops.
TEST(UnseenFiles, AKeyThatIsThereTwice) {
  const std::string config =
      "general:\n  project: a\nmodel:\n  dtype: bfloat16\n  make_vocab_size_divisible_by: 1\n  model_config:\n"
      "    hidden_size: 512\n    intermediate_size: 1024\n    num_attention_heads: 8\n    num_hidden_layers: 4\n"
      "    num_key_value_heads: 8\n    max_position_embeddings: 1024\n    vocab_size: 32000\n"
      "    tie_word_embeddings: false\n    intermediate_size: 2048\noptimizer:\n  zero_stage: 1\n"
      "  accumulate_grad_in_fp32: true\nparallelism:\n  dp: 4\n  pp: 1\n  tp: 2\n  tp_mode: ALL_REDUCE\n"
      "tokens:\n  sequence_length: 1024\n  micro_batch_size: 1\n  batch_accumulation_per_replica: 2\n  train_steps: "
      "1\n";
  const Converted converted = convert(requested_of("config.yaml", config));
  EXPECT_EQ(parameter_count(Job(scenario_of(converted, shipped_data())).built), 49'549'824);
  EXPECT_TRUE(has(converted, RemarkKind::Assumed, "intermediate_size"));
  EXPECT_EQ(problem_of("tune.yaml", "model:\n  _component_: torchtune.models.llama2.llama2_7b\nseed: 1\nseed: 2\n"),
            "wrong: \"seed\": is there twice");
}

// config.py ModelArgs: without a type its models are of bfloat16.
TEST(UnseenFiles, NanotronsTypeWhereNothingSaysIt) {
  const Scenario s = read("config.yaml",
                          "general: {project: a}\nmodel:\n  model_config: {hidden_size: 512, intermediate_size: 2048, "
                          "num_attention_heads: 8, num_hidden_layers: 4, num_key_value_heads: 8, vocab_size: 32000, "
                          "max_position_embeddings: 1024, tie_word_embeddings: false}\noptimizer: {zero_stage: 0, "
                          "accumulate_grad_in_fp32: true}\nparallelism: {dp: 4, pp: 1, tp: 1, tp_mode: ALL_REDUCE}\n"
                          "tokens: {sequence_length: 1024, micro_batch_size: 1, batch_accumulation_per_replica: 2}\n");
  EXPECT_EQ(s.train.precision, DType::BF16);
  EXPECT_EQ(s.train.gradient_dtype, DType::FP32);
}

// A script's rotary base is its own, Megatron-LM's 10,000 where it says none, and not that of the shape which is near.
TEST(UnseenFiles, AScriptThatIsWrittenAgainKeepsItsPositions) {
  const std::string shape =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
      "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm "
      "--disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 128256 "
      "--seq-length 4096 --max-position-embeddings 4096 --bf16 --micro-batch-size 1 --lr 1e-4 --mock-data ";
  const auto again = [&](const std::string& more) {
    const Converted converted = convert(requested_of("job.sh", shape + more + "\n"));
    return written(scenario_of(converted, shipped_data()), Dialect::Megatron, Launcher::Torchrun,
                   "models/llama-3.1-8b.json", "clusters/h100-sxm-80g.toml", shipped_data(), converted.kept)
        .text;
  };
  EXPECT_EQ(again("").find("--rotary-base"), std::string::npos);
  EXPECT_EQ(again("").find("--use-rope-scaling"), std::string::npos);
  EXPECT_NE(again("").find("--max-position-embeddings 4096"), std::string::npos);
  EXPECT_NE(again("").find("--lr 0.0001"), std::string::npos);
  EXPECT_NE(again("--rotary-base 500000 ").find("--rotary-base 500000"), std::string::npos);
}

// scripts/round_trips found these: arguments.py of no release takes the one, and of core 0.10 none the other.
TEST(UnseenFiles, WhatIsWrittenHasFlagsThatReleasesHave) {
  const std::string job =
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n[layout]\n"
      "sharding = \"zero1\"\n[train]\nsequence_length = 4096\nmicro_batch = 1\nprecision = \"bf16\"\n"
      "recompute = \"selective\"\n[runtime]\nname = \"megatron\"\n[runtime.switches]\n"
      "use-precision-aware-optimizer = true\n";
  const Scenario scenario = parse_scenario(job, "job.toml", {".", shipped_data()});
  const std::string text = written(scenario, Dialect::Megatron, Launcher::Torchrun, "models/llama-3.1-8b.json",
                                   "clusters/h100-sxm-80g.toml", shipped_data())
                               .text;
  EXPECT_NE(text.find("--recompute-granularity selective"), std::string::npos);
  EXPECT_NE(text.find("--use-precision-aware-optimizer"), std::string::npos);
  EXPECT_EQ(text.find("--recompute-modules"), std::string::npos) << "core_attn alone is the default";
  EXPECT_EQ(text.find("param-remainders"), std::string::npos);
}

TEST(UnseenFiles, OtherTrainersAreNamed) {
  // Linears with biases and learned positions, as OLMo has them where nothing is said; a model of Lingua's apps/mamba.
  EXPECT_TRUE(problem_of("run.yaml",
                         "run_name: a\nmodel: {d_model: 64, n_heads: 2, n_layers: 2}\nmax_duration: 1ep\n"
                         "device_train_microbatch_size: 4\nglobal_train_batch_size: 32\n")
                  .starts_with("open: "));
  EXPECT_TRUE(problem_of("run.yaml",
                         "name: a\nsteps: 10\ndistributed: {fsdp_type: full_shard, tp_size: 1}\n"
                         "model: {dim: 64, n_layers: 2, n_heads: 2, state_dim: 16}\n")
                  .starts_with("open: "));
  EXPECT_TRUE(problem_of("train.toml",
                         "[model]\nname = \"deepseek_v2\"\nflavor = \"16B-lite\"\n[training]\n"
                         "local_batch_size = 1\nseq_len = 2048\n[parallelism]\n"
                         "data_parallel_shard_degree = -1\n[job]\ndump_folder = \"o\"\n")
                  .starts_with("open: model.flavor"));
}

// training/flex_dispatcher_backend.py of Megatron-Bridge sets these at the end, whatever stands before.
TEST(UnseenFiles, ARecipeThatAppliesDeepEp) {
  const auto recipe = [](const std::string& backend) {
    return "def qwen3_30b_a3b_pretrain_8gpu_config() -> ConfigContainer:\n    cfg = _pretrain_common()\n"
           "    cfg.model = "
           "AutoBridge.from_hf_pretrained(\"Qwen/Qwen3-30B-A3B\").to_megatron_provider(load_weights=False)\n"
           "    cfg.model.expert_model_parallel_size = 8\n    cfg.model.moe_token_dispatcher_type = \"alltoall\"\n"
           "    cfg.model.moe_flex_dispatcher_backend = " +
           backend +
           "\n    cfg.model.seq_length = 4096\n"
           "    apply_flex_dispatcher_backend(cfg.model, cfg.model.moe_flex_dispatcher_backend)\n    return cfg\n";
  };
  const Converted deep = convert(requested_of("qwen3_moe.py", recipe("\"deepep\"")));
  const Scenario s = scenario_of(deep, shipped_data());
  EXPECT_EQ(s.train.routing.dispatcher, TokenDispatcher::Flex);
  EXPECT_TRUE(has(deep, RemarkKind::Assumed, "apply_flex_dispatcher_backend"));
  EXPECT_FALSE(has(deep, RemarkKind::NotJudged, "apply_flex_dispatcher_backend"));
  EXPECT_EQ(read("qwen3_moe.py", recipe("None")).train.routing.dispatcher, TokenDispatcher::AllToAll);
}

// Its dense layers are Megatron core's, copied; its experts are its own.
TEST(UnseenFiles, ProgramsOfPaiMegatronPatch) {
  const auto converted = [](const std::string& file, const std::string& more) {
    return convert(requested_of(file, "torchrun --nproc_per_node 8 ../qwen2/pretrain_qwen.py " + dense + more +
                                          "--micro-batch-size 1 --global-batch-size 8\n"));
  };
  EXPECT_TRUE(has(converted("qwen2_5/run.sh", ""), RemarkKind::Assumed, "pretrain_qwen.py"));
  EXPECT_TRUE(has(converted("qwen2_5/run.sh", "--transformer-impl local "), RemarkKind::NotJudged, "pretrain_qwen.py"));
}

// Megatron-LM takes Muon's flags with any optimizer.
TEST(UnseenFiles, FlagsOfAnotherOptimizer) {
  const std::string start = "torchrun --nproc_per_node 8 pretrain_gpt.py " + dense +
                            "--micro-batch-size 1 --global-batch-size 8 --muon-num-ns-steps 5 ";
  EXPECT_TRUE(has(convert(requested_of("job.sh", start + "\n")), RemarkKind::NoMatter, "muon-num-ns-steps"));
  EXPECT_EQ(problem_of("job.sh", start + "\n"), "no problem");
}

}  // namespace
}  // namespace tidemark::tests::unseen_files_test
