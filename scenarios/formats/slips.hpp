#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// The candidate that is one slip away from `word`: a letter left out, added or another, two neighbours exchanged, or
/// dashes for underscores. Empty where none is, or where the word is too short to tell.
[[nodiscard]] std::string one_slip_from(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tidemark::scenarios
