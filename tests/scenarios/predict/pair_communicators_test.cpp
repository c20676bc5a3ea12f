#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/formats/format.hpp"
#include "scenarios/predict/device_rows.hpp"
#include "scenarios/predict/prediction.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::pair_communicators_test {
namespace {

// Of the first rank, where its row says what it is made of.
std::string source_of_pipeline(const std::string& layout) {
  const Prediction prediction = predict(scenario_of_text(fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 4
[model_override]
num_hidden_layers = 8
[layout]
{}
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 8
)",
                                                                     layout)));
  for (const DeviceRow& row : device_rows(prediction.groups.front(), prediction.communicators))
    if (row.name == "communicator pipeline") return row.cost.source;
  return "";
}

// p2p_communication.py _p2p_ops: of two stages the even one's messages go through the group, the odd one's through
// WORLD, and PyTorch makes a communicator of two ranks in each. Of more, each neighbour has one. Batched ones go by the
// group's.
TEST(PairCommunicators, AreTwoForEachStageOfInterleavedPipelines) {
  const std::string interleaved = "\nschedule = \"interleaved\"\nchunks = 2";
  EXPECT_TRUE(source_of_pipeline("pipeline = 2" + interleaved).starts_with("2 communicators of two ranks"));
  EXPECT_TRUE(source_of_pipeline("pipeline = 4" + interleaved).starts_with("2 communicators of two ranks"));
  EXPECT_EQ(source_of_pipeline("pipeline = 2").find("communicators of two"), std::string::npos);
  EXPECT_NE(source_of_pipeline("pipeline = 2"), "");
}

}  // namespace
}  // namespace tidemark::tests::pair_communicators_test
