#include <array>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/convert/recipes.hpp"

namespace tidemark::tests::written_test {
namespace {

// What no scenario says.
const std::string to_start =
    "--data-path, --tokenizer-type, --lr, --train-iters: Megatron-LM does not start without, and a scenario does not "
    "say "
    "it\n";

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
  EXPECT_NE(scenario_json(two, -1).find(R"("moe-aux-loss-coeff":[0.02,0.0001])"), std::string::npos);
  const std::string text = written(two, Dialect::Megatron, Launcher::Torchrun, "models/qwen3-30b-a3b.json",
                                   "clusters/h100-sxm-80g.toml", shipped_data())
                               .text;
  // In the order of the names as they are written.
  EXPECT_NE(text.find("--moe-router-load-balancing-type aux_loss seq_aux_loss"), std::string::npos) << text;
  EXPECT_NE(text.find("--moe-aux-loss-coeff 0.02 0.0001"), std::string::npos) << text;
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
            "runtime.headroom = \"1 GiB\": is asked of Tidemark (it comes back as \"0 B\")\n" +
                to_start);
  EXPECT_TRUE(written(scenario, Dialect::Megatron, Launcher::Sbatch, "models/llama-3.1-8b.json",
                      "clusters/h100-sxm-80g.toml", shipped_data())
                  .text.starts_with(
                      "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"));
}

Scenario read(const std::filesystem::path& file) {
  ConvertRequest requested{.files = {file},
                           .texts = {},
                           .variables = {},
                           .model = {},
                           .cluster = {},
                           .gpus = {},
                           .sequence_length = {},
                           .micro_batch = {},
                           .global_batch = {},
                           .data_root = shipped_data()};
  return scenario_of(convert(requested), shipped_data());
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

TEST(Convert, QuotesAndBackslashesAreReadBack) {
  const std::string text = R"(path = "C:\\data\\\"new\"")"
                           "\n";
  EXPECT_EQ(toml_text(parse_toml(text, "train.toml")), text);
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
  EXPECT_TRUE(has(last, R"("tok_embeddings", "layers.0")")) << last;
  EXPECT_TRUE(has(titan_of("count_loss = true\ncount_embedding = true\nchunks = 1\n").text, "1F1B"));
  // torchtitan has no such schedule.
  const Written other = titan_of("schedule = \"zb-h1\"\n");
  EXPECT_FALSE(has(other.text, "pipeline_parallel_schedule"));
  EXPECT_TRUE(has(text_of(other.remarks), "layout.schedule = \"zb-h1\": it comes back as \"1f1b\"\n"))
      << text_of(other.remarks);
}

TEST(Convert, TitanHasItsOwnNamesOfTypes) {
  const auto titan_of = [](const std::string& precision) {
    std::string text = pipelined;
    text.insert(text.find("[layout]"), "precision = \"" + precision + "\"\n");
    return written_to(parse_scenario(text, "job.toml", {".", shipped_data()}), Dialect::TorchTitan).text;
  };
  EXPECT_NE(titan_of("bf16").find("mixed_precision_param = \"bfloat16\""), std::string::npos) << titan_of("bf16");
  EXPECT_NE(titan_of("fp16").find("mixed_precision_param = \"float16\""), std::string::npos) << titan_of("fp16");
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
    EXPECT_NE(out.text.find("--hidden-dropout 0 \\\n  --attention-dropout 0 "), std::string::npos) << out.text;
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
  const std::string requested =
      text_of(written_to(read_so(std::string(pipelined) + "[runtime.switches]\ndeterministic-mode = true\n"),
                         Dialect::TorchTitan)
                  .remarks);
  EXPECT_NE(requested.find("runtime.switches.deterministic-mode = true: "), std::string::npos) << requested;

  const Scenario example = read(shipped_data() / "examples/llama-3.1-8b-8xh100-torchtitan.toml");
  EXPECT_EQ(text_of(written_to(example, Dialect::Megatron).remarks),
            "layout.sharding = \"zero3\": it comes back as \"none\"\n"
            "runtime.name = \"torchtitan\": this is another framework (it comes back as \"megatron\")\n"
            "runtime.versions.torch = \"2.15\": which releases run is a matter of what is installed (it comes back as "
            "\"2.10\")\n"
            "train.recompute_modules = []: it comes back as [\"core_attn\"]\n" +
                to_start);
}

TEST(Convert, AModelThatNoFlagsDescribeIsToldAsThat) {
  Scenario gemma = read(shipped_data() / "examples/llama-3.1-8b-8xh100.toml");
  gemma.model =
      parse_model(read_text(shipped_data() / "models/gemma-2-9b.json"), shipped_data() / "models/gemma-2-9b.json");
  const std::string remarks = text_of(written(gemma, Dialect::Megatron, Launcher::Torchrun, "models/gemma-2-9b.json",
                                              "clusters/h100-sxm-80g.toml", shipped_data())
                                          .remarks);
  EXPECT_TRUE(remarks.starts_with("model = models/gemma-2-9b.json: megatron has no flags for all of it"));
  EXPECT_EQ(remarks.find("model is missing"), std::string::npos) << remarks;
}

// Megatron-Bridge asks for each of two checks, Megatron-LM for both or none.
TEST(Convert, MegatronCannotLeaveOutOneOfTwoChecks) {
  const auto reported = [](const std::string& switches) {
    const std::string text = std::string(pipelined) + "[runtime.switches]\n" + switches;
    return written_to(parse_scenario(text, "job.toml", {".", shipped_data()}), Dialect::Megatron);
  };
  const Written one = reported("check_for_nan_in_loss = false\n");
  EXPECT_EQ(text_of(one.remarks),
            "runtime.switches.check_for_nan_in_loss = false: one flag asks for both checks, "
            "--no-check-for-nan-in-loss-and-grad (it has no such key)\n" +
                to_start);
  const Written both = reported("check_for_nan_in_loss = false\ncheck_for_nan_in_grad = false\n");
  EXPECT_EQ(text_of(both.remarks), to_start);
  EXPECT_NE(both.text.find("--no-check-for-nan-in-loss-and-grad"), std::string::npos) << both.text;
}

}  // namespace
}  // namespace tidemark::tests::written_test
