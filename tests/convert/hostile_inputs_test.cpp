#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "tests/convert/recipes.hpp"

// Files of other tools, numbers that wrap, and inputs that say themselves many times over.

namespace tidemark::tests::hostile_inputs_test {
namespace {

std::string problem_of(const std::string& file, const std::string& text) {
  ConvertRequest requested;
  requested.files = {file};
  requested.texts = {{file, text}};
  requested.model = "models/llama-3.1-8b.json";
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.gpus = {};
  requested.sequence_length = 1024;
  requested.data_root = shipped_data();
  requested.strict = true;
  try {
    (void)scenario_of(convert(requested), shipped_data());
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
      {"GPT-NeoX", "{\"pipe-parallel-size\": 2, \"model-parallel-size\": 2, \"zero_optimization\": {\"stage\": 1}}\n"},
      {"FlagScale", "system: {}\nmodel: {batch_size: 4, exp_name: Robotics}\n"},
      {"ms-swift", "model: Qwen/Qwen3-8B\ntrain_type: lora\noutput_dir: o\n"}};
  for (const auto& [tool, text] : files)
    EXPECT_EQ(first_line("job.yaml", text),
              fmt::format("job.yaml:1:1: error: is a configuration of {}, which is not modelled", tool));
  EXPECT_EQ(first_line("job.sh", "NPROC_PER_NODE=8 megatron rlhf --model Qwen/Qwen3-8B --micro_batch_size 1\n"),
            "job.sh:1:18: error: calls ms-swift, which is not modelled");
  EXPECT_EQ(first_line("job.sh", "trl grpo --config grpo.yaml\n"),
            "job.sh:1:1: error: calls TRL's own command, which is not modelled");
  EXPECT_EQ(first_line("job.sh", "python -m verl.trainer.main_ppo data.train_batch_size=8\n"),
            "job.sh:1:11: error: \"verl.trainer.main_ppo\" is of verl, which is not modelled");
}

// What a file says and means nothing, or means something else than it looks like: never left out without a word.
struct Misread {
  std::string file, text, problem;
};

const std::string bridge =
    "model: {num_layers: 2, hidden_size: 512, num_attention_heads: 8, seq_length: 1024, vocab_size: 32000}\n"
    "train: {micro_batch_size: 1, global_batch_size: 8}\ntrainer: {devices: 8}\n";
const std::string trains =
    " pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --micro-batch-size 1 ";
const std::string arguments = "output_dir: o\nper_device_train_batch_size: 1\nbf16: true\n";

TEST(Values, ThoseThatMeanNothingAreTold) {
  const std::vector<Misread> all{
      // Words that belong to no flag.
      {"job.sh", "torchrun --nproc-per-node 8" + trains + "--lr 1 \u2013tensor-model-parallel-size 8\n",
       "\u2013tensor-model-parallel-size\n  hint: begins with another dash"},
      {"job.sh", "torchrun --nproc-per-node 8" + trains + "-tp 8\n", "-tp\n  hint: is no flag that is known here"},
      {"job.sh", "torchrun --nproc-per-node 8" + trains + "--bf16 --lr=1 more.yaml\n",
       "more.yaml\n  hint: belongs to no flag"},
      {"job.sh", "torchrun --nproc-per-node 8 train.py more.yaml --output_dir o --bf16\n",
       "more.yaml\n  hint: belongs to no flag"},
      {"job.sh", "accelerate launch \u2013config_file fsdp.yaml --num_processes 8 train.py --output_dir o --bf16\n",
       "\u2013config_file\n  hint: begins with another dash"},
      {"job.sh", "torchrun --nproc_per_node 8 -m torchtitan.train -training.seq_len 64\n",
       "-training.seq_len\n  hint: is no flag that is known here"},
      {"job.sh", "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file --training.seq_len 64\n",
       "job.sh:1:49: error: --job.config_file takes a file's name, not true"},
      // Megatron-Bridge and NeMo.
      {"job.yaml", bridge + "a: {normalization: Banana}\n",
       "a.normalization = \"Banana\"\n  hint: is no normalization"},
      {"job.yaml", bridge + "a: {activation: banana}\n", "a.activation = \"banana\"\n  hint: is no activation"},
      {"job.yaml", bridge + "a: {add_bias_linear: 0}\n", "a.add_bias_linear = 0\n  hint: takes true or false"},
      {"job.yaml", bridge + "a: {gated_linear_unit: \"true\"}\n",
       "a.gated_linear_unit = \"true\"\n  hint: takes true or false"},
      {"job.yaml", bridge + "a: {precision: bf16_banana}\n", "a.precision = \"bf16_banana\"\n  hint: is no precision"},
      {"job.yaml", bridge + "optim: {name: banana}\n", "optim.name = \"banana\"\n  hint: is no optimizer"},
      {"job.yaml", bridge + "z: {micro_batch_size: 2}\n", "--micro-batch-size = 2\n  hint: line 2 says 1"},
      {"job.yaml", bridge + "b: {num_nodes: -8}\n", "b.num_nodes = -8\n  hint: is no number of nodes or devices"},
      {"job.yaml", "MODEL_ARGS: {--num-layers: 2, hidden-size: 512}\n", "MODEL_ARGS.hidden-size\n  hint: is no flag"},
      {"job.yaml", "MODEL_ARGS: {--num-layers: 2}\nENV_VARS: 3\n", "ENV_VARS = 3\n  hint: names no variables"},
      {"job.sh", "torchrun --nproc-per-node 8 --nnodes 8=8" + trains + "\n", "--nnodes: 8=8 is no number of nodes"},
      {"job.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\ntensor_parallel_degree = \"\"\n",
       "tensor_parallel_degree takes a whole number"},
      {"job.yaml",
       "checkpoint_dir: checkpoints/meta-llama/Llama-2-7b-hf\ndevices: 1\nprecision: bf16-true\nlora_r: 8\n"
       "train: {micro_batch_size: 0, max_seq_length: 512}\n",
       "train.micro_batch_size = 0\n  hint: takes a number from 1 up"},
      {"ds.json", "{\"zero_optimization\": 1,,}", "\n  hint: JSON: {\"key\": value}"},
      // transformers and accelerate.
      {"job.yaml", arguments + "load_in_4bit: true\nload_in_8bit: true\n", "4 and 8 bits are asked for both"},
      {"job.yaml", "distributed_type: MULTI_GPU\nnum_machines: 3\nnum_processes: 16\n",
       "num_machines = 3\n  hint: does not divide num_processes"},
      {"job.yaml", "distributed_type: MULTI_GPU\nnum_machines: 0\nnum_processes: 16\n",
       "num_machines = 0\n  hint: does not divide num_processes"},
      // A key that is a value and a table.
      {"job.sh", "torchrun --nproc_per_node 8 -m torchtitan.train --training 3 --training.seq_len 64\n",
       "job.sh:1:81: error: \"training.seq_len\": \"training\" is there, too, as 3"},
      {"ds.json", R"({"zero_optimization": {"stage": 2, "offload_optimizer": 3, "cpu_offload": true}})",
       "\"offload_optimizer.device\": \"offload_optimizer\" is there, too, as 3"},
  };
  for (const auto& [file, text, problem] : all)
    EXPECT_NE(problem_of(file, text).find(problem), std::string::npos) << text << problem_of(file, text);
}

TEST(Values, NumbersOfYamlThatBeginWithZeroAreOctalAsPyYamlHasThem) {
  const std::string requested = arguments + "loss_type: nll\ngradient_checkpointing: true\nlora_r: ";
  EXPECT_EQ(problem_of("job.yaml", requested + "010\n"), problem_of("job.yaml", requested + "8\n"));
}

TEST(Names, ThoseThatNoSystemTakesAreOfNoFile) {
  for (const std::string& name : {std::string(5'000, 'x'), std::string("a\x1b/b")})
    for (const auto& [file, text] : std::map<std::string, std::string>{
             {"job.yaml", arguments + "deepspeed: " + name + "\n"},
             {"a.yaml", "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: \"" + name + "\"}\n"},
             {"job.sh", "accelerate launch --config_file " + name + " --num_processes 8 t.py --output_dir o --bf16\n"},
             {"t.sh", "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file " + name + "\n"}})
      EXPECT_NE(problem_of(file, text).find("error"), std::string::npos) << file;
}

TEST(Numbers, ThoseThatAreNoCountsAreRefusedWithTheirPlace) {
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

TEST(Numbers, DegreesOfTorchtitanThatAreNoneDivideNothing) {
  for (const char* degree : {"0", "-8", "-9223372036854775808"})
    for (const char* axis : {"pipeline", "tensor", "context"})
      EXPECT_NE(problem_of("job.toml", fmt::format("[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = "
                                                   "4096\n[parallelism]\n{}_parallel_degree = {}\n",
                                                   axis, degree)),
                "no problem")
          << axis << degree;
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

// Recipes that begin with themselves, and what stands in each other without end.
TEST(Bombs, PythonThatNestsWithoutEndIsReadSoon) {
  const auto nested = [](const std::string& open, const std::string& within, const std::string& close) {
    std::string text, end;
    for (int i = 0; i < 20'000; ++i) text += open, end += close;
    return text + within + end;
  };
  const std::string recipe =
      "from megatron.bridge.recipes.common import _pretrain_common\ndef job_config():\n    cfg = ";
  const std::string begun = recipe + "_pretrain_common()\n    ";
  std::string tree, keys = begun + "pass\n";
  for (int level = 0; level < 8; ++level) {
    tree += fmt::format("def job{}_config():\n", level);
    for (int i = 0; i < 100; ++i) tree += fmt::format("    cfg = job{}_config()\n", level + 1);
  }
  for (int i = 0; i < 20'000; ++i) keys += fmt::format("    cfg.model.key{} = 1\n", i);
  EXPECT_NE(problem_of("recipe.py", keys).find("more than 5000"), std::string::npos);
  EXPECT_NE(problem_of("recipe.py", recipe + "job0_config()\n" + tree), "no problem");
  for (const std::string& text :
       {recipe + "job_config()\n", begun + "cfg.model.sizes = " + nested("[", "1", "]") + "\n",
        begun + "cfg." + nested("a.", "a", "") + " = 1\n",
        begun + "cfg.model = " + nested("AConfig(a=", "1", ")") + "\n",
        begun + "cfg.ddp = " + nested("AConfig(a=", "1", ")") + "\n", begun + nested("(", "", "") + "\n"})
    EXPECT_NE(problem_of("recipe.py", text), "no problem") << text.substr(0, 200);
}

// Texts that double with each line: 2^60 bytes, were they put together.
TEST(NemoRecipes, OfTextsThatGrowWithoutEndTakeNoMemory) {
  const std::string begun =
      "import nemo_run as run\nfrom nemo.collections import llm\ndef pretrain_recipe():\n    a = \"x\"\n";
  for (const std::string line : {"    a = a + a\n", "    a = f\"{a}{a}\"\n"}) {
    std::string text = begun;
    for (int i = 0; i < 60; ++i) text += line;
    EXPECT_NE(problem_of("recipe.py", text + "    return run.Partial(llm.pretrain, model=a)\n"), "no problem");
  }
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

TEST(Text, WhatATerminalActsOnIsShownAndNotSent) {
  const std::map<std::string, std::string> shown{{"\u202Egnp", "\\xe2\\x80\\xaegnp"},
                                                 {"\xC2\x9B"
                                                  "31m",
                                                  "\\xc2\\x9b31m"},
                                                 {"\xFF\xC3", "\\xff\\xc3"},
                                                 {"\xED\xA0\x80", "\\xed\\xa0\\x80"},
                                                 {"ü–模型🌊", "ü–模型🌊"}};
  for (const auto& [text, its] : shown) {
    const std::string flag =
        problem_of("job.sh", "torchrun --nproc-per-node 8" + trains + "--a" + text + " 3 --num-experts " + text);
    EXPECT_NE(flag.find(its), std::string::npos) << flag;
    EXPECT_TRUE(first_line(text + ".json", "{").starts_with(its + ".json:1:")) << first_line(text + ".json", "{");
  }
  EXPECT_EQ(problem_of("job.sh", "set +x\b\ntorchrun" + trains).find('\b'), std::string::npos);
}

TEST(Text, WhatIsNoYamlIsToldWithAHint) {
  for (const std::string text : {"output_dir: *nobody\n", "output_dir: [\n", "? [a]\n: 1\n"})
    EXPECT_NE(problem_of("a.yaml", text).find("\n  hint: "), std::string::npos) << problem_of("a.yaml", text);
}

}  // namespace
}  // namespace tidemark::tests::hostile_inputs_test
