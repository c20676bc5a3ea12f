#include "scenarios/convert/shell/shell_read.hpp"

#include "scenarios/convert/shell/shell_syntax.hpp"

namespace tidemark::scenarios {
namespace {

struct ReadOptions {
  std::vector<std::string> names;
  bool whole = false, array = false, raw = false;  // up to the input's end; -a; -r
};

std::optional<ReadOptions> read_options(const std::vector<std::string>& words) {
  ReadOptions its;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with('-')) {
      if (!is_name(word)) return std::nullopt;
      its.names.push_back(word);
      continue;
    }
    if (word.size() < 2) return std::nullopt;
    for (std::size_t k = 1; k < word.size(); ++k) {
      const bool last = k + 1 == word.size();
      if (word[k] == 'r') {
        its.raw = true;
      } else if (word[k] == 'a' && last) {
        its.array = true;
      } else if (word[k] == 'd' && last && i + 1 < words.size() && words[i + 1].empty()) {
        its.whole = true, ++i;
        break;
      } else {
        return std::nullopt;
      }
    }
  }
  if (its.names.empty() || (its.array && its.names.size() > 1)) return std::nullopt;
  return its;
}

std::string_view stripped(std::string_view text, std::string_view blanks) {
  while (!text.empty() && blanks.find(text.front()) != std::string_view::npos) text.remove_prefix(1);
  while (!text.empty() && blanks.find(text.back()) != std::string_view::npos) text.remove_suffix(1);
  return text;
}

// The fields before the `most`th, and the rest.
std::vector<std::string> fields_of(std::string_view text, std::string_view separators, bool blank, std::size_t most) {
  std::vector<std::string> made;
  while (made.size() + 1 < most && !text.empty()) {
    const std::size_t end = text.find_first_of(separators);
    if (end == std::string_view::npos) break;
    made.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
    if (blank) text = stripped(text, separators);
  }
  // Of the last of several, a separator behind it is none of its own.
  if (!blank && !text.empty() && text.find_first_of(separators) == text.size() - 1) text.remove_suffix(1);
  if (!text.empty()) made.emplace_back(text);
  return made;
}

}  // namespace

std::optional<std::vector<ShellRead>> read_by(const std::vector<std::string>& words, std::string_view input,
                                              const std::optional<std::string>& separators) {
  const std::optional<ReadOptions> its = read_options(words);
  if (!its || (!its->raw && input.find('\\') != std::string_view::npos)) return std::nullopt;
  constexpr std::string_view blanks = " \t\n";
  const std::string of = separators.value_or(std::string(blanks));
  const bool blank = of.find_first_not_of(blanks) == std::string::npos;
  if (!blank && of.size() != 1) return std::nullopt;
  std::string_view text = its->whole ? input : input.substr(0, input.find('\n'));
  if (blank) text = stripped(text, of);
  constexpr std::size_t all = 1'000'000;
  if (its->array) {
    if (its->whole) return std::nullopt;
    return std::vector<ShellRead>{{its->names.front(), fields_of(text, of, blank, all), true}};
  }
  std::vector<std::string> fields = its->names.size() == 1 ? std::vector<std::string>{std::string(text)}
                                                           : fields_of(text, of, blank, its->names.size());
  if (its->names.size() == 1 && !blank) return std::nullopt;
  std::vector<ShellRead> made;
  for (std::size_t i = 0; i < its->names.size(); ++i)
    made.push_back({its->names[i], {i < fields.size() ? fields[i] : std::string()}, false});
  return made;
}

}  // namespace tidemark::scenarios
