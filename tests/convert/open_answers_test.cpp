#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/convert/shell/shell_read.hpp"
#include "scenarios/formats/input_error.hpp"
#include "tests/convert/recipes.hpp"

// What launch files ask for and is not modelled: no error, and no other job's answer.

namespace tidemark::tests::open_answers_test {
namespace {

// "open: …" where nothing is wrong and nobody can say, "wrong: …" of an error, else "answered".
std::string became(const ConvertRequest& requested) {
  try {
    (void)scenario_of(convert(requested), shipped_data());
    return "answered";
  } catch (const InputError& error) {
    return (error.leaves_open() ? "open: " : "wrong: ") + error.problems().front().message;
  }
}
std::string became(const std::string& file, const std::string& text) { return became(requested_of(file, text)); }
bool begins(const std::string& text, const std::string& with) { return text.starts_with(with); }

TEST(OpenAnswers, ToolsThatAreNotModelledAreNoErrors) {
  for (const auto& [tool, text] : std::map<std::string, std::string>{
           {"verl", "actor_rollout_ref: {model: {path: a/b}}\n"},
           {"open-instruct", "dataset_mixer_list: [a/b, 1.0]\n"},
           {"mistral-finetune",
            "data: {data: ''}\nmodel_id_or_path: ''\nlora: {rank: 64}\nseq_len: 32768\n"
            "batch_size: 1\nckpt_freq: 100\nrun_dir: ''\n"},
           {"ArcticTraining", "type: causal\nmicro_batch_size: 1\nmodel: {name_or_path: a/b}\n"}})
    EXPECT_EQ(became("job.yaml", text), "open: is a configuration of " + tool + ", which is not modelled");
  EXPECT_EQ(became("job.sh", "python3 -m verl.trainer.main_ppo data.train_batch_size=8\n"),
            "open: \"verl.trainer.main_ppo\" is of verl, which is not modelled");
  EXPECT_EQ(became("job.sh", "deepspeed --module openrlhf.cli.train_ppo_ray --train.batch_size 256\n"),
            "open: \"openrlhf.cli.train_ppo_ray\" is of OpenRLHF, which is not modelled");
  EXPECT_EQ(became("job.sh", "torchrun --nproc-per-node 8 train.py --depth 20\n"),
            "open: \"train.py\" has no argument of a framework that is known here");
  // What is wrong stays so, and with --strict nothing is left open.
  EXPECT_TRUE(begins(became("job.sh", "echo hello\n"), "wrong: starts no training"));
  ConvertRequest strict = requested_of("job.yaml", "actor_rollout_ref: {model: {path: a/b}}\n");
  strict.strict = true;
  EXPECT_EQ(became(strict), "wrong: is a configuration of verl, which is not modelled");
}

TEST(OpenAnswers, TasksAndModelsThatAreNotModelledAreNamedBeforeWhatIsMissing) {
  EXPECT_TRUE(begins(became("job.yaml", "base_model: a/b\nsequence_len: 512\nrl: grpo\n"), "open: rl = \"grpo\""));
  EXPECT_TRUE(begins(became("job.sh",
                            "ray job submit -- python3 train.py --actor-num-nodes 1 --rollout-batch-size 32 "
                            "--tensor-model-parallel-size 2\n"),
                     "open: --rollout-batch-size"));
  for (const std::string key : {"bert_binary_head: true", "encoder: {num_layers: 12}", "unet_config: {in_channels: 4}"})
    EXPECT_TRUE(
        begins(became("job.yaml", "trainer: {devices: 8}\nmodel: {num_layers: 12, hidden_size: 768, " + key + "}\n"),
               "open: model."))
        << key;
  const auto with_part = [](const std::string& place) {
    return became("job.yaml", "defaults:\n- optional parts@model." + place +
                                  ": some\ntrainer: {devices: 8}\nmodel: {num_layers: 12, hidden_size: 768}\n");
  };
  EXPECT_TRUE(begins(with_part("encoder"), "open: optional parts@model.encoder"));
  EXPECT_EQ(with_part("ub_tp_comm_overlap_cfg").find("@model"), std::string::npos);
  // A name that is nearly a known one is asked about first.
  EXPECT_TRUE(begins(became("job.sh",
                            "torchrun --nproc-per-node 8 pretrain_bert.py --num-layers 2 --hidden-size 64 "
                            "--num-attention-heads 2 --micro-batch-siez 1\n"),
                     "wrong: "));
}

const std::string small =
    " --num-layers 4 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024"
    " --max-position-embeddings 1024 --micro-batch-size 1 --vocab-size 50257 --bf16";

const Remark* remark_of(const Converted& converted, std::string_view what) {
  const auto found =
      std::ranges::find_if(converted.remarks, [&](const Remark& its) { return its.what.starts_with(what); });
  return found == converted.remarks.end() ? nullptr : &*found;
}

TEST(OpenAnswers, LayersThatStagesDoNotShareOutEvenlyAreNotJudged) {
  const Converted converted =
      convert(requested_of("job.sh",
                           "torchrun --nproc-per-node 4 pretrain_gpt.py --pipeline-model-parallel-size 4 "
                           "--global-batch-size 8 --num-layers 27" +
                               small.substr(small.find(" --hidden"))));
  Draft draft;
  draft.document = converted.document;
  EXPECT_EQ(draft.integer("layout.last_stage_layers"), 6);
  EXPECT_NO_THROW((void)scenario_of(converted, shipped_data()));
  const Remark* const said = remark_of(converted, "num-layers = 27");
  ASSERT_NE(said, nullptr);
  EXPECT_EQ(said->kind, RemarkKind::NotJudged);
}

TEST(OpenAnswers, ALayoutThatSaysNoDevicesIsShownOnTheLeastThatItFills) {
  const std::string script =
      "$LAUNCH pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 "
      "--global-batch-size 8" +
      small;
  ConvertRequest requested = requested_of("job.args", script.substr(script.find("--tensor")));
  const Converted converted = convert(requested);
  const Remark* const said = remark_of(converted, "gpus");
  ASSERT_NE(said, nullptr);
  EXPECT_EQ(said->kind, RemarkKind::Assumed);
  EXPECT_EQ(scenario_of(converted, shipped_data()).gpus, 8);
  requested.gpus = 16;
  EXPECT_EQ(remark_of(convert(requested), "gpus"), nullptr);
}

TEST(OpenAnswers, ModelsThatReadImagesOrAreOfNoKnownFamilyAreNotModelled) {
  const auto of = [](const std::string& model) {
    return became("job.yaml", "model_name_or_path: " + model + "\nper_device_train_batch_size: 1\noutput_dir: o\n");
  };
  EXPECT_TRUE(begins(of("Qwen/Qwen2.5-Omni-7B"), "open: model_name_or_path"));
  EXPECT_TRUE(begins(of("tiiuae/falcon-7b"), "open: model_name_or_path"));
  EXPECT_TRUE(begins(of("nobody/no-such-model"), "open: model_name_or_path")) << "nothing is wrong with it";
  EXPECT_TRUE(begins(of("Qwen/Qwen2.5-7b-Instrukt"), "wrong: model_name_or_path")) << "one slip from a name";
  EXPECT_TRUE(begins(of("./no-such-folder"), "wrong: model_name_or_path"));
}

TEST(OpenAnswers, AScriptThatChecksWhatIsFilledInIsReadOn) {
  const std::string check = "IMAGE=\"\"\nif [ -z \"$IMAGE\" ]; then echo no image; exit 1; fi\n";
  const Converted converted =
      convert(requested_of("job.sh", check + "torchrun --nproc-per-node 8 pretrain_gpt.py" + small));
  const Remark* const said = remark_of(converted, "exit");
  ASSERT_NE(said, nullptr);
  EXPECT_EQ(said->place.line, 2);
  EXPECT_EQ(scenario_of(converted, shipped_data()).train.sequence_length, 1024);
}

TEST(OpenAnswers, WhatIsPrintedBeforeItIsStartedIsNoSecondTraining) {
  const std::string script = "cmd=\"torchrun --nproc-per-node 8 pretrain_gpt.py" + small + "\"\necho \"$cmd &> log\"\n";
  EXPECT_EQ(became("job.sh", script + "eval $cmd --swiglu 2>&1 | tee log\n").substr(0, 8), "answered");
}

TEST(OpenAnswers, AllDevicesOfANodeAreThoseOfTheCluster) {
  const auto gpus = [](const std::string& script) {
    return scenario_of(convert(requested_of("job.sh", script + small)), shipped_data()).gpus;
  };
  EXPECT_EQ(gpus("torchrun --nproc-per-node gpu pretrain_gpt.py"), 8);
  EXPECT_EQ(gpus("N=$(nvidia-smi -L | wc -l)\ntorchrun --nproc-per-node=$N --nnodes=2 pretrain_gpt.py"), 16);
  EXPECT_EQ(gpus("torchrun --nproc_per_node ${N:-$(python -c 'import torch; print(torch.cuda.device_count())')} "
                 "pretrain_gpt.py"),
            8);
  EXPECT_EQ(gpus("export CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc-per-node gpu pretrain_gpt.py"), 2);
}

TEST(OpenAnswers, ABatchThatGrowsByStepsIsOfItsLastSize) {
  const Converted converted = convert(requested_of(
      "job.sh",
      "torchrun --nproc-per-node 8 pretrain_gpt.py --step-batch-size-schedule 0:16 2.4B:320 4.8B:624" + small));
  EXPECT_EQ(scenario_of(converted, shipped_data()).train.global_batch, 624);
}

TEST(OpenAnswers, GroupsOfQueriesCountWhereTheyAreAskedFor) {
  const std::string all = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-query-groups 2" + small;
  EXPECT_EQ(scenario_of(convert(requested_of("job.sh", all)), shipped_data()).model.kv_heads, 8);
}

using Texts = std::vector<std::string>;
std::string read_into(const Texts& words, std::string_view input, std::optional<std::string> separators = {}) {
  const auto made = read_by(words, input, separators);
  if (!made) return "not followed";
  std::string text;
  for (const ShellRead& one : *made) {
    text += one.name + (one.array ? "=(" : "=");
    for (std::size_t i = 0; i < one.values.size(); ++i) text += (i > 0 ? "|" : "") + one.values[i];
    text += one.array ? ") " : " ";
  }
  return text;
}

TEST(ShellRead, TakesALineOrAllOfItApart) {
  EXPECT_EQ(read_into({"read", "-r", "A", "B"}, "1 2 3\n4\n"), "A=1 B=2 3 ");
  EXPECT_EQ(read_into({"read", "-r", "A", "B", "C"}, "1,4,8,1\n", ","), "A=1 B=4 C=8,1 ");
  EXPECT_EQ(read_into({"read", "-r", "A", "B", "C"}, "1,,\n", ","), "A=1 B= C= ");
  EXPECT_EQ(read_into({"read", "-ra", "A"}, "a b  c\n"), "A=(a|b|c) ");
  EXPECT_EQ(read_into({"read", "-r", "-d", "", "A"}, " x\n y\n"), "A=x\n y ");
  EXPECT_EQ(read_into({"read", "A"}, "a\\b\n"), "not followed");
  EXPECT_EQ(read_into({"read", "-n", "1", "A"}, "abc\n"), "not followed");
}

}  // namespace
}  // namespace tidemark::tests::open_answers_test
