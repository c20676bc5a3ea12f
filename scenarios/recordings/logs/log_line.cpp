#include "scenarios/recordings/logs/log_line.hpp"

namespace tidemark::scenarios {

std::string without_colours(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      const std::size_t end = text.find('m', i);
      if (end == std::string_view::npos) break;
      i = end;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::optional<double> number_behind(std::string_view line, std::string_view word, std::size_t from) {
  const std::size_t at = line.find(word, from);
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t begin = at + word.size();
  while (begin < line.size() && (is_blank(line[begin]) || line[begin] == ':' || line[begin] == '=')) ++begin;
  return LineReader(line, begin).number<double>();
}

std::optional<Rank> named_rank(std::string_view line) {
  for (const std::string_view name : {"[rank", "[Rank ", "[default", "rank="})
    if (const std::size_t at = line.find(name); at != std::string_view::npos)
      if (const auto number = LineReader(line, at + name.size()).number<std::int32_t>(); number && *number >= 0)
        return Rank{*number};
  return std::nullopt;
}

}  // namespace tidemark::scenarios
