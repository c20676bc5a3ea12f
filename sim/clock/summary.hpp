#pragma once

#include <cstddef>
#include <vector>

#include "sim/clock/class_timeline.hpp"
#include "sim/clock/trace.hpp"
#include "sim/program/program.hpp"

namespace tidemark::sim {

/// Where the compute stream of one class of ranks spends a step. Everything sums to `step`.
struct StepTimes {
  Duration step;
  Duration kernels;
  std::vector<Duration> transferring;  ///< by CommSlot: exposed, while bytes move
  std::vector<Duration> waiting;       ///< by CommSlot: for others to come to a transfer
  Duration idle;                       ///< the host is late, or a step begins
  Duration copies = {};                ///< between device and host: exposed
  bool operator==(const StepTimes&) const = default;
};

/// How long the last step took, from all ranks' end of the one before to all ranks' end. Needs a completed trace.
[[nodiscard]] Duration last_step(const Trace& trace);

/// When the step before the last has ended on all ranks. Needs a completed trace.
[[nodiscard]] Instant last_step_begin(const Trace& trace);

/// Where a step that begins at `from` went, on ranks of a class of that timeline. `slots`: how many communicators there
/// are.
[[nodiscard]] StepTimes step_times(const Program& program, const ClassTimeline& timeline, Instant from, Duration step,
                                   std::size_t slots);
/// The same of the last step.
[[nodiscard]] StepTimes step_times(const Program& program, const ClassTimeline& timeline, const Trace& trace,
                                   std::size_t slots);

}  // namespace tidemark::sim
