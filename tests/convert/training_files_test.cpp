#include <string>

#include <gtest/gtest.h>

#include "parallel/runtime/runtime.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/convert/recipes.hpp"

namespace tidemark::tests::training_files_test {
namespace {

// Of a Llama-3.1-8B on eight GPUs.
ConvertRequest of_llama(const std::string& file, const std::string& text) {
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

// Megatron-LM has one flag for both.
TEST(Convert, ChecksOfBridgeCountOneByOne) {
  const auto checks = [](const std::string& more) {
    const std::string layout =
        "model: {tensor_model_parallel_size: 2}\ntrain: {micro_batch_size: 1, global_batch_size: 8}\n";
    return scenario_of(convert(of_llama("job.yaml", layout + "mixed_precision: bf16_mixed\n" + more)), shipped_data())
        .runtime.checks;
  };
  EXPECT_EQ(checks("ddp: {check_for_nan_in_grad: true}\n"), ResultChecks{});
  EXPECT_EQ(checks("ddp: {check_for_nan_in_grad: false}\n"), ResultChecks{.nan_in_grad = false});
  EXPECT_EQ(checks("rerun_state_machine: {check_for_nan_in_loss: false}\n"), ResultChecks{.nan_in_loss = false});
  EXPECT_EQ(checks("ddp: {check_for_large_grads: true}\n").large_grads, true);
}

TEST(Convert, AModelMayLieBesideWhatTrainsIt) {
  ConvertRequest requested = of_llama("args.json", R"({"per_device_train_batch_size": 1, "bf16": true})");
  requested.model = {};
  requested.files.push_back(shipped_data() / "models/llama-3.1-8b.json");
  EXPECT_EQ(scenario_of(convert(requested), shipped_data()).model.name, "llama-3.1-8b");
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
  const ConvertRequest narrow =
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
prepare = "none"
[runtime]
name = "pytorch"
)";
  const Scenario eight = parse_scenario(job, "job.toml", {".", shipped_data()});
  const std::string text = written(eight, Dialect::TrainingArguments, Launcher::Torchrun, "models/llama-3.1-8b.json",
                                   "clusters/h100-sxm-80g.toml", shipped_data())
                               .text;
  EXPECT_NE(text.find("\"load_in_8bit\": true"), std::string::npos) << text;
  EXPECT_EQ(text.find("4bit"), std::string::npos) << text;
  ConvertRequest requested = of_llama("args.json", text);
  requested.gpus = 1;
  EXPECT_EQ(scenario_of(convert(requested), shipped_data()).train.quantization, eight.train.quantization);
}
TEST(Convert, AScenarioPrintedAsJsonIsOfNoFramework) {
  const std::string printed = scenario_json(
      parse_scenario("model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
                     "[train]\nsequence_length = 1024\nmicro_batch = 1\n",
                     "job.toml", {".", shipped_data()}),
      2);
  EXPECT_EQ(problem_of_llama("job.json", printed),
            "job.json:1:1: error: is a scenario as explain --show scenario prints it, which no question takes\n  hint: "
            "tidemark predict SCENARIO --print-scenario writes one to go on from");
}

}  // namespace
}  // namespace tidemark::tests::training_files_test
