#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// What $((text)) gives: + - * / %, comparisons, && || ?: and brackets over whole numbers and variables. Nothing where
/// it is more than that, or a variable is not known.
[[nodiscard]] std::optional<std::int64_t> arithmetic(
    std::string_view text, const std::function<std::optional<std::string>(const std::string&)>& variable);

}  // namespace tidemark::scenarios
