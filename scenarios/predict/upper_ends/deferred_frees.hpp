#pragma once

#include <functional>
#include <optional>

#include "parallel/runtime/runtime.hpp"
#include "scenarios/namespace.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/costs.hpp"
#include "sim/program/launch_queue.hpp"
#include "sim/program/program.hpp"
#include "sim/program/program_times.hpp"
#include "sim/program/structure/repeats.hpp"

// Blocks that another stream borrows come back between their free and the next time the host waits for that stream, or
// for room in its launch queue behind that stream's work (sim/memory/replay.hpp). `predict` reports what is allocated
// and reserved when they come back by the simulated clock, and counts both ends in what a device holds at most. The
// clock's figure need not lie between the ends: which blocks are free decides how requests are cut.

namespace tidemark::scenarios {

/// Whether streams borrow blocks of others.
[[nodiscard]] bool has_cross_stream_uses(const Program& program);
/// The same of any program.
[[nodiscard]] bool has_cross_stream_uses(const RepeatingWorkload& workload);

/// The stream whose uses of blocks the reported value takes for over as soon as blocks are given up: that on which
/// Megatron-LM's DistributedDataParallel is made; none elsewhere. Decision 0007 has the measurements.
[[nodiscard]] StreamId prompt_stream(const parallel::Runtime& runtime);
/// Whether other streams than that use blocks of others: then the reported value asks the clock.
[[nodiscard]] bool asks_the_clock(const Program& program, StreamId prompt);
[[nodiscard]] bool asks_the_clock(const RepeatingWorkload& workload, StreamId prompt);

/// What drivers and libraries take, at the ends of its estimates.
[[nodiscard]] DriverCosts at_upper_ends(DriverCosts costs);
[[nodiscard]] DriverCosts at_lower_ends(DriverCosts costs);

/// A rank's memory at those prices.
using MemoryOf = std::function<MemoryRecord(const DriverCosts&, const sim::ReplayOptions&)>;

/// A rank's device as its memory is judged.
struct JudgedDevice {
  Bytes capacity;
  AllocatorOptions allocator;
  LaunchQueue queue;       ///< of the rank's host thread
  double unexplained = 0;  ///< of what is allocated, how much measured runs were off by (measured_ranges.hpp)
};

/// That of the scenario's ranks.
[[nodiscard]] JudgedDevice judged_device(const Scenario& scenario);

/// A rank's memory with frees that come later.
struct DeferredFrees {
  std::function<Bytes()> unlimited;  ///< what a device without a limit holds at most
  /// The same on the device as it is, with drivers that take all they might; nothing where memory runs out.
  std::function<std::optional<Bytes>(const DriverCosts& upper)> within;
};

/// What a rank's device holds at most if frees come later, where `at_once` is what it holds if they come at once. A
/// device that deferred frees alone would fill need not run out: before PyTorch's allocator gives up it waits for all
/// of them (release_cached_blocks in c10/cuda/CUDACachingAllocator.cpp). The emulated one does too, and shows whether
/// it helps.
[[nodiscard]] Bytes upper_end(Bytes at_once, const DriverCosts& costs, const JudgedDevice& device,
                              const DeferredFrees& deferred);

}  // namespace tidemark::scenarios
