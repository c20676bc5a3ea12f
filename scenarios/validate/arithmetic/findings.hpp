#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"

// What a rank's run leaves, and how it is handed to the rank that compares.

namespace tidemark::scenarios {

enum class FindingKind : std::uint8_t { Loss, Gradient, Parameter };

/// Numbers of one step: a tensor, or a piece of one.
struct Finding {
  FindingKind what = FindingKind::Loss;
  std::int32_t step = 0;
  std::string name;
  std::int64_t first = 0;  ///< of the rank's elements of the tensor, the first that is here
  std::int64_t op = 0;     ///< of the rank's program, that wrote to it last
  std::vector<double> values;
};

/// As bytes, one after the other.
void append(std::string& bytes, const Finding& finding);
[[nodiscard]] std::vector<Finding> findings_in(std::string_view bytes);

}  // namespace tidemark::scenarios
