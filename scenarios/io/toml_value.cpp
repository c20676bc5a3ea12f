#include "scenarios/io/toml_value.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "scenarios/io/suggestion.hpp"
#include "sim/overloaded.hpp"

// Deeper than any file of ours, and shallow enough for recursive descent.
#define TOML_MAX_NESTED_VALUES 32
// toml++ 3.3 asserts, and under NDEBUG assumes, that some malformed text never gets as far as it does: "[$x]" is one.
// Every such place goes on to report the text by itself, so the assertions are left out and nothing is assumed.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) static_cast<void>(0)
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace tidemark::scenarios {
namespace {

// A dotted key nests one table per dot, without a limit in the library.
constexpr std::ptrdiff_t most_dots = 64;

Place place_of(const toml::source_region& region) {
  return {static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
}

TomlTable converted(const toml::table& table);

TomlValue converted(const toml::node& node) {
  TomlValue result;
  result.place = place_of(node.source());
  if (const auto* boolean = node.as_boolean()) {
    result.value = boolean->get();
  } else if (const auto* integer = node.as_integer()) {
    result.value = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    result.value = number->get();
  } else if (const auto* string = node.as_string()) {
    result.value = string->get();
  } else if (const auto* array = node.as_array()) {
    std::vector<TomlValue> elements;
    for (const toml::node& element : *array) elements.push_back(converted(element));
    result.value = std::move(elements);
  } else if (const auto* table = node.as_table()) {
    result.value = converted(*table);
  } else {
    result.value = TomlTime{};
  }
  return result;
}

TomlTable converted(const toml::table& table) {
  TomlTable result;
  for (const auto& [key, node] : table) {
    result.keys.push_back({std::string(key.str()), place_of(key.source()), converted(node)});
  }
  return result;
}

void refuse_deep_keys(std::string_view text, const std::string& file) {
  int line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view content = text.substr(begin, end - begin);
    if (std::count(content.begin(), content.end(), '.') > most_dots) {
      throw InputError(Problem{file, line, 0, "more than 64 dots on one line: no key is that deep", {}});
    }
    begin = end + 1;
  }
}

/// toml++ 3.3 runs into undefined behaviour when it asks whether some characters beyond ASCII are white space (the
/// table behind is_non_ascii_horizontal_whitespace has a hole). It asks outside strings and inside those of several
/// lines. TOML allows none in the former place, and no value of ours needs the latter: both are refused before it
/// looks.
class CharacterCheck {
 public:
  CharacterCheck(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  void run() {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (text_.starts_with(byte_order_mark)) at_ = byte_order_mark.size();
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '"' || c == '\'') {
        skip_string(c);
      } else {
        refuse_beyond_ascii();
        ++at_;
      }
    }
  }

 private:
  void skip_string(char quote) {
    const std::string fence(3, quote);
    const bool several_lines = text_.substr(at_).starts_with(fence);
    at_ += several_lines ? 3 : 1;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (several_lines) refuse_beyond_ascii();
      if (c == '\n' && !several_lines) return;
      if (c == '\\' && quote == '"') {
        ++at_;
        if (several_lines) refuse_beyond_ascii();
      } else if (c == quote && !several_lines) {
        ++at_;
        return;
      } else if (several_lines && text_.substr(at_).starts_with(fence)) {
        // Up to two quotes before the closing three belong to the string.
        at_ = std::min({text_.find_first_not_of(quote, at_), at_ + 5, text_.size()});
        return;
      }
    }
  }

  void refuse_beyond_ascii() const {
    if (at_ >= text_.size() || static_cast<unsigned char>(text_[at_]) < 0x80) return;
    const std::string_view before = text_.substr(0, at_);
    const std::size_t newline = before.rfind('\n');
    const std::string_view line = before.substr(newline == std::string_view::npos ? 0 : newline + 1);
    const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
    throw InputError(Problem{file_,
                             static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
                             static_cast<int>(std::count_if(line.begin(), line.end(), begins_character)) + 1,
                             "a character beyond ASCII outside comments and strings of one line",
                             {}});
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
};

/// What would be right where the library says what is wrong.
std::string hint_for(std::string_view description) {
  constexpr std::pair<std::string_view, std::string_view> known[] = {
      {"cannot redefine", "leave one of them out"},
      {"control characters", "a text ends with its quotes, on the line where it begins"},
      {"string", ""},
      {"utf-8", ""},
      {"UTF-8", ""},
      {"leading zeroes", "leave the zeroes out"},
      {"parsing", "TOML: key = 8, key = true, key = \"text\", key = [1, 2]; a table begins with [name]"}};
  for (const auto& [words, hint] : known)
    if (description.find(words) != std::string_view::npos) return std::string(hint);
  return {};
}

}  // namespace

TomlTable parse_toml(std::string_view text, const std::string& file) {
  refuse_deep_keys(text, file);
  CharacterCheck(text, file).run();
  try {
    return converted(toml::parse(text));
  } catch (const toml::parse_error& error) {
    const Place place = place_of(error.source());
    throw InputError(
        Problem{file, place.line, place.column, std::string(error.description()), hint_for(error.description())});
  }
}

std::string text(const TomlValue& value) {
  return std::visit(Overloaded{
                        [](bool b) { return std::string(b ? "true" : "false"); },
                        [](std::int64_t n) { return std::to_string(n); },
                        [](double x) {
                          // As TOML wants it: 0.0 for a whole number.
                          std::string shortest = fmt::format("{}", x);
                          const bool whole = shortest.find_first_not_of("-0123456789") == std::string::npos;
                          return whole ? shortest + ".0" : shortest;
                        },
                        [](const std::string& s) { return in_quotes(s); },
                        [](const TomlTime&) { return std::string("a date or time"); },
                        [](const std::vector<TomlValue>& elements) {
                          std::string list;
                          for (const TomlValue& element : elements) {
                            if (!list.empty()) list += ", ";
                            list += text(element);
                          }
                          return "[" + list + "]";
                        },
                        [](const TomlTable&) { return std::string("a table"); },
                    },
                    value.value);
}

}  // namespace tidemark::scenarios
