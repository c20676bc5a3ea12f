#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/recordings/memory_snapshot.hpp"
#include "scenarios/recordings/recorded_trace.hpp"
#include "scenarios/recordings/survivors.hpp"
#include "scenarios/recordings/trace_replay.hpp"
#include "scenarios/recordings/what_if.hpp"

namespace tidemark::scenarios {

struct SnapshotQuestion {
  std::string path;
  std::optional<std::int64_t> device;         ///< absent: the one that has a trace
  std::optional<std::string> allocator_conf;  ///< the text of PYTORCH_CUDA_ALLOC_CONF; absent: as recorded
  std::optional<Bytes> capacity;              ///< what the allocator can get; absent: where it ran out, or no limit
  std::optional<double> memory_fraction;      ///< of the capacity, as torch.cuda.set_per_process_memory_fraction

  [[nodiscard]] bool asks_what_if() const { return allocator_conf || capacity || memory_fraction; }
};

/// What other conditions make of the requests, beside what the recorded ones do.
struct WhatIf {
  Conditions conditions;
  std::string allocator_conf;
  bool capacity_from_recording = false;  ///< where the recorded device ran out
  std::vector<std::string> remarks;
  RerunRange recorded;  ///< the recorded options, and no limit to the device
  RerunRange requested;
};

/// The answer of `replay`.
struct SnapshotReplay {
  std::string path;
  std::int64_t device = 0;
  MemorySnapshot snapshot;  ///< without its traces
  RecordedTrace trace;
  ReplayReport report;
  Steps steps;
  std::vector<Bytes> allocated_at_steps;
  std::vector<Survivors> survivors;
  std::optional<WhatIf> what_if;

  [[nodiscard]] bool yes() const { return report.exact() && !(what_if && what_if->requested.likeliest.ran_out); }
};

/// Replays a snapshot, looks for what stays, and asks what would be under other conditions. Throws InputError for a
/// file, a device or settings that do not make sense.
[[nodiscard]] SnapshotReplay replay_snapshot(const SnapshotQuestion& question);

}  // namespace tidemark::scenarios
