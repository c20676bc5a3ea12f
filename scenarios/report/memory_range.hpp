#pragma once

#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

/// Between what a figure of a rank's memory lies, if measured runs are off by as much as those of other runtimes were
/// (scenarios/predict/measured/measured_ranges.hpp). The upper end holds what mechanisms leave open besides.
struct MemoryRange {
  Bytes low, high;
};
[[nodiscard]] MemoryRange allocated_range(const RankGroup& group, const Scenario& scenario);
[[nodiscard]] MemoryRange reserved_range(const RankGroup& group, const Scenario& scenario);

}  // namespace tidemark::scenarios
