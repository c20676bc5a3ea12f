#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "scenarios/formats/format.hpp"
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

// Under fully_shard the last segment may come when the passes are over: what is free then says nothing of the tensors.
TEST(StageTable, TensorsAtTheirPeakAreThereWhereMostIsFreeAtTheDevices) {
  Prediction prediction = small_prediction();
  RankGroup& only = prediction.groups.front();
  Composition& at_device_peak = only.memory.device.composition;
  const auto both = [&] { return prediction_text(prediction) + brief_text(prediction, "small.toml"); };
  ASSERT_LT(at_device_peak[Category::Fragmentation], at_device_peak[Category::Parameters]);
  EXPECT_EQ(both().find("at the peak of allocated, "), std::string::npos);
  at_device_peak[Category::Fragmentation] = only.memory.device.bytes;
  const std::string text = both();
  const std::size_t first = text.find("  at the peak of allocated, " + gib(only.memory.allocated.bytes) + " at step ");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_NE(text.find("at the peak of allocated, ", first + 10), std::string::npos) << text;
}

}  // namespace
}  // namespace tidemark::tests::stage_table_test
