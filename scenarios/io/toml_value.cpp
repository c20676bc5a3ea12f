#include "scenarios/io/toml_value.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "scenarios/io/suggestion.hpp"
#include "sim/overloaded.hpp"

// Deeper than any file of ours, and shallow enough for recursive descent.
#define TOML_MAX_NESTED_VALUES 32
#include <toml++/toml.h>

namespace tidemark {
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

}  // namespace

TomlTable parse_toml(std::string_view text, const std::string& file) {
  refuse_deep_keys(text, file);
  try {
    return converted(toml::parse(text));
  } catch (const toml::parse_error& error) {
    const Place place = place_of(error.source());
    throw InputError(Problem{file, place.line, place.column, std::string(error.description()), {}});
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

}  // namespace tidemark
