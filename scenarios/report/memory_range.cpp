#include "scenarios/report/memory_range.hpp"

#include <algorithm>

#include "scenarios/predict/measured/measured_ranges.hpp"

namespace tidemark::scenarios {
namespace {

MemoryRange around(Bytes central, Bytes upper, MeasuredFigure figure, const Scenario& scenario) {
  const double share = range_of(figure, scenario.runtime.name).share;
  return {central - unexplained(share, central), upper + unexplained(share, upper)};
}

}  // namespace

MemoryRange allocated_range(const RankGroup& group, const Scenario& scenario) {
  const Bytes central = group.memory.allocated.bytes;
  const Bytes upper = group.worst_case ? std::max(central, group.worst_case->allocated) : central;
  return around(central, upper, MeasuredFigure::Allocated, scenario);
}

MemoryRange reserved_range(const RankGroup& group, const Scenario& scenario) {
  const Bytes central = group.memory.peak_reserved;
  const Bytes upper = central + group.of_deferred_frees + group.rerun_batches_bytes + group.of_routing;
  return around(central, upper, MeasuredFigure::Reserved, scenario);
}

}  // namespace tidemark::scenarios
