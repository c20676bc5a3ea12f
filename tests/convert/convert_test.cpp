#include "scenarios/convert/convert.hpp"

#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/io/input_error.hpp"
#include "scenarios/io/scenario_json.hpp"
#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/io/toml_text.hpp"
#include "tests/convert/recipes.hpp"

namespace tidemark::tests {
namespace {

class Recipes : public testing::TestWithParam<Recipe> {};

// The scenario, and below it what is not among its keys.
std::string told(const Converted& converted) {
  std::string text = toml_text(converted.document);
  const auto add = [&](RemarkKind kind, const char* title) {
    for (const Remark& remark : converted.remarks)
      if (remark.kind == kind)
        text += fmt::format("# {}{}: {}: {}\n", title,
                            remark.place.line > 0 ? fmt::format(", line {}", remark.place.line) : "", remark.what,
                            remark.why);
  };
  add(RemarkKind::NotExpressed, "not expressed");
  add(RemarkKind::Assumed, "assumed");
  add(RemarkKind::NoMatter, "of no matter");
  return text;
}

// What each comes to lies beside them: TIDEMARK_WRITE_EXPECTED=1 writes it anew, to be looked at.
TEST_P(Recipes, ComesToTheScenarioThatLiesBesideIt) {
  const std::string found = told(convert(GetParam().asked));
  const std::filesystem::path file = convert_folder() / "expected" / (GetParam().name + ".toml");
  if (std::getenv("TIDEMARK_WRITE_EXPECTED") != nullptr) std::ofstream(file) << found;
  EXPECT_EQ(found, read_text(file));
}

// In, out, in again and out again: the same scenario, and the same text.
TEST_P(Recipes, ComesBackTheSame) {
  const Recipe& recipe = GetParam();
  const Converted first = convert(recipe.asked);
  if (first.lossy()) {
    EXPECT_THROW((void)scenario_of(first, shipped_data()), InputError);  // nothing is predicted of a part of it
    return;
  }
  const Scenario scenario = scenario_of(first, shipped_data());
  const auto text_of = [&](const char* key) {
    for (const TomlKey& its : first.document.keys)
      if (its.name == key) return std::get<std::string>(its.value.value);
    return std::string();
  };
  const std::string model = text_of("model");
  const auto write = [&](const Scenario& s) {
    return written(s, recipe.to, Launcher::Torchrun, model, recipe.asked.cluster, shipped_data());
  };
  const Written out = write(scenario);
  for (const Remark& remark : out.remarks) {
    if (recipe.to == Dialect::Accelerate) continue;  // which says less than a training is
    EXPECT_NE(remark.kind, RemarkKind::NotExpressed) << remark.what << ": " << remark.why;
  }

  constexpr std::array<const char*, 6> endings{".toml", ".sh", ".toml", ".json", ".yaml", ".json"};
  const std::filesystem::path file = scenario.name + endings.at(static_cast<std::size_t>(recipe.to));
  ConvertAsked again{.files = {file},
                     .texts = {{file, out.text}},
                     .variables = {},
                     .model = {},
                     .cluster = recipe.asked.cluster,
                     .gpus = {},
                     .sequence_length = {},
                     .micro_batch = {},
                     .global_batch = {},
                     .data_root = shipped_data()};
  if (recipe.to != Dialect::Megatron) {
    again.model = model;
    again.gpus = scenario.gpus;
    again.sequence_length = scenario.train.sequence_length;
    again.micro_batch = scenario.train.micro_batch;
    again.global_batch = scenario.train.global_batch;
  }
  const Scenario second = scenario_of(convert(again), shipped_data());
  EXPECT_EQ(write(second).text, out.text);
  if (recipe.to == Dialect::Accelerate) return;
  Scenario expected = scenario, found = second;
  if (recipe.to != Dialect::Megatron) {  // variables stand in the launch line
    expected.runtime.allocator = found.runtime.allocator = "";
    expected.runtime.nccl_environment = found.runtime.nccl_environment = {};
    expected.runtime.cublas_workspace_config = found.runtime.cublas_workspace_config = "";
  }
  expected.model.name = found.model.name;
  expected.model.architecture = found.model.architecture;
  if (expected.model.positions == Positions::Rotary) expected.model.max_positions = found.model.max_positions;
  EXPECT_EQ(scenario_json(found, 1), scenario_json(expected, 1));
}

INSTANTIATE_TEST_SUITE_P(All, Recipes, testing::ValuesIn(recipes()), [](const auto& one) {
  std::string name = one.param.name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

std::string problem_of(const std::string& file, const std::string& text,
                       const std::map<std::string, std::string>& set = {}) {
  ConvertAsked asked{.files = {file},
                     .texts = {{file, text}},
                     .variables = set,
                     .model = {},
                     .cluster = "clusters/h100-sxm-80g.toml",
                     .gpus = {},
                     .sequence_length = {},
                     .micro_batch = {},
                     .global_batch = {},
                     .data_root = shipped_data()};
  try {
    (void)scenario_of(convert(asked), shipped_data());
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}

constexpr const char* small =
    " --num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 "
    "--max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 1 --bf16";

TEST(Convert, WhatOnlyRunningItWouldTellIsAskedFor) {
  const std::string script = std::string("torchrun --nproc-per-node 8 --nnodes $NODES pretrain_gpt.py") + small;
  EXPECT_EQ(problem_of("job.sh", script),
            "job.sh:1:29: error: --nnodes: $NODES is not known without running it\n"
            "  hint: say it with --set NODES=VALUE, or give --gpus");
  EXPECT_EQ(problem_of("job.sh", script, {{"NODES", "2"}}), "no problem");
  EXPECT_EQ(
      problem_of(
          "job.sh",
          std::string("torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size $(nproc)") + small),
      "job.sh:1:45: error: --tensor-model-parallel-size: $(nproc) is not known without running it\n"
      "  hint: put what it is into the script");
  EXPECT_EQ(
      problem_of("job.sh", std::string("torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size ${CP} "
                                       "--pipeline-model-parallel-size $2 --fp8-format $F") +
                               small),
      "job.sh:1:45: error: --context-parallel-size: $CP is not known without running it\n"
      "  hint: say it with --set CP=VALUE\n"
      "job.sh:1:75: error: --pipeline-model-parallel-size: $2 is not known without running it\n"
      "  hint: say it with --set 2=VALUE");
  EXPECT_EQ(problem_of("job.sh", std::string("torchrun --nproc-per-node 8 pretrain_gpt.py --save $(mktemp)") + small),
            "no problem");
}

TEST(Convert, ArgumentsThatTheScriptDoesNotSayAreNeverDropped) {
  const std::string script =
      std::string("torchrun --nproc-per-node 8 pretrain_gpt.py $MORE_ARGS") + small + " \\\n  --lr 1e-4 ${LOGS[@]}\n";
  EXPECT_EQ(problem_of("job.sh", script),
            "job.sh:1:45: error: $MORE_ARGS\n  hint: is assigned nowhere, so that its arguments are not read: "
            "--set MORE_ARGS=\"…\" says them, --set MORE_ARGS= that there are none\n"
            "job.sh:2:13: error: ${LOGS[@]}\n  hint: is assigned nowhere, so that its arguments are not read: "
            "--set LOGS=\"…\" says them, --set LOGS= that there are none");
  EXPECT_EQ(
      problem_of("job.sh", script, {{"MORE_ARGS", "--log-interval 1 --no-such-flag"}, {"LOGS", ""}}).substr(0, 38),
      "job.sh:1:45: error: --no-such-flag\n  h");
  EXPECT_EQ(problem_of("job.sh", script, {{"MORE_ARGS", ""}, {"LOGS", "--save x --log-interval 1"}}), "no problem");
  // The launcher's are asked for where nothing says on how many GPUs.
  const std::string launched = std::string("torchrun $DISTRIBUTED pretrain_gpt.py") + small;
  EXPECT_EQ(problem_of("job.sh", launched),
            "job.sh:1:10: error: $DISTRIBUTED\n  hint: is assigned nowhere, so that its arguments are not read: "
            "--set DISTRIBUTED=\"…\" says them, --set DISTRIBUTED= that there are none; --gpus says on how many GPUs\n"
            "job.sh: error: gpus is missing\n  hint: --gpus N says it");
  EXPECT_EQ(problem_of("job.sh", launched, {{"DISTRIBUTED", "--nproc_per_node 8"}}), "no problem");
}

TEST(Convert, OtherProgramsOfMegatronsAreNoGpt) {
  EXPECT_EQ(
      problem_of("job.sh", std::string("torchrun --nproc-per-node 8 pretrain_bert.py") + small),
      "job.sh:1:29: error: pretrain_bert.py\n  hint: trains another kind of model than pretrain_gpt.py, which is not "
      "modelled");
  EXPECT_EQ(problem_of("job.sh", std::string("torchrun --nproc-per-node 8 run_text_generation_server.py") + small),
            "job.sh:1:29: error: run_text_generation_server.py\n  hint: generates text, and trains nothing");
}

TEST(Convert, WhatTheScriptDoesNotSayIsOfNoFramework) {
  EXPECT_EQ(problem_of("job.sh", "torchrun --nproc-per-node 8 train.py --seed 1 $TRAIN_ARGS\n"),
            "job.sh:1:47: error: \"train.py\" takes its arguments from $TRAIN_ARGS, which the script does not say\n"
            "  hint: say them with --set NAME=\"…\"");
  EXPECT_EQ(problem_of("job.sh", "torchrun --nproc-per-node 8 preprocess.py --seed 1\n"),
            "job.sh:1:29: error: \"preprocess.py\" has no argument of a framework that is known here\n"
            "  hint: Megatron-LM's, torchtitan's and TrainingArguments' are: tidemark convert --help");
  // Which program it is does not matter where its arguments are known.
  EXPECT_EQ(problem_of("job.sh", std::string("torchrun --nproc-per-node 8 $PROGRAM") + small), "no problem");
}

TEST(Convert, ProblemsOfTheScenarioStandWhereTheScriptSaysIt) {
  EXPECT_EQ(
      problem_of("job.sh",
                 std::string("torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 3") + small)
          .substr(0, 60),
      "job.sh:1:74: error: tensor = 3 does not divide 8 attention h");
  EXPECT_EQ(problem_of("job.sh", "echo hello\n"),
            "job.sh:1:1: error: starts no training that is known here\n"
            "  hint: torchrun … pretrain_gpt.py, deepspeed …, accelerate launch …, or its arguments alone");
}

TEST(Convert, AFlagThatIsNotModelledOrNotKnownIsNeverDropped) {
  const std::string script =
      std::string("torchrun --nproc-per-node 8 pretrain_gpt.py --fp8-format hybrid --no-such-flag 3") + small;
  EXPECT_EQ(problem_of("job.sh", script),
            "job.sh:1:58: error: --fp8-format = \"hybrid\"\n  hint: FP8 is not modelled yet\n"
            "job.sh:1:80: error: --no-such-flag = 3\n  hint: is not a flag of Megatron's that is known here");
}

TEST(Convert, WhatTheFrameworkStopsAtIsRefused) {
  const auto problem = [](const std::string& flags) {
    return problem_of("job.sh", "torchrun --nproc-per-node 8 pretrain_gpt.py " + flags + small);
  };
  EXPECT_EQ(problem("--recompute-granularity full"),
            "job.sh:1:69: error: --recompute-granularity: Megatron-LM stops at it: full takes a method\n"
            "  hint: --recompute-method uniform or block");
  EXPECT_EQ(problem("--recompute-granularity full --recompute-method block"),
            "job.sh:1:93: error: --recompute-method: Megatron-LM stops at it: it takes a number of layers\n"
            "  hint: such as --recompute-num-layers 1");
  EXPECT_EQ(problem("--recompute-granularity full --recompute-method block --recompute-num-layers 1"), "no problem");
  EXPECT_EQ(
      problem("--recompute-activations --recompute-num-layers 1"),
      "job.sh:1:92: error: --recompute-num-layers: Megatron-LM stops at it: it is for --recompute-granularity full\n"
      "  hint: leave it out");
  EXPECT_EQ(problem("--fp16"),
            "job.sh:1:45: error: --fp16: Megatron-LM stops at it: bf16 is asked for too\n"
            "  hint: leave out one of --bf16 and --fp16");
  EXPECT_EQ(problem("--overlap-param-gather --overlap-grad-reduce"),
            "job.sh:1:45: error: --overlap-param-gather: Megatron-LM stops at it: it takes a distributed optimizer and "
            "--overlap-grad-reduce\n"
            "  hint: leave it out, or add --use-distributed-optimizer --overlap-grad-reduce");
  EXPECT_EQ(problem("--overlap-param-gather --overlap-grad-reduce --use-distributed-optimizer"), "no problem");
  EXPECT_EQ(problem_of("args.json", R"({"bf16": true, "per_device_train_batch_size": 1, "fp16": true})"),
            "args.json:1:58: error: fp16 and bf16 are asked for both, at which transformers stops\n"
            "  hint: leave one of them out");
}

TEST(Convert, AFlagThatRepeatsTheModelHasToAgreeWithIt) {
  const std::string script =
      std::string("torchrun --nproc-per-node 8 pretrain_gpt.py --softmax-type learnable") + small;
  EXPECT_EQ(problem_of("job.sh", script).substr(0, 86),
            "job.sh:1:60: error: softmax-type = \"learnable\" disagrees with the model's attention si");
  EXPECT_EQ(
      problem_of("job.sh", std::string("torchrun --nproc-per-node 8 pretrain_gpt.py --softmax-type vanilla") + small),
      "no problem");
  // Norms that make a tensor of their scale and one are the local layers'.
  const std::string centered = std::string("torchrun --nproc-per-node 8 pretrain_gpt.py --apply-layernorm-1p") + small;
  EXPECT_EQ(problem_of("job.sh", centered), "no problem");
  EXPECT_NE(problem_of("job.sh", centered + " --transformer-impl local").find("not modelled yet of local layers"),
            std::string::npos);
}

// Of a Llama-3.1-8B on eight GPUs.
ConvertAsked of_llama(const std::string& file, const std::string& text) {
  return {.files = {file},
          .texts = {{file, text}},
          .variables = {},
          .model = "models/llama-3.1-8b.json",
          .cluster = "clusters/h100-sxm-80g.toml",
          .gpus = 8,
          .sequence_length = 1024,
          .micro_batch = {},
          .global_batch = {},
          .data_root = shipped_data()};
}
std::string problem_of_llama(const std::string& file, const std::string& text) {
  try {
    (void)scenario_of(convert(of_llama(file, text)), shipped_data());
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(Convert, WhatIsTrainedIsWideWhateverItWasLoadedIn) {
  const auto held = [](const std::string& more) {
    return scenario_of(
               convert(of_llama("args.json",
                                R"({"per_device_train_batch_size": 1, "torch_dtype": "bfloat16", )" + more + "}")),
               shipped_data())
        .train.master_dtype;
  };
  const std::string sharded = R"("fsdp": "full_shard auto_wrap", "fsdp_config": {"version": 2})";
  EXPECT_EQ(held(R"("bf16": true, )" + sharded), DType::FP32);
  EXPECT_EQ(held(R"("bf16": true, "fsdp": "full_shard auto_wrap")"), DType::FP32);
  EXPECT_EQ(held(sharded), DType::BF16) << "nothing is mixed";
  const ConvertAsked narrow =
      of_llama("args.json", R"({"per_device_train_batch_size": 1, "torch_dtype": "bfloat16", )" + sharded + "}");
  EXPECT_EQ(scenario_of(convert(narrow), shipped_data()).runtime.eager.fully_shard.reduce_dtype, DType::BF16);
  EXPECT_EQ(held(R"("bf16": true)"), DType::BF16) << "PyTorch's own replicas stay as they were loaded";
  EXPECT_EQ(held(R"("bf16": true, "deepspeed": {"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}})"),
            DType::FP32);
}

// config.json of Llama-3.1-8B says bfloat16.
TEST(Convert, WhatIsLeftToTheCheckpointOrTheTrainerFollowsThem) {
  const auto read = [](const std::string& file, const std::string& text) {
    return scenario_of(convert(of_llama(file, text)), shipped_data());
  };
  const std::string one = R"({"per_device_train_batch_size": 1, )";
  const Scenario alone = read("args.json", one + R"("torch_dtype": "auto"})");
  EXPECT_EQ(alone.train.master_dtype, DType::BF16);
  EXPECT_EQ(alone.train.precision, DType::BF16);
  EXPECT_FALSE(alone.runtime.eager.autocast.value_or(false));
  const Scenario mixed = read("args.json", one + R"("dtype": "auto", "bf16": true})");
  EXPECT_EQ(mixed.train.master_dtype, DType::BF16);
  EXPECT_TRUE(mixed.runtime.eager.autocast.value_or(false)) << "the Trainer's, whatever the model is held in";
  EXPECT_EQ(read("args.json", one + R"("dtype": "float32", "bf16": true})").train.precision, DType::BF16);

  const std::string open = R"("train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2},
 "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}})";
  EXPECT_EQ(read("ds_config.json", "{" + open).train.precision, DType::BF16);
  EXPECT_EQ(read("args.json", one + R"("fp16": true, "deepspeed": {)" + open + "}").train.precision, DType::FP16);
  EXPECT_EQ(read("args.json", one + R"("deepspeed": {)" + open + "}").train.precision, DType::FP32);
}

TEST(Convert, WhatOtherFrameworksStopAtIsRefused) {
  const std::string ds = R"("train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
 "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}})";
  EXPECT_EQ(problem_of_llama("ds_config.json", R"({"train_batch_size": 32, )" + ds), "no problem");
  EXPECT_EQ(problem_of_llama("ds_config.json", R"({"train_batch_size": 64, )" + ds),
            "ds_config.json:1:22: error: train_batch_size = 64\n  hint: DeepSpeed stops: 2 samples x 2 micro-batches x "
            "8 GPUs are 32");

  const auto titan = [](const std::string& degrees) {
    return problem_of_llama("titan.toml",
                            "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\n"
                            "seq_len = 1024\n[parallelism]\n" +
                                degrees);
  };
  EXPECT_EQ(titan("data_parallel_shard_degree = 4\ntensor_parallel_degree = 2\n"), "no problem");
  EXPECT_EQ(titan("data_parallel_shard_degree = -1\n"), "no problem");
  EXPECT_EQ(
      titan("data_parallel_shard_degree = 4\n"),
      "titan.toml:8:30: error: parallelism.data_parallel_shard_degree = 4\n  hint: torchtitan stops: 1 replicas, 4 "
      "shards and 1 ranks that cut the model are not 8 GPUs; -1 takes what is left");

  const auto fsdp = [](const std::string& words) {
    return problem_of_llama("args.json", R"({"per_device_train_batch_size": 1, "bf16": true, )" + words + "}");
  };
  EXPECT_EQ(fsdp(R"("fsdp": "full_shard auto_wrap")"), "no problem");
  EXPECT_NE(fsdp(R"("fsdp": "foo auto_wrap")").find("\"foo\" is none of transformers' options"), std::string::npos);
  EXPECT_NE(fsdp(R"("fsdp": "full_shard")").find("without it the model is one unit"), std::string::npos);
  const std::string accelerate =
      "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n  "
      "fsdp_sharding_strategy: FULL_SHARD\n";
  EXPECT_EQ(problem_of_llama("a.yaml", accelerate + "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"), "no problem");
  EXPECT_NE(problem_of_llama("a.yaml", accelerate).find("without it the model is one unit"), std::string::npos);
  EXPECT_NE(fsdp(R"("fsdp": "full_shard auto_wrap", "fsdp_config": {"version": 3})").find("fully_shard is 2"),
            std::string::npos);
}

TEST(Convert, CoefficientsOfLossesComeBackAsTheyWere) {
  const Scenario two = parse_scenario(R"(model = "models/qwen3-30b-a3b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[layout]
expert = 8
[train]
sequence_length = 4096
micro_batch = 1
[runtime.switches]
moe-router-load-balancing-type = ["seq_aux_loss", "aux_loss"]
moe-aux-loss-coeff = [0.0001, 0.02]
)",
                                      "job.toml", {".", shipped_data()});
  const std::string text = written(two, Dialect::Megatron, Launcher::Torchrun, "models/qwen3-30b-a3b.json",
                                   "clusters/h100-sxm-80g.toml", shipped_data())
                               .text;
  // In the order of the names as they are written.
  EXPECT_NE(text.find("--moe-router-load-balancing-type aux_loss seq_aux_loss"), std::string::npos) << text;
  EXPECT_NE(text.find("--moe-aux-loss-coeff 0.02 0.0001"), std::string::npos) << text;
}

TEST(Convert, ABaseOfEightBitsIsNoneOfFour) {
  const std::string job = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 1
[train]
sequence_length = 1024
micro_batch = 1
[adapter]
rank = 16
[quantization]
format = "int8"
[runtime]
name = "pytorch"
)";
  const Scenario eight = parse_scenario(job, "job.toml", {".", shipped_data()});
  const std::string text = written(eight, Dialect::TrainingArguments, Launcher::Torchrun, "models/llama-3.1-8b.json",
                                   "clusters/h100-sxm-80g.toml", shipped_data())
                               .text;
  EXPECT_NE(text.find("\"load_in_8bit\": true"), std::string::npos) << text;
  EXPECT_EQ(text.find("4bit"), std::string::npos) << text;
  ConvertAsked asked = of_llama("args.json", text);
  asked.gpus = 1;
  EXPECT_EQ(scenario_of(convert(asked), shipped_data()).train.quantization, eight.train.quantization);
}

TEST(Convert, OneLauncherStartsOnEachNode) {
  const std::string job = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 16
[layout]
sharding = "zero3"
[train]
sequence_length = 4096
micro_batch = 1
[runtime]
name = "fsdp2"
)";
  const auto launch = [](const Scenario& scenario, Dialect dialect, Launcher launcher) {
    return written(scenario, dialect, launcher, "models/llama-3.1-8b.json", "clusters/h100-sxm-80g.toml",
                   shipped_data())
        .launch;
  };
  const Scenario fsdp2 = parse_scenario(job, "job.toml", {".", shipped_data()});
  EXPECT_EQ(launch(fsdp2, Dialect::TrainingArguments, Launcher::Torchrun),
            "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 train.py "
            "training_arguments.json");
  EXPECT_EQ(
      launch(fsdp2, Dialect::TrainingArguments, Launcher::Mpirun),
      "mpirun -np 2 --map-by ppr:1:node torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "
      "HOST:29500 train.py training_arguments.json");
  EXPECT_EQ(
      launch(fsdp2, Dialect::TrainingArguments, Launcher::Sbatch),
      "sbatch --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --exclusive --wrap 'srun torchrun --nnodes 2 "
      "--nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint \"$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | "
      "head -n 1)\":29500 train.py training_arguments.json'");
  EXPECT_EQ(
      launch(fsdp2, Dialect::Accelerate, Launcher::Sbatch),
      "sbatch --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --exclusive --wrap 'srun bash -c \"accelerate launch "
      "--config_file accelerate.yaml --machine_rank \\$SLURM_NODEID --main_process_ip $(scontrol show hostnames "
      "\"$SLURM_JOB_NODELIST\" | head -n 1) --main_process_port 29500 train.py\"'");
}

TEST(Convert, WhatAnotherDialectCannotSayIsAmongTheRemarks) {
  const std::string job = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[layout]
tensor = 2
pipeline = 2
schedule = "zb-h1"
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 16
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
headroom = "1 GiB"
)";
  const Scenario scenario = parse_scenario(job, "job.toml", {".", shipped_data()});
  const Written out = written(scenario, Dialect::Megatron, Launcher::Torchrun, "models/llama-3.1-8b.json",
                              "clusters/h100-sxm-80g.toml", shipped_data());
  std::string remarks;
  for (const Remark& remark : out.remarks) remarks += remark.what + ": " + remark.why + '\n';
  EXPECT_EQ(remarks,
            "layout.schedule = \"zb-h1\": it comes back as \"1f1b\"\n"
            "runtime.headroom = \"1 GiB\": is asked of Tidemark (it comes back as \"0 B\")\n");
  EXPECT_TRUE(written(scenario, Dialect::Megatron, Launcher::Sbatch, "models/llama-3.1-8b.json",
                      "clusters/h100-sxm-80g.toml", shipped_data())
                  .text.starts_with(
                      "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"));
}

Scenario read(const std::filesystem::path& file) {
  ConvertAsked asked{.files = {file},
                     .texts = {},
                     .variables = {},
                     .model = {},
                     .cluster = {},
                     .gpus = {},
                     .sequence_length = {},
                     .micro_batch = {},
                     .global_batch = {},
                     .data_root = shipped_data()};
  return scenario_of(convert(asked), shipped_data());
}

Written written_to(const Scenario& scenario, Dialect dialect, const std::string& model = "models/llama-3.1-8b.json") {
  return written(scenario, dialect, Launcher::Torchrun, model, "clusters/h100-sxm-80g.toml", shipped_data());
}

std::string text_of(const std::vector<Remark>& remarks) {
  std::string text;
  for (const Remark& remark : remarks) text += remark.what + ": " + remark.why + '\n';
  return text;
}

TEST(Convert, EveryExampleIsWrittenInEveryDialect) {
  int examples = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(shipped_data() / "examples")) {
    if (entry.path().extension() != ".toml") continue;
    SCOPED_TRACE(entry.path().string());
    const Scenario scenario = read(entry.path());
    ++examples;
    for (const std::string& dialect : dialect_names()) {
      if (dialect == "scenario") continue;
      const Written out =
          written_to(scenario, dialect_named(dialect).value(), fmt::format("models/{}.json", scenario.model.name));
      EXPECT_FALSE(out.text.empty()) << dialect;
    }
  }
  EXPECT_GT(examples, 15);
}

// Names of modules have dots, and stand on one line.
TEST(Convert, TitansPartsOfManyLayersAreReadOnOneLine) {
  std::string names;
  for (int layer = 0; layer < 70; ++layer) names += fmt::format("{}\"layers.{}\"", layer == 0 ? "" : ", ", layer);
  EXPECT_NO_THROW((void)parse_toml("parts = [[" + names + "]]\n", "train.toml"));
  std::string deep = "a";
  for (int i = 0; i < 65; ++i) deep += ".a";
  EXPECT_THROW((void)parse_toml("x = [{b = 1}, {" + deep + " = 1}]\n", "train.toml"), InputError);
  std::string commas = "x";
  for (int i = 0; i < 1025; ++i) commas += ".\"a,\"";
  EXPECT_THROW((void)parse_toml(commas + " = 1\n", "train.toml"), InputError);
}

constexpr const char* pipelined = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 16
[layout]
pipeline = 2
)";

// Megatron's layouts say in other words how layers are cut into stages.
TEST(Convert, TitansStagesAreThoseOfTheLayout) {
  const auto titan_of = [](const std::string& layout) {
    return written_to(parse_scenario(pipelined + layout, "job.toml", {".", shipped_data()}), Dialect::TorchTitan);
  };
  const auto has = [](const std::string& text, const char* what) { return text.find(what) != std::string::npos; };
  EXPECT_FALSE(has(titan_of("").text, "module_fqns_per_model_part"));
  const std::string last = titan_of("last_stage_layers = 15\n").text;
  EXPECT_TRUE(has(last, R"("layers.16"], ["layers.17")")) << last;
  EXPECT_TRUE(has(titan_of("count_loss = true\ncount_embedding = true\nchunks = 1\n").text, "1F1B"));
  // torchtitan has no such schedule.
  const Written other = titan_of("schedule = \"zb-h1\"\n");
  EXPECT_FALSE(has(other.text, "pipeline_parallel_schedule"));
  EXPECT_TRUE(has(text_of(other.remarks), "layout.schedule = \"zb-h1\": it comes back as \"1f1b\"\n"))
      << text_of(other.remarks);
}

// Megatron drops a tenth where nothing is said, torchtitan's models never.
TEST(Convert, DropoutIsSaidWhereDefaultsDiffer) {
  const auto scenario = [](const std::string& train, const std::string& more) {
    return parse_scenario(std::string("model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\n"
                                      "gpus = 8\n[train]\nsequence_length = 4096\nmicro_batch = 1\n") +
                              train + more,
                          "job.toml", {".", shipped_data()});
  };
  const std::string titan = "[runtime]\nname = \"torchtitan\"\n";
  for (const char* said : {"", "hidden_dropout = 0.0\n"}) {
    const Scenario drops_nothing = scenario(said, titan);
    EXPECT_EQ(drops_nothing.train.hidden_dropout, 0);
    EXPECT_EQ(drops_nothing.train.attention_dropout, 0);
    const Written out = written_to(drops_nothing, Dialect::Megatron);
    EXPECT_NE(out.text.find("--hidden-dropout 0 \\\n  --attention-dropout 0\n"), std::string::npos) << out.text;
    EXPECT_EQ(text_of(out.remarks).find("dropout ="), std::string::npos) << text_of(out.remarks);
  }
  EXPECT_THROW((void)scenario("attention_dropout = 0.1\n", titan), InputError);

  const std::string one = text_of(written_to(scenario("attention_dropout = 0.0\n", ""), Dialect::TorchTitan).remarks);
  EXPECT_NE(one.find("train.hidden_dropout = 0.1: it comes back as 0.0\n"), std::string::npos) << one;
  EXPECT_EQ(one.find("train.attention_dropout"), std::string::npos) << one;
}

// Other frameworks say in other words what is on the host, and that gradients are clipped.
TEST(Convert, OffloadingAndClippingGoToDeepSpeed) {
  const Scenario example = read(shipped_data() / "examples/llama-3.1-70b-8xh100-offload.toml");
  const Written out = written_to(example, Dialect::DeepSpeed, "models/llama-3.1-70b.json");
  for (const char* key : {"offload_optimizer", "offload_param"})
    EXPECT_NE(out.text.find(fmt::format("\"{}\": {{\n      \"device\": \"cpu\",\n      \"pin_memory\": true", key)),
              std::string::npos)
        << out.text;
  EXPECT_NE(out.text.find("\"gradient_clipping\": 1.0"), std::string::npos) << out.text;
  const std::string remarks = text_of(out.remarks);
  for (const char* key : {"offload", "max_grad_norm", "gradient_clipping", "pin_memory"})
    EXPECT_EQ(remarks.find(key), std::string::npos) << key << " in\n" << remarks;
}

// Of another framework, what is asked of neither is not told.
TEST(Convert, SwitchesAtTheirDefaultAreNoDifference) {
  const auto read_so = [](const std::string& text) { return parse_scenario(text, "job.toml", {".", shipped_data()}); };
  const std::string framework =
      "runtime.name = \"megatron\": this is another framework (it comes back as \"torchtitan\")\n";
  EXPECT_EQ(text_of(written_to(read_so(std::string(pipelined) + "stage_layers = [16, 16]\nsharding = \"zero1\"\n"),
                               Dialect::TorchTitan)
                        .remarks),
            "layout.sharding = \"zero1\": it comes back as \"zero3\"\n" + framework +
                "train.attention_dropout = 0.1: it comes back as 0.0\n"
                "train.hidden_dropout = 0.1: it comes back as 0.0\n");
  const std::string asked =
      text_of(written_to(read_so(std::string(pipelined) + "[runtime.switches]\ndeterministic-mode = true\n"),
                         Dialect::TorchTitan)
                  .remarks);
  EXPECT_NE(asked.find("runtime.switches.deterministic-mode = true: "), std::string::npos) << asked;

  const Scenario example = read(shipped_data() / "examples/llama-3.1-8b-8xh100-torchtitan.toml");
  EXPECT_EQ(text_of(written_to(example, Dialect::Megatron).remarks),
            "layout.sharding = \"zero3\": it comes back as \"none\"\n"
            "runtime.name = \"torchtitan\": this is another framework (it comes back as \"megatron\")\n"
            "runtime.versions.torch = \"2.15\": which releases run is a matter of what is installed (it comes back as "
            "\"2.10\")\n"
            "train.recompute_modules = []: it comes back as [\"core_attn\"]\n");
}

}  // namespace
}  // namespace tidemark::tests
