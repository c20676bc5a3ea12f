#pragma once

#include <string>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// What an answer takes for granted, as its last lines; nothing where there is nothing to say.
[[nodiscard]] std::string assumed(const std::vector<std::string>& lines);

}  // namespace tidemark::scenarios
