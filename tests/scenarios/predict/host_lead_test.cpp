#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/environment/environment.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// How far a host thread runs ahead of its device is what its launch queue holds, however long a step is.

namespace tidemark::tests::host_lead_test {
namespace {

using namespace literals;

Scenario interleaved(std::int64_t global_batch, const std::string& environment = "") {
  return parse_scenario(fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 16
[layout]
tensor = 2
sequence_parallel = true
pipeline = 4
chunks = 4
schedule = "interleaved"
[train]
sequence_length = 2048
micro_batch = 1
global_batch = {}
[runtime]
name = "megatron"
versions = {{ torch = "2.7" }}  # whose process groups mark what is sent
[runtime.environment]
{}
)",
                                    global_batch, environment),
                        "job.toml", folders);
}

Bytes upper(const Scenario& scenario) { return predict(scenario).highest().memory.peak_device_upper; }

// Four times the micro-batches borrow no more blocks at a time.
TEST(HostLead, UpperEndsDoNotGrowWithMicroBatches) {
  const Bytes few = upper(interleaved(64)), many = upper(interleaved(256));
  EXPECT_LE(many - few, 100_MiB);
  EXPECT_GE(many, few - 100_MiB);
}

TEST(HostLead, GrowsWithTheLaunchQueue) {
  EXPECT_GT(upper(interleaved(64, "CUDA_SCALE_LAUNCH_QUEUES = \"4x\"")), upper(interleaved(64)));
}

TEST(HostLead, HasTheQueueThatTheEnvironmentSays) {
  EXPECT_EQ(launch_queue_of(interleaved(16)), (LaunchQueue{.depth = 1024, .channels = 1})) << "as Megatron asks for";
  const Scenario requested =
      interleaved(16, "CUDA_DEVICE_MAX_CONNECTIONS = \"4\"\nCUDA_SCALE_LAUNCH_QUEUES = \"0.5x\"");
  EXPECT_EQ(launch_queue_of(requested), (LaunchQueue{.depth = 512, .channels = 4}));
  const std::string json = scenario_json(requested, -1);
  EXPECT_NE(json.find(R"("CUDA_DEVICE_MAX_CONNECTIONS":"4","CUDA_SCALE_LAUNCH_QUEUES":"0.5x")"), std::string::npos);
  EXPECT_THROW((void)interleaved(16, "CUDA_DEVICE_MAX_CONNECTIONS = \"64\""), InputError);
  EXPECT_THROW((void)interleaved(16, "CUDA_SCALE_LAUNCH_QUEUES = \"3x\""), InputError);
}

}  // namespace
}  // namespace tidemark::tests::host_lead_test
