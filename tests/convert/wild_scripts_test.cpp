#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/convert/formats.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "tests/convert/recipes.hpp"

// Scripts of papers and of models' repositories, which start transformers' Trainer by a program of their own, and the
// files that they name; worked out by hand.

namespace tidemark::tests::wild_scripts_test {
namespace {

namespace fs = std::filesystem;

Converted converted_of(const std::string& file, const std::string& text) {
  ConvertRequest requested = requested_of(file, text);
  requested.data_root = shipped_data();
  return convert(requested);
}
Scenario meant(const std::string& file, const std::string& text) {
  return scenario_of(converted_of(file, text), shipped_data());
}
bool tells(const Converted& converted, RemarkKind kind, const std::string& part) {
  return std::ranges::any_of(converted.remarks, [&](const Remark& its) {
    return its.kind == kind && fmt::format("{}: {}", its.what, its.why).find(part) != std::string::npos;
  });
}
std::string problem_of(const std::string& text) {
  try {
    (void)converted_of("train.sh", text);
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}

// qlora.py: rows of 16 and 512 tokens, 16 micro-batches of one, NF4 and rank 64 on all linears but the head. Llama 65B
// has 80 layers of 8,192 and 22,016: 64 x (8 x 8,192 + 3 x (8,192 + 22,016)) = 9,994,240 each.
TEST(WildScripts, QlorasOwnHasItsDefaults) {
  const std::string script =
      "python qlora.py --model_name_or_path huggyllama/llama-65b --bf16 --source_max_len 16 --target_max_len 512 ";
  const Converted its = converted_of("train.sh", script + "--do_train --do_eval --do_mmlu_eval --max_memory_MB 46000");
  const Scenario s = scenario_of(its, shipped_data());
  EXPECT_EQ(s.train.sequence_length, 528);
  EXPECT_EQ(s.train.micro_batch, 1);
  EXPECT_EQ(s.train.global_batch, 16);
  EXPECT_EQ(s.layout.data, 1);
  EXPECT_EQ(s.train.recompute.kind, Recompute::Full);
  ASSERT_TRUE(s.train.adapter.has_value());
  ASSERT_TRUE(s.train.quantization.has_value());
  EXPECT_EQ(predict(s).trained, 80 * 9'994'240);
  // MMLU's prompts of 2,048 tokens are four rows of 528, eight at once.
  EXPECT_TRUE(tells(its, RemarkKind::Bounded, "evaluation is not simulated, and has 32 sequences at once where 1 are"));
  EXPECT_FALSE(meant("train.sh", script + "--bits 16").train.quantization.has_value());
  EXPECT_FALSE(meant("train.sh", script + "--bits 16 --full_finetune").train.adapter.has_value());
  EXPECT_NE(problem_of(script + "--full_finetune").find("qlora.py stops at 4 bits with it"), std::string::npos);
  EXPECT_NE(problem_of(script + "--bits 3").find("qlora.py takes 4, 8, 16 and 32"), std::string::npos);
  EXPECT_NE(problem_of("python qlora.py --model_name_or_path huggyllama/llama-7b --source_max_len -1")
                .find("takes a number from 1 up"),
            std::string::npos);
}

// Each comes to the published count of its parameters.
TEST(WildScripts, ShapesHaveTheirPublishedCounts) {
  struct Counted {
    const char* name;
    std::int64_t parameters;
  };
  for (const auto& [name, parameters] :
       {Counted{"01-ai/Yi-1.5-6B", 6'061'035'520}, Counted{"01-ai/Yi-9B", 8'829'407'232},
        Counted{"01-ai/Yi-34B", 34'388'917'248}, Counted{"deepseek-ai/deepseek-math-7b-base", 6'910'365'696},
        Counted{"deepseek-ai/deepseek-coder-1.3b-base", 1'346'471'936},
        Counted{"deepseek-ai/deepseek-coder-6.7b-instruct", 6'740'512'768},
        Counted{"deepseek-ai/deepseek-coder-33b-base", 33'342'991'360}, Counted{"Qwen/Qwen1.5-0.5B", 463'987'712},
        Counted{"Qwen/Qwen1.5-1.8B-Chat", 1'836'828'672}, Counted{"Qwen/Qwen1.5-4B", 3'950'369'280},
        Counted{"Qwen/Qwen1.5-7B", 7'721'324'544}, Counted{"Qwen/Qwen1.5-14B", 14'167'290'880},
        Counted{"Qwen/Qwen1.5-32B", 32'512'218'112}, Counted{"Qwen/Qwen2-72B-Instruct", 72'706'203'648},
        Counted{"Qwen/CodeQwen1.5-7B", 7'250'284'544}, Counted{"upstage/SOLAR-10.7B-v1.0", 10'731'524'096},
        Counted{"HuggingFaceH4/zephyr-7b-beta", 7'241'732'096}, Counted{"huggyllama/llama-13b", 13'015'864'320}}) {
    const Scenario s = meant("train.sh", fmt::format("torchrun --nproc_per_node 8 train.py --model_name_or_path {} "
                                                     "--model_max_length 512 --bf16 True",
                                                     name));
    EXPECT_EQ(parameter_count(Job(s).built), parameters) << name;
  }
}

TEST(WildScripts, ConfigurationsOfFsdpMayBeFiles) {
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("wild_scripts.{}", ::getpid());
  fs::create_directories(folder / "train");
  std::ofstream(folder / "train" / "fsdp.json") << R"({"transformer_layer_cls_to_wrap": "Qwen2DecoderLayer"})";
  std::ofstream(folder / "train" / "sft.sh")
      << "torchrun --nproc-per-node 8 train/sft.py --model_name=Qwen/Qwen2.5-7B-Instruct --block_size=4096 --bf16=True "
         "--fsdp=\"full_shard auto_wrap\" --fsdp_config=train/fsdp.json --train_file_path=org/rows\n";
  ConvertRequest requested = requested_of("sft.sh", "");
  requested.texts.clear();
  requested.files = {folder / "train" / "sft.sh"};
  const Converted its = convert(requested);
  fs::remove_all(folder);
  EXPECT_EQ(scenario_of(its, shipped_data()).runtime.name, "fsdp");
  EXPECT_TRUE(tells(its, RemarkKind::NoMatter, "train_file_path")) << "names files of data";
  const Converted without =
      converted_of("train.sh",
                   "torchrun --nproc-per-node 8 sft.py --model_name_or_path Qwen/Qwen2.5-7B --fsdp full_shard "
                   "--fsdp_config nowhere.json");
  EXPECT_TRUE(tells(without, RemarkKind::NotExpressed, "is not there: put it where the script looks for it"));
}

// examples/deepspeed of LLaMA-Factory and deepspeed_configs of axolotl, where a file names them and lies elsewhere.
TEST(WildScripts, ToolsConfigurationsOfDeepspeedAreKnownByName) {
  const std::string factory =
      "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: full\ncutoff_len: 2048\nbf16: true\n"
      "per_device_train_batch_size: 1\ngradient_accumulation_steps: 2\ndeepspeed: ";
  const Converted third = converted_of("job.yaml", factory + "examples/deepspeed/ds_z3_config.json\n");
  EXPECT_TRUE(tells(third, RemarkKind::Assumed, "is not there: taken as LLaMA-Factory ships it"));
  EXPECT_EQ(scenario_of(third, shipped_data()).layout.sharding, Sharding::Zero3);
  EXPECT_EQ(meant("job.yaml", factory + "examples/deepspeed/ds_z2_config.json\n").layout.sharding, Sharding::Zero2);
  const std::string axolotl =
      "base_model: Qwen/Qwen2.5-7B\nsequence_len: 2048\nflash_attention: true\nmicro_batch_size: 1\n"
      "deepspeed: deepspeed_configs/";
  EXPECT_EQ(meant("job.yaml", axolotl + "zero1.json\n").layout.sharding, Sharding::Zero1);
  EXPECT_EQ(meant("job.yaml", axolotl + "zero3_bf16.json\n").layout.sharding, Sharding::Zero3);
  EXPECT_FALSE(deepspeed_preset("configs/zero3.json").has_value()) << "of nobody that is known";
}

TEST(WildScripts, SwitchesOfTheirOwnAskForLora) {
  const std::string rest =
      " --model_name_or_path Qwen/Qwen2.5-7B --model_max_length 512 --bf16 True --per_device_train_batch_size 1 ";
  EXPECT_FALSE(meant("train.sh", "torchrun --nproc_per_node 2 finetune.py" + rest).train.adapter.has_value());
  const Converted its = converted_of("train.sh", "torchrun --nproc_per_node 2 finetune.py" + rest + "--use_lora");
  EXPECT_TRUE(scenario_of(its, shipped_data()).train.adapter.has_value());
  EXPECT_TRUE(tells(its, RemarkKind::NotJudged, "lora_r: is not said, and is what the script takes"));
  // Chinese-LLaMA-Alpaca-2's run_clm_sft_with_peft.py.
  const Converted peft = converted_of(
      "train.sh",
      "torchrun --nproc_per_node 1 run_clm_sft_with_peft.py" + rest +
          "--lora_rank 64 --lora_alpha 128 --trainable q_proj,v_proj --load_in_kbits 4 --lora_dropout 0.05");
  EXPECT_FALSE(std::ranges::any_of(peft.remarks, [](const Remark& r) { return r.kind == RemarkKind::NotJudged; }));
  const Scenario s = scenario_of(peft, shipped_data());
  EXPECT_TRUE(s.train.quantization.has_value());
  EXPECT_EQ(predict(s).trained, 28 * 64 * (3584 + 3584 + 3584 + 512));
}

// scripts/simpo_config.py of SimPO: pairs, within the bound that counts a reference, too, which SimPO does not hold.
TEST(WildScripts, SimposOwnArgumentsAreOfPairs) {
  const Converted its = converted_of(
      "job.yaml",
      "model_name_or_path: mistralai/Mistral-7B-v0.1\nbeta: 2.0\ngamma_beta_ratio: 0.8\nmax_length: 1024\n"
      "max_prompt_length: 512\nper_device_train_batch_size: 1\nbf16: true\ngradient_checkpointing: true\n");
  EXPECT_FALSE(tells(its, RemarkKind::NotJudged, "gamma_beta_ratio"));
  EXPECT_TRUE(std::ranges::any_of(its.remarks, [](const Remark& r) { return r.bound.starts_with("preferences:"); }));
}

// jondurbin/qlora cuts source and target together.
TEST(WildScripts, AForkOfQloraHasOneLength) {
  const Converted its = converted_of("train.sh",
                                     "python qlora.py --model_name_or_path huggyllama/llama-7b --bf16 "
                                     "--model_max_len 2048 --skip_excess_length False");
  EXPECT_FALSE(std::ranges::any_of(its.remarks, [](const Remark& r) { return r.kind == RemarkKind::NotJudged; }));
  EXPECT_EQ(scenario_of(its, shipped_data()).train.sequence_length, 2048);
}

// How many devices a list names, and a step's batch by it; what accelerate has flags for.
TEST(WildScripts, DevicesOfAListAreCounted) {
  const Converted its =
      converted_of("train.sh",
                   "DEVICES=0,1,2,3\nN=$(echo $DEVICES | awk -F',' '{print NF}')\n"
                   "accelerate launch --num_processes $N --dynamo_backend no train.py "
                   "--model_name_or_path mistralai/Mistral-7B-v0.1 --model_max_length 2048 --bf16 True "
                   "--per_device_train_batch_size 1 --gradient_accumulation_steps $((512 / N)) --query_field q "
                   "--conv_template scorer");
  EXPECT_FALSE(std::ranges::any_of(its.remarks, [](const Remark& r) { return r.kind == RemarkKind::NotJudged; }));
  const Scenario s = scenario_of(its, shipped_data());
  EXPECT_EQ(s.layout.data, 4);
  EXPECT_EQ(s.train.global_batch, 512);
}

// A magnitude for each output, beside rank 8 in q_proj and v_proj of 28 layers of 3,584 with 512 outputs of values.
TEST(WildScripts, DoraIsTrainedByItself) {
  const std::string job =
      "model_name_or_path: Qwen/Qwen2.5-7B\nuse_peft: true\nuse_dora: true\nlora_r: 8\nloss_type: nll\n"
      "lora_target_modules: [q_proj, v_proj]\nmax_length: 1024\nbf16: true\ngradient_checkpointing: true\n";
  const Scenario s = meant("job.yaml", job);
  ASSERT_TRUE(s.train.adapter.has_value());
  EXPECT_EQ(s.train.adapter->method, AdapterMethod::Dora);
  EXPECT_EQ(predict(s).trained, 28 * (8 * (3584 + 3584 + 3584 + 512) + 3584 + 512));
}

TEST(WildScripts, NumbersBelowOneAreRefusedAtTheirKey) {
  const std::string rest = "base_model: meta-llama/Llama-3.1-8B\nflash_attention: true\n";
  for (const char* key : {"micro_batch_size", "gradient_accumulation_steps", "sequence_len"}) {
    const Converted its = converted_of("job.yaml", rest + key + ": 0\n");
    EXPECT_TRUE(std::ranges::any_of(its.remarks, [](const Remark& r) {
      return r.kind == RemarkKind::NotExpressed && r.why == "takes a number from 1 up" && r.place.line == 3;
    })) << key;
  }
}

}  // namespace
}  // namespace tidemark::tests::wild_scripts_test
