#include "scenarios/formats/suggestion.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include "scenarios/formats/slips.hpp"

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

/// Letters and digits alone, small.
std::string letters_and_digits(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z') kept += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) kept += c;
  }
  return kept;
}

/// "gpt" of "GPT-neo", small.
std::string first_letters(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  const auto end = std::ranges::find_if_not(text, is_letter);
  return letters_and_digits(text.substr(0, static_cast<std::size_t>(end - text.begin())));
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

// The bytes of the character that a text begins with; none of what may not be shown as it is: control characters, those
// that turn the direction of what follows, and what is no UTF-8.
std::size_t shown_character(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? std::uint32_t{static_cast<unsigned char>(text[i])} : 0U;
  };
  const std::uint32_t first = at(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  std::uint32_t code = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0U) != 0x80) return 0;
    code = code << 6U | (at(i) & 0x3FU);
  }
  const auto within = [&](std::uint32_t from, std::uint32_t to) { return code >= from && code <= to; };
  const bool too_long = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool hidden = within(0x80, 0x9F) || within(0x2028, 0x202E) || within(0x2066, 0x2069);
  return too_long || hidden || within(0xD800, 0xDFFF) || code > 0x10FFFF ? 0 : length;
}

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

std::string one_slip_from(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t shortest = 4;  // of three letters one is another word
  if (word.size() < shortest || word.size() > longest_shown) return {};
  const auto plain = [](std::string_view text) {
    std::string made(text);
    std::ranges::replace(made, '_', '-');
    return made;
  };
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(candidate.size(), word.size()),
                      shorter = std::min(candidate.size(), word.size());
    if (candidate != word && candidate.size() >= shortest && longer - shorter <= 1 &&
        edit_distance(plain(word), plain(candidate)) <= 1)
      return candidate;
  }
  return {};
}

std::vector<std::string> near_names(std::string_view word, const std::vector<std::string>& names) {
  if (word.size() > longest_shown) return {};
  const std::string requested = letters_and_digits(word);
  constexpr std::size_t shortest_part = 3;  // letters that two names share by chance
  if (requested.size() < shortest_part) return {};
  std::vector<std::string> bare;
  std::size_t least = std::max<std::size_t>(1, requested.size() / 4);
  for (const std::string& name : names) {
    bare.push_back(letters_and_digits(name));
    least = std::min(least, edit_distance(requested, bare.back()));
  }
  const auto where = [&](const auto& is_near) {
    std::vector<std::string> found;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (bare[i].size() >= shortest_part && is_near(bare[i])) found.push_back(names[i]);
    return found;
  };
  const auto has = [](const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; };
  const std::string letters = first_letters(word);
  for (const std::vector<std::string>& found : std::vector<std::vector<std::string>>{
           where([&](const std::string& name) { return name == requested; }),
           where([&](const std::string& name) { return name.starts_with(requested) || requested.starts_with(name); }),
           where([&](const std::string& name) { return has(name, requested) || has(requested, name); }),
           where([&](const std::string& name) { return edit_distance(requested, name) == least; }),
           where(
               [&](const std::string& name) { return letters.size() >= shortest_part && name.starts_with(letters); })})
    if (!found.empty()) return found;
  return {};
}

std::string one_of(const std::vector<std::string>& alternatives) {
  std::string list;
  for (std::size_t i = 0; i < alternatives.size(); ++i) {
    if (i > 0) list += i + 1 == alternatives.size() ? " or " : ", ";
    list += alternatives[i];
  }
  return list;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = shown_character(text);
    out += text.substr(0, length);
    text.remove_prefix(length);
    if (length > 0) continue;
    constexpr std::string_view digits = "0123456789abcdef";
    const auto code = static_cast<unsigned char>(text.front());
    out += "\\x";
    out += digits[code >> 4U];
    out += digits[code & 15U];
    text.remove_prefix(1);
  }
  return out;
}

std::string in_quotes(std::string_view text) {
  std::size_t end = std::min(text.size(), longest_shown);
  while (end > 0 && end < text.size() && continues_character(text[end])) --end;
  std::string out;
  for (const char c : text.substr(0, end)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return '"' + printable(out) + (end < text.size() ? "...\"" : "\"");
}

}  // namespace tidemark::scenarios
