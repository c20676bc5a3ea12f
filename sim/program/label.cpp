#include "sim/program/label.hpp"

#include <charconv>

namespace tidemark::sim {

Label::Label(std::string_view its_text) : text(its_text) {
  constexpr std::string_view prefix = "layers.";
  if (!its_text.starts_with(prefix)) return;
  const char* const end = its_text.data() + its_text.size();
  std::int32_t number = -1;
  const auto [after, error] = std::from_chars(its_text.data() + prefix.size(), end, number);
  if (error != std::errc{} || number < 0 || (after != end && *after != '.')) return;
  layer = number;
  layer_length_ = static_cast<std::size_t>(after - its_text.data());
}

}  // namespace tidemark::sim
