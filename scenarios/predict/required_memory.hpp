#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>

#include "scenarios/predict/upper_ends/deferred_frees.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/device_memory.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/costs.hpp"
#include "sim/program/program.hpp"

// PyTorch's allocator keeps what was freed, so a device fills up without having to: before the allocator gives up, it
// waits for frees that are pending, gives every segment back that is not in use, and asks once more
// (release_cached_blocks in c10/cuda/CUDACachingAllocator.cpp). What a rank must have of its device is the least
// memory with which that never fails. Memory of drivers and libraries has no second try: it is not the allocator's, and
// counts when it comes.

namespace tidemark::scenarios {

/// What a rank does on a device of limited memory.
struct LimitedRun {
  bool gets_through = false;
  bool drivers_come_first = false;   ///< before the allocator gave its cache back, if it did
  CapacityRange same_on = {{}, {}};  ///< devices on which it does the same; none that is known
};
using TryCapacity = std::function<LimitedRun(Bytes capacity)>;

/// The least capacity above which all that were tried get through, to a thousandth, or 2 MiB. With `filled` it does,
/// with less than `live` it does not. `expected` is what a rank much like this one needs: a search from there is short.
[[nodiscard]] Bytes least_capacity(Bytes live, Bytes filled, const TryCapacity& run,
                                   std::optional<Bytes> expected = {});

/// A rank's memory on a device without a limit.
struct UnlimitedMemory {
  Bytes live, live_upper;      ///< in use at a time, drivers included: no smaller device would do
  Bytes device, device_upper;  ///< with what the allocator keeps, where borrowed blocks come back at once
  Bytes driver, driver_upper;  ///< of drivers, in the end
  std::optional<Bytes> late;   ///< as `device_upper`, where they come back at the latest; nothing: there are none

  /// At upper ends, whenever blocks come back.
  [[nodiscard]] Bytes filled() const { return late ? std::max(device_upper, *late) : device_upper; }
};
[[nodiscard]] UnlimitedMemory unlimited_memory(const MemoryRecord& record, std::optional<Bytes> late);

using RunOn = std::function<LimitedRun(Bytes capacity, const DriverCosts&, CrossStreamFrees)>;
/// Of whatever shows its memory.
[[nodiscard]] RunOn run_of(MemoryOf memory, JudgedDevice device);

/// What a rank must have of its device.
struct RequiredMemory {
  Bytes bytes;  ///< at central values of estimates, where borrowed blocks come back at once
  Bytes upper;  ///< at upper ends, where they come back at the latest
  bool operator==(const RequiredMemory&) const = default;
};

/// How much of it is looked for.
enum class Require : std::uint8_t {
  Least,
  Room,  ///< whether there is room for it: where there is, `upper` is no more than what the device would hold, or room
};

/// `room` is what there is for the rank. Whatever has room for it at the upper ends has an `upper` of no more.
/// `beyond_live` is how much more than what is in use a rank much like this one must have: it shortens the search of
/// one that has room, and may change what is found within the search's error.
[[nodiscard]] RequiredMemory required_memory(const UnlimitedMemory& unlimited, const DriverCosts& costs, Bytes room,
                                             Require what, const RunOn& run, std::optional<Bytes> beyond_live = {});

/// What is known of a rank before the clock is asked.
struct KnownRequired {
  Bytes room;      ///< for the rank
  Bytes required;  ///< what it must have if lent blocks come back otherwise
  Bytes filled;    ///< what it fills, at upper ends, when the clock says when they come back
};
/// At upper ends, where lent blocks come back when a clock says so.
[[nodiscard]] Bytes required_by_clock(const MemoryOf& memory, const ByClock& frees, const DriverCosts& costs,
                                      const JudgedDevice& device, const KnownRequired& known);

}  // namespace tidemark::scenarios
