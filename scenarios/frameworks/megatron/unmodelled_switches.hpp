#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"

// Megatron's flags that nothing here goes by: because they leave memory as it is, or because what they ask for is not
// modelled.

namespace tidemark::scenarios {

/// A flag that changes what is allocated, or when, in a way that is not modelled yet.
struct Unmodelled {
  std::string_view flag;
  std::string_view what;                  ///< it asks for
  std::vector<std::string_view> neutral;  ///< values that ask for nothing, as TOML writes them; the first is suggested
};
[[nodiscard]] std::span<const Unmodelled> unmodelled_flags();

/// Flags that leave memory as it is, or have it within the bound that the table of them says, whatever their value.
[[nodiscard]] std::span<const std::string_view> harmless_flags();

}  // namespace tidemark::scenarios
