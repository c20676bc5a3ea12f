#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/recordings/snapshot_replay.hpp"
#include "sim/memory/driver_addresses.hpp"
#include "tests/namespace.hpp"
#include "topology/nccl_memory.hpp"

// What PyTorch's caching allocator did on a GPU (tests/ground_truth/record_gpu.py): ours does the same.

namespace tidemark::tests::gpu_recordings_test {
namespace {

const std::filesystem::path recordings = TIDEMARK_SOURCE_DIR "/tests/golden/gpu_recordings";

std::vector<std::string> trainings() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(recordings))
    if (entry.path().extension() == ".gz") names.push_back(entry.path().stem().stem().string());
  std::ranges::sort(names);
  return names;
}

// Of pairs of segments of one size that were there together, the share of which the lower one is the same.
double pairs_in_order(const RecordedTrace& trace, AddressOrder order) {
  struct Segment {
    Address recorded, ours;
    Bytes size;
  };
  DriverAddresses driver(order);
  std::vector<Segment> live;
  std::int64_t pairs = 0, alike = 0;
  for (const RecordedEvent& event : trace.events) {
    if (event.action == TraceEvent::Action::SegmentAlloc) {
      const Segment its{event.address, *driver.allocate(event.size, event.stream), event.size};
      for (const Segment& other : live) {
        if (other.size != its.size) continue;
        ++pairs;
        alike += (its.recorded < other.recorded) == (its.ours < other.ours) ? 1 : 0;
      }
      live.push_back(its);
    } else if (event.action == TraceEvent::Action::SegmentFree) {
      const auto gone = std::ranges::find(live, event.address, &Segment::recorded);
      if (gone == live.end()) continue;
      driver.release(gone->ours, gone->size);
      live.erase(gone);
    }
  }
  return static_cast<double>(alike) / static_cast<double>(pairs);
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

  const double falling = pairs_in_order(replayed.trace, AddressOrder::Falling),
               rising = pairs_in_order(replayed.trace, AddressOrder::Rising);
  std::cout << fmt::format(
      "segments of one size: {:.1f} % of pairs lie as falling addresses have them, {:.1f} % as "
      "rising ones\n",
      100 * falling, 100 * rising);
  EXPECT_GE(falling, 0.978);
  EXPECT_LE(rising, 0.137);
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
}  // namespace tidemark::tests::gpu_recordings_test
