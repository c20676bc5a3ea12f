#include "scenarios/predict/rank_memory.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "scenarios/predict/job.hpp"
#include "scenarios/predict/measured/measured_ranges.hpp"

namespace tidemark::scenarios {

namespace {

// The allocator gives its cache back before it gives up, so a full device need not be the end.
void hold_to_the_device(const MemoryOf& memory, const CrossStreamReturn& frees, const JudgedDevice& device,
                        RankGroup& group) {
  group.failure.reset();
  if (group.memory.device.bytes <= device.capacity && !device.allocator.memory_limit()) return;
  MemoryRecord limited =
      memory(group.costs, {.capacity = device.capacity, .allocator = device.allocator, .cross_stream = frees});
  group.failure = limited.failure;
  if (!group.failure) group.memory = std::move(limited);
}

void name_moments(const Program& program, RankGroup& group) {
  const auto label = [&](const Moment& at) { return std::string(program[at.mark.label]); };
  if (group.failure) group.failed_op = label(group.failure->at);
  group.device_peak_op = label(group.memory.device.at);
  group.allocated_peak_op = label(group.memory.allocated.at);
  if (group.memory.host.bytes > Bytes{}) group.host_peak_op = label(group.memory.host.at);
}

}  // namespace

RankGroup at_once(const MemoryProgram& done, bool has_cross_stream_frees, const DriverCosts& costs,
                  const RankRoom& by) {
  const JudgedDevice& device = by.device;
  const AllocatorOptions& allocator = device.allocator;
  RankGroup group;
  group.costs = costs;
  group.memory = done.replayed(costs, {.allocator = without_limit(allocator)});
  std::optional<Bytes> late;
  if (has_cross_stream_frees)
    late = done.at_the_latest(costs, ReplayOptions{}.capacity, without_limit(allocator), device.queue);
  const UnlimitedMemory unlimited = unlimited_memory(group.memory, late);
  const RunOn run = done.run_on(device);
  // What nobody explains may be there besides, or as much less.
  group.unexplained = unexplained(device.unexplained, group.memory.allocated.bytes);
  group.unlimited_upper = unlimited.filled() + group.unexplained;
  const Bytes room = by.room - group.unexplained;
  group.required = required_memory(unlimited, costs, room, by.required, run, by.beyond_live);
  group.beyond_live = group.required.bytes - unlimited.live;
  if (group.required.upper > room)
    group.fits_at_best = run(by.room + group.unexplained, at_lower_ends(costs), CrossStreamFrees::AtOnce).gets_through;
  group.required.upper += group.unexplained;
  hold_to_the_device(done.memory(), CrossStreamFrees::AtOnce, device, group);
  group.fits_at_best &= !group.failure || !allocator.memory_limit();
  if (has_cross_stream_frees) {
    Bytes& upper = group.memory.peak_device_upper;
    const Bytes at_once = upper;
    const auto within = [&](const DriverCosts& its) {
      return done.at_the_latest(its, device.capacity, allocator, device.queue);
    };
    upper = upper_end(at_once, costs, device, {[&] { return *late; }, within});
    group.of_deferred_frees = upper - at_once;
  }
  group.memory.peak_device_upper += group.unexplained;
  // Pinned blocks are neither cut nor merged: the later they come back, the more there are.
  group.host_upper = group.memory.host.bytes;
  if (group.memory.pinned.peak > Bytes{}) {
    const ReplayOptions deferred{
        .allocator = without_limit(allocator), .cross_stream = CrossStreamFrees::AtNextSync, .queue = device.queue};
    group.host_upper = std::max(group.host_upper, done.replayed(costs, deferred).host.bytes);
  }
  name_moments(done.program, group);
  return group;
}

namespace {

// At central values, as RankGroup::required.bytes.
Bytes least_by_clock(const MemoryOf& memory, const ByClock& frees, const JudgedDevice& device, Bytes filled,
                     const RankGroup& group) {
  const TryCapacity run = [&](Bytes capacity) -> LimitedRun {
    const MemoryRecord record = memory(
        group.costs, {.capacity = capacity, .allocator = without_limit(device.allocator), .cross_stream = frees});
    return {!record.failure, false, record.same_on};
  };
  const Bytes least = group.required.bytes;
  return filled <= least || run(least).gets_through ? least : least_capacity(least, filled, run);
}

}  // namespace

void return_by_clock(const ProgramTimes& times, const MemoryProgram& done, const RankRoom& by, RankGroup& group) {
  const MemoryOf memory = done.memory();
  const JudgedDevice& device = by.device;
  const ByClock frees{&times, by.prompt};
  const Bytes at_once = group.memory.peak_device_upper - group.of_deferred_frees - group.of_routing - group.unexplained;
  MemoryRecord clocked = memory(group.costs, {.allocator = without_limit(device.allocator), .cross_stream = frees});
  const Bytes central = clocked.device.bytes, filled = clocked.peak_device_upper;
  Bytes reported = at_once;
  if (by.reported == ReportedFrees::ByClock) {
    group.memory = std::move(clocked);
    hold_to_the_device(memory, frees, device, group);
    name_moments(done.program, group);
    reported = group.memory.peak_device_upper;
  }
  const auto within = [&](const DriverCosts& its) -> std::optional<Bytes> {
    const MemoryRecord record =
        memory(its, {.capacity = device.capacity, .allocator = device.allocator, .cross_stream = frees});
    return record.failure ? std::nullopt : std::optional(record.peak_device_upper);
  };
  group.of_frees_by_clock = upper_end(at_once, group.costs, device, {[&] { return filled; }, within}) - at_once;
  const Bytes upper = std::max(reported, at_once + std::max(group.of_deferred_frees, group.of_frees_by_clock));
  group.of_deferred_frees = upper - reported;
  if (group.worst_case) {
    group.worst_case->reserved = std::max(group.worst_case->reserved, group.memory.peak_reserved);
    group.worst_case->device = std::max(group.worst_case->device, group.memory.device.bytes);
  }
  group.memory.peak_device_upper = upper + group.of_routing + group.unexplained;

  const Bytes room = by.room - group.unexplained, required = group.required.upper - group.unexplained;
  const bool has_room = by.required == Require::Room && required <= room;
  if (by.reported == ReportedFrees::ByClock)
    group.required.bytes = has_room ? central : least_by_clock(memory, frees, device, central, group);
  if (by.required == Require::Room && group.memory.peak_device_upper <= by.room) return;
  const Bytes least = has_room ? required : std::max(required, group.required.bytes);
  group.required.upper =
      required_by_clock(memory, frees, group.costs, device, {room, least, filled}) + group.unexplained;
}

// What tokens bring beyond those that are stated is within the upper end too.
void add_routing(const RankGroup& worst_case, RankGroup& group) {
  Bytes& upper = group.memory.peak_device_upper;
  group.of_routing = std::max(Bytes{}, worst_case.memory.peak_device_upper - upper);
  upper += group.of_routing;
  group.worst_case = {.allocated = std::max(group.memory.allocated.bytes, worst_case.memory.allocated.bytes),
                      .reserved = std::max(group.memory.peak_reserved, worst_case.memory.peak_reserved),
                      .device = std::max(group.memory.device.bytes, worst_case.memory.device.bytes)};
  group.required.upper = std::max(group.required.upper, worst_case.required.upper);
  group.unlimited_upper = std::max(group.unlimited_upper, worst_case.unlimited_upper);
}

}  // namespace tidemark::scenarios
