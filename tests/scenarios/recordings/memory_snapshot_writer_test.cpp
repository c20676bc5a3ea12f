#include "scenarios/recordings/memory_snapshot_writer.hpp"

#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::memory_snapshot_writer_test {
namespace {

using namespace literals;

std::string written(const MemorySnapshot& snapshot) {
  std::ostringstream out;
  write_memory_snapshot(out, snapshot);
  return std::move(out).str();
}

// Every key with a value of its own; stacks and frames in the order in which a reader meets them.
MemorySnapshot everything() {
  MemorySnapshot s;
  s.frames = {{"layers.0.out", "tensor", 0}, {"forward", "step", 2}, {"other", "tensor", 0}};
  s.stacks = {{{0}, {1}}, {{2}, {1}}};
  s.categories = {"parameters", "unknown"};
  s.segments = {{.device = 0,
                 .address = {1ULL << 40},
                 .size = 2_MiB,
                 .stream = 3,
                 .pool = PoolKind::Small,
                 .mempool = {0, 1},
                 .expandable = false,
                 .stack = {0},
                 .blocks = {{{1ULL << 40}, 512_B, 100_B, BlockRecord::State::ActiveAllocated, {1}},
                            {{(1ULL << 40) + 512}, 1024_B, 1000_B, BlockRecord::State::ActivePendingFree, {0}},
                            {{(1ULL << 40) + 1536}, 2_MiB - 1536_B, 0_B, BlockRecord::State::Inactive, {}}}},
                {.device = 1, .address = {1ULL << 41}, .size = 20_MiB, .pool = PoolKind::Large, .expandable = true}};
  using Action = TraceEvent::Action;
  s.device_traces = {{{.action = Action::SegmentAlloc,
                       .address = {1ULL << 40},
                       .size = 2_MiB,
                       .stream = 3,
                       .time_us = 7,
                       .category = {1}},
                      {.action = Action::Alloc,
                       .address = {1ULL << 40},
                       .size = 100_B,
                       .mempool = {0, 1},
                       .stack = {1},
                       .category = {0}},
                      {.action = Action::FreeRequested, .address = {1ULL << 40}, .size = 100_B, .stack = {0}},
                      {.action = Action::FreeCompleted, .address = {1ULL << 40}, .size = 100_B},
                      {.action = Action::OutOfMemory, .address = {12345}, .size = 1_GiB, .time_us = 1LL << 50},
                      {.action = Action::Snapshot, .address = {}, .size = 0_B}},
                     {}};
  // A reader numbers categories as it meets them.
  std::swap(s.categories[0], s.categories[1]);
  s.device_traces[0][0].category = {0};
  s.device_traces[0][1].category = {1};
  AllocatorSettings& settings = s.settings.emplace();
  settings.text = "max_split_size_mb:512";
  settings.max_split_size = 512_MiB;
  settings.garbage_collection_threshold = 0.75;
  settings.trace_overflowed = true;
  settings.roundup_divisions[3] = 4;
  s.annotations = {{ExternalAnnotation::Stage::Start, "Optimizer.step#AdamW.step", 0, 5},
                   {ExternalAnnotation::Stage::End, "Optimizer.step#AdamW.step", 0, 6}};
  return s;
}

TEST(MemorySnapshotWriter, WhatIsWrittenIsReadBack) {
  const MemorySnapshot snapshot = everything();
  EXPECT_EQ(memory_snapshot(read_pickle(written(snapshot))), snapshot);
}

TEST(MemorySnapshotWriter, AnEmptySnapshotIsOneToo) {
  EXPECT_EQ(memory_snapshot(read_pickle(written({}))), MemorySnapshot{});
}

TEST(MemorySnapshotWriter, SegmentsSayHowMuchOfThemIsUsed) {
  const Pickle pickle = read_pickle(written(everything()));
  const auto root = std::get<PickleDict>(pickle.root());
  const auto segments = pickle.items(std::get<PickleList>(*pickle.find(root, "segments")));
  const auto first = std::get<PickleDict>(segments[0]);
  EXPECT_EQ(*pickle.find(first, "allocated_size"), PickleValue{std::int64_t{512}});
  EXPECT_EQ(*pickle.find(first, "active_size"), PickleValue{std::int64_t{1536}});
  EXPECT_EQ(*pickle.find(first, "requested_size"), PickleValue{std::int64_t{1100}});
}

TEST(MemorySnapshotWriter, StacksAndFramesAreWrittenOnce) {
  MemorySnapshot snapshot = everything();
  const std::size_t before = written(snapshot).size();
  for (int i = 0; i < 1000; ++i) snapshot.device_traces[0].push_back(snapshot.device_traces[0][1]);
  EXPECT_LT(written(snapshot).size(), before + 1000 * 60);
}

}  // namespace
}  // namespace tidemark::tests::memory_snapshot_writer_test
