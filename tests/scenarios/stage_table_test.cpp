#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::stage_table_test {
namespace {

using namespace literals;

Prediction small_prediction() {
  return predict(parse_scenario(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 1
[model_override]
num_hidden_layers = 1
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 1
)",
                                "small.toml", folders));
}

// Each column by itself: the rank whose device holds most need not be the one that reaches highest at upper ends.
TEST(StageTable, EachColumnIsTheHighestOfTheStagesRanks) {
  Prediction prediction = small_prediction();
  RankGroup& first = prediction.groups.front();
  first.memory.device.bytes = 50_GiB;
  first.memory.peak_device_upper = 70_GiB;
  RankGroup other = first;
  other.memory.device.bytes = 60_GiB;
  other.memory.peak_device_upper = 65_GiB;
  prediction.groups.push_back(other);
  const std::string text = prediction_text(prediction);
  const std::string table = text.substr(text.find("by pipeline stage"));
  const std::string row = table.substr(table.find("\n", table.find("to spare")));
  EXPECT_NE(row.substr(0, row.find('\n', 1)).find("60.00 GiB"), std::string::npos) << table;
  EXPECT_NE(row.substr(0, row.find('\n', 1)).find("70.00 GiB"), std::string::npos) << table;
}

}  // namespace
}  // namespace tidemark::tests::stage_table_test
