// The program itself: what it prints where, and what it returns.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tests/scenarios/cli/cli_fixture.hpp"

namespace tidemark::tests::cli_test {
namespace {

using nlohmann::json;

using Cli = CliTest;

TEST_F(Cli, PredictAnswersYesWithZero) {
  const CliRun r = run("predict " + scenario());
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(r.out.starts_with("yes, it fits")) << r.out;
  EXPECT_EQ(r.err, "");
}

TEST_F(Cli, PredictAnswersNoWithOne) {
  const CliRun r = run("predict " + scenario("headroom = \"1 GiB\"", "headroom = \"79 GiB\""));
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(r.out.starts_with("no, it does not fit")) << r.out;
}

TEST_F(Cli, WhatIsAskedOfTheWrongVerbIsSentToTheRightOne) {
  const std::string job = scenario(), message = job + ".log";
  std::ofstream(message) << "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
  const CliRun of_message = run("predict " + message);
  EXPECT_EQ(of_message.code, 2);
  EXPECT_NE(of_message.err.find("tidemark compare JOB FILE"), std::string::npos) << of_message.err;
  const CliRun of_two = run("compare " + job + " " + job);
  EXPECT_EQ(of_two.code, 2);
  EXPECT_NE(of_two.err.find("tidemark report"), std::string::npos) << of_two.err;
}

// States of 18 bytes a parameter on each device: a shorter sequence would not help.
TEST_F(Cli, WhatHelpsIsWhatCouldMakeItFit) {
  const CliRun r = run("predict --model llama-3.1-8b --cluster h100-sxm-80g --gpus 8 --sequence 512");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("more tensor or pipeline ranks"), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("a shorter sequence_length"), std::string::npos) << r.out;
}

TEST_F(Cli, BadInputIsTwoAndSaysWhere) {
  const std::string path = scenario("tensor = 2", "tensor = 3");
  const CliRun r = run("predict " + path);
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_NE(r.err.find(path + ":"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("error: "), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("hint: "), std::string::npos) << r.err;
}

TEST_F(Cli, NamesInALaunchFileThatNobodyJudgedLeaveNoVerdictUntilTheyAreIgnored) {
  std::string text = content(std::string(TIDEMARK_SOURCE_DIR) + "/tests/convert/recipes/llama3-8b-fragment.sh");
  text.insert(text.find("--bf16"), "--flag-of-my-fork 3 ");
  const std::string script = (folder_ / "train.sh").string(), command = "predict " + script + " --cluster h100-sxm-80g";
  std::ofstream(script) << text;
  const CliRun unsure = run(command), sure = run(command + " --ignore flag-of-my-fork"),
               strict = run(command + " --strict");
  EXPECT_EQ(unsure.code, 4);
  EXPECT_TRUE(unsure.out.starts_with("cannot say")) << unsure.out;
  EXPECT_NE(unsure.out.find("--flag-of-my-fork = 3"), std::string::npos) << unsure.out;
  EXPECT_EQ(sure.code, 0);
  EXPECT_TRUE(sure.out.starts_with("yes, it fits")) << sure.out;
  EXPECT_EQ(strict.code, 2);
  EXPECT_NE(strict.err.find("--flag-of-my-fork = 3"), std::string::npos) << strict.err;
  const CliRun json = run(command + " --json -");
  EXPECT_EQ(json.code, 4);
  EXPECT_NE(json.out.find("\"not_judged\""), std::string::npos) << json.out;
}

TEST_F(Cli, WhatIsBoundedStandsInTheUpperEndsAndLeavesYes) {
  std::string text = content(std::string(TIDEMARK_SOURCE_DIR) + "/tests/convert/recipes/llama3-8b-fragment.sh");
  const std::string script = (folder_ / "train.sh").string(), command = "predict " + script + " --cluster h100-sxm-80g";
  std::ofstream(script) << text;
  const json without = json::parse(run(command + " --json -").out);
  text.insert(text.find("--bf16"), "--use-z-loss ");
  std::ofstream(script) << text;
  const CliRun r = run(command + " --json -");
  EXPECT_EQ(r.code, 0) << r.err;
  const json with = json::parse(r.out);
  ASSERT_EQ(with["bounds"].size(), 1U);
  EXPECT_EQ(with["bounds"][0]["what"], "--use-z-loss");
  EXPECT_EQ(with["groups"][0]["required_device_upper_bytes"].get<std::int64_t>(),
            without["groups"][0]["required_device_upper_bytes"].get<std::int64_t>() +
                with["bounds"][0]["upper_bytes"].get<std::int64_t>());
  EXPECT_NE(r.err.find("--use-z-loss: not simulated, up to "), std::string::npos) << r.err;
  EXPECT_NE(run(command + " --print-scenario").out.find("# not simulated, and up to "), std::string::npos);
}

TEST_F(Cli, CapacityAndValidateTakeLaunchFilesAndKeysBesideThem) {
  const std::string script = (folder_ / "train.sh").string();
  std::ofstream(script) << "torchrun --nproc-per-node 1 pretrain_gpt.py --num-layers 2 --hidden-size 256 "
                           "--num-attention-heads 4 --seq-length 512 --max-position-embeddings 512 --vocab-size 50257 "
                           "--micro-batch-size 1 --global-batch-size 2 --bf16\n";
  const CliRun limit = run("capacity " + script + " --cluster h100-sxm-80g --largest train.micro_batch=1,2 --json -");
  EXPECT_EQ(limit.code, 0) << limit.err;
  EXPECT_NE(limit.out.find("train.micro_batch"), std::string::npos) << limit.out;
  EXPECT_EQ(run("capacity " + script + " --cluster h100-sxm-80g --largest layout.order").code, 2);
  EXPECT_EQ(run("capacity " + scenario() + " --largest train.micro_batch=1,2 layout.tensor=1").code, 0);
  const CliRun real =
      run("validate " + script + " --cluster h100-sxm-80g train.sequence_length=256 --scale 1000 --no-math");
  EXPECT_EQ(real.code, 0) << real.err;
  EXPECT_EQ(run("validate " + script + " --cluster h100-sxm-80g train.sequence_lenth=256").code, 2);
}

TEST_F(Cli, CaptureWritesDownWhatAScriptWouldStartAndStartsNothing) {
  const std::string script = (folder_ / "train.sh").string(), started = (folder_ / "started.sh").string();
  std::ofstream(script)
      << "export NCCL_DEBUG=INFO 'WORDS=two words'\n"
         "ARGS=()\nfor w in --num-layers 2 --hidden-size 256 --num-attention-heads 4; do ARGS+=($w); done\n"
         "cd /\n"
         "torchrun --nproc-per-node $(expr 4 + 4) pretrain_gpt.py \"${ARGS[@]}\" --seq-length 512 "
         "--max-position-embeddings 512 --vocab-size 50257 --micro-batch-size 1 --bf16 || exit 3\n"
         "touch " +
             (folder_ / "behind").string() + "\n";
  const CliRun r = run("capture -o " + started + " -- bash " + script);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("absolute path"), std::string::npos) << r.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "behind")) << "a stand-in has no failure";
  const std::string text = content(started);
  EXPECT_NE(text.find("export NCCL_DEBUG=INFO\n"), std::string::npos) << text;
  EXPECT_NE(text.find("export WORDS='two words'\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# in /\n"), std::string::npos) << text;
  EXPECT_NE(text.find("torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 256"),
            std::string::npos)
      << text;
  EXPECT_EQ(run("predict " + started + " --cluster h100-sxm-80g").code, 0);
  const CliRun none = run("capture -- bash -c true");
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(run("capture -- no-such-program-anywhere").code, 2);
  EXPECT_EQ(run("capture").code, 2);
}

TEST_F(Cli, AFileThatIsNotThereIsTwo) {
  const CliRun r = run("predict " + (folder_ / "nowhere.toml").string());
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("nowhere.toml"), std::string::npos) << r.err;
  EXPECT_EQ(run("predict " + folder_.string()).code, 2);  // a folder is no scenario
}

TEST_F(Cli, WrongUsageIsTwo) {
  for (const std::string arguments :
       {"", "foretell x.toml", "predict", "predict --colour blue x.toml", "explain --show everything x.toml"}) {
    const CliRun r = run(arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_EQ(r.out, "") << arguments;
    EXPECT_NE(r.err, "") << arguments;
  }
  EXPECT_EQ(run("explain --rank one " + scenario()).code, 2);
  EXPECT_EQ(
      run("foretell").err,
      "tidemark: error: there is no command \"foretell\"\n  hint: predict, explain, compare, validate, calibrate, "
      "replay, plan, advise, capacity, estimate, report, dry-run, capture, convert, serve, list or completion; "
      "tidemark --help describes each\n");
}

// A snapshot of one small segment with one block.
TEST_F(Cli, ReplayAnswersYesWithZeroAndNoWithOne) {
  const std::string snapshot = std::string(TIDEMARK_SOURCE_DIR) + "/tests/fuzz/corpus/pickle/snapshot-protocol4.pickle";
  const CliRun r = run("replay " + snapshot);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out.substr(0, 40), "yes: 3 events of device 0 replay exactly");
  const CliRun fits = run("replay " + snapshot + " --alloc-conf expandable_segments:True --capacity '2 MiB' --json -");
  EXPECT_EQ(fits.code, 0) << fits.err;
  EXPECT_TRUE(nlohmann::json::parse(fits.out)["what_if"]["fits"]);
  EXPECT_EQ(run("replay " + snapshot + " --capacity '1 MiB'").code, 1);
  EXPECT_EQ(run("replay " + snapshot + " --capacity '2 MiB' --memory-fraction 0.5").code, 1);
}

TEST_F(Cli, ReplayRefusesWhatMakesNoSense) {
  const std::string corpus = std::string(TIDEMARK_SOURCE_DIR) + "/tests/fuzz/corpus/pickle/";
  const std::string snapshot = corpus + "snapshot-protocol4.pickle";
  EXPECT_EQ(run("replay " + corpus + "refused-reduce.pickle").code, 2);
  const CliRun conf = run("replay " + snapshot + " --alloc-conf max_split_size_mb:1");
  EXPECT_EQ(conf.code, 2);
  EXPECT_NE(conf.err.find("--alloc-conf:1:19: error: CachingAllocator option max_split_size_mb too small"),
            std::string::npos)
      << conf.err;
  EXPECT_EQ(run("replay " + snapshot + " --memory-fraction 0.5").code, 2) << "of what?";
  EXPECT_EQ(run("replay " + snapshot + " --memory-fraction 2 --capacity '1 GiB'").code, 2);
  EXPECT_EQ(run("replay " + snapshot + " --capacity lots").code, 2);
  EXPECT_EQ(run("replay " + snapshot + " --device 4").code, 2);
  EXPECT_EQ(run("replay " + corpus + "segments-only.pickle").code, 2) << "nothing was recorded";
}

TEST_F(Cli, HelpAndVersionAreAnswers) {
  for (const std::string arguments : {"--help", "predict --help", "explain --help", "--version"}) {
    const CliRun r = run(arguments);
    EXPECT_EQ(r.code, 0) << arguments;
    EXPECT_NE(r.out, "") << arguments;
  }
  EXPECT_NE(run("--help").out.find("predict"), std::string::npos);
}

TEST_F(Cli, JsonToADashMovesTheTextAside) {
  const CliRun r = run("predict --json - " + scenario());
  EXPECT_EQ(r.code, 0);
  const json j = json::parse(r.out);
  EXPECT_EQ(j["schema"], "tidemark.prediction/1");
  EXPECT_EQ(j["fits"], true);
  EXPECT_TRUE(r.err.starts_with("yes, it fits")) << r.err;
}

TEST_F(Cli, JsonToAFileComesBesideTheText) {
  const std::string path = (folder_ / "answer.json").string();
  const CliRun r = run("predict " + scenario() + " --json " + path);
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.out, run("predict " + scenario()).out);
  EXPECT_EQ(json::parse(content(path)), json::parse(run("predict --json - " + scenario()).out));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST_F(Cli, JsonThatCannotBeWrittenIsTwo) {
  const CliRun r = run("predict " + scenario() + " --json " + (folder_ / "no" / "such" / "folder.json").string());
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("cannot be written"), std::string::npos) << r.err;
}

TEST_F(Cli, NoIsOneWithJsonToo) {
  const CliRun r = run("predict --json - " + scenario("headroom = \"1 GiB\"", "headroom = \"79 GiB\""));
  EXPECT_EQ(r.code, 1);
  EXPECT_EQ(json::parse(r.out)["fits"], false);
}

TEST_F(Cli, ASearchIsNoJob) {
  const CliRun r = run("predict " + scenario("[train]", "[space.layout]\ntensor = [1, 2]\n[train]"));
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find(":10:1: error: [space] is for searches, and this command reads one job\n"
                       "  hint: tidemark plan searches it; leave it out to read the job at its start"),
            std::string::npos)
      << r.err;
  EXPECT_EQ(r.err.find("unknown key"), std::string::npos) << r.err;
}

TEST_F(Cli, AnAnswerIsShortAndTheRestComesOnDemand) {
  const CliRun brief = run("predict " + scenario()), whole = run("predict -v " + scenario());
  EXPECT_LE(std::count(brief.out.begin(), brief.out.end(), '\n'), 17) << brief.out;
  EXPECT_EQ(brief.out.substr(0, brief.out.find("\na step takes")),
            whole.out.substr(0, brief.out.find("\na step takes")));
  EXPECT_NE(brief.out.find("bf16 with gradients in fp32, no recomputation\n"), std::string::npos) << brief.out;
  EXPECT_NE(brief.out.find("\nnext: tidemark explain " + (folder_ / "scenario.toml").string() + "\n"),
            std::string::npos);
  for (const char* part : {"\nmade of\n", "\nassumed\n", "\nnot modelled\n"}) {
    EXPECT_EQ(brief.out.find(part), std::string::npos) << part;
    EXPECT_NE(whole.out.find(part), std::string::npos) << part;
  }
  EXPECT_NE(run("predict " + scenario("\"1 GiB\"", "\"79 GiB\"")).out.find("\nnext: tidemark advise "),
            std::string::npos);
}

TEST_F(Cli, TheLargestValueOfAKeyFitsAndTheNextDoesNot) {
  const std::string question = "predict " + scenario() + " train.global_batch=4096 ",
                    file = (folder_ / "found.json").string();
  const CliRun r = run(question + "--largest mbs --json " + file);
  EXPECT_EQ(r.code, 0) << r.err;
  const json found = json::parse(content(file));
  EXPECT_EQ(found["largest"]["key"], "train.micro_batch");
  const auto value = found["largest"]["value"].get<int>(), next = found["largest"]["next"].get<int>();
  EXPECT_EQ(found["scenario"]["train"]["micro_batch"], value);
  EXPECT_TRUE(r.out.starts_with("the largest train.micro_batch that fits is " + std::to_string(value) + "; ")) << r.out;
  EXPECT_NE(r.out.find("the next, " + std::to_string(next)), std::string::npos) << r.out;
  EXPECT_EQ(run(question + "train.micro_batch=" + std::to_string(value)).code, 0);
  EXPECT_NE(run(question + "train.micro_batch=" + std::to_string(next)).code, 0);
}

// torchtune's tokenizers cut rows where max_seq_len says so, and else not.
TEST_F(Cli, ALaunchFileThatLeavesLengthsToItsDataIsAnsweredUpToALength) {
  const auto file = [&](const std::string& model, const std::string& rows) {
    const std::filesystem::path path = folder_ / (model + "_full_single_device.yaml");
    std::ofstream(path)
        << "output_dir: /tmp/out\ndevice: cuda\ndtype: bf16\nenable_activation_checkpointing: True\ncompile: False\n"
           "dataset:\n  _component_: torchtune.datasets.alpaca_cleaned_dataset\n  packed: False\n"
           "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n  output_dir: ${output_dir}\n"
           "loss:\n  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\n"
           "optimizer:\n  _component_: torch.optim.AdamW\n  fused: True\n  lr: 2e-5\n"
           "tokenizer:\n  max_seq_len: null\nmodel:\n  _component_: torchtune.models.qwen2_5.qwen2_5_" +
               model + "\ngradient_accumulation_steps: 1\nbatch_size: " + rows + "\n";
    return path.string();
  };
  const std::string cluster = " --cluster h100-sxm-80g -q", json_file = (folder_ / "lengths.json").string();
  const std::string job = "predict " + file("0_5b", "8") + cluster;
  const CliRun r = run(job + " --json " + json_file);
  EXPECT_EQ(r.code, 0) << r.err;
  const json found = json::parse(content(json_file));
  const auto value = found["largest"]["value"].get<int>(), next = found["largest"]["next"].get<int>();
  EXPECT_TRUE(r.out.starts_with("yes, it fits with rows of up to " + std::to_string(value) + " tokens")) << r.out;
  EXPECT_NE(r.out.find("tokenizer.max_seq_len is not said"), std::string::npos) << r.out;
  EXPECT_EQ(run(job + " --sequence " + std::to_string(value)).code, 0);
  EXPECT_NE(run(job + " --sequence " + std::to_string(next)).code, 0);
  // Fewer tokens than its figures would be of are not enough for a yes; what never fits is a no.
  const CliRun few = run("predict " + file("3b", "16") + cluster);
  EXPECT_EQ(few.code, 4) << few.out;
  EXPECT_TRUE(few.out.starts_with("cannot say whether it fits: it does with rows of up to ")) << few.out;
  const CliRun none = run("predict " + file("14b", "1") + cluster);
  EXPECT_EQ(none.code, 1) << none.out;
  EXPECT_TRUE(none.out.starts_with("no, it does not fit, not even with rows of 16 tokens\n")) << none.out;
}

TEST_F(Cli, ProblemsOfKeysBesideTheFileArePlacedAtThem) {
  const std::string job = scenario();
  for (const auto& [beside, line] : std::initializer_list<std::pair<std::string, std::string>>{
           {"layout.tensr=4", "layout.tensr=4: error: unknown key \"tensr\" in [layout]\n  hint: did you mean tensor?"},
           {"layout={tensr=4}", "layout={tensr=4}: error: unknown key \"tensr\" in [layout]"},
           {"tensor=4", "tensor=4: error: unknown key \"tensor\"\n  hint: did you mean layout.tensor?"}})
    for (const std::string verb : {"predict ", "plan ", "capacity --largest train.micro_batch "}) {
      const CliRun r = run(verb + job + " '" + beside + "'");
      EXPECT_EQ(r.code, 2) << verb << beside;
      EXPECT_NE(("\n" + r.err).find("\n" + line), std::string::npos) << verb << r.err;
    }
}

TEST_F(Cli, ValuesOfKeysBesideTheFileArePlacedAtThem) {
  const CliRun r = run("predict " + scenario() + " train.micro_batch=1 layout.tensor=3");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(r.err.starts_with("layout.tensor=3: error: tensor = 3 does not divide ")) << r.err;
}

TEST_F(Cli, KeysSetBesideALaunchFileAreInWhatItIsConvertedTo) {
  const std::string job = (folder_ / "job.sh").string();
  std::ofstream(job)
      << ("torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 "
          "--seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 1 "
          "--global-batch-size 16 --bf16\n");
  const CliRun plain = run("convert " + job + " --cluster h100-sxm-80g");
  const CliRun set = run("convert " + job + " layout.tensor=4 train.micro_batch=2 --cluster h100-sxm-80g");
  EXPECT_EQ(set.code, 0) << set.err;
  EXPECT_EQ(plain.out.find("tensor = 4"), std::string::npos);
  EXPECT_NE(set.out.find("tensor = 4"), std::string::npos) << set.out;
  EXPECT_NE(set.out.find("micro_batch = 2"), std::string::npos) << set.out;
  EXPECT_EQ(run("predict " + job + " layout.tensor=4 train.micro_batch=2 --cluster h100-sxm-80g --print-scenario").out,
            set.out)
      << "as predict takes them";
  const CliRun script = run("convert " + job + " layout.tensor=4 --to megatron --cluster h100-sxm-80g");
  EXPECT_NE(script.out.find("--tensor-model-parallel-size 4"), std::string::npos) << script.out;
  const CliRun wrong = run("convert " + job + " layout.tensor=3 --cluster h100-sxm-80g");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(wrong.err.starts_with("layout.tensor=3: error: tensor = 3 does not divide ")) << wrong.err;
  const CliRun slip = run("convert " + job + " layout.tensr=4 --cluster h100-sxm-80g");
  EXPECT_EQ(slip.code, 2);
  EXPECT_TRUE(slip.err.starts_with("layout.tensr=4: error: ")) << slip.err;
  const CliRun none = run("convert layout.tensor=4");
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("only keys to set"), std::string::npos) << none.err;
}

TEST_F(Cli, KeysSetBesideAreNoAxesOfASearch) {
  const std::string job = scenario();
  const CliRun of_default = run("plan " + job + " --show-space layout.tensor=2 train.recompute=full");
  EXPECT_EQ(of_default.code, 0) << of_default.err;
  EXPECT_NE(of_default.out.find("\n  layout.pipeline "), std::string::npos) << of_default.out;
  for (const std::string axis : {"\n  layout.tensor ", "\n  recompute "})
    EXPECT_EQ(of_default.out.find(axis), std::string::npos) << of_default.out;
  const CliRun without_file =
      run("plan layout.tensor=2 train.recompute=full --show-space --model llama-3.1-8b --cluster h100-sxm-80g --gpus 8 "
          "--sequence 4096 --global-batch 64");
  EXPECT_EQ(without_file.out.find("\n  layout.tensor "), std::string::npos) << without_file.out << without_file.err;
  EXPECT_EQ(without_file.code, 0);
  const CliRun of_file =
      run("plan " + scenario("[train]", "[space]\nlayout.tensor = [1, 2]\n[train]") + " layout.tensor=2");
  EXPECT_EQ(of_file.code, 2);
  EXPECT_EQ(of_file.err,
            "layout.tensor=2: error: the space searches layout.tensor, too\n  hint: leave one of them out\n");
}

TEST_F(Cli, ClustersAreToldByWhatTheRunCostsThere) {
  const std::string h100 = content(std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scenarios/clusters/h100-sxm-80g.toml");
  std::ofstream(folder_ / "dear.toml") << "price_per_gpu_hour = 9\n" << h100;
  std::ofstream(folder_ / "cheap.toml") << "price_per_gpu_hour = 2\n" << h100;
  const std::string file = (folder_ / "all.json").string();
  const CliRun r = run("predict " + scenario("[train]\nsequence_length = 4096", "[train]\nsequence_length = 32768") +
                       " run.tokens=1000000000 --json " + file + " --clusters h200-sxm-141g," +
                       (folder_ / "dear.toml").string() + ",rtx-3080-10g," + (folder_ / "cheap.toml").string());
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(r.out.starts_with("cheap fits it cheapest, of those with a price\n")) << r.out;
  const json all = json::parse(content(file))["clusters"];
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0]["cluster"], "cheap");
  EXPECT_EQ(all[1]["cluster"], "dear");
  EXPECT_NEAR(all[1]["dollars"]["value"].get<double>(), 4.5 * all[0]["dollars"]["value"].get<double>(), 1e-6);
  EXPECT_EQ(all[2]["cluster"], "h200-sxm-141g");
  EXPECT_TRUE(all[2]["dollars"].is_null());
  EXPECT_EQ(all[3]["verdict"], "does_not_fit");
}

TEST_F(Cli, OptionsAloneAreAJobAndTheFileThatTheyStandForIsTheSame) {
  const std::string options =
      "predict --model llama-3.1-8b --cluster h100-sxm-80g --gpus 8 --sequence 4096 --micro-batch 1 --global-batch 8 "
      "--tensor 2 --sequence-parallel --pipeline 2 --chunks 1 --sharding zero1 --precision fp16 --recompute full "
      "--headroom '1 GiB'";
  const CliRun reported = run(options + " --json -"), file = run(options + " --print-scenario");
  EXPECT_EQ(file.code, 0) << file.err;
  const std::string path = (folder_ / "job.toml").string();
  std::ofstream(path) << file.out;
  json from_options = json::parse(reported.out), from_file = json::parse(run("predict --json - " + path).out);
  EXPECT_EQ(from_options["scenario"]["layout"]["pipeline"], 2);
  EXPECT_EQ(from_options["scenario"]["train"]["precision"], "fp16");
  EXPECT_EQ(from_options["headroom_bytes"], 1 << 30);
  from_options["scenario"].erase("name");
  from_file["scenario"].erase("name");
  EXPECT_EQ(from_options, from_file);
  EXPECT_NE(run(options).out.find("--print-scenario > job.toml, then tidemark explain job.toml\n"), std::string::npos);
}

TEST_F(Cli, EveryQuestionAboutOneJobTakesOptionsAlone) {
  const std::string options =
      " --model gpt2 --cluster a100-sxm-40g --gpus 4 --sequence 1024 --tensor 2 train.micro_batch=2";
  const std::string path = (folder_ / "job.toml").string();
  std::ofstream(path) << run("predict" + options + " --print-scenario").out;
  EXPECT_EQ(run("explain" + options).out, run("explain " + path).out);
  const CliRun rules = run("estimate" + options), rules_of_file = run("estimate " + path);
  EXPECT_EQ(rules.code, rules_of_file.code) << rules.err;
  const auto table = [](const std::string& out) {  // without the job's name, and what is assumed
    const std::size_t from = std::min(out.find("rules of thumb"), out.size());
    return out.substr(from, out.find("\nwhy\n") - from);
  };
  EXPECT_FALSE(table(rules.out).empty());
  EXPECT_EQ(table(rules.out), table(rules_of_file.out));
  const CliRun advice = run("advise -q --changes 1 --free '39 GiB'" + options);
  EXPECT_NE(advice.out.find("as it is, gpt2 on 4 devices has "), std::string::npos) << advice.out << advice.err;
}

TEST_F(Cli, CapacityTakesAnExampleByItsName) {
  const CliRun r = run("capacity llama-3.1-8b-8xh100 -q --largest train.micro_batch=1,64");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(r.out.starts_with("yes: the largest train.micro_batch that fits")) << r.out;
}

TEST_F(Cli, SameInputGivesSameBytes) {
  const CliRun first = run("predict --json - " + scenario()), second = run("predict --json - " + scenario());
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(first.err, second.err);
  EXPECT_EQ(run("explain --show program " + scenario()).out, run("explain --show program " + scenario()).out);
}

TEST_F(Cli, ShippedFilesAreFoundFromAnywhere) {
  const std::string path = scenario("tensor = 2", "tensor = 4");
  EXPECT_EQ(run("predict " + path).code, 0);  // models/ and clusters/ are not beside it
}

}  // namespace
}  // namespace tidemark::tests::cli_test
