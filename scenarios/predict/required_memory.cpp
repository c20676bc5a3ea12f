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
    return {!record.failure, first};
  };
}

Bytes least_capacity(Bytes live, Bytes filled, const GetsThrough& gets_through) {
  const Bytes near_enough = std::max(device_granule, filled / 1000);
  Bytes fails = std::min(live, filled) - Bytes{1}, does = filled;
  if (does - fails <= near_enough) return does;
  // Many need what they fill, others hardly more than what is in use at a time.
  if (!gets_through(filled - near_enough)) return filled;
  does = filled - near_enough;
  Bytes next = live + near_enough / 2;
  while (does - fails > near_enough) {
    (gets_through(next) ? does : fails) = next;
    next = fails + (does - fails) / 2;
  }
  return does;
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
                               const RunOn& run) {
  const Bytes filled = unlimited.filled();
  const DriverCosts upper = at_upper_ends(costs);
  const CrossStreamFrees latest = unlimited.late ? CrossStreamFrees::AtNextSync : CrossStreamFrees::AtOnce;
  const auto does = [&](Bytes capacity) { return run(capacity, upper, latest).gets_through; };
  const bool has_room = filled <= room || (unlimited.live_upper <= room && does(room));
  if (has_room && what == Require::Room) return {unlimited.device, std::min(filled, room)};

  RequiredMemory required;
  bool drivers_come_first = true;
  const auto does_at_best = [&](Bytes capacity) {
    const LimitedRun its = run(capacity, costs, CrossStreamFrees::AtOnce);
    if (its.gets_through) drivers_come_first = its.drivers_come_first;
    return its.gets_through;
  };
  required.bytes = least_capacity(unlimited.live, unlimited.device, does_at_best);
  // A smaller device may do where a larger one does not: what fits is not said to need more than there is.
  if (has_room && required.bytes > room && does_at_best(room))
    required.bytes = least_capacity(unlimited.live, room, does_at_best);
  // Where drivers have taken all they take before it matters, more of that takes as much more of the device.
  const Bytes enough = has_room ? std::min(filled, room) : filled;
  const Bytes with_drivers = std::min(required.bytes + (unlimited.driver_upper - unlimited.driver), enough);
  const bool known = with_drivers == enough || (drivers_come_first && !unlimited.late) || does(with_drivers);
  required.upper = known ? with_drivers : least_capacity(with_drivers, enough, does);
  if (!has_room) required.upper = std::max(required.upper, room + Bytes{1});
  return required;
}

Bytes required_by_clock(const MemoryOf& memory, const ByClock& frees, const DriverCosts& costs,
                        const JudgedDevice& device, const KnownRequired& known) {
  const auto& [room, required, filled] = known;
  if (filled <= required) return required;
  const DriverCosts upper = at_upper_ends(costs);
  const GetsThrough does = [&](Bytes capacity) { return !on_device(memory, device, capacity, upper, frees).failure; };
  if (does(required)) return required;
  // What lacks room lacks as much whatever it was said to require before.
  if (required > room || filled <= room) return least_capacity(required, filled, does);
  return does(room) ? least_capacity(required, room, does) : least_capacity(room, filled, does);
}

}  // namespace tidemark::scenarios
