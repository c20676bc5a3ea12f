#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/io/input_error.hpp"
#include "tests/convert/recipes.hpp"

// Files of other tools, numbers that wrap, and inputs that say themselves many times over.

namespace tidemark::tests::hostile_inputs_test {
namespace {

std::string problem_of(const std::string& file, const std::string& text) {
  ConvertAsked asked;
  asked.files = {file};
  asked.texts = {{file, text}};
  asked.model = "models/llama-3.1-8b.json";
  asked.cluster = "clusters/h100-sxm-80g.toml";
  asked.gpus = {};
  asked.sequence_length = 1024;
  asked.data_root = shipped_data();
  try {
    (void)scenario_of(convert(asked), shipped_data());
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}
std::string first_line(const std::string& file, const std::string& text) {
  const std::string problem = problem_of(file, text);
  return problem.substr(0, problem.find('\n'));
}

TEST(OtherTools, FilesAreToldByTheirToolsName) {
  const std::map<std::string, std::string> files{
      {"axolotl", "base_model: mistralai/Mistral-7B-v0.1\nmodel_type: MistralForCausalLM\nsequence_len: 4096\n"},
      {"nanotron",
       "model: {model_config: {hidden_size: 8}}\nparallelism: {dp: 4, tp: 2, pp: 1}\n"
       "tokens: {micro_batch_size: 1, sequence_length: 1024}\n"},
      {"GPT-NeoX", "{\"pipe-parallel-size\": 2, \"model-parallel-size\": 2, \"zero_optimization\": {\"stage\": 1}}\n"},
      {"llm-foundry",
       "model: {name: mpt_causal_lm}\nmax_seq_len: 2048\ntrain_loader: {name: text}\nprecision: amp_bf16\n"},
      {"LitGPT", "checkpoint_dir: c/m\nprecision: bf16-true\ntrain: {micro_batch_size: 1}\n"},
      {"torchtune", "output_dir: o\nmodel: {_component_: torchtune.models.llama3.llama3_8b}\nbatch_size: 2\n"},
      {"NeMo AutoModel", "model: {_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained}\n"},
      {"FlagScale", "system: {tensor_model_parallel_size: 2}\nmodel: {num_layers: 2}\ndata: {seed: 1}\n"},
      {"ms-swift", "model: Qwen/Qwen3-8B\ntrain_type: lora\noutput_dir: o\n"},
      {"LLaMA-Factory", "model_name_or_path: m\nstage: sft\nfinetuning_type: full\noutput_dir: o\n"}};
  for (const auto& [tool, text] : files)
    EXPECT_EQ(first_line("job.yaml", text),
              fmt::format("job.yaml:1:1: error: is a configuration of {}, which is not read", tool));
  EXPECT_EQ(first_line("job.sh", "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --micro_batch_size 1\n"),
            "job.sh:1:18: error: calls ms-swift, which is not read");
  EXPECT_EQ(first_line("job.sh", "trl dpo --config dpo.yaml\n"),
            "job.sh:1:1: error: calls TRL's own command, which is not read");
  EXPECT_EQ(first_line("job.sh", "python -m verl.trainer.main_ppo data.train_batch_size=8\n"),
            "job.sh:1:11: error: \"verl.trainer.main_ppo\" is of verl, which is not read");
}

TEST(Numbers, ThoseThatAreNoCountsAreRefusedWithTheirPlace) {
  const std::string trains =
      " pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --micro-batch-size "
      "1";
  EXPECT_EQ(first_line("job.sh", "torchrun --nproc-per-node 4611686018427387905 --nnodes 4" + trains),
            "job.sh:1:10: error: --nproc-per-node: 4611686018427387905 is no number of nodes, processes or devices");
  EXPECT_NE(first_line("job.sh", "torchrun --nproc-per-node 8 --nnodes -2" + trains).find("--nnodes: -2 is no number"),
            std::string::npos);
  EXPECT_EQ(first_line("job.sh", "deepspeed --num_gpus 4611686018427387905 --num_nodes 4" + trains),
            "job.sh:1:11: error: --num-gpus: 4611686018427387905 is no number of nodes, processes or devices");
  EXPECT_EQ(first_line("job.sh", "#SBATCH --nodes=-2\n#SBATCH --ntasks-per-node=-8\nsrun python" + trains),
            "job.sh:1:1: error: --nodes -2 is no number of nodes, tasks or devices");
  EXPECT_EQ(first_line("job.sh",
                       "#SBATCH --gres=lscratch:100,gpu:h100:4\nsrun -n ${SLURM_GPUS_PER_NODE}0000000 python" + trains),
            "job.sh:2:6: error: --n: 40000000 is no number of nodes, processes or devices");
  EXPECT_NE(problem_of("job.json", R"({"per_device_train_batch_size": 4611686018427387905,
 "gradient_accumulation_steps": 4, "output_dir": "o"})"),
            "no problem");
}

TEST(Bombs, WhatSaysItselfManyTimesOverIsRefusedSoon) {
  std::string yaml = "distributed_type: FSDP\na0: &a0 [l,l]\n";
  for (int i = 1; i < 29; ++i) yaml += fmt::format("a{0}: &a{0} [*a{1},*a{1}]\n", i, i - 1);
  EXPECT_NE(first_line("bomb.yaml", yaml).find("values, with all that its aliases repeat"), std::string::npos);
  std::string doubles = "A=xxxxxxxxxxxxxxxx\n";
  for (int i = 0; i < 60; ++i) doubles += "A=$A$A\n";
  EXPECT_EQ(first_line("double.sh", doubles), "double.sh:22:5: error: its expansions come to more than 64 MiB of text");
  std::string arrays = "A=(x x)\n", added = "A=xx\n";
  for (int i = 0; i < 60; ++i) arrays += "A=(\"${A[@]}\" \"${A[@]}\")\n", added += "A+=$A\n";
  EXPECT_NE(first_line("a.sh", arrays).find("64 MiB"), std::string::npos);
  EXPECT_NE(first_line("a.sh", added).find("64 MiB"), std::string::npos);
  std::string tree;
  for (int i = 0; i < 29; ++i) tree += fmt::format("X{0}='eval \"$X{1}\"; eval \"$X{1}\"'\n", i, i + 1);
  EXPECT_NE(first_line("tree.sh", tree + "X29=true\neval \"$X0\"\n").find("100000 commands"), std::string::npos);
  EXPECT_NE(first_line("deep.sh", "torchrun " + std::string(100'000, '(')).find("error"), std::string::npos);
  std::string nested;
  for (int i = 0; i < 10'000; ++i) nested += "$(";
  EXPECT_NE(first_line("deep.sh", "torchrun " + nested).find("is nested too deep"), std::string::npos);
  std::string json = "{", keys = "output_dir: o\n";
  for (int i = 0; i < 20'000; ++i) json += fmt::format("\"k{}\": 1,", i), keys += fmt::format("k{}: 1\n", i);
  EXPECT_NE(first_line("keys.json", json + "\"output_dir\": \"o\"}").find("more than 5000 keys"), std::string::npos);
  EXPECT_NE(first_line("keys.yaml", keys).find("more than"), std::string::npos);
}

TEST(Text, AByteOrderMarkIsNoPartOfIt) {
  const std::string zero =
      R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1})";
  EXPECT_EQ(problem_of("ds.json", "\xEF\xBB\xBF" + zero), problem_of("ds.json", zero));
}

TEST(Text, ControlCharactersOfUnknownFlagsDoNotReachTheTerminal) {
  const std::string problem = problem_of(
      "job.sh", "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --\x1b[31mred\x07 3 --hidden-size 512\n");
  EXPECT_EQ(problem.find('\x1b'), std::string::npos) << problem;
  EXPECT_NE(problem.find("--\\x1b[31mred\\x07"), std::string::npos) << problem;
}

}  // namespace
}  // namespace tidemark::tests::hostile_inputs_test
