#include "scenarios/recordings/snapshot_comparison.hpp"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::snapshot_comparison_test {
namespace {

using namespace literals;
using Action = TraceEvent::Action;

// A run of tensors of whole MiB, each in a segment of its own, and its snapshot.
class RealRun {
 public:
  RealRun() { snapshot_.device_traces.emplace_back(); }

  // With the frame, or the name of the tensor where the file is "tensor".
  RealRun& alloc(int id, Bytes size, const std::string& name = "forward",
                 const std::string& file = "/home/me/model.py") {
    const StackId stack{static_cast<std::int32_t>(snapshot_.stacks.size())};
    snapshot_.stacks.push_back({{static_cast<std::int32_t>(snapshot_.frames.size())}});
    snapshot_.frames.push_back({name, file, 7});
    const Bytes segment = round_up(size, 2_MiB);
    if (id >= static_cast<int>(sizes_.size())) {
      sizes_.resize(static_cast<std::size_t>(id) + 1);
      stacks_.resize(sizes_.size());
    }
    Bytes& known = sizes_[static_cast<std::size_t>(id)];
    if (known == Bytes{0}) {
      known = segment;
      add(Action::SegmentAlloc, id, segment, {});
    }
    stacks_[static_cast<std::size_t>(id)] = {stack, size};
    add(Action::Alloc, id, size, stack);
    return *this;
  }
  RealRun& free(int id) {
    auto& [stack, size] = stacks_[static_cast<std::size_t>(id)];
    add(Action::FreeRequested, id, size, {});
    add(Action::FreeCompleted, id, size, {});
    stack = {};
    return *this;
  }
  RealRun& optimizer() {
    snapshot_.annotations.push_back({ExternalAnnotation::Stage::End, "Optimizer.step#SGD.step", 0, time_});
    time_ += 10;
    return *this;
  }
  [[nodiscard]] MemorySnapshot snapshot() const {
    MemorySnapshot out = snapshot_;
    for (std::size_t id = 0; id < sizes_.size(); ++id) {
      SegmentRecord segment{.address = address(static_cast<int>(id)), .size = sizes_[id], .pool = PoolKind::Large};
      const auto& [stack, size] = stacks_[id];
      if (stack.valid())
        segment.blocks = {{segment.address, sizes_[id], size, BlockRecord::State::ActiveAllocated, stack}};
      else
        segment.blocks = {{segment.address, sizes_[id], {}, BlockRecord::State::Inactive, {}}};
      out.segments.push_back(std::move(segment));
    }
    return out;
  }

 private:
  static Address address(int id) { return Address{0x7f00'0000'0000} + 4_GiB * id; }
  void add(Action action, int id, Bytes size, StackId stack) {
    snapshot_.device_traces.front().push_back(
        {.action = action, .address = address(id), .size = size, .time_us = time_, .stack = stack});
  }

  MemorySnapshot snapshot_;
  std::vector<Bytes> sizes_;
  std::vector<std::pair<StackId, Bytes>> stacks_;
  std::int64_t time_ = 1;
};

// Weights, and two steps of two activations each.
RealRun predicted_run() {
  RealRun run;
  run.alloc(0, 100_MiB, "weights", "tensor").optimizer();
  for (int step = 0; step < 2; ++step)
    run.alloc(1, 30_MiB, "layers.0.mlp.out", "tensor")
        .alloc(2, 30_MiB, "layers.1.mlp.out", "tensor")
        .free(2)
        .free(1)
        .optimizer();
  return run;
}

// The same, with a larger activation more, from other places of the code.
RealRun measured_run() {
  RealRun run;
  run.alloc(0, 100_MiB, "init").optimizer();
  for (int step = 0; step < 2; ++step)
    run.alloc(1, 30_MiB).alloc(2, 30_MiB).alloc(3, 50_MiB, "softmax").free(3).free(2).free(1).optimizer();
  return run;
}

SnapshotComparison compared(const MemorySnapshot& predicted, const MemorySnapshot& measured) {
  return compare_recordings({predicted, recorded_trace(predicted)}, {measured, recorded_trace(measured)});
}

TEST(SnapshotComparison, ARunAgreesWithItself) {
  const MemorySnapshot snapshot = predicted_run().snapshot();
  const SnapshotComparison c = compared(snapshot, snapshot);
  EXPECT_EQ(c.allocated, (BytePair{160_MiB, 160_MiB}));
  EXPECT_EQ(c.at_begin, (BytePair{100_MiB, 100_MiB}));
  EXPECT_EQ(c.reserved, (BytePair{160_MiB, 160_MiB}));
  EXPECT_TRUE(c.only_predicted.empty());
  EXPECT_TRUE(c.only_measured.empty());
  EXPECT_EQ(c.block_rounding, 0_B);
  for (const BytePair& point : c.curve) EXPECT_EQ(point.difference(), 0_B);
  EXPECT_TRUE(c.agrees(0));
}

TEST(SnapshotComparison, SaysWhatIsInOneAndNotInTheOther) {
  const SnapshotComparison c = compared(predicted_run().snapshot(), measured_run().snapshot());
  EXPECT_EQ(c.allocated, (BytePair{160_MiB, 210_MiB}));
  EXPECT_EQ(c.predicted_step, (StepSummary{6, StepEvidence::Annotations}));
  EXPECT_EQ(c.measured_step, (StepSummary{9, StepEvidence::Annotations}));
  EXPECT_EQ(c.matched,
            (std::vector<TensorMatch>{{100_MiB, 1, {100_MiB, 100_MiB}, "weights", "model.py:7 init"},
                                      {30_MiB, 2, {60_MiB, 60_MiB}, "layers.*.mlp.out", "model.py:7 forward"}}));
  EXPECT_TRUE(c.only_predicted.empty());
  EXPECT_EQ(c.only_measured, (std::vector<Unmatched>{{50_MiB, 1, 50_MiB, "model.py:7 softmax"}}));
  EXPECT_NEAR(c.allocated.error(), -50.0 / 210, 1e-12);
  EXPECT_FALSE(c.agrees(0.2));
  EXPECT_TRUE(c.agrees(0.25));

  const SnapshotComparison back = compared(measured_run().snapshot(), predicted_run().snapshot());
  EXPECT_EQ(back.only_predicted.size(), 1u);
  EXPECT_TRUE(back.only_measured.empty());
}

TEST(SnapshotComparison, TheFirstRequestThatDiffersIsTold) {
  const MemorySnapshot one = predicted_run().snapshot();
  EXPECT_EQ(compared(one, one).first_difference, std::nullopt);
  const SnapshotComparison c = compared(one, measured_run().snapshot());
  EXPECT_EQ(c.first_difference,
            (DifferingRequest{3, {0_B, 50_MiB}, "", "model.py:7 softmax", {"/home/me/model.py:7 softmax"}}));
  RealRun larger;
  larger.alloc(0, 100_MiB, "init").optimizer();
  for (int step = 0; step < 2; ++step)
    larger.alloc(1, 30_MiB).alloc(4, 1_KiB).free(4).alloc(2, 31_MiB).free(2).free(1).optimizer();
  const SnapshotComparison other = compared(one, larger.snapshot());  // small ones are not looked at
  ASSERT_TRUE(other.first_difference);
  EXPECT_EQ(other.first_difference->number, 2);
  EXPECT_EQ(other.first_difference->size, (BytePair{30_MiB, 31_MiB}));
  EXPECT_EQ(other.first_difference->predicted, "layers.*.mlp.out");
}

TEST(SnapshotComparison, WithoutAnnotationsAStepIsWhatRepeats) {
  MemorySnapshot measured = measured_run().snapshot();
  measured.annotations.clear();
  const SnapshotComparison c = compared(predicted_run().snapshot(), measured);
  EXPECT_EQ(c.measured_step, (StepSummary{9, StepEvidence::Repetition}));
  EXPECT_EQ(c.allocated, (BytePair{160_MiB, 210_MiB}));
}

// Half of what either side allocates stands at the first half of its curve, however many events that takes.
TEST(SnapshotComparison, CurvesLieSideBySideByBytesAllocated) {
  RealRun coarse, fine;
  coarse.alloc(0, 2_MiB).optimizer().alloc(1, 64_MiB).alloc(2, 64_MiB).free(1).free(2).optimizer();
  fine.alloc(0, 2_MiB).optimizer();
  for (int i = 1; i <= 32; ++i) fine.alloc(i, 4_MiB);
  for (int i = 1; i <= 32; ++i) fine.free(i);
  fine.optimizer();
  const SnapshotComparison c = compared(coarse.snapshot(), fine.snapshot());
  EXPECT_EQ(c.curve[32].predicted, 66_MiB);
  EXPECT_EQ(c.curve[32].measured, 66_MiB);
  EXPECT_EQ(c.curve[63], (BytePair{130_MiB, 130_MiB}));
  EXPECT_EQ(c.curve[0].measured, 2_MiB);
}

TEST(SnapshotComparison, FramesOfTheUsersCodeAreShown) {
  MemorySnapshot measured = measured_run().snapshot();
  // Innermost first: PyTorch's own, then the user's.
  const auto frame = [&](const std::string& name, const std::string& file) {
    measured.frames.push_back({name, file, 3});
    return FrameId{static_cast<std::int32_t>(measured.frames.size()) - 1};
  };
  const std::vector<FrameId> stack{frame("torch::unwind::unwind()", "??"), frame("linear", "/x/torch/nn/functional.py"),
                                   frame("mlp", "/home/me/llama.py"), frame("main", "/home/me/train.py")};
  for (auto& s : measured.stacks) s = stack;
  const SnapshotComparison c = compared(predicted_run().snapshot(), measured);
  EXPECT_EQ(c.matched[0].measured, "llama.py:3 mlp");
}

TEST(SnapshotComparison, AStepEndsWithTheLastOfSeveralOptimizers) {
  RealRun measured;
  measured.alloc(0, 100_MiB, "init").optimizer();
  for (int step = 0; step < 2; ++step)
    measured.alloc(1, 30_MiB).alloc(2, 30_MiB).free(2).free(1).optimizer().alloc(3, 2_MiB).free(3).optimizer();
  // Ten activations, so that two allocations of a second optimizer's step are none of their own.
  RealRun predicted;
  predicted.alloc(0, 100_MiB, "weights", "tensor").optimizer();
  for (int i = 1; i <= 8; ++i) predicted.alloc(i, 10_MiB, "x", "tensor");
  predicted.optimizer();
  const SnapshotComparison c = compared(predicted.snapshot(), measured.snapshot());
  EXPECT_EQ(c.measured_step, (StepSummary{6, StepEvidence::Annotations}));
  EXPECT_EQ(c.allocated.measured, 160_MiB);
}

TEST(SnapshotComparison, NothingMeasuredIsAllOfIt) {
  EXPECT_EQ((BytePair{0_B, 0_B}.error()), 0);
  EXPECT_TRUE(std::isinf(BytePair{1_B, 0_B}.error()));
}

}  // namespace
}  // namespace tidemark::tests::snapshot_comparison_test
