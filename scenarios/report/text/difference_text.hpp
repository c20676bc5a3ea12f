#pragma once

#include <string>

#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

/// Where two jobs differ, term by term: memory of each one's fullest device by category, a step's time by kind. Terms
/// sum to what stands below them.
[[nodiscard]] std::string difference_text(const Prediction& a, const std::string& name_a, const Prediction& b,
                                          const std::string& name_b);

}  // namespace tidemark::scenarios
