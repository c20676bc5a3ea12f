#include "scenarios/convert/shell/shell_conditions.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <span>
#include <string_view>

#include <fnmatch.h>

#include "scenarios/convert/shell/shell_expansion.hpp"

namespace tidemark::scenarios {
namespace {

using Words = std::span<const ShellWord>;

ShellAnswer negated(ShellAnswer a) { return a ? ShellAnswer(!*a) : a; }
ShellAnswer both(ShellAnswer a, ShellAnswer b) {
  if (a == ShellAnswer(false) || b == ShellAnswer(false)) return false;
  return a && b ? ShellAnswer(true) : std::nullopt;
}
ShellAnswer either(ShellAnswer a, ShellAnswer b) { return negated(both(negated(a), negated(b))); }

std::optional<std::int64_t> whole(const std::string& text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && at == end ? std::optional(value) : std::nullopt;
}

bool is_known(const ShellWord& word) { return word.unknown.empty() && ShellExpansion::is_known(word.text); }

/// The two characters of && or ||.
bool stands(Words words, std::size_t at, char c) {
  return at + 1 < words.size() && words[at].text == std::string(1, c) && !words[at].unknown.empty() &&
         words[at + 1].text == words[at].text && !words[at + 1].unknown.empty();
}

// Two words and what stands between them; `patterns`: as [[ … ]] compares.
ShellAnswer compared(const std::string& a, const std::string& sign, const std::string& b, bool patterns) {
  const bool same = patterns ? fnmatch(b.c_str(), a.c_str(), 0) == 0 : a == b;
  if (sign == "=" || sign == "==") return same;
  if (sign == "!=") return !same;
  const std::optional<std::int64_t> x = whole(a), y = whole(b);
  if (!x || !y) return std::nullopt;
  // [[ … ]] takes numbers that begin with 0 for octal ones.
  const auto is_octal = [](const std::string& text) {
    return text.find_first_not_of('-') != text.find_first_not_of("-0");
  };
  if (patterns && (is_octal(a) || is_octal(b)) && a != "0" && b != "0") return std::nullopt;
  if (sign == "-eq") return *x == *y;
  if (sign == "-ne") return *x != *y;
  if (sign == "-gt") return *x > *y;
  if (sign == "-ge") return *x >= *y;
  if (sign == "-lt") return *x < *y;
  if (sign == "-le") return *x <= *y;
  return std::nullopt;
}

// What stands between brackets, without && and ||.
ShellAnswer tested(Words inside, bool patterns) {
  if (!inside.empty() && inside.front().text == "!" && inside.front().unknown.empty())
    return negated(tested(inside.subspan(1), patterns));
  // Megatron-LM writes it with its first checkpoint: a training that begins has none.
  constexpr std::array<std::string_view, 4> of_files{"-e", "-f", "-s", "-r"};
  if (inside.size() == 2 && std::ranges::find(of_files, std::string_view(inside[0].text)) != of_files.end() &&
      inside[1].text.ends_with("/latest_checkpointed_iteration.txt"))
    return false;
  if (!std::ranges::all_of(inside, is_known)) return std::nullopt;
  if (inside.empty()) return false;
  if (inside.size() == 1) return !inside[0].text.empty();
  if (inside.size() == 2 && inside[0].text == "-z") return inside[1].text.empty();
  if (inside.size() == 2 && inside[0].text == "-n") return !inside[1].text.empty();
  if (inside.size() == 3) return compared(inside[0].text, inside[1].text, inside[2].text, patterns);
  return std::nullopt;
}

// Within [[ … ]] && binds more closely than ||.
ShellAnswer joined(Words inside) {
  for (const char c : {'|', '&'})
    for (std::size_t i = 0; i < inside.size(); ++i)
      if (stands(inside, i, c)) {
        const ShellAnswer left = joined(inside.first(i)), right = joined(inside.subspan(i + 2));
        return c == '|' ? either(left, right) : both(left, right);
      }
  return tested(inside, true);
}

// One command of a condition.
ShellAnswer said(Words words) {
  if (words.empty()) return std::nullopt;
  const std::string& first = words.front().text;
  if (first == "!" && words.front().unknown.empty()) return negated(said(words.subspan(1)));
  if (first == "true" || first == ":") return true;
  if (first == "false") return false;
  if (first == "test") return tested(words.subspan(1), false);
  if (words.size() < 2) return std::nullopt;
  const Words inside = words.subspan(1, words.size() - 2);
  if (first == "[" && words.back().text == "]") return tested(inside, false);
  if (first == "[[" && words.back().text == "]]") return joined(inside);
  return std::nullopt;
}

}  // namespace

ShellAnswer answer_of(const std::vector<ShellWord>& condition) {
  const Words words(condition);
  ShellAnswer answer;
  char joins = '\0';
  std::size_t begin = 0;
  const auto take = [&](std::size_t end) {
    const ShellAnswer next = said(words.subspan(begin, end - begin));
    answer = joins == '&' ? both(answer, next) : joins == '|' ? either(answer, next) : next;
  };
  bool within = false;  // [[ … ]], whose && and || are its own
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].text == "[[") within = true;
    if (words[i].text == "]]") within = false;
    const char c = within ? '\0' : stands(words, i, '&') ? '&' : stands(words, i, '|') ? '|' : '\0';
    if (c == '\0') continue;
    take(i);
    joins = c;
    begin = ++i + 1;
  }
  take(words.size());
  return answer;
}

bool is_like(const std::string& word, const std::string& pattern) {
  return fnmatch(pattern.c_str(), word.c_str(), 0) == 0;
}

ShellAnswer exit_status_of(const std::vector<ShellWord>& words) {
  constexpr std::array<std::string_view, 14> requested{"[",    "[[",      "test",  "true", "false", ":",    "!",
                                                       "grep", "command", "which", "type", "hash",  "diff", "pgrep"};
  if (words.empty()) return true;
  const std::string& name = words.front().text;
  return std::ranges::find(requested, name) == requested.end() ? ShellAnswer(true) : said(words);
}

}  // namespace tidemark::scenarios
