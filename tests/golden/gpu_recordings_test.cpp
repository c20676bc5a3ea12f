#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/io/cluster_reader.hpp"
#include "scenarios/recordings/snapshot_replay.hpp"
#include "tests/namespace.hpp"
#include "topology/nccl_memory.hpp"

// What PyTorch's caching allocator did on a GPU (tests/ground_truth/record_gpu.py): ours does the same.

namespace tidemark::tests {
namespace {

const std::filesystem::path recordings = TIDEMARK_SOURCE_DIR "/tests/golden/gpu_recordings";

std::vector<std::string> trainings() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(recordings))
    if (entry.path().extension() == ".gz") names.push_back(entry.path().stem().stem().string());
  std::ranges::sort(names);
  return names;
}

class TrainingOnAGpu : public testing::TestWithParam<std::string> {};

TEST_P(TrainingOnAGpu, AsksAnAllocatorThatDoesTheSame) {
  SnapshotQuestion question;
  question.path = (recordings / (GetParam() + ".pickle.gz")).string();
  const SnapshotReplay replayed = replay_snapshot(question);
  EXPECT_TRUE(replayed.yes()) << (replayed.report.first_divergence ? replayed.report.first_divergence->text : "");
  EXPECT_GT(replayed.report.segment_allocs, 0);

  // PyTorch's own counters, which the trace does not have.
  const nlohmann::json phases = nlohmann::json::parse(std::ifstream(recordings / (GetParam() + ".json"))).at("phases");
  const auto highest = [&](const char* counter) {
    std::int64_t bytes = 0;
    for (const nlohmann::json& phase : phases) bytes = std::max(bytes, phase.at(counter).get<std::int64_t>());
    return bytes;
  };
  EXPECT_EQ(replayed.report.peak_reserved.count(), highest("reserved_peak"));
  EXPECT_EQ(replayed.report.peak_allocated.count(), highest("active_peak"));
  EXPECT_EQ(replayed.report.reserved.count(), phases.back().at("reserved").get<std::int64_t>());
}

// The context, and what code was loaded: all that the device held besides the allocator's segments.
TEST_P(TrainingOnAGpu, LeavesToTheDriverWhatTheClusterSays) {
  const Device device = read_cluster(TIDEMARK_SOURCE_DIR "/scenarios/clusters/h100-sxm-80g.toml").device;
  const nlohmann::json phases = nlohmann::json::parse(std::ifstream(recordings / (GetParam() + ".json"))).at("phases");
  const nlohmann::json& last = phases.back();
  const std::int64_t driver = last.at("device_taken").get<std::int64_t>() - last.at("reserved").get<std::int64_t>();
  EXPECT_GE(driver, (device.context.low + device.modules.low).count());
  EXPECT_LE(driver, (device.context.high + device.modules.high).count());
  // Sharding takes kernels of its own.
  EXPECT_NEAR(static_cast<double>(driver), static_cast<double>((device.context.bytes + device.modules.bytes).count()),
              0.1 * static_cast<double>(driver));
}

INSTANTIATE_TEST_SUITE_P(H100, TrainingOnAGpu, testing::ValuesIn(trainings()),
                         [](const auto& instance) { return instance.param; });

// A second communicator of one rank: structures only. The formula's 388 MiB, and a granule of 2 MiB.
TEST(LadderOfAnH100, HasACommunicatorAsLargeAsItsFormula) {
  const nlohmann::json rungs = nlohmann::json::parse(std::ifstream(recordings / "ladder.json")).at("rungs");
  const auto second =
      std::ranges::find_if(rungs, [](const nlohmann::json& rung) { return rung.at("rung") == "second_communicator"; });
  ASSERT_NE(second, rungs.end());
  const Cluster h100 = read_cluster(TIDEMARK_SOURCE_DIR "/scenarios/clusters/h100-sxm-80g.toml");
  const CommunicatorUse alone{.ranks = 1, .local = 1, .nodes = 1};
  const Bytes off =
      Bytes{second->at("overhead_added").get<std::int64_t>()} - communicator_memory(h100, {}, alone).bytes;
  EXPECT_EQ(off, Bytes{2 << 20});
}

}  // namespace
}  // namespace tidemark::tests
