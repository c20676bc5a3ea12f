#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "scenarios/namespace.hpp"
#include "scenarios/predict/allocator_events.hpp"
#include "scenarios/predict/required_memory.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/costs.hpp"
#include "sim/program/launch_queue.hpp"

// A rank's events through the emulated allocator: what `replay` shows of its whole program (tests AllocatorEvents.*).
// Once the allocator is after a body as it was after an earlier one (the same live blocks at the same addresses), what
// follows repeats too, and is skipped.

namespace tidemark::scenarios {

/// What one run through the allocator shows. Drivers take memory at few moments, so one run serves every price list.
struct EventsRecord {
  Bytes allocated;  ///< highest
  struct Epoch {
    std::optional<DriverResource> resource;  ///< what was created at its beginning; of the first, nothing
    CommSlot comm;
    Bytes registered;  ///< … or was taken past the allocator
    Bytes reserved;    ///< highest within
    Bytes live;        ///< the same, of what is in use alone, as requests are rounded
  };
  std::vector<Epoch> epochs;
  bool out_of_memory = false;
  bool drivers_come_first = true;        ///< before the allocator gave its cache back
  CapacityRange same_on;                 ///< devices on which all this is the same
  bool complete = false;                 ///< to the end of the last step; ended early otherwise
  std::int64_t bodies = 0, skipped = 0;  ///< run, and known without running

  [[nodiscard]] Bytes device(const DriverCosts& costs) const;
  [[nodiscard]] Bytes device_upper(const DriverCosts& costs) const;
  /// On a device without a limit; `late` as in UnlimitedMemory.
  [[nodiscard]] UnlimitedMemory unlimited(const DriverCosts& costs, std::optional<Bytes> late) const;
};

/// Called whenever a run's epochs have changed: whether it may stop here.
using MayStop = std::function<bool(const EventsRecord&)>;

/// When blocks that other streams borrowed come back, as in ReplayOptions.
struct EventFrees {
  CrossStreamFrees cross_stream = CrossStreamFrees::AtOnce;
  LaunchQueue queue = {};
};

/// Through the allocator, on a device of unlimited memory.
[[nodiscard]] EventsRecord replay_events(const StateEvents& state, const StageEvents& stage,
                                         const AllocatorOptions& options = {}, const MayStop& may_stop = {},
                                         const EventFrees& frees = {});
/// The same on a device of `capacity`, where drivers take what `prices` say at their central values.
[[nodiscard]] EventsRecord replay_events(const StateEvents& state, const StageEvents& stage,
                                         const AllocatorOptions& options, const DriverCosts& costs, Bytes capacity,
                                         const EventFrees& frees = {});

/// What a rank of those events does on devices of limited memory.
[[nodiscard]] RunOn run_of(std::shared_ptr<const StateEvents> state, std::shared_ptr<const StageEvents> stage,
                           JudgedDevice device);

}  // namespace tidemark::scenarios
