#include "scenarios/reader/scenario_json.hpp"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::scenario_json_test {
namespace {

using nlohmann::json;

const std::string source = TIDEMARK_SOURCE_DIR;

TEST(ScenarioJson, HasTheNamesOfTheScenarioFile) {
  const Scenario scenario =
      read_scenario(source + "/scenarios/examples/llama-3.1-70b-64xh100.toml", source + "/scenarios");
  const json j = json::parse(scenario_json(scenario, 2));
  EXPECT_EQ(j["name"], "llama-3.1-70b-64xh100");
  EXPECT_EQ(j["gpus"], 64);
  EXPECT_EQ(j["model"]["name"], "llama-3.1-70b");
  EXPECT_EQ(j["model"]["num_hidden_layers"], 80);
  EXPECT_EQ(j["cluster"]["device"]["compute_capability"], "9.0");
  EXPECT_EQ(j["cluster"]["node"]["link"], "nvswitch");
  EXPECT_EQ(j["layout"]["data"], 2);
  EXPECT_EQ(j["layout"]["sharding"], "zero1");
  EXPECT_EQ(j["train"]["precision"], "bf16");
  EXPECT_EQ(j["train"]["cross_entropy"], "te");
  EXPECT_EQ(j["runtime"]["headroom"], "0 B");
  EXPECT_EQ(j["runtime"]["versions"]["megatron"], "0.14");
  EXPECT_EQ(scenario_json(scenario, -1).find('\n'), std::string::npos);
}

TEST(ScenarioJson, NamesThatAreNotUtf8DoNotThrow) {
  Scenario scenario;
  scenario.name = "\xff\xfe";
  EXPECT_FALSE(json::parse(scenario_json(scenario, 0)).empty());
}

}  // namespace
}  // namespace tidemark::tests::scenario_json_test
