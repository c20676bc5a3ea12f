#include "scenarios/report/simulated_snapshot.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/recordings/memory_snapshot_writer.hpp"
#include "scenarios/recordings/recorded_trace.hpp"
#include "scenarios/recordings/trace_replay.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/scenarios/small_job.hpp"

namespace tidemark::tests::simulated_snapshot_test {
namespace {

using namespace literals;
using Action = TraceEvent::Action;

constexpr std::string_view pytorch_job = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 1
[model_override]
num_hidden_layers = 3
[train]
sequence_length = 2048
micro_batch = 1
global_batch = 1
steps = 3
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "pytorch"
)";

// What a test looks at: a rank of a job, its prediction and its snapshot.
struct Recorded {
  Job job;
  Trace trace;
  Prediction prediction;

  explicit Recorded(std::string_view text)
      : job(parse_scenario(text, "small.toml", folders)), trace(simulate_time(job)), prediction(predict(job, trace)) {}

  [[nodiscard]] const MemoryRecord& memory(Rank rank) const {
    for (const RankGroup& group : prediction.groups)
      if (std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end()) return group.memory;
    throw std::logic_error("every rank is in a group");
  }
};

const Recorded& megatron() {
  static const Recorded recorded(small_job);
  return recorded;
}
const Recorded& pytorch() {
  static const Recorded recorded(pytorch_job);
  return recorded;
}

MemorySnapshot read_back(const MemorySnapshot& snapshot) {
  std::ostringstream out;
  write_memory_snapshot(out, snapshot);
  return memory_snapshot(read_pickle(std::move(out).str()));
}

void expect_exact(const Recorded& recorded, Rank rank) {
  const MemorySnapshot snapshot = read_back(simulated_snapshot(recorded.job, recorded.trace, rank));
  const RecordedTrace trace = recorded_trace(snapshot);
  EXPECT_TRUE(trace.start.empty());
  const ReplayReport report = replay(trace);
  EXPECT_EQ(report.first_divergence.value_or(Divergence{}).text, "");
  EXPECT_TRUE(report.exact());
  const MemoryRecord& memory = recorded.memory(rank);
  EXPECT_EQ(report.peak_allocated, memory.allocated.bytes);
  EXPECT_EQ(report.peak_reserved, memory.peak_reserved);
  Bytes live;
  for (const SegmentRecord& segment : snapshot.segments)
    for (const BlockRecord& block : segment.blocks)
      if (block.state == BlockRecord::State::ActiveAllocated) live += block.size;
  EXPECT_EQ(live, memory.final_allocated);
}

TEST(SimulatedSnapshot, AReplayFindsItExactAndThePeaksOfThePrediction) {
  for (const Rank rank : {Rank{0}, Rank{2}, Rank{7}}) expect_exact(megatron(), rank);
  expect_exact(pytorch(), Rank{0});
}

TEST(SimulatedSnapshot, SaysWhichSegmentsCanExpand) {
  const Recorded expanding(std::string(pytorch_job) + "allocator = \"expandable_segments:True\"\n");
  const auto expandable = [](const Recorded& recorded) {
    const MemorySnapshot snapshot = simulated_snapshot(recorded.job, recorded.trace, Rank{0});
    return std::ranges::count(snapshot.segments, true, &SegmentRecord::expandable);
  };
  EXPECT_GT(expandable(expanding), 0);
  EXPECT_EQ(expandable(pytorch()), 0);
}

TEST(SimulatedSnapshot, OneThatGivesSegmentsBackToMakeRoomIsExactToo) {
  // The first rank of the pipeline with some MiB less than what it would reserve.
  Recorded tight(small_job);
  const MemoryRecord& free = tight.memory(Rank{0});
  Job job = tight.job;
  bool gave_back = false;
  for (int less = 1; less <= 64 && !gave_back; ++less) {
    job.scenario.cluster.device.capacity = free.device.bytes - Bytes{less} * (2 << 20);
    const MemorySnapshot snapshot = read_back(simulated_snapshot(job, tight.trace, Rank{0}));
    const auto& events = snapshot.device_traces.front();
    gave_back =
        std::any_of(events.begin(), events.end(), [](const TraceEvent& e) { return e.action == Action::SegmentFree; });
    if (gave_back) {
      EXPECT_EQ(replay(recorded_trace(snapshot)).first_divergence.value_or(Divergence{}).text, "");
    }
  }
  EXPECT_TRUE(gave_back);
}

TEST(SimulatedSnapshot, StacksSayWhatTheTensorIsAndWhoAskedForIt) {
  const MemorySnapshot snapshot = simulated_snapshot(megatron().job, megatron().trace, Rank{0});
  std::set<std::string> seen;
  for (const TraceEvent& event : snapshot.device_traces.front()) {
    ASSERT_TRUE(event.stack.valid());
    std::string text;
    for (const FrameId f : snapshot.stacks[event.stack.index()]) {
      const StackFrame& frame = snapshot.frames[f.index()];
      text += frame.file + ':' + std::to_string(frame.line) + ':' + frame.name + ' ';
    }
    seen.insert(text);
  }
  EXPECT_TRUE(
      seen.contains("tensor:0:layers.1.mlp.fc1.out operator:0:layers.1.mlp.fc1 layer:0:layers.1 "
                    "step:2:forward of micro-batch 1 category:0:saved_activations "))
      << *seen.begin() << *seen.rbegin();
}

TEST(SimulatedSnapshot, HasWhatTheViewerNeeds) {
  for (const Recorded* recorded : {&megatron(), &pytorch()}) {
    const MemorySnapshot snapshot = simulated_snapshot(recorded->job, recorded->trace, Rank{0});
    // Its code adds "unknown" to a list that it misspells.
    EXPECT_EQ(std::count(snapshot.categories.begin(), snapshot.categories.end(), "unknown"), 1);
    std::int64_t last = 0;
    for (const TraceEvent& event : snapshot.device_traces.front()) {
      EXPECT_GE(event.time_us.value(), last);
      last = *event.time_us;
      EXPECT_TRUE(event.category.valid());
      EXPECT_EQ(event.category.value == 0, event.action == Action::SegmentAlloc || event.action == Action::SegmentFree);
    }
    for (const SegmentRecord& segment : snapshot.segments) {
      EXPECT_EQ(segment.size.count() % (2 << 20), 0);
      Address next = segment.address;
      for (const BlockRecord& block : segment.blocks) {
        EXPECT_EQ(block.address, next);
        next = next + block.size;
        EXPECT_EQ(block.stack.valid(), block.state == BlockRecord::State::ActiveAllocated);
      }
      EXPECT_EQ(next, segment.address + segment.size);
    }
  }
}

TEST(SimulatedSnapshot, MarksTheOptimizersSteps) {
  const MemorySnapshot snapshot = simulated_snapshot(pytorch().job, pytorch().trace, Rank{0});
  ASSERT_EQ(snapshot.annotations.size(), 6u);  // three steps
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(snapshot.annotations[i].stage, i % 2 ? ExternalAnnotation::Stage::End : ExternalAnnotation::Stage::Start);
    EXPECT_TRUE(snapshot.annotations[i].name.starts_with("Optimizer.step#"));
    if (i > 0) {
      EXPECT_GE(snapshot.annotations[i].time_us, snapshot.annotations[i - 1].time_us);
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::simulated_snapshot_test
