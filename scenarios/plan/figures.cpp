#include "scenarios/plan/figures.hpp"

#include <algorithm>

namespace tidemark::scenarios {

Figures figures_of(const Prediction& prediction) {
  Figures figures;
  const Bytes room = prediction.scenario.cluster.device.capacity - prediction.scenario.runtime.headroom;
  for (const RankGroup& group : prediction.groups) {
    figures.allocated = std::max(figures.allocated, group.memory.allocated.bytes);
    figures.device = std::max(figures.device, group.memory.device.bytes);
    const Bytes required = group.required.upper;
    figures.device_upper =
        std::max(figures.device_upper, required > room ? required : std::min(group.unlimited_upper, room));
  }
  figures.host_upper = prediction.fullest_node.upper;
  figures.completed = prediction.completed && !prediction.may_exceed_host();
  figures.deadlocks = prediction.deadlock.has_value();
  figures.step = prediction.step.step;
  figures.throughput = prediction.step.tokens_per_s_per_device;
  return figures;
}

Bytes memory_shortfall(const Scenario& scenario, Bytes device_upper) {
  return device_upper + scenario.runtime.headroom - scenario.cluster.device.capacity;
}

Bytes host_memory_shortfall(const Scenario& scenario, const Figures& figures) {
  const Bytes memory = scenario.cluster.host.memory;
  return memory > Bytes{} ? std::max(figures.host_upper - memory, Bytes{}) : Bytes{};
}

bool fits(const Scenario& scenario, const Figures& figures) {
  return figures.completed && memory_shortfall(scenario, figures.device_upper) <= Bytes{0} &&
         host_memory_shortfall(scenario, figures) == Bytes{0};
}

}  // namespace tidemark::scenarios
