#include "scenarios/formats/version_text.hpp"

#include <charconv>
#include <vector>

namespace tidemark::scenarios {

std::optional<Version> parse_version(std::string_view text) {
  constexpr std::int32_t highest = 9999;
  std::vector<std::int32_t> numbers;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data();; ++at) {
    std::int32_t number = 0;
    const auto [next, failure] = std::from_chars(at, end, number);
    if (failure != std::errc{} || number < 0 || number > highest || *at == '-') return std::nullopt;
    numbers.push_back(number);
    at = next;
    if (at == end) break;
    if (*at != '.') return std::nullopt;
  }
  if (numbers.size() < 2 || numbers.size() > 3) return std::nullopt;
  return Version{numbers[0], numbers[1], numbers.size() > 2 ? numbers[2] : 0};
}

std::string text(Version version) {
  const std::string release = std::to_string(version.major) + "." + std::to_string(version.minor);
  return version.patch > 0 ? release + "." + std::to_string(version.patch) : release;
}

}  // namespace tidemark::scenarios
