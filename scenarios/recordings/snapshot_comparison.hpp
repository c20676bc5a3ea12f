#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/recordings/memory_snapshot.hpp"
#include "scenarios/recordings/recorded_trace.hpp"
#include "scenarios/recordings/survivors.hpp"
#include "sim/base/units.hpp"

namespace tidemark::scenarios {

/// The same quantity, predicted and measured.
struct BytePair {
  Bytes predicted, measured;

  [[nodiscard]] Bytes difference() const { return predicted - measured; }
  /// As a share of what was measured.
  [[nodiscard]] double error() const;
  friend bool operator==(const BytePair&, const BytePair&) = default;
};

/// Tensors of one size that are live at the peaks of both sides, matched in order of allocation.
struct TensorMatch {
  Bytes requested;  ///< each
  std::int64_t count = 0;
  BytePair blocks;        ///< together
  std::string predicted;  ///< what most of them are: label of the tensor, "*" for the layer
  std::string measured;   ///< the frame that most of them come from
  friend bool operator==(const TensorMatch&, const TensorMatch&) = default;
};

/// Tensors of one size and origin that only one side has at its peak.
struct Unmatched {
  Bytes requested;  ///< each
  std::int64_t count = 0;
  Bytes blocks;  ///< together
  std::string what;
  friend bool operator==(const Unmatched&, const Unmatched&) = default;
};

/// The first request of the step, of those that are not small, that one side makes and the other makes not, or of
/// another size.
struct DifferingRequest {
  static constexpr Bytes smallest{64 << 10};  ///< that is looked at: scalars and counters come in many orders
  std::int64_t number = 0;                    ///< of those, from 1
  BytePair size;                              ///< 0: that side's step is over
  std::string predicted, measured;            ///< what it is, and which frame asks for it
  std::vector<std::string> stack;             ///< of the one that was measured, innermost first
  friend bool operator==(const DifferingRequest&, const DifferingRequest&) = default;
};

/// How one side's memory was cut into steps.
struct StepSummary {
  std::size_t events = 0;
  StepEvidence evidence = StepEvidence::None;
  friend bool operator==(const StepSummary&, const StepSummary&) = default;
};

/// A prediction of a rank's allocator beside a recording of the real one. Peaks, curve and tensors are those of the
/// last complete step.
struct SnapshotComparison {
  static constexpr std::size_t curve_points = 64;

  StepSummary predicted_step, measured_step;
  BytePair allocated;                        ///< highest in the step
  BytePair at_begin;                         ///< allocated as the step begins
  BytePair reserved;                         ///< highest in all of the recording
  std::array<BytePair, curve_points> curve;  ///< highest allocated in each 64th of the bytes that the step allocates
  std::optional<DifferingRequest> first_difference;      ///< nothing: all requests are alike
  std::vector<TensorMatch> matched;                      ///< largest together first
  std::vector<Unmatched> only_predicted, only_measured;  ///< largest together first
  /// Differences of `allocated` add up: blocks of what is only predicted, less those of what is only measured, and
  /// this, which matched tensors take more because other rests were left with them.
  Bytes block_rounding;

  /// Allocated and reserved differ by no more than this share of what was measured.
  [[nodiscard]] bool agrees(double tolerance) const;
};

/// What the allocator of a device did: a snapshot, whose own traces are not looked at, and the trace of that device.
struct Recording {
  MemorySnapshot snapshot;
  RecordedTrace trace;
  std::int64_t device = 0;
};

[[nodiscard]] SnapshotComparison compare_recordings(const Recording& predicted, const Recording& measured);

}  // namespace tidemark::scenarios
