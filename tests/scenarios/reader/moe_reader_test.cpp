#include "scenarios/model_config/moe_reader.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/reader/document_parts.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::moe_reader_test {
namespace {

namespace fs = std::filesystem;

const fs::path source = TIDEMARK_SOURCE_DIR;

// Four experts, of which a token chooses two, in three of four layers. Line 21 is the first of [moe].
std::string job(const std::string& moe, const std::string& layers = "4") {
  return fmt::format(R"(model = "models/glm-4.5.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 4
[model_override]
num_hidden_layers = {}
first_k_dense_replace = 1
num_nextn_predict_layers = 0
n_routed_experts = 4
num_experts_per_tok = 2
[layout]
expert = 4
[train]
sequence_length = 64
micro_batch = 1
global_batch = 4
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "megatron"
[moe]
{}
)",
                     layers, moe);
}

class MoeTable : public testing::Test {
 protected:
  MoeTable() { fs::create_directories(folder_); }
  ~MoeTable() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  [[nodiscard]] Scenario scenario(const std::string& moe) const {
    return parse_scenario(job(moe), "job.toml", {folder_, source / "scenarios"});
  }
  [[nodiscard]] ExpertLoads loads(const std::string& moe) const { return scenario(moe).train.routing.loads; }
  // Without the folder.
  [[nodiscard]] std::string problems(const std::string& moe) const {
    try {
      (void)scenario(moe);
      return "no problem";
    } catch (const InputError& error) {
      std::string text = error.what();
      for (const std::string its = folder_.string() + "/"; text.find(its) != std::string::npos;)
        text.erase(text.find(its), its.size());
      return text;
    }
  }

  fs::path folder_ = fs::path(testing::TempDir()) /
                     fmt::format("tidemark-moe-{}", testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(MoeTable, ImbalanceIsAWordAFactorADistributionOrAFile) {
  EXPECT_EQ(loads(""), ExpertLoads(EqualLoads{}));
  EXPECT_EQ(loads("imbalance = \"uniform\""), ExpertLoads(EqualLoads{}));
  EXPECT_EQ(loads("imbalance = 1"), ExpertLoads(EqualLoads{}));
  EXPECT_EQ(loads("imbalance = 1.25"), ExpertLoads(LoadOfOneRank{1.25}));
  EXPECT_EQ(loads("imbalance = { zipf = 0.5, seed = 3 }"), ExpertLoads(ZipfLoads{0.5, 3}));
  EXPECT_EQ(loads("imbalance = { dirichlet = 20 }"), ExpertLoads(DirichletLoads{20, 0}));
  EXPECT_EQ(loads("[moe.imbalance]\nzipf = 1"), ExpertLoads(ZipfLoads{1, 0}));
  write("loads.csv", "# of a run\n4, 3, 3, 2\n1,1,1,1 # even\n\n1,2,2,1\n");
  EXPECT_EQ(loads("imbalance = \"loads.csv\""),
            ExpertLoads(ListedLoads{{{4, 3, 3, 2}, {1, 1, 1, 1}, {1, 2, 2, 1}}, "loads.csv"}));
  write("one.csv", "4,3,3,2\r\n");
  EXPECT_EQ(loads("imbalance = \"one.csv\""), ExpertLoads(ListedLoads{{{4, 3, 3, 2}}, "one.csv"}));
}

TEST_F(MoeTable, WhatItMayNotSay) {
  EXPECT_EQ(problems("imbalance = 0.5"),
            "job.toml:21:13: error: imbalance = 0.5 is out of range\n  hint: 1 to 1000 would do");
  // A rank with one expert of four, of which tokens choose two.
  EXPECT_EQ(loads("imbalance = 2"), ExpertLoads(LoadOfOneRank{2}));
  for (const char* capacity : {"", "\ncapacity_factor = 1.0"})
    EXPECT_EQ(problems(std::string("imbalance = 2.000001") + capacity),
              "job.toml:21:13: error: imbalance = 2.000001: a rank with 1 of 4 experts gets at most 2 times its equal "
              "share\n  hint: at most 2 would do: a token goes to an expert once, and chooses 2 of 4")
        << capacity;
  EXPECT_EQ(problems("imbalance = { zipf = 1, dirichlet = 1 }"),
            "job.toml:21:37: error: imbalance takes one distribution\n  hint: such as { zipf = 0.5, seed = 1 } or { "
            "dirichlet = 20, seed = 1 }");
  EXPECT_EQ(
      problems("imbalance = { sipf = 1 }"),
      "job.toml:21:13: error: imbalance takes one distribution\n  hint: such as { zipf = 0.5, seed = 1 } or { "
      "dirichlet = 20, seed = 1 }\njob.toml:21:15: error: unknown key \"sipf\" in [moe.imbalance]\n  hint: did you "
      "mean zipf?");
  EXPECT_EQ(problems("imbalance = \"unifrom\""),
            "job.toml:21:13: error: imbalance = \"unifrom\" is neither \"uniform\" nor a file in the scenario's folder "
            "or the data root\n  hint: \"uniform\", a factor such as 1.2 or { zipf = 0.5, seed = 1 } would do, too");
  write("loads.csv", "4,3,3,2\n");
  EXPECT_EQ(
      problems("imbalance = \"load.csv\""),
      "job.toml:21:13: error: imbalance = \"load.csv\" is neither \"uniform\" nor a file in the scenario's folder "
      "or the data root\n  hint: did you mean \"loads.csv\"?");
  EXPECT_EQ(problems("quantile = 1"),
            "job.toml:21:12: error: quantile = 1 is out of range\n  hint: 0.5 to 0.999999 "
            "would do");
  EXPECT_EQ(problems("quantile = 0.9\ncapacity_factor = 1.0\npad_to_capacity = true"),
            "job.toml:21:12: error: quantile says how many tokens to expect beyond what is stated, and pad_to_capacity "
            "fixes it\n  hint: leave it out");
}

TEST_F(MoeTable, FilesOfLoadsAreToldByLineAndColumn) {
  const auto of = [&](const std::string& text) {
    write("loads.csv", text);
    return problems("imbalance = \"loads.csv\"");
  };
  EXPECT_EQ(of("1,1,1,1\n1, 2,x,1\n1,1,1,1\n"),
            "loads.csv:2:6: error: \"x\" is not a number of tokens\n  hint: 0 to 1000000000000 would do, with commas "
            "between them");
  EXPECT_EQ(of("1,1,1\n"), "loads.csv:1:1: error: 3 numbers, and 4 experts\n  hint: one for each expert of the layer");
  EXPECT_EQ(of("1,1,1,1\n1,1,1,1\n"),
            "loads.csv:2:1: error: loads of 2 layers, and 3 have experts\n  hint: a line for each of them would do, or "
            "one for all");
  EXPECT_EQ(of("7,2,2,2\n"),
            "loads.csv:1:1: error: expert 0 is chosen 7 times of 13: more often than there are tokens, of which each "
            "chooses 2 experts\n  hint: count every token once for each expert that it chooses");
  EXPECT_EQ(of("0,0,0,0\n"),
            "loads.csv:1:1: error: no expert is chosen at all\n  hint: count every token once for each "
            "expert that it chooses");
  EXPECT_EQ(of("1,-1,1,1\n").substr(0, 21), "loads.csv:1:3: error:");
  EXPECT_EQ(of(""),
            "loads.csv: error: loads of 0 layers, and 3 have experts\n  hint: a line for each of them would "
            "do, or one for all");
}

// A rank without rows is no job yet: a loads file may say so, or few tokens.
TEST_F(MoeTable, EveryRanksExpertsGetSomeTokens) {
  write("loads.csv", "1,1,1,1\n2,2,0,4\n1,1,1,1\n");
  EXPECT_EQ(problems("imbalance = \"loads.csv\""),
            "job.toml:11:10: error: of a rank's 64 tokens, none reach the experts of rank 2 of 4 in layer 2\n"
            "  hint: fewer ranks, more tokens or less uneven loads would do");
}

TEST_F(MoeTable, TheFileIsOneOfThoseThatTheScenarioReads) {
  write("loads.csv", "4,3,3,2\n");
  const auto files = [&](const std::string& imbalance) {
    return files_named(parse_toml("[moe]\nimbalance = " + imbalance, "job.toml"), {folder_, source / "scenarios"});
  };
  EXPECT_EQ(files("\"loads.csv\""), std::vector{folder_ / "loads.csv"});
  EXPECT_TRUE(files("\"uniform\"").empty());
  EXPECT_NE(
      scenario_json(scenario("imbalance = \"loads.csv\""), -1).find(R"("imbalance":"loads.csv","quantile":0.999)"),
      std::string::npos);
}

}  // namespace
}  // namespace tidemark::tests::moe_reader_test
