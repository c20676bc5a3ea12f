#pragma once

#include <string>

#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

/// The network of the job's cluster, and what one step puts on it: links by type, bisection bandwidth, the routes
/// between the first ranks of neighbouring groups, and the links that are busiest in the last step. `step` is how long
/// that takes.
[[nodiscard]] std::string fabric_text(const Job& job, Duration step);

}  // namespace tidemark::scenarios
