#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/base/time.hpp"

namespace tidemark::scenarios {

/// What was measured of one thing: the median of how long it took, and the quarter of times below and above.
struct Point {
  std::string what;  ///< words with spaces between: "kernel matmul fp32 1 64 64 64"
  Duration median, low, high;
  std::int64_t repeats = 0;
  bool operator==(const Point&) const = default;
};

/// Of times in any order; there is one at least.
[[nodiscard]] Point point_of(std::string what, std::vector<Duration> times);
/// The same thing on several ranks: medians of medians and of quarters, all repeats.
[[nodiscard]] std::vector<Point> merged(const std::vector<std::vector<Point>>& ranks);

/// One a line, and back. Throws std::runtime_error where a text is none.
[[nodiscard]] std::string text(const std::vector<Point>& points);
[[nodiscard]] std::vector<Point> parse_points(std::string_view text);

/// "kernel matmul fp32 1 64" is these five.
[[nodiscard]] std::vector<std::string> words_of(const std::string& what);

}  // namespace tidemark::scenarios
