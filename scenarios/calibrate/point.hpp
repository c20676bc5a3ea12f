#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"
#include "scenarios/scenario/names.hpp"
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

/// Of values in any order, the lower one of two; 0 of none.
[[nodiscard]] double median(std::vector<double> values);

/// "kernel matmul fp32 1 64" is these five.
[[nodiscard]] std::vector<std::string> words_of(const std::string& what);

/// What a word names. Throws std::runtime_error where it names nothing.
template <class Value, std::size_t Count>
[[nodiscard]] Value value_of(const std::array<Named<Value>, Count>& names, const std::string& word) {
  for (const Named<Value>& named : names)
    if (named.text == word) return named.value;
  throw std::runtime_error("there is no " + word);
}

}  // namespace tidemark::scenarios
