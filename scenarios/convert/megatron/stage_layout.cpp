#include "scenarios/convert/megatron/stage_layout.hpp"

#include <algorithm>
#include <cctype>
#include <string>

namespace tidemark::scenarios {
namespace {

constexpr std::size_t longest_layout = 1 << 14;  // letters, when all is written out

std::string times(std::string_view part, std::int64_t number) {
  std::string made;
  for (std::int64_t i = 0; i < number && made.size() <= longest_layout; ++i) made += part;
  return made;
}

// The number behind "*" at `at`, past which it goes; 1 where there is no "*", 0 where no number follows it.
std::int64_t factor(std::string_view text, std::size_t& at) {
  if (at >= text.size() || text[at] != '*') return 1;
  std::int64_t number = 0;
  for (++at; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0; ++at)
    number = std::min<std::int64_t>(10 * number + (text[at] - '0'), std::int64_t{longest_layout});
  return number;
}

// Letters and "|", with all that is multiplied written out; empty of what is no such text.
std::string written_out(std::string_view layout) {
  std::string text;
  std::ranges::copy_if(layout, std::back_inserter(text), [](char c) { return c != ','; });
  std::string made;
  for (std::size_t at = 0; at < text.size();) {
    std::string part(1, text[at]);
    if (text[at] == '(') {
      const std::size_t end = text.find(')', at);
      if (end == std::string::npos) return {};
      part = text.substr(at + 1, end - at - 1);
      at = end;
    }
    const bool brackets = text[at] == ')';
    const std::int64_t number = factor(text, ++at);
    if (number < 1 || made.size() + part.size() * static_cast<std::size_t>(number) > longest_layout) return {};
    if (brackets && part.find_first_of("*(") != std::string::npos) part = written_out(part);
    made += times(part, number);
  }
  return made.find_first_not_of("EtmL|") == std::string::npos ? made : std::string();
}

}  // namespace

std::optional<std::vector<std::int64_t>> layers_of_stages(std::string_view layout) {
  const std::string text = written_out(layout);
  const std::size_t first = text.find('|'), last = text.rfind('|');
  if (text.empty() || first == std::string::npos || !text.starts_with('E') || !text.ends_with('L')) return std::nullopt;
  if (std::ranges::count(text, 'E') != 1 || std::ranges::count(text, 'L') != 1) return std::nullopt;
  if (const std::size_t further = text.find('m'); further != std::string::npos && further < last) return std::nullopt;
  std::vector<std::int64_t> stages(1);
  for (const char letter : text) {
    if (letter == '|') stages.push_back(0);
    if (letter == 't') ++stages.back();
  }
  if (std::find(stages.begin() + 1, stages.end() - 1, 0) != stages.end() - 1) return std::nullopt;
  return stages;
}

}  // namespace tidemark::scenarios
