#pragma once

#include "scenarios/namespace.hpp"
#include "scenarios/predict/job.hpp"
#include "sim/clock/trace.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/program_times.hpp"

namespace tidemark::scenarios {

/// How `predict` replays the memory that it reports, on the device as it is: blocks that other streams use come back by
/// the clock, and at once in a job that deadlocks. `times` are of the rank's program, and outlive the result.
[[nodiscard]] ReplayOptions reported_replay(const Job& job, const Trace& trace, const ProgramTimes& times);

/// The same on a device without a limit, which `predict` reports where memory runs out.
[[nodiscard]] ReplayOptions without_device(ReplayOptions options);

}  // namespace tidemark::scenarios
