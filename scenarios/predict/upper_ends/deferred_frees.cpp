#include "scenarios/predict/upper_ends/deferred_frees.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "parallel/frameworks/megatron/worker.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/measured/measured_ranges.hpp"

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

bool asks_the_clock(const Program& program, StreamId prompt) {
  return std::any_of(program.ops.begin(), program.ops.end(), [&](const Op& op) {
    const auto* const cross_stream_use = std::get_if<CrossStreamUse>(&op);
    return cross_stream_use != nullptr && cross_stream_use->recorded && cross_stream_use->stream != prompt;
  });
}

bool asks_the_clock(const RepeatingWorkload& workload, StreamId prompt) {
  return std::any_of(workload.programs.begin(), workload.programs.end(),
                     [&](const Outline& program) { return asks_the_clock(program.shown(), prompt); });
}

StreamId prompt_stream(const parallel::Runtime& runtime) {
  return runtime.core.wraps_aside ? parallel::megatron::wrapper_stream : StreamId{};
}

bool has_cross_stream_uses(const Program& program) { return asks_the_clock(program, {}); }

JudgedDevice judged_device(const Scenario& scenario) {
  return {scenario.cluster.device.capacity, allocator_options_of(scenario), launch_queue_of(scenario),
          range_of(MeasuredFigure::Allocated, scenario.runtime.name).share};
}

bool has_cross_stream_uses(const RepeatingWorkload& workload) { return asks_the_clock(workload, {}); }

Bytes upper_end(Bytes at_once, const DriverCosts& costs, const JudgedDevice& device, const DeferredFrees& deferred) {
  const Bytes unlimited = deferred.unlimited();
  const bool fills_the_device = unlimited > device.capacity || device.allocator.memory_limit();
  if (at_once <= device.capacity && fills_the_device)
    if (const std::optional<Bytes> within = deferred.within(at_upper_ends(costs))) return std::max(at_once, *within);
  return std::max(at_once, unlimited);
}

}  // namespace tidemark::scenarios
