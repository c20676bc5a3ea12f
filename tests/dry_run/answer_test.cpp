// What is made of the reports of ranks.
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/dry_run/dry_run.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::dry_run_test {
namespace {

using namespace literals;

// As scenarios/dry_run/inside writes it.
std::string report(const std::string& outcome, const std::string& more = "") {
  return R"({"schema": "tidemark.dry_run.rank/1", "rank": 0, "world_size": 16, "outcome": ")" + outcome +
         R"(", "python": "3.11.7", "torch": "2.15.0", "cuda": "13.2", "nccl": 230, "exit_status": null,
             "set_up": {"peak": {"allocated_bytes": 1048576}, "after": {"allocated_bytes": 1048576}},
             "steps": [{"peak": {"allocated_bytes": 3145728, "reserved_bytes": 20971520},
                        "after": {"allocated_bytes": 2097152, "reserved_bytes": 20971520}}],
             "rest": {"allocated_bytes": 4194304},
             "device": {"index": 0, "retries": 1},
             "at_peak": {"bytes": 3145728, "by_what": {"other": 2097152, "parameters": 1048576},
                         "others": [{"where": "model.py:7 forward, linear", "bytes": 2097152}], "moment": []},
             "groups": [{"ranks": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], "backend": "nccl",
                         "on_device": true, "uses": ["reduces"], "peers": []},
                        {"ranks": [0, 8], "backend": "gloo", "on_device": false, "uses": ["shards"], "peers": []},
                        {"ranks": [0, 1], "backend": "nccl", "on_device": true, "uses": [], "peers": []}],
             "stood_in": [{"what": "a store", "count": 2, "where": "t.py:1 f"}],
             "host": {"peak_resident_bytes": 1073741824}, "seconds": 2.5)" +
         more + "}";
}

Cluster cluster() {
  Cluster made;
  made.name = "small";
  made.device.name = "a small card";
  made.device.compute_capability = 90;
  made.device.capacity = 4_GiB;
  made.device.context = {500_MiB, 400_MiB, 600_MiB, "measured"};
  return made;
}

DryRunAnswer answer(DryRank rank) {
  DryRunAnswer made;
  made.command = {"torchrun", "t.py"};
  made.launch.launcher = StartedBy::Torchrun;
  made.world = {16, 8};
  made.cluster = cluster();
  rank.rows = driver_rows(made.cluster, {}, rank.held(), made.world);
  made.ranks.push_back(std::move(rank));
  return made;
}

DryRank ran(const std::string& outcome, const std::string& more = "") {
  return {parse_rank_report(report(outcome, more), "rank-0.json"), {}, {}, 3_GiB};
}

TEST(DryRun, ReadsWhatARankLeft) {
  const RankReport r = ran("completed").report;
  EXPECT_EQ(r.outcome, DryOutcome::Completed);
  EXPECT_EQ(r.steps.size(), 1U);
  EXPECT_EQ(r.peak().allocated, 4_MiB);  // of what came after the last step too
  EXPECT_EQ(r.peak().reserved, 20_MiB);
  EXPECT_EQ(r.by_what.front().name, "parameters");  // what is other comes last
  EXPECT_TRUE(r.groups.front().reduces);
}

TEST(DryRun, WhatIsNoReportIsAFault) {
  for (const std::string text : {"", "{", "[]", "{}", R"({"schema": "tidemark.dry_run.rank/9"})", R"({"schema": 3})"})
    EXPECT_THROW(static_cast<void>(parse_rank_report(text, "x")), std::runtime_error) << text;
}

TEST(DryRun, GroupsThatADeviceSawTakeItsMemory) {
  const DryRunAnswer a = answer(ran("completed"));
  std::vector<std::string> names;
  for (const DryRow& row : a.ranks.front().rows) names.push_back(row.name);
  EXPECT_EQ(names, (std::vector<std::string>{"CUDA context", "loaded code", "NCCL's kernels",
                                             "communicator of 16 ranks (0 to 15)"}));
}

TEST(DryRun, AnswersYes) {
  const DryRunAnswer a = answer(ran("completed"));
  EXPECT_EQ(a.verdict(), DryVerdict::Fits);
  EXPECT_TRUE(dry_run_text(a).starts_with("yes, it fits: ")) << dry_run_text(a);
  const nlohmann::json json = nlohmann::json::parse(dry_run_json(a));
  EXPECT_EQ(json.at("fits"), true);
  EXPECT_EQ(json.at("ranks").at(0).at("peak_reserved_bytes"), 20 << 20);
}

TEST(DryRun, AnswersNoWhereMemoryRanOut) {
  DryRank rank = ran("out_of_memory", R"(, "ran_out": {"asked_bytes": 1048576, "device_free_bytes": 0, "after_steps": 1,
                                          "stack": ["model.py:7 forward"]})");
  rank.need = rank.report;
  rank.need->outcome = DryOutcome::Completed;
  rank.need->rest.reserved = 5_GiB;
  const DryRunAnswer a = answer(rank);
  EXPECT_EQ(a.verdict(), DryVerdict::DoesNotFit);
  const std::string text = dry_run_text(a);
  EXPECT_TRUE(text.starts_with("no, it does not fit: rank 0 runs out in step 2, where it asks for 1.00 MiB more"))
      << text;
  EXPECT_NE(text.find("model.py:7 forward"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(dry_run_json(a)).at("ranks").at(0).at("failure").at("kind"), "out_of_memory");
}

TEST(DryRun, CannotSayWhereOnlyTheUpperEndsRunOut) {
  DryRank rank = ran("out_of_memory", R"(, "ran_out": {"asked_bytes": 1, "device_free_bytes": 0, "after_steps": 1,
                                          "stack": []})");
  rank.need = rank.report;
  rank.need->rest.reserved = 2_GiB;
  EXPECT_EQ(answer(rank).verdict(), DryVerdict::CannotSay);
}

TEST(DryRun, CannotSayWithoutAStep) {
  DryRank rank = ran("ended");
  rank.report.steps.clear();
  EXPECT_EQ(answer(rank).verdict(), DryVerdict::CannotSay);
  EXPECT_EQ(
      answer(ran("refused", R"(, "failure": {"type": "function", "message": "cufftCreate", "stack": []})")).verdict(),
      DryVerdict::CannotSay);
}

TEST(DryRun, WhatNothingStandsInForIsTold) {
  const auto said = [](const std::string& type, const std::string& what) {
    return dry_run_text(answer(
        ran("refused", R"(, "failure": {"type": ")" + type + R"(", "message": ")" + what + R"(", "stack": []})")));
  };
  EXPECT_TRUE(said("message", "a shape").starts_with("cannot say whether it fits: rank 0 waits for a shape\n"));
  EXPECT_TRUE(said("experts", "torch.nonzero")
                  .starts_with("cannot say whether it fits: rank 0 asks the device which tokens its experts get, by "
                               "torch.nonzero, and nothing stands in for that\n"));
  EXPECT_EQ(said("function", "cufftCreate").find("hint"), std::string::npos);
  EXPECT_NE(said("function", "cudaStreamBeginCapture").find("hint: without CUDA graphs"), std::string::npos);
}

TEST(DryRun, OfALongStackTheScriptsPlaceIsTold) {
  std::string stack;
  for (int i = 0; i < 20; ++i) stack += R"("/lib/site-packages/torch/a.py:)" + std::to_string(i) + R"( f", )";
  const std::string text = dry_run_text(answer(ran(
      "error", R"(, "failure": {"type": "E", "message": "one\ntwo", "stack": [)" + stack + R"("t.py:3 <module>"]})")));
  EXPECT_NE(text.find("and 9 more, of which t.py:3 <module>\n"), std::string::npos) << text;
  EXPECT_TRUE(text.starts_with("the script failed on rank 0: E: one\n")) << text;
}

TEST(DryRun, AScriptThatFailsIsTold) {
  const DryRunAnswer a =
      answer(ran("error", R"(, "failure": {"type": "ValueError", "message": "my\u0007 own", "stack": ["t.py:3 f"]})"));
  EXPECT_EQ(a.verdict(), DryVerdict::ScriptFailed);
  EXPECT_TRUE(dry_run_text(a).starts_with("the script failed on rank 0: ValueError: my")) << dry_run_text(a);
}

TEST(DryRun, AScriptThatGoesOnAfterItRanOutHasNotRunOut) {
  const std::string more = R"(, "ran_out": {"asked_bytes": 1, "device_free_bytes": 0, "after_steps": 0, "stack": []})";
  EXPECT_FALSE(ran("completed", more).ran_out());
  EXPECT_FALSE(ran("ended", more).ran_out());  // with a step after it
  DryRank rank = ran("ended", more);
  rank.report.steps.clear();
  EXPECT_TRUE(rank.ran_out());
}

}  // namespace
}  // namespace tidemark::tests::dry_run_test
