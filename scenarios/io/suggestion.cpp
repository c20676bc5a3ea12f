#include "scenarios/io/suggestion.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace tidemark::scenarios {
namespace {

constexpr std::size_t longest_shown = 80;

/// Whether it is the same letter, small or capital.
bool alike(char a, char b) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return small(a) == small(b);
}

/// Single characters put in, taken out, replaced, or neighbours exchanged (Damerau's distance, none edited twice).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    next[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      next[j + 1] = std::min({row[j] + (alike(a[i], b[j]) ? 0 : 1), next[j] + 1, row[j + 1] + 1});
      const bool exchanged = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
      if (exchanged) next[j + 1] = std::min(next[j + 1], before[j - 1] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > longest_shown) return {};
  // One slip in three characters still looks like the same word.
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance >= best) continue;
    best = distance;
    found = candidate;
  }
  return found;
}

std::string one_of(const std::vector<std::string>& alternatives) {
  std::string list;
  for (std::size_t i = 0; i < alternatives.size(); ++i) {
    if (i > 0) list += i + 1 == alternatives.size() ? " or " : ", ";
    list += alternatives[i];
  }
  return list;
}

std::string in_quotes(std::string_view text) {
  std::size_t end = std::min(text.size(), longest_shown);
  while (end > 0 && end < text.size() && continues_character(text[end])) --end;
  std::string out = "\"";
  for (const char c : text.substr(0, end)) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (code < 0x20 || code == 0x7F) {
      constexpr std::string_view digits = "0123456789abcdef";
      out += "\\x";
      out += digits[code >> 4U];
      out += digits[code & 15U];
    } else {
      out += c;
    }
  }
  if (end < text.size()) out += "...";
  return out + '"';
}

}  // namespace tidemark::scenarios
