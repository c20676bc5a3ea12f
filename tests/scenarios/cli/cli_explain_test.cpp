// What explain and predict write of a job: tensors, stages of the flow, timelines, snapshots.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/scenarios/cli/cli_fixture.hpp"

namespace tidemark::tests::cli_explain_test {
namespace {

using nlohmann::json;

using Cli = CliTest;

TEST_F(Cli, ExplainShowsTheLiveTensors) {
  const CliRun r = run("explain " + scenario() + " --rank 5 --at allocated");
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(r.out.starts_with("rank 5: ")) << r.out;
  EXPECT_NE(r.out.find("layers.*.mlp.fc1.out"), std::string::npos);
  EXPECT_NE(run("explain --at allocated --all " + scenario()).out.find("layers.1.mlp.fc1.out"), std::string::npos);
  EXPECT_EQ(json::parse(run("explain --json - " + scenario()).out)["schema"], "tidemark.live/1");
}

TEST_F(Cli, ExplainShowsTheRankThatPredictNamesAndSaysWhyItsPeakIsThere) {
  const std::string job = scenario() + " ";
  const CliRun brief = run("predict " + job);
  const std::size_t at = brief.out.find("peak on rank ") + std::string_view("peak on rank ").size();
  const std::string rank = brief.out.substr(at, brief.out.find(' ', at) - at);
  const CliRun named = run("explain " + job + "--rank " + rank);
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
  EXPECT_NE(large.find(": the job runs out of memory before, and these are the figures without that limit\n"),
            std::string::npos)
      << large;
  // Other moments are of tensors alone.
  EXPECT_EQ(run("explain --at end " + scenario()).out.find("the device holds"), std::string::npos);
}

TEST_F(Cli, ExplainHoldsWhatPredictHoldsOnceTheAllocatorGaveItsCacheBack) {
  const std::filesystem::path job = folder_ / "retries.toml";
  std::ofstream(job) << "model = \"models/gemma-3-27b-text.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
                        "[layout]\nsharding = \"zero3\"\n[train]\nsequence_length = 4096\nmicro_batch = 1\n"
                        "recompute = \"full\"\n[runtime]\nname = \"fsdp2\"\n";
  const std::filesystem::path file = folder_ / "retries.json";
  ASSERT_EQ(run("predict " + job.string() + " --json " + file.string()).code, 0);
  const json predicted = json::parse(content(file))["groups"][0];
  ASSERT_GT(predicted["retries_per_step"].get<int>(), 0);
  const CliRun explained = run("explain " + job.string());
  const double held = predicted["peak_device_bytes"].get<double>() / (std::int64_t{1} << 30);
  EXPECT_NE(explained.out.find(fmt::format("the device holds {:.2f} GiB: ", held)), std::string::npos) << explained.out;
  EXPECT_EQ(explained.out.find("runs out"), std::string::npos);
}

TEST_F(Cli, ExplainShowsEveryStageOfTheFlow) {
  for (const std::string what :
       {"memory", "scenario", "model", "schedule", "communicators", "program", "prices", "fabric", "timeline"}) {
    const CliRun r = run("explain --show " + what + " " + scenario());
    EXPECT_EQ(r.code, 0) << what;
    EXPECT_NE(r.out, "") << what;
    EXPECT_EQ(r.err, "") << what;
  }
  EXPECT_EQ(json::parse(run("explain --show scenario " + scenario()).out)["gpus"], 8);
}

TEST_F(Cli, ExplainOfARankThatIsNotThereIsTwo) {
  for (const std::string rank : {"8", "-1"}) {
    const CliRun r = run("explain " + scenario() + " --rank=" + rank);
    EXPECT_EQ(r.code, 2);
    EXPECT_NE(r.err.find("there is no rank " + rank), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("ranks 0 to 7"), std::string::npos) << r.err;
  }
}

TEST_F(Cli, ExplainOfAMomentThatIsNoneIsTwo) {
  for (const std::string moment : {"lunch", "-3", "12x", "''"}) {
    const CliRun r = run("explain " + scenario() + " --at=" + moment);
    EXPECT_EQ(r.code, 2) << moment;
    EXPECT_EQ(r.out, "") << moment;
  }
  EXPECT_EQ(run("explain " + scenario() + " --at 100").code, 0);
}

TEST_F(Cli, WhatHasNoJsonFormSaysSo) {
  const CliRun r = run("explain --show prices --json - " + scenario());
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("has no JSON form"), std::string::npos) << r.err;
}

TEST_F(Cli, PredictWritesATimeline) {
  const std::string path = (folder_ / "timeline.jsonl").string();
  const CliRun r = run("predict " + scenario() + " --timeline " + path);
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
  const CliRun explained = run("explain --show timeline --json - " + scenario() + filters);
  EXPECT_EQ(explained.code, 0);
  EXPECT_EQ(explained.out, text);
  EXPECT_TRUE(run("explain --show timeline " + scenario() + filters).out.starts_with("record\trank\t"));
}

TEST_F(Cli, ATimelineThatCannotBeWrittenIsTwoAndNothingIsLeft) {
  const CliRun r = run("predict " + scenario() + " --timeline " + (folder_ / "no" / "such" / "folder").string());
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
    const CliRun r = run(arguments);
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
  const CliRun plain = run("predict -v --link-model alpha-beta " + scenario());
  EXPECT_EQ(plain.code, 0);
  EXPECT_NE(plain.out.find("alpha-beta"), std::string::npos) << plain.out;
  EXPECT_EQ(fair.find("alpha-beta"), std::string::npos);
}

TEST_F(Cli, ExplainShowsTheFabric) {
  const CliRun r = run("explain --show fabric " + scenario());
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(r.out.starts_with("h100-sxm-80g: 8 devices")) << r.out;
  EXPECT_NE(r.out.find("bisection"), std::string::npos);
  EXPECT_NE(r.out.find("busiest links first"), std::string::npos);
  EXPECT_EQ(r.out.find("which takes 0.000"), std::string::npos) << r.out;
}

TEST_F(Cli, ASnapshotIsOfTheFullestRankOrOfThoseInItsName) {
  const auto path = [&](const std::string& name) { return (folder_ / name).string(); };
  const CliRun r = run("predict " + scenario() + " --json - --snapshot " + path("a.pickle"));
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
  const CliRun r = run(predict + " --timeline " + timeline + " --json " + (folder_ / "a.json").string());
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
  const CliRun r =
      run("report " + scenario() + " --figures " + figures + " --output " + (folder_ / "page.html").string());
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
    const CliRun r = run(line);
    EXPECT_EQ(r.code, 2) << line;
    EXPECT_NE(r.err.find("hint: "), std::string::npos) << line << '\n' << r.err;
    EXPECT_FALSE(std::filesystem::exists(path)) << line;
  }
}

}  // namespace
}  // namespace tidemark::tests::cli_explain_test
