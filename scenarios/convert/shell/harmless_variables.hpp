#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// Whether a script gives a variable to flags that have no effect and to nothing else, itself or by way of other
/// variables: "--lr $LR", "OPTIONS="--lr $LR"". `has_no_effect` says it of a flag without its dashes.
[[nodiscard]] bool is_harmless(std::string_view script, const std::string& variable,
                               const std::function<bool(std::string_view flag)>& has_no_effect);

}  // namespace tidemark::scenarios
