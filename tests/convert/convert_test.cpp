#include "scenarios/convert/convert.hpp"

#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/convert/recipes.hpp"

namespace tidemark::tests::convert_test {
namespace {

class Recipes : public testing::TestWithParam<Recipe> {};

// The scenario, and below it what is not among its keys.
std::string reported(const Converted& converted) {
  std::string text = toml_text(converted.document);
  const auto add = [&](RemarkKind kind, const char* title) {
    for (const Remark& remark : converted.remarks)
      if (remark.kind == kind)
        text += fmt::format("# {}{}: {}: {}\n", title,
                            remark.place.line > 0 ? fmt::format(", line {}", remark.place.line) : "", remark.what,
                            remark.why);
  };
  add(RemarkKind::NotExpressed, "not expressed");
  add(RemarkKind::NotJudged, "not judged");
  add(RemarkKind::Bounded, "within a bound");
  add(RemarkKind::Assumed, "assumed");
  add(RemarkKind::NoMatter, "no effect");
  return text;
}

// What each comes to lies beside them: TIDEMARK_WRITE_EXPECTED=1 writes it anew, to be looked at.
TEST_P(Recipes, ComesToTheScenarioThatLiesBesideIt) {
  const std::string found = reported(convert(GetParam().requested));
  const std::filesystem::path file = convert_folder() / "expected" / (GetParam().name + ".toml");
  if (std::getenv("TIDEMARK_WRITE_EXPECTED") != nullptr) std::ofstream(file) << found;
  EXPECT_EQ(found, read_text(file));
}

// In, out, in again and out again: the same scenario, and the same text.
TEST_P(Recipes, ComesBackTheSame) {
  const Recipe& recipe = GetParam();
  const Converted first = convert(recipe.requested);
  if (first.lossy()) {  // nothing is predicted of a part of it, or there is neither yes nor no
    ConvertRequest strict = recipe.requested;
    strict.strict = true;
    EXPECT_THROW((void)scenario_of(convert(strict), shipped_data()), InputError);
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
    return written(s, recipe.to, Launcher::Torchrun, model, recipe.requested.cluster, shipped_data());
  };
  const Written out = write(scenario);
  for (const Remark& remark : out.remarks) {
    if (recipe.to == Dialect::Accelerate) continue;  // which says less than a training is
    EXPECT_NE(remark.kind, RemarkKind::NotExpressed) << remark.what << ": " << remark.why;
  }

  constexpr std::array<const char*, 6> endings{".toml", ".sh", ".toml", ".json", ".yaml", ".json"};
  const std::filesystem::path file = scenario.name + endings.at(static_cast<std::size_t>(recipe.to));
  ConvertRequest again{.files = {file},
                       .texts = {{file, out.text}},
                       .variables = {},
                       .model = {},
                       .cluster = recipe.requested.cluster,
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
  if (launch_queue_of(expected) == launch_queue_of(found)) expected.runtime.launch_queue = found.runtime.launch_queue;
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
  ConvertRequest requested{.files = {file},
                           .texts = {{file, text}},
                           .variables = set,
                           .model = {},
                           .cluster = "clusters/h100-sxm-80g.toml",
                           .gpus = {},
                           .sequence_length = {},
                           .micro_batch = {},
                           .global_batch = {},
                           .data_root = shipped_data(),
                           .strict = true};
  try {
    (void)scenario_of(convert(requested), shipped_data());
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
      std::string("torchrun --nproc-per-node 8 pretrain_gpt.py --fp4-format e2m1 --no-such-flag 3") + small;
  EXPECT_EQ(
      problem_of("job.sh", script),
      "job.sh:1:58: error: --fp4-format = \"e2m1\"\n  hint: FP4 is not modelled yet\n"
      "job.sh:1:78: error: --no-such-flag = 3\n  hint: is no argument of Megatron-LM's, core 0.10 to 0.19, nor of "
      "a fork that is known here");
  EXPECT_EQ(problem_of("job.sh", std::string("torchrun --nproc-per-node 8 pretrain_gpt.py --use-flash-atn") + small),
            "job.sh:1:45: error: --use-flash-atn\n  hint: is no argument of Megatron-LM's, core 0.10 to 0.19, nor of a "
            "fork that is known here: did you mean --use-flash-attn?");
}

// Megatron's arguments.py: allgather is the default.
TEST(Convert, TokensAreGatheredUnlessADispatcherIsNamed) {
  std::string script = read_text(convert_folder() / "recipes/mixtral-8x7b-ep8.sh");
  const std::string named = " --moe-token-dispatcher-type alltoall";
  script.erase(script.find(named), named.size());
  ConvertRequest requested;
  requested.files = {"job.sh"};
  requested.texts = {{"job.sh", script}};
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  const std::string text = toml_text(convert(requested).document);
  EXPECT_NE(text.find("dispatcher = \"allgather\""), std::string::npos) << text;
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
  const std::string stages = "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage ";
  EXPECT_EQ(problem(stages + "3"),
            "job.sh:1:118: error: --num-layers-per-virtual-pipeline-stage: Megatron-LM stops at it: 3 does not divide "
            "the 1 layers of a stage\n  hint: a number that divides the layers of a stage");
  EXPECT_EQ(problem(stages + "1"), "no problem");
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

}  // namespace
}  // namespace tidemark::tests::convert_test
