#include <map>
#include <string>

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

TEST(TrainingTasks, OthersThanSupervisedFineTuningAreNamed) {
  for (const auto& [program, task] : std::map<std::string, std::string>{{"trl/scripts/dpo.py", "DPO"},
                                                                        {"trl/scripts/grpo.py", "GRPO"},
                                                                        {"trl/scripts/kto.py", "KTO"},
                                                                        {"examples/scripts/orpo.py", "ORPO"},
                                                                        {"trl/scripts/reward.py", "a reward model"},
                                                                        {"trl/scripts/rloo.py", "RLOO"},
                                                                        {"scripts/run_dpo.py", "DPO"},
                                                                        {"-m trl.scripts.grpo", "GRPO"}})
    EXPECT_TRUE(has(problem_of("job.sh", script(program, "--loss_type nll")),
                    "trains by " + task + ", a task that is not modelled: supervised fine-tuning is"))
        << program;
  EXPECT_EQ(problem_of("job.sh", script("trl/scripts/sft.py", "--loss_type nll")), "no problem");
  EXPECT_EQ(problem_of("job.sh", script("finetune_norm.py")), "no problem");
}

TEST(TrainingTasks, DefaultsOfTrlThatDependOnItsReleaseAreAskedFor) {
  const std::string launch =
      "accelerate launch --num_processes 1 trl/scripts/sft.py --output_dir out "
      "--per_device_train_batch_size 1 ";
  const std::string problem = problem_of("job.sh", launch);
  for (const char* key : {"loss_type", "gradient_checkpointing", "bf16"})
    EXPECT_TRUE(has(problem, std::string(key) + "\n  hint: is not said, and TRL's default depends on its release"))
        << key << "\n"
        << problem;
  // Releases that have the key are known.
  const Converted reported = convert(requested_of("job.sh", launch + "--loss_type nll"));
  const Scenario recent = scenario_of(reported, shipped_data());
  EXPECT_EQ(recent.train.recompute.kind, Recompute::Full);
  EXPECT_EQ(recent.train.precision, DType::BF16);
  EXPECT_TRUE(std::ranges::any_of(reported.remarks, [](const Remark& remark) {
    return remark.kind == RemarkKind::Assumed && remark.what == "gradient_checkpointing";
  }));
  EXPECT_TRUE(has(problem_of("job.sh", launch + "--loss_type chunked_nll"), "a loss that is not modelled: nll is"));
  EXPECT_TRUE(has(problem_of("job.yaml", "use_peft: true\noutput_dir: o\nbf16: true\ngradient_checkpointing: true\n"),
                  "loss_type"));
}

TEST(TrainingTasks, AutomaticBf16IsBf16) {
  const Converted reported =
      convert(requested_of("job.yaml", "output_dir: o\nper_device_train_batch_size: 1\nbf16: auto\n"));
  EXPECT_EQ(scenario_of(reported, shipped_data()).train.precision, DType::BF16);
  EXPECT_TRUE(std::ranges::any_of(reported.remarks, [](const Remark& remark) {
    return remark.kind == RemarkKind::Assumed && remark.why == "true, as on devices of Ampere and later";
  }));
}

TEST(TrainingTasks, EvaluationIsSaidNotToBeModelled) {
  const std::string trains = "output_dir: o\nbf16: true\nper_device_train_batch_size: 2\n";
  EXPECT_EQ(
      problem_of("job.yaml", trains + "eval_strategy: steps\nper_device_eval_batch_size: 16\n"),
      "per_device_eval_batch_size = 16\n"
      "  hint: evaluation is not modelled, and with 16 sequences at once its logits may be more than those of 2 that "
      "are trained: 2 or fewer, or an eval_strategy of \"no\", would do");
  EXPECT_TRUE(has(problem_of("job.yaml", trains + "eval_strategy: epoch\n"), "with 8 sequences at once"));
  EXPECT_EQ(problem_of("job.yaml", trains + "eval_strategy: \"no\"\nper_device_eval_batch_size: 16\n"), "no problem");
  const Converted reported =
      convert(requested_of("job.yaml", trains + "eval_strategy: steps\nper_device_eval_batch_size: 2\n"));
  EXPECT_FALSE(reported.lossy());
  EXPECT_TRUE(std::ranges::any_of(reported.remarks, [](const Remark& remark) {
    return remark.kind == RemarkKind::Assumed && has(remark.why, "evaluation is not modelled");
  }));
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
