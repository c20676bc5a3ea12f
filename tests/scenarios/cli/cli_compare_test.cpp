// Predictions beside recordings and logs.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tests/scenarios/cli/cli_fixture.hpp"

namespace tidemark::tests::cli_compare_test {
namespace {

using nlohmann::json;

using Cli = CliTest;

TEST_F(Cli, CompareFindsASnapshotOfTheSameJobTheSame) {
  const std::string path = (folder_ / "rank3.pickle").string();
  EXPECT_EQ(run("predict " + scenario() + " --rank 3 --snapshot " + path).code, 0);
  const CliRun r = run("compare " + scenario() + " " + path + " --rank 3 --tolerance 0 --json -");
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
  const CliRun r = run("compare " + scenario() + " " + path + " --json -");
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
  const CliRun yes = run("compare " + scenario() + " " + path + " --tolerance 0.001 --json -");
  EXPECT_EQ(yes.code, 0) << yes.err;
  EXPECT_EQ(json::parse(yes.out)["ranks"][0]["line"], 1);
  write("0", first["peak_reserved_bytes"].get<std::int64_t>() * 2);
  EXPECT_EQ(run("compare " + scenario() + " " + path).code, 1);
  EXPECT_EQ(run("compare " + scenario() + " " + path + " --tolerance 60").code, 0);
  write("8", first["peak_reserved_bytes"]);
  const CliRun other = run("compare " + scenario() + " " + path);
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
    const CliRun r = run(line);
    EXPECT_EQ(r.code, 2) << line << '\n' << r.err;
    EXPECT_NE(r.err, "") << line;
  }
}

}  // namespace
}  // namespace tidemark::tests::cli_compare_test
