#include "scenarios/predict/upper_ends/deferred_frees.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "scenarios/predict/job.hpp"

namespace tidemark::scenarios {
namespace {

// What `change` makes of each estimate.
template <class Change>
DriverPrices changed(DriverPrices prices, Change change) {
  for (Estimate* e : {&prices.context, &prices.modules, &prices.nccl_kernels, &prices.blas_handle}) change(*e);
  for (Estimate& e : prices.communicators) change(e);
  return prices;
}

}  // namespace

DriverPrices at_upper_ends(DriverPrices prices) {
  return changed(std::move(prices), [](Estimate& e) { e.bytes = e.high; });
}

DriverPrices at_lower_ends(DriverPrices prices) {
  return changed(std::move(prices), [](Estimate& e) { e.bytes = e.low; });
}

bool borrows(const Program& program) {
  return std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    const auto* const borrow = std::get_if<Borrow>(&op);
    return borrow != nullptr && borrow->recorded;
  });
}

JudgedDevice judged_device(const Scenario& scenario) {
  return {scenario.cluster.device.capacity, allocator_options_of(scenario), launch_queue_of(scenario)};
}

bool borrows(const RepeatingWorkload& workload) {
  return std::any_of(workload.programs.begin(), workload.programs.end(),
                     [](const Outline& program) { return borrows(program.shown()); });
}

Bytes upper_end(Bytes at_once, const DriverPrices& prices, const JudgedDevice& device, const DeferredFrees& deferred) {
  const Bytes unlimited = deferred.unlimited();
  const bool fills_the_device = unlimited > device.capacity || device.allocator.memory_limit();
  if (at_once <= device.capacity && fills_the_device)
    if (const std::optional<Bytes> within = deferred.within(at_upper_ends(prices))) return std::max(at_once, *within);
  return std::max(at_once, unlimited);
}

Bytes upper_end(Bytes at_once, const DriverPrices& prices, const JudgedDevice& device, const Program& program,
                const BorrowedReturn& later) {
  const auto unlimited = [&] {
    return replay(program, prices,
                  {.allocator = without_limit(device.allocator), .borrowed = later, .queue = device.queue})
        .peak_device_upper;
  };
  const auto within = [&](const DriverPrices& upper) -> std::optional<Bytes> {
    const MemoryRecord record =
        replay(program, upper,
               {.capacity = device.capacity, .allocator = device.allocator, .borrowed = later, .queue = device.queue});
    return record.failure ? std::nullopt : std::optional(record.peak_device_upper);
  };
  return upper_end(at_once, prices, device, {unlimited, within});
}

}  // namespace tidemark::scenarios
