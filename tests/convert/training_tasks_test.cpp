#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "tests/convert/recipes.hpp"

// Scripts of TRL's, and what TrainingArguments say beside a step of training.

namespace tidemark::tests::training_tasks_test {
namespace {

ConvertRequest requested_of(const std::string& file, const std::string& text) {
  ConvertRequest requested;
  requested.files = {file};
  requested.texts = {{file, text}};
  requested.model = "models/llama-3.1-8b.json";
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.gpus = 1;
  requested.sequence_length = 1024;
  requested.data_root = shipped_data();
  return requested;
}

// What is wrong, without place and file; "no problem".
std::string problem_of(const std::string& file, const std::string& text) {
  try {
    (void)scenario_of(convert(requested_of(file, text)), shipped_data());
    return "no problem";
  } catch (const InputError& error) {
    const std::string all = error.what();
    return all.substr(all.find(" error: ") + 8);
  }
}
bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::string script(const std::string& program, const std::string& more = "") {
  return "accelerate launch --num_processes 1 " + program +
         " --bf16 --gradient_checkpointing --per_device_train_batch_size 4 --output_dir out " + more;
}

TEST(TrainingTasks, ThoseThatGenerateAreNamed) {
  for (const auto& [program, task] : std::map<std::string, std::string>{{"trl/scripts/grpo.py", "GRPO"},
                                                                        {"trl/scripts/rloo.py", "RLOO"},
                                                                        {"scripts/run_ppo.py", "PPO"},
                                                                        {"-m trl.scripts.grpo", "GRPO"}})
    EXPECT_TRUE(has(problem_of("job.sh", script(program, "--loss_type nll")),
                    "trains by " + task + ", a task that is not modelled: supervised fine-tuning is"))
        << program;
  EXPECT_EQ(problem_of("job.sh", script("trl/scripts/sft.py", "--loss_type nll")), "no problem");
  EXPECT_EQ(problem_of("job.sh", script("finetune_norm.py")), "no problem");
}

// Of two answers each, of rows that are judged, and of pairs that are ranked: four rows are eight, four and eight.
TEST(TrainingTasks, ThoseByPreferencesAreBounded) {
  struct Task {
    std::string program, bound;
    std::int64_t sequences;
  };
  for (const auto& [program, bound, sequences] :
       {Task{"trl/scripts/dpo.py", "preferences:4", 8}, Task{"examples/scripts/orpo.py", "preferences:4", 8},
        Task{"scripts/run_dpo.py", "preferences:4", 8}, Task{"trl/scripts/kto.py", "preferences:4", 4},
        Task{"trl/scripts/reward.py", "ranked-pairs", 8}}) {
    const Converted its = convert(requested_of("job.sh", script(program)));
    EXPECT_TRUE(std::ranges::any_of(its.remarks, [&](const Remark& remark) { return remark.bound == bound; }))
        << program;
    EXPECT_EQ(scenario_of(its, shipped_data()).train.micro_batch, sequences) << program;
  }
}

bool remarks(const Converted& converted, RemarkKind kind, std::string_view what, std::string_view why) {
  return std::ranges::any_of(converted.remarks, [&](const Remark& remark) {
    return remark.kind == kind && remark.what.starts_with(what) && has(remark.why, why);
  });
}

TEST(TrainingTasks, FilesOfOthersAreNamedByTheKeysThatOnlyTheyHave) {
  const std::string trains = "model_name_or_path: Qwen/Qwen2.5-0.5B\noutput_dir: o\nper_device_train_batch_size: 1\n";
  for (const auto& [keys, problem] : std::map<std::string, std::string>{
           {"num_generations: 8\n", "num_generations = 8: trains by rewards (GRPO, RLOO, PPO), a task"},
           {"stage: ppo\ntemplate: qwen\n", "stage = \"ppo\": trains by PPO, a task that is not modelled"},
           {"base_model: a/b\nsequence_len: 512\nrl: grpo\n", "rl = \"grpo\": trains by preferences or rewards"}})
    EXPECT_TRUE(has(problem_of("job.yaml", trains + keys), problem)) << keys << problem_of("job.yaml", trains + keys);
}

TEST(TrainingTasks, DefaultsOfTrlThatDependOnItsReleaseAreSaid) {
  const std::string launch =
      "accelerate launch --num_processes 1 trl/scripts/sft.py --output_dir out "
      "--per_device_train_batch_size 1 ";
  const Converted reported = convert(requested_of("job.sh", launch));
  const Scenario recent = scenario_of(reported, shipped_data());
  EXPECT_EQ(recent.train.recompute.kind, Recompute::Full);
  EXPECT_EQ(recent.train.precision, DType::BF16);
  EXPECT_TRUE(remarks(reported, RemarkKind::Assumed, "gradient_checkpointing", "in releases after 0.21"));
  EXPECT_TRUE(remarks(reported, RemarkKind::Assumed, "bf16", "in releases after 0.18"));
  EXPECT_TRUE(remarks(reported, RemarkKind::Bounded, "loss_type", "is not said"));
  EXPECT_FALSE(convert(requested_of("job.sh", launch + "--loss_type nll")).lossy()) << "logits are whole";
  EXPECT_TRUE(remarks(convert(requested_of("job.sh", launch + "--loss_type chunked_nll")), RemarkKind::Bounded,
                      "--loss_type", "which it never has"));
  EXPECT_TRUE(has(problem_of("job.sh", launch + "--loss_type dft"), "a loss that is not modelled: nll is"));
}

TEST(TrainingTasks, AutomaticBf16IsBf16) {
  const Converted reported =
      convert(requested_of("job.yaml", "output_dir: o\nper_device_train_batch_size: 1\nbf16: auto\n"));
  EXPECT_EQ(scenario_of(reported, shipped_data()).train.precision, DType::BF16);
  EXPECT_TRUE(std::ranges::any_of(reported.remarks, [](const Remark& remark) {
    return remark.kind == RemarkKind::Assumed && remark.why == "true, as on devices of Ampere and later";
  }));
}

TEST(TrainingTasks, EvaluationIsBoundedWhereItHasMoreSequencesAtOnce) {
  const std::string trains = "output_dir: o\nbf16: true\nper_device_train_batch_size: 2\n";
  EXPECT_TRUE(
      remarks(convert(requested_of("job.yaml", trains + "eval_strategy: steps\nper_device_eval_batch_size: 16\n")),
              RemarkKind::Bounded, "per_device_eval_batch_size = 16", "has 16 sequences at once where 2 are trained"));
  EXPECT_TRUE(remarks(convert(requested_of("job.yaml", trains + "eval_strategy: epoch\n")), RemarkKind::Bounded,
                      "per_device_eval_batch_size", "has 8 sequences"));
  EXPECT_EQ(problem_of("job.yaml", trains + "eval_strategy: \"no\"\nper_device_eval_batch_size: 16\n"), "no problem");
  const Converted reported =
      convert(requested_of("job.yaml", trains + "eval_strategy: steps\nper_device_eval_batch_size: 2\n"));
  EXPECT_FALSE(reported.lossy());
  EXPECT_TRUE(std::ranges::any_of(reported.remarks, [](const Remark& remark) {
    return remark.kind == RemarkKind::Assumed && has(remark.why, "evaluation is not modelled");
  }));
}

// A process on each of the eight devices that a node of this cluster has.
TEST(TrainingTasks, ToolsThatTakeAllDevicesHaveThoseOfANode) {
  const auto gpus = [](const std::string& file, const std::string& text) {
    ConvertRequest requested = requested_of(file, text);
    requested.gpus = std::nullopt;
    const Converted converted = convert(requested);
    return fmt::format("{}{}", scenario_of(converted, shipped_data()).gpus,
                       remarks(converted, RemarkKind::Assumed, "gpus", "") ? ", assumed" : "");
  };
  const std::string arguments = "output_dir: o\nbf16: true\nper_device_train_batch_size: 1\n";
  const std::string flags = " train.py --output_dir o --bf16 --per_device_train_batch_size 1\n";
  EXPECT_EQ(gpus("job.yaml", arguments), "8, assumed");
  EXPECT_EQ(gpus("job.yaml", arguments + "stage: sft\nfinetuning_type: lora\n"), "8, assumed");
  EXPECT_EQ(gpus("job.sh", "accelerate launch" + flags), "8, assumed");
  EXPECT_EQ(gpus("job.sh", "deepspeed" + flags), "8, assumed");
  EXPECT_EQ(gpus("job.sh", "CUDA_VISIBLE_DEVICES=2,3 accelerate launch" + flags), "2");
  EXPECT_EQ(gpus("job.sh", "accelerate launch --num_processes 4" + flags), "4");
  EXPECT_EQ(gpus("job.sh", "python" + flags), "1, assumed");
  EXPECT_EQ(gpus("job.sh", "n=2\nNPROC_PER_NODE=$(expr 8 / $n) swift sft --max_length 512 --output_dir o\n"), "4");
  // Sharded over how many devices makes an answer; nobody says.
  EXPECT_THROW(gpus("job.yaml", arguments + "fsdp: full_shard auto_wrap\n"), InputError);
  EXPECT_THROW(gpus("job.sh", "swift sft --max_length 512 --output_dir o\n"), InputError);
}

// trl/trainer/sft_trainer.py: what is loaded on the host is not prepared, and norms stay as wide as codes are kept.
TEST(TrainingTasks, BasesOfFourBitsAreShardedAsTheyWereLoaded) {
  const std::string job =
      "model_name_or_path: meta-llama/Llama-3.1-8B\nuse_peft: true\nlora_target_modules: all-linear\n"
      "load_in_4bit: true\nbnb_4bit_quant_storage: bfloat16\ntorch_dtype: bfloat16\nbf16: true\n"
      "gradient_checkpointing: true\nper_device_train_batch_size: 2\noutput_dir: o\n";
  const auto read = [&](const std::string& more) {
    ConvertRequest requested = requested_of("job.yaml", job + more);
    requested.gpus = 8;
    return scenario_of(convert(requested), shipped_data());
  };
  const Scenario sharded = read("fsdp: full_shard auto_wrap offload\nfsdp_config:\n  use_orig_params: false\n");
  EXPECT_TRUE(sharded.runtime.eager.flat.offload);
  EXPECT_EQ(sharded.train.quantization->prepared, parallel::Prepared::Nothing);
  EXPECT_FALSE(sharded.train.adapter->dtype);  // that of their linears
  // From 0.26 on no other base is prepared, and adapters are cast.
  const Scenario whole = read("");
  EXPECT_EQ(whole.train.quantization->prepared, parallel::Prepared::Nothing);
  EXPECT_FALSE(whole.train.adapter->dtype);  // that of codes, which are bf16, too
}

// peft/tuners/lora/layer.py ParamWrapper, which experts' parameters of transformers 5 get.
TEST(TrainingTasks, AdaptersThatDropOutBesideExpertsRunWhereTheseAreLinears) {
  const auto release = [&](const std::string& more) {
    ConvertRequest requested =
        requested_of("job.yaml",
                     "model_name_or_path: mistralai/Mixtral-8x7B-v0.1\nuse_peft: true\ntorch_dtype: bfloat16\n"
                     "bf16: true\nper_device_train_batch_size: 1\noutput_dir: o\n" +
                         more);
    requested.model = {};
    requested.gpus = 8;
    return scenario_of(convert(requested), shipped_data()).runtime.versions.transformers;
  };
  const parallel::Version linears{4, 57};
  EXPECT_EQ(release("lora_target_modules: all-linear\nlora_dropout: 0.05\n"), linears);
  EXPECT_EQ(release("lora_target_modules: [q_proj, w1, w2, w3]\nlora_dropout: 0.05\n"), linears);
  EXPECT_NE(release("lora_target_modules: [q_proj, v_proj]\nlora_dropout: 0.05\n"), linears);
  EXPECT_NE(release("lora_target_modules: [q_proj, v_proj]\n"), linears);
}

TEST(TrainingTasks, ZerosFieldsGoByTheirOwnNamesToo) {
  const auto zero = [](const std::string& keys) {
    return scenario_of(convert(requested_of("ds.json", "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {" +
                                                           keys + "}, \"train_micro_batch_size_per_gpu\": 1}")),
                       shipped_data());
  };
  EXPECT_EQ(zero(R"("stage": 3, "max_live_parameters": 5, "sub_group_size": 0)").runtime,
            zero(R"("stage": 3, "stage3_max_live_parameters": 5, "sub_group_size": 1)").runtime);
  EXPECT_EQ(zero(R"("stage": 2, "offload_param": {"device": "cpu"})").runtime, zero(R"("stage": 2)").runtime);
}

TEST(TrainingTasks, ValuesThatMeanNothingAreRefused) {
  const std::string trains = "output_dir: o\nper_device_train_batch_size: 2\n";
  EXPECT_TRUE(has(problem_of("job.yaml", trains + "fsdp: 5\n"), "fsdp = 5\n  hint: takes true or a text"));
  EXPECT_TRUE(has(problem_of("job.yaml", trains + "deepspeed: 5\n"), "deepspeed = 5\n  hint: takes a file's name"));
  EXPECT_TRUE(has(problem_of("job.yaml", trains + "deepspeed: []\n"), "hint: takes a file's name or a table"));
  EXPECT_TRUE(has(problem_of("job.yaml", trains + "torch_dtype: float8\n"), "is no type that a model is loaded in"));
  const auto titan = [](const std::string& more) {
    return problem_of("job.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 1024\n" + more);
  };
  EXPECT_TRUE(has(titan("mixed_precision_param = \"fp4\"\n"), "are types that torchtitan knows"));
  EXPECT_TRUE(
      has(titan("[parallelism]\ndata_parallel_shard_degree = -2\n"), "torchtitan stops: 1 and more are degrees"));
  EXPECT_TRUE(has(titan("[parallelism]\ndata_parallel_replicate_degree = -1\n"), "torchtitan stops: 1 and more"));
  EXPECT_TRUE(has(titan("[parallelism]\npipeline_parallel_schedule = \"Banana\"\n"), "is no schedule of PyTorch's"));
  EXPECT_TRUE(has(titan("[parallelism]\npipeline_parallel_microbatch_size = 0\n"), "is no number of sequences"));
}

}  // namespace
}  // namespace tidemark::tests::training_tasks_test
