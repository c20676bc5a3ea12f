#include "scenarios/predict/required_memory.hpp"

#include <algorithm>
#include <utility>

#include "scenarios/predict/job.hpp"

namespace tidemark::scenarios {
namespace {

constexpr Bytes device_granule{2 << 20};  // of what a device gives

// A limit of the allocator's own is no matter of the device.
MemoryRecord on_device(const MemoryOf& memory, const JudgedDevice& device, Bytes capacity, const DriverCosts& costs,
                       const CrossStreamReturn& cross_stream) {
  return memory(costs, {.capacity = capacity,
                        .allocator = without_limit(device.allocator),
                        .cross_stream = cross_stream,
                        .queue = device.queue});
}

}  // namespace

RunOn run_of(MemoryOf memory, JudgedDevice device) {
  return [memory = std::move(memory), device = std::move(device)](Bytes capacity, const DriverCosts& costs,
                                                                  CrossStreamFrees cross_stream) -> LimitedRun {
    const MemoryRecord record = on_device(memory, device, capacity, costs, cross_stream);
    const bool first = !record.first_retry || record.driver.empty() || record.driver.back().at.op < *record.first_retry;
    return {!record.failure, first, record.same_on};
  };
}

namespace {

// Where it fails, where it gets through, and how near that is enough.
class Bracket {
 public:
  Bracket(Bytes live, Bytes filled, const TryCapacity& run)
      : near_enough(std::max(device_granule, filled / 1000)),
        fails(std::min(live, filled) - Bytes{1}),
        does(filled),
        run_(run) {}

  [[nodiscard]] bool is_narrow() const { return does - fails <= near_enough; }
  /// What a device does, all do that would have given and refused the same. Whether it gets through.
  bool try_out(Bytes capacity) {
    const LimitedRun its = run_(capacity);
    const bool known = its.same_on.contains(capacity);
    if (its.gets_through)
      does = known ? its.same_on.from : capacity;
    else
      fails = known ? std::min(its.same_on.below, does) - Bytes{1} : capacity;
    return its.gets_through;
  }

  const Bytes near_enough;
  Bytes fails, does;

 private:
  const TryCapacity& run_;
};

// From what is expected away, in steps that double, until it is known on both sides.
void search_around(Bytes expected, Bracket& bracket) {
  Bytes step = bracket.near_enough / 2, next = std::max(expected, bracket.fails) + step;
  bool failed = false;
  for (; next < bracket.does; next = bracket.fails + (step = 2 * step)) {
    if (bracket.try_out(next)) break;
    failed = true;
  }
  if (failed) return;
  for (step = bracket.near_enough; !bracket.is_narrow(); step = 2 * step)
    if (const Bytes below = bracket.does - step; below <= bracket.fails || !bracket.try_out(below)) return;
}

}  // namespace

Bytes least_capacity(Bytes live, Bytes filled, const TryCapacity& run, std::optional<Bytes> expected) {
  Bracket bracket(live, filled, run);
  if (bracket.is_narrow()) return bracket.does;
  if (expected) {
    search_around(*expected, bracket);
  } else {
    // Many need what they fill, others hardly more than what is in use at a time.
    if (!bracket.try_out(filled - bracket.near_enough)) return filled;
    if (!bracket.is_narrow()) bracket.try_out(std::min(live + bracket.near_enough / 2, bracket.does - Bytes{1}));
  }
  while (!bracket.is_narrow()) bracket.try_out(bracket.fails + (bracket.does - bracket.fails) / 2);
  return bracket.does;
}

UnlimitedMemory unlimited_memory(const MemoryRecord& record, std::optional<Bytes> late) {
  return {record.live_device,
          record.live_device_upper,
          record.device.bytes,
          record.peak_device_upper,
          record.driver_bytes,
          record.driver_upper,
          late};
}

RequiredMemory required_memory(const UnlimitedMemory& unlimited, const DriverCosts& costs, Bytes room, Require what,
                               const RunOn& run, std::optional<Bytes> beyond_live) {
  const Bytes filled = unlimited.filled();
  const DriverCosts upper = at_upper_ends(costs);
  const CrossStreamFrees latest = unlimited.late ? CrossStreamFrees::AtNextSync : CrossStreamFrees::AtOnce;
  const TryCapacity at_worst = [&](Bytes capacity) { return run(capacity, upper, latest); };
  const bool has_room = filled <= room || (unlimited.live_upper <= room && at_worst(room).gets_through);
  if (has_room && what == Require::Room) return {unlimited.device, std::min(filled, room)};

  RequiredMemory required;
  bool drivers_come_first = true;
  const TryCapacity at_best = [&](Bytes capacity) {
    const LimitedRun its = run(capacity, costs, CrossStreamFrees::AtOnce);
    if (its.gets_through) drivers_come_first = its.drivers_come_first;
    return its;
  };
  std::optional<Bytes> expected;  // what lacks room lacks as much, whoever asks and whatever is known
  if (beyond_live && has_room) expected = unlimited.live + *beyond_live;
  required.bytes = least_capacity(unlimited.live, unlimited.device, at_best, expected);
  // A smaller device may do where a larger one does not: what fits is not said to need more than there is.
  if (has_room && required.bytes > room && at_best(room).gets_through)
    required.bytes = least_capacity(unlimited.live, room, at_best, expected);
  // Where drivers have taken all they take before it matters, more of that takes as much more of the device.
  const Bytes enough = has_room ? std::min(filled, room) : filled;
  const Bytes with_drivers = std::min(required.bytes + (unlimited.driver_upper - unlimited.driver), enough);
  const bool known =
      with_drivers == enough || (drivers_come_first && !unlimited.late) || at_worst(with_drivers).gets_through;
  required.upper = known ? with_drivers : least_capacity(with_drivers, enough, at_worst);
  if (!has_room) required.upper = std::max(required.upper, room + Bytes{1});
  return required;
}

Bytes required_by_clock(const MemoryOf& memory, const ByClock& frees, const DriverCosts& costs,
                        const JudgedDevice& device, const KnownRequired& known) {
  const auto& [room, required, filled] = known;
  if (filled <= required) return required;
  const DriverCosts upper = at_upper_ends(costs);
  const TryCapacity run = [&](Bytes capacity) -> LimitedRun {
    const MemoryRecord record = on_device(memory, device, capacity, upper, frees);
    return {!record.failure, false, record.same_on};
  };
  const auto does = [&](Bytes capacity) { return run(capacity).gets_through; };
  if (does(required)) return required;
  // What lacks room lacks as much whatever it was said to require before.
  if (required > room || filled <= room) return least_capacity(required, filled, run);
  return does(room) ? least_capacity(required, room, run) : least_capacity(room, filled, run);
}

}  // namespace tidemark::scenarios
