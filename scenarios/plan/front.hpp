#pragma once

#include <vector>

#include "scenarios/plan/plan.hpp"

namespace tidemark::scenarios {

/// Those that no other beats in memory and throughput both; of equal ones the first in the space. By falling memory.
[[nodiscard]] std::vector<Found> pareto_front(std::vector<Found> found);

}  // namespace tidemark::scenarios
