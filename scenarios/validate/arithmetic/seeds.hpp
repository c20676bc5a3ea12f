#pragma once

#include <cstdint>
#include <string_view>

#include "scenarios/namespace.hpp"

// Numbers by name and place: the same on every rank that asks for them, whatever it holds.

namespace tidemark::scenarios {

/// In (0, 1).
[[nodiscard]] double uniform(std::string_view name, std::int64_t place);
/// Of mean 0 and deviation 1.
[[nodiscard]] double normal(std::string_view name, std::int64_t place);
/// The nearest number that all floating-point types hold, but for very small ones in fp16.
[[nodiscard]] double in_any_type(double number);

}  // namespace tidemark::scenarios
