#pragma once

#include <string>

#include "scenarios/validate/validation.hpp"

namespace tidemark::scenarios {

/// The answer on one screen: agrees or not, rank by rank, phase by phase of the last step; then what was wrong.
[[nodiscard]] std::string validation_text(const Validation& validation);

}  // namespace tidemark::scenarios
