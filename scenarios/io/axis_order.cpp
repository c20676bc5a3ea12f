#include "scenarios/io/axis_order.hpp"

#include <algorithm>
#include <vector>

namespace tidemark::scenarios {

std::optional<std::array<MeshAxis, 3>> parse_axis_order(std::string_view text) {
  static constexpr std::array<std::string_view, 5> names{"tp", "dp", "pp", "cp", "ep"};
  std::vector<std::size_t> seen;
  seen.reserve(names.size());
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find('-', start), text.size());
    const auto name = std::find(names.begin(), names.end(), text.substr(start, end - start));
    const auto which = static_cast<std::size_t>(name - names.begin());
    if (name == names.end() || std::find(seen.begin(), seen.end(), which) != seen.end()) return std::nullopt;
    seen.push_back(which);
    start = end + 1;
  }
  std::erase_if(seen, [](std::size_t which) { return which >= 3; });
  if (seen.size() != 3) return std::nullopt;
  const auto axis = [&](std::size_t i) { return static_cast<MeshAxis>(seen[i]); };
  return std::array{axis(0), axis(1), axis(2)};
}

std::string text(const std::array<MeshAxis, 3>& order) {
  static constexpr std::array<std::string_view, 3> names{"tp-cp-ep", "dp", "pp"};
  std::string out;
  for (const MeshAxis axis : order) {
    if (!out.empty()) out += '-';
    out += names[static_cast<std::size_t>(axis)];
  }
  return out;
}

}  // namespace tidemark::scenarios
