#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/recordings/snapshot_replay.hpp"
#include "tests/namespace.hpp"

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

INSTANTIATE_TEST_SUITE_P(H100, TrainingOnAGpu, testing::ValuesIn(trainings()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace tidemark::tests
