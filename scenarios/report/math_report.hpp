#pragma once

#include <string>

#include "scenarios/validate/math_check.hpp"

namespace tidemark::scenarios {

/// What came of a training with real numbers, in a few lines.
[[nodiscard]] std::string math_text(const MathCheck& check);
/// As a JSON object.
[[nodiscard]] std::string math_json(const MathCheck& check);

}  // namespace tidemark::scenarios
