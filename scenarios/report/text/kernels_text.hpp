#pragma once

#include <string>

#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

/// The kernels that a rank's last step spends most time in: how often, how long, what share of the device's peak or
/// bandwidth they reach by that, and where the figure comes from.
[[nodiscard]] std::string kernels_text(const Job& job, Rank rank);

}  // namespace tidemark::scenarios
