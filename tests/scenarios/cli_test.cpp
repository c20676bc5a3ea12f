// The program itself: what it prints where, and what it returns.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::cli_test {
namespace {

using nlohmann::json;

// Small, so that an answer takes no time; it fits.
constexpr std::string_view small_job = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 2
[layout]
tensor = 2
sequence_parallel = true
sharding = "zero1"
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 8
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "megatron"
headroom = "1 GiB"
)";

struct Ran {
  int code = -1;
  std::string out, err;
};

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("tidemark_cli_" + std::string(test.name()) + "_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  [[nodiscard]] Ran run(const std::string& arguments) const {
    const std::string out = (folder_ / "out").string(), err = (folder_ / "err").string();
    const int status = std::system(("'" TIDEMARK_BINARY "' " + arguments + " >'" + out + "' 2>'" + err + "'").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content(out), content(err)};
  }

  /// The path of the small job's file, a part of it replaced.
  [[nodiscard]] std::string scenario(const std::string& replace = "", const std::string& by = "") const {
    std::string text(small_job);
    const std::size_t at = text.find(replace);
    EXPECT_NE(at, std::string::npos) << replace;
    text.replace(at, replace.size(), by);
    const std::filesystem::path path = folder_ / "scenario.toml";
    std::ofstream(path) << text;
    return path.string();
  }

  std::filesystem::path folder_;
};

TEST_F(Cli, PredictAnswersYesWithZero) {
  const Ran r = run("predict " + scenario());
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(r.out.starts_with("yes, it fits")) << r.out;
  EXPECT_EQ(r.err, "");
}

TEST_F(Cli, PredictAnswersNoWithOne) {
  const Ran r = run("predict " + scenario("headroom = \"1 GiB\"", "headroom = \"79 GiB\""));
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(r.out.starts_with("no, it does not fit")) << r.out;
}

TEST_F(Cli, BadInputIsTwoAndSaysWhere) {
  const std::string path = scenario("tensor = 2", "tensor = 3");
  const Ran r = run("predict " + path);
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
  const Ran unsure = run(command), sure = run(command + " --ignore flag-of-my-fork"),
            strict = run(command + " --strict");
  EXPECT_EQ(unsure.code, 4);
  EXPECT_TRUE(unsure.out.starts_with("cannot say")) << unsure.out;
  EXPECT_NE(unsure.out.find("--flag-of-my-fork = 3"), std::string::npos) << unsure.out;
  EXPECT_EQ(sure.code, 0);
  EXPECT_TRUE(sure.out.starts_with("yes, it fits")) << sure.out;
  EXPECT_EQ(strict.code, 2);
  EXPECT_NE(strict.err.find("--flag-of-my-fork = 3"), std::string::npos) << strict.err;
  const Ran json = run(command + " --json -");
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
  const Ran r = run(command + " --json -");
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
  const Ran limit = run("capacity " + script + " --cluster h100-sxm-80g --largest train.micro_batch=1,2 --json -");
  EXPECT_EQ(limit.code, 0) << limit.err;
  EXPECT_NE(limit.out.find("train.micro_batch"), std::string::npos) << limit.out;
  EXPECT_EQ(run("capacity " + script + " --cluster h100-sxm-80g --largest layout.order").code, 2);
  EXPECT_EQ(run("capacity " + scenario() + " --largest train.micro_batch=1,2 layout.tensor=1").code, 0);
  const Ran real =
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
  const Ran r = run("capture -o " + started + " -- bash " + script);
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
  const Ran none = run("capture -- bash -c true");
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(run("capture -- no-such-program-anywhere").code, 2);
  EXPECT_EQ(run("capture").code, 2);
}

TEST_F(Cli, AFileThatIsNotThereIsTwo) {
  const Ran r = run("predict " + (folder_ / "nowhere.toml").string());
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("nowhere.toml"), std::string::npos) << r.err;
  EXPECT_EQ(run("predict " + folder_.string()).code, 2);  // a folder is no scenario
}

TEST_F(Cli, WrongUsageIsTwo) {
  for (const std::string arguments :
       {"", "foretell x.toml", "predict", "predict --colour blue x.toml", "explain --show everything x.toml"}) {
    const Ran r = run(arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_EQ(r.out, "") << arguments;
    EXPECT_NE(r.err, "") << arguments;
  }
  EXPECT_EQ(run("explain --rank one " + scenario()).code, 2);
  EXPECT_EQ(
      run("foretell").err,
      "tidemark: error: there is no question \"foretell\"\n  hint: predict, explain, compare, validate, calibrate, "
      "replay, plan, advise, capacity, estimate, report, dry-run, capture, convert, serve, list or completion; "
      "tidemark "
      "--help "
      "says what each answers\n");
}

// A snapshot of one small segment with one block.
TEST_F(Cli, ReplayAnswersYesWithZeroAndNoWithOne) {
  const std::string snapshot = std::string(TIDEMARK_SOURCE_DIR) + "/tests/fuzz/corpus/pickle/snapshot-protocol4.pickle";
  const Ran r = run("replay " + snapshot);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out.substr(0, 40), "yes: 3 events of device 0 replay exactly");
  const Ran fits = run("replay " + snapshot + " --alloc-conf expandable_segments:True --capacity '2 MiB' --json -");
  EXPECT_EQ(fits.code, 0) << fits.err;
  EXPECT_TRUE(nlohmann::json::parse(fits.out)["what_if"]["fits"]);
  EXPECT_EQ(run("replay " + snapshot + " --capacity '1 MiB'").code, 1);
  EXPECT_EQ(run("replay " + snapshot + " --capacity '2 MiB' --memory-fraction 0.5").code, 1);
}

TEST_F(Cli, ReplayRefusesWhatMakesNoSense) {
  const std::string corpus = std::string(TIDEMARK_SOURCE_DIR) + "/tests/fuzz/corpus/pickle/";
  const std::string snapshot = corpus + "snapshot-protocol4.pickle";
  EXPECT_EQ(run("replay " + corpus + "refused-reduce.pickle").code, 2);
  const Ran conf = run("replay " + snapshot + " --alloc-conf max_split_size_mb:1");
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
    const Ran r = run(arguments);
    EXPECT_EQ(r.code, 0) << arguments;
    EXPECT_NE(r.out, "") << arguments;
  }
  EXPECT_NE(run("--help").out.find("predict"), std::string::npos);
}

TEST_F(Cli, JsonToADashMovesTheTextAside) {
  const Ran r = run("predict --json - " + scenario());
  EXPECT_EQ(r.code, 0);
  const json j = json::parse(r.out);
  EXPECT_EQ(j["schema"], "tidemark.prediction/1");
  EXPECT_EQ(j["fits"], true);
  EXPECT_TRUE(r.err.starts_with("yes, it fits")) << r.err;
}

TEST_F(Cli, JsonToAFileComesBesideTheText) {
  const std::string path = (folder_ / "answer.json").string();
  const Ran r = run("predict " + scenario() + " --json " + path);
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.out, run("predict " + scenario()).out);
  EXPECT_EQ(json::parse(content(path)), json::parse(run("predict --json - " + scenario()).out));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST_F(Cli, JsonThatCannotBeWrittenIsTwo) {
  const Ran r = run("predict " + scenario() + " --json " + (folder_ / "no" / "such" / "folder.json").string());
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("cannot be written"), std::string::npos) << r.err;
}

TEST_F(Cli, NoIsOneWithJsonToo) {
  const Ran r = run("predict --json - " + scenario("headroom = \"1 GiB\"", "headroom = \"79 GiB\""));
  EXPECT_EQ(r.code, 1);
  EXPECT_EQ(json::parse(r.out)["fits"], false);
}

TEST_F(Cli, ExplainShowsTheLiveTensors) {
  const Ran r = run("explain " + scenario() + " --rank 5 --at allocated");
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(r.out.starts_with("rank 5: ")) << r.out;
  EXPECT_NE(r.out.find("layers.*.mlp.fc1.out"), std::string::npos);
  EXPECT_NE(run("explain --at allocated --all " + scenario()).out.find("layers.1.mlp.fc1.out"), std::string::npos);
  EXPECT_EQ(json::parse(run("explain --json - " + scenario()).out)["schema"], "tidemark.live/1");
}

TEST_F(Cli, ExplainShowsTheRankThatPredictNamesAndSaysWhyItsPeakIsThere) {
  const std::string job = scenario() + " ";
  const Ran brief = run("predict " + job);
  const std::size_t at = brief.out.find("peak on rank ") + std::string_view("peak on rank ").size();
  const std::string rank = brief.out.substr(at, brief.out.find(' ', at) - at);
  const Ran named = run("explain " + job + "--rank " + rank);
  EXPECT_EQ(run("explain " + job).out, named.out);
  EXPECT_TRUE(named.out.starts_with("rank " + rank + ": ")) << named.out;
  EXPECT_NE(named.out.find("\nwhy: "), std::string::npos) << named.out;
  EXPECT_EQ(run("explain --at end " + job).out.find("\nwhy: "), std::string::npos);
}

TEST_F(Cli, ExplainSaysThatAJobRunsOutAndWhatIsNoTensor) {
  const std::string fits = run("explain " + scenario()).out;
  EXPECT_NE(fits.find("\nthe device holds "), std::string::npos) << fits;
  EXPECT_NE(fits.find(" outside of it (context, NCCL)\n"), std::string::npos) << fits;
  EXPECT_EQ(fits.find("runs out"), std::string::npos) << fits;
  const std::string large = run("explain " + scenario("num_hidden_layers = 2", "num_hidden_layers = 64")).out;
  EXPECT_NE(large.find("\nit has 79.1"), std::string::npos) << large;
  EXPECT_NE(large.find(": the job runs out before, and this is what it would come to\n"), std::string::npos) << large;
  // Other moments are of tensors alone.
  EXPECT_EQ(run("explain --at end " + scenario()).out.find("the device holds"), std::string::npos);
}

TEST_F(Cli, ASearchIsNoJob) {
  const Ran r = run("predict " + scenario("[train]", "[space.layout]\ntensor = [1, 2]\n[train]"));
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find(":10:1: error: space is of searches, and this reads one job\n"
                       "  hint: tidemark plan searches it; leave it out to look at the job that it starts from"),
            std::string::npos)
      << r.err;
  EXPECT_EQ(r.err.find("unknown key"), std::string::npos) << r.err;
}

TEST_F(Cli, AnAnswerIsShortAndTheRestComesOnDemand) {
  const Ran brief = run("predict " + scenario()), whole = run("predict -v " + scenario());
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
  const Ran r = run(question + "--largest mbs --json " + file);
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

TEST_F(Cli, ClustersAreToldByWhatTheRunCostsThere) {
  const std::string h100 = content(std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scenarios/clusters/h100-sxm-80g.toml");
  std::ofstream(folder_ / "dear.toml") << "price_per_gpu_hour = 9\n" << h100;
  std::ofstream(folder_ / "cheap.toml") << "price_per_gpu_hour = 2\n" << h100;
  const std::string file = (folder_ / "all.json").string();
  const Ran r = run("predict " + scenario("[train]\nsequence_length = 4096", "[train]\nsequence_length = 32768") +
                    " run.tokens=1000000000 --json " + file + " --clusters h200-sxm-141g," +
                    (folder_ / "dear.toml").string() + ",rtx-3080-10g," + (folder_ / "cheap.toml").string());
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(r.out.starts_with("cheap fits it cheapest\n")) << r.out;
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
  const Ran reported = run(options + " --json -"), file = run(options + " --print-scenario");
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

TEST_F(Cli, ExplainShowsEveryStageOfTheFlow) {
  for (const std::string what :
       {"memory", "scenario", "model", "schedule", "communicators", "program", "prices", "fabric", "timeline"}) {
    const Ran r = run("explain --show " + what + " " + scenario());
    EXPECT_EQ(r.code, 0) << what;
    EXPECT_NE(r.out, "") << what;
    EXPECT_EQ(r.err, "") << what;
  }
  EXPECT_EQ(json::parse(run("explain --show scenario " + scenario()).out)["gpus"], 8);
}

TEST_F(Cli, ExplainOfARankThatIsNotThereIsTwo) {
  for (const std::string rank : {"8", "-1"}) {
    const Ran r = run("explain " + scenario() + " --rank=" + rank);
    EXPECT_EQ(r.code, 2);
    EXPECT_NE(r.err.find("there is no rank " + rank), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("ranks 0 to 7"), std::string::npos) << r.err;
  }
}

TEST_F(Cli, ExplainOfAMomentThatIsNoneIsTwo) {
  for (const std::string moment : {"lunch", "-3", "12x", "''"}) {
    const Ran r = run("explain " + scenario() + " --at=" + moment);
    EXPECT_EQ(r.code, 2) << moment;
    EXPECT_EQ(r.out, "") << moment;
  }
  EXPECT_EQ(run("explain " + scenario() + " --at 100").code, 0);
}

TEST_F(Cli, WhatHasNoJsonFormSaysSo) {
  const Ran r = run("explain --show prices --json - " + scenario());
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("has no JSON form"), std::string::npos) << r.err;
}

TEST_F(Cli, PredictWritesATimeline) {
  const std::string path = (folder_ / "timeline.jsonl").string();
  const Ran r = run("predict " + scenario() + " --timeline " + path);
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.out, run("predict " + scenario()).out);
  const std::string text = content(path);
  const json first = json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(first["schema"], "tidemark.timeline/1");
  EXPECT_EQ(first["steps"], json({2}));
  const json groups = json::parse(run("predict --json - " + scenario()).out)["groups"];
  ASSERT_EQ(first["ranks"].size(), groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) EXPECT_EQ(first["ranks"][g], groups[g]["ranks"][0]);
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST_F(Cli, TimelinesCanBeFilteredAndAreTheSameFromBothVerbs) {
  const std::string path = (folder_ / "timeline.jsonl").string();
  const std::string filters = " --rank 1,4-5 --step 1 --category gradients,comm_dp ";
  EXPECT_EQ(run("predict " + scenario() + filters + "--timeline " + path).code, 0);
  const std::string text = content(path);
  const json first = json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(first["ranks"], json({1, 4, 5}));
  EXPECT_EQ(first["steps"], json({1}));
  EXPECT_EQ(first["categories"], json({"gradients", "comm_dp"}));
  const Ran explained = run("explain --show timeline --json - " + scenario() + filters);
  EXPECT_EQ(explained.code, 0);
  EXPECT_EQ(explained.out, text);
  EXPECT_TRUE(run("explain --show timeline " + scenario() + filters).out.starts_with("record\trank\t"));
}

TEST_F(Cli, ATimelineThatCannotBeWrittenIsTwoAndNothingIsLeft) {
  const Ran r = run("predict " + scenario() + " --timeline " + (folder_ / "no" / "such" / "folder").string());
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_NE(r.err.find("cannot be written"), std::string::npos) << r.err;
  EXPECT_EQ(run("predict " + scenario() + " --timeline " + folder_.string()).code, 2);  // a folder
  EXPECT_FALSE(std::filesystem::exists(folder_.string() + ".part"));
}

TEST_F(Cli, OptionsOfTimeThatSayNothingPossibleAreTwoWithAHint) {
  const std::string path = (folder_ / "timeline.jsonl").string();
  const std::string timeline = "predict " + scenario() + " --timeline " + path;
  for (const std::string& arguments :
       {timeline + " --rank 8", timeline + " --rank=-1", timeline + " --rank two", timeline + " --rank 3-1",
        timeline + " --rank 1,,2", timeline + " --step 3", timeline + " --step last", timeline + " --category gradient",
        timeline + " --category gradients,", timeline + " --link-model fair", timeline + " --json " + path,
        "predict " + scenario() + " --timeline -", "predict --rank 0 " + scenario(), "predict --step 1 " + scenario(),
        "predict --category nccl " + scenario(), "predict --link-model '' " + scenario(),
        "explain --rank 0,1 " + scenario(), "explain --step 1 " + scenario(),
        "explain --link-model alpha-beta " + scenario()}) {
    const Ran r = run(arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_EQ(r.out, "") << arguments;
    EXPECT_NE(r.err.find("hint: "), std::string::npos) << arguments << '\n' << r.err;
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST_F(Cli, TheModelOfLinksCanBeChosen) {
  const std::string fair = run("predict -v " + scenario()).out;
  EXPECT_EQ(run("predict -v --link-model max-min " + scenario()).out, fair);
  const Ran plain = run("predict -v --link-model alpha-beta " + scenario());
  EXPECT_EQ(plain.code, 0);
  EXPECT_NE(plain.out.find("alpha-beta"), std::string::npos) << plain.out;
  EXPECT_EQ(fair.find("alpha-beta"), std::string::npos);
}

TEST_F(Cli, ExplainShowsTheFabric) {
  const Ran r = run("explain --show fabric " + scenario());
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(r.out.starts_with("h100-sxm-80g: 8 devices")) << r.out;
  EXPECT_NE(r.out.find("bisection"), std::string::npos);
  EXPECT_NE(r.out.find("busiest links first"), std::string::npos);
  EXPECT_EQ(r.out.find("which takes 0.000"), std::string::npos) << r.out;
}

TEST_F(Cli, SameInputGivesSameBytes) {
  const Ran first = run("predict --json - " + scenario()), second = run("predict --json - " + scenario());
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(first.err, second.err);
  EXPECT_EQ(run("explain --show program " + scenario()).out, run("explain --show program " + scenario()).out);
}

TEST_F(Cli, ShippedFilesAreFoundFromAnywhere) {
  const std::string path = scenario("tensor = 2", "tensor = 4");
  EXPECT_EQ(run("predict " + path).code, 0);  // models/ and clusters/ are not beside it
}

TEST_F(Cli, ASnapshotIsOfTheFullestRankOrOfThoseInItsName) {
  const auto path = [&](const std::string& name) { return (folder_ / name).string(); };
  const Ran r = run("predict " + scenario() + " --json - --snapshot " + path("a.pickle"));
  EXPECT_EQ(r.code, 0) << r.err;
  const json groups = json::parse(r.out)["groups"];
  EXPECT_TRUE(content(path("a.pickle")).starts_with("\x80\x04"));
  EXPECT_EQ(run("predict " + scenario() + " --snapshot '" + path("each-{rank}.pickle") + "'").code, 0);
  for (const json& group : groups)
    EXPECT_TRUE(std::filesystem::exists(path("each-" + group["ranks"][0].dump() + ".pickle"))) << group["ranks"];
  EXPECT_EQ(run("predict " + scenario() + " --rank 3,5 --snapshot '" + path("{rank}.pickle") + "'").code, 0);
  EXPECT_TRUE(std::filesystem::exists(path("3.pickle")));
  EXPECT_TRUE(std::filesystem::exists(path("5.pickle")));
  EXPECT_FALSE(std::filesystem::exists(path("0.pickle")));
}

TEST_F(Cli, ANoteSaysWhichRanksAFileIsOfWhereNoneAreAskedFor) {
  const std::string snapshot = (folder_ / "a.pickle").string(), timeline = (folder_ / "a.jsonl").string();
  const std::string predict = "predict " + scenario() + " --snapshot " + snapshot;
  const Ran r = run(predict + " --timeline " + timeline + " --json " + (folder_ / "a.json").string());
  EXPECT_EQ(r.code, 0) << r.err;
  const json groups = json::parse(content(folder_ / "a.json"))["groups"];
  const auto fullest = std::max_element(groups.begin(), groups.end(), [](const json& a, const json& b) {
    return a["peak_device_upper_bytes"].get<std::int64_t>() < b["peak_device_upper_bytes"].get<std::int64_t>();
  });
  EXPECT_NE(
      r.err.find(snapshot + " is of rank " + (*fullest)["ranks"][0].dump() + ", the fullest; --rank picks others\n"),
      std::string::npos)
      << r.err;
  EXPECT_NE(r.err.find(timeline + " is of rank"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find(", the lowest of each group of ranks alike; --rank picks others\n"), std::string::npos) << r.err;
  for (const std::string option : {" --quiet", " --rank 3"}) EXPECT_EQ(run(predict + option).err, "") << option;
  EXPECT_EQ(run("predict " + scenario() + " --snapshot '" + (folder_ / "{rank}.pickle").string() + "'").err, "");
}

TEST_F(Cli, SizesInTablesOfFiguresArePlainBytes) {
  const std::string figures = (folder_ / "figures").string();
  const Ran r = run("report " + scenario() + " --figures " + figures + " --output " + (folder_ / "page.html").string());
  EXPECT_EQ(r.code, 0) << r.err;
  const json groups = json::parse(run("predict --json - " + scenario()).out)["groups"];
  const std::string stages = content(figures + "/stages.csv"), drivers = content(figures + "/driver-memory.csv");
  EXPECT_TRUE(stages.starts_with("stage,ranks,allocated (B),reserved (B),device (B),up to (B),to spare (B),"))
      << stages;
  // Of one of the stage's groups.
  EXPECT_TRUE(std::ranges::any_of(groups, [&](const json& group) {
    return stages.find("," + group["peak_allocated_bytes"].dump() + ",") != std::string::npos;
  })) << stages;
  EXPECT_TRUE(drivers.starts_with("what,held (B),low (B),high (B),source\n")) << drivers;
  EXPECT_NE(drivers.find("," + groups[0]["device_rows"][0]["bytes"].dump() + ","), std::string::npos) << drivers;
  // People still read GiB.
  EXPECT_NE(content(figures + "/stages.md").find(" GiB |"), std::string::npos);
}

TEST_F(Cli, ATraceIsOneJsonFile) {
  const std::string path = (folder_ / "trace.json").string();
  EXPECT_EQ(run("predict " + scenario() + " --trace " + path + " --rank 0 --step 0").code, 0) << "the set-up";
  EXPECT_EQ(run("predict " + scenario() + " --trace " + path + " --rank 0,7 --step 1").code, 0);
  std::set<int> ranks;
  const json trace = json::parse(content(path));
  for (const json& event : trace["traceEvents"]) ranks.insert(event["pid"].get<int>());
  EXPECT_EQ(ranks, (std::set<int>{0, 7}));
  // One rank of the only stage, where no others are asked for.
  EXPECT_EQ(run("predict " + scenario() + " --trace " + path).code, 0);
  const json whole = json::parse(content(path));
  for (const json& event : whole["traceEvents"]) EXPECT_EQ(event["pid"], 0);
}

TEST_F(Cli, FilesThatCannotBeWrittenAreTwoAndSayWhy) {
  const std::string predict = "predict " + scenario(), path = (folder_ / "x").string();
  for (const std::string& line :
       {predict + " --snapshot -", predict + " --trace -", predict + " --rank 0,1 --snapshot " + path,
        predict + " --trace " + path + " --snapshot " + path, predict + " --json " + path + " --snapshot " + path,
        predict + " --step 1 --snapshot " + path, predict + " --snapshot " + folder_.string()}) {
    const Ran r = run(line);
    EXPECT_EQ(r.code, 2) << line;
    EXPECT_NE(r.err.find("hint: "), std::string::npos) << line << '\n' << r.err;
    EXPECT_FALSE(std::filesystem::exists(path)) << line;
  }
}

// -- compare ----------------------------------------------------------------------------------------------------------

TEST_F(Cli, CompareFindsASnapshotOfTheSameJobTheSame) {
  const std::string path = (folder_ / "rank3.pickle").string();
  EXPECT_EQ(run("predict " + scenario() + " --rank 3 --snapshot " + path).code, 0);
  const Ran r = run("compare " + scenario() + " " + path + " --rank 3 --tolerance 0 --json -");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(r.err.starts_with("yes, they agree within 0 %")) << r.err;
  const json answer = json::parse(r.out);
  EXPECT_EQ(answer["schema"], "tidemark.comparison/1");
  EXPECT_EQ(answer["kind"], "snapshot");
  EXPECT_TRUE(answer["agrees"]);
  EXPECT_EQ(answer["rank"], 3);
  EXPECT_EQ(answer["allocated"]["error"], 0);
  EXPECT_EQ(answer["curve"].size(), 64u);
  EXPECT_TRUE(answer["only_predicted"].empty());
  EXPECT_FALSE(answer["matched"].empty());
}

TEST_F(Cli, CompareAttributesTheDifferenceToAnotherJob) {
  const std::string path = (folder_ / "a.pickle").string();
  EXPECT_EQ(
      run("predict " + scenario("cross_entropy = \"te\"", "cross_entropy = \"unfused\"") + " --snapshot " + path).code,
      0);
  const Ran r = run("compare " + scenario() + " " + path + " --json -");
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(r.err.starts_with("no, they differ by more than 2 %")) << r.err;
  const json answer = json::parse(r.out);
  std::int64_t explained = answer["block_rounding_bytes"];
  for (const json& u : answer["only_predicted"]) explained += u["block_bytes"].get<std::int64_t>();
  for (const json& u : answer["only_measured"]) explained -= u["block_bytes"].get<std::int64_t>();
  EXPECT_EQ(explained, answer["allocated"]["predicted_bytes"].get<std::int64_t>() -
                           answer["allocated"]["measured_bytes"].get<std::int64_t>());
  EXPECT_EQ(answer["only_measured"][0]["what"], "loss.softmax");
}

TEST_F(Cli, CompareReadsALog) {
  const json groups = json::parse(run("predict " + scenario() + " --json -").out)["groups"];
  const auto megabytes = [](const json& bytes) { return std::to_string(bytes.get<double>() / (1 << 20)); };
  const json& first = groups[0];
  const std::string path = (folder_ / "job.log").string();
  const auto write = [&](const std::string& rank, const json& reserved) {
    std::ofstream(path) << "[Rank " << rank << "] (after 2 iterations) memory (MB) | allocated: 1 | max allocated: "
                        << megabytes(first["peak_allocated_bytes"])
                        << " | reserved: 1 | max reserved: " << megabytes(reserved) << '\n';
  };
  write("0", first["peak_reserved_bytes"]);
  const Ran yes = run("compare " + scenario() + " " + path + " --tolerance 0.001 --json -");
  EXPECT_EQ(yes.code, 0) << yes.err;
  EXPECT_EQ(json::parse(yes.out)["ranks"][0]["line"], 1);
  write("0", first["peak_reserved_bytes"].get<std::int64_t>() * 2);
  EXPECT_EQ(run("compare " + scenario() + " " + path).code, 1);
  EXPECT_EQ(run("compare " + scenario() + " " + path + " --tolerance 60").code, 0);
  write("8", first["peak_reserved_bytes"]);
  const Ran other = run("compare " + scenario() + " " + path);
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("job.log:1: error: rank 8 is not in the job"), std::string::npos) << other.err;
}

TEST_F(Cli, WhatCannotBeComparedIsTwo) {
  const std::string log = (folder_ / "empty.log").string(), cut = (folder_ / "cut.pickle").string();
  std::ofstream(log) << "nothing\n";
  std::ofstream(cut) << "\x80\x04}";
  for (const std::string& line :
       {"compare " + scenario(), "compare " + scenario() + " " + log, "compare " + scenario() + " " + cut,
        "compare " + scenario() + " " + (folder_ / "nowhere").string(),
        "compare " + scenario() + " " + folder_.string(), "compare " + scenario() + " " + log + " --tolerance -1",
        "compare " + scenario() + " " + log + " --rank 9"}) {
    const Ran r = run(line);
    EXPECT_EQ(r.code, 2) << line << '\n' << r.err;
    EXPECT_NE(r.err, "") << line;
  }
}

}  // namespace
}  // namespace tidemark::tests::cli_test
