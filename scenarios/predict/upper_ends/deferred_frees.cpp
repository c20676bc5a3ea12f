#include "scenarios/predict/upper_ends/deferred_frees.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "scenarios/predict/job.hpp"
#include "scenarios/predict/measured_ranges.hpp"

namespace tidemark::scenarios {
namespace {

// What `change` makes of each estimate.
template <class Change>
DriverCosts changed(DriverCosts costs, Change change) {
  for (Estimate* e : {&costs.context, &costs.modules, &costs.nccl_kernels, &costs.blas_handle}) change(*e);
  for (Estimate& e : costs.communicators) change(e);
  return costs;
}

}  // namespace

DriverCosts at_upper_ends(DriverCosts costs) {
  return changed(std::move(costs), [](Estimate& e) { e.bytes = e.high; });
}

DriverCosts at_lower_ends(DriverCosts costs) {
  return changed(std::move(costs), [](Estimate& e) { e.bytes = e.low; });
}

bool has_cross_stream_uses(const Program& program) {
  return std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    const auto* const cross_stream_use = std::get_if<CrossStreamUse>(&op);
    return cross_stream_use != nullptr && cross_stream_use->recorded;
  });
}

JudgedDevice judged_device(const Scenario& scenario) {
  return {scenario.cluster.device.capacity, allocator_options_of(scenario), launch_queue_of(scenario),
          range_of(MeasuredFigure::Allocated, scenario.runtime.name).share};
}

bool has_cross_stream_uses(const RepeatingWorkload& workload) {
  return std::any_of(workload.programs.begin(), workload.programs.end(),
                     [](const Outline& program) { return has_cross_stream_uses(program.shown()); });
}

Bytes upper_end(Bytes at_once, const DriverCosts& costs, const JudgedDevice& device, const DeferredFrees& deferred) {
  const Bytes unlimited = deferred.unlimited();
  const bool fills_the_device = unlimited > device.capacity || device.allocator.memory_limit();
  if (at_once <= device.capacity && fills_the_device)
    if (const std::optional<Bytes> within = deferred.within(at_upper_ends(costs))) return std::max(at_once, *within);
  return std::max(at_once, unlimited);
}

DeferredFrees frees_by_clock(const DriverCosts& costs, const JudgedDevice& device, const MemoryOf& memory,
                             const ProgramTimes& times) {
  const auto unlimited = [&] {
    return memory(costs, {.allocator = without_limit(device.allocator), .cross_stream = ByClock{&times}})
        .peak_device_upper;
  };
  const auto within = [&](const DriverCosts& upper) -> std::optional<Bytes> {
    const MemoryRecord record =
        memory(upper, {.capacity = device.capacity, .allocator = device.allocator, .cross_stream = ByClock{&times}});
    return record.failure ? std::nullopt : std::optional(record.peak_device_upper);
  };
  return {unlimited, within};
}

}  // namespace tidemark::scenarios
