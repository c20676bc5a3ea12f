#pragma once

#include <string>
#include <vector>

#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// What the scenario's versions mean for the answer: releases beyond the last one whose habits are known, and versions
/// that select nothing.
[[nodiscard]] std::vector<std::string> version_assumptions(const RuntimeChoice& runtime);

}  // namespace tidemark::scenarios
