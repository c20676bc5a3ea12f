#include "scenarios/convert/shell_expansion.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/shell_arithmetic.hpp"

namespace tidemark::scenarios {
namespace {

constexpr int deepest = 32;
constexpr std::string_view spaces = " \t\n\r";

// What is not known stands in a text as its number between these two.
constexpr char mark_begins = '\x01', mark_ends = '\x02';

// What an expansion gives: whole between quotes, cut at spaces elsewhere. `each`: array elements are words of their
// own.
void add_value(ShellFields& fields, const ShellValue& value, bool quoted, bool each, Place place) {
  for (std::size_t i = 0; i < value.words.size(); ++i) {
    const ShellWord& word = value.words[i];
    if (i > 0 && each) fields.open = false;
    if (i > 0 && !each) fields.add(" ", place);
    if (quoted) {
      fields.add(word.text, word.place.line > 0 && each ? word.place : place);
      continue;
    }
    for (std::size_t at = 0; at < word.text.size();) {
      const std::size_t from = word.text.find_first_not_of(spaces, at);
      if (from != at) fields.open = false;
      if (from == std::string::npos) break;
      at = std::min(word.text.find_first_of(spaces, from), word.text.size());
      fields.add(std::string_view(word.text).substr(from, at - from), place);
    }
  }
}

// What stands between "${" and "}".
struct Parameter {
  std::string name;
  std::string rest;           // behind the name and [@]
  bool counts = false;        // "#": how many
  bool all = false;           // [@] or [*]
  bool each_if_bare = false;  // [*]: one word between quotes
};

Parameter parsed(const std::string& inside) {
  Parameter found;
  found.counts = inside.starts_with('#') && inside.size() > 1;
  const std::size_t begin = found.counts ? 1 : 0;
  std::size_t end = begin;
  if (end < inside.size() && !is_of_name(inside[end])) ++end;  // $? and its like
  while (end < inside.size() && is_of_name(inside[end])) ++end;
  found.name = inside.substr(begin, end - begin);
  found.rest = inside.substr(end);
  if (found.rest.starts_with("[@]") || found.rest.starts_with("[*]")) {
    found.all = true;
    found.each_if_bare = found.rest[1] == '*';
    found.rest.erase(0, 3);
  }
  return found;
}

}  // namespace

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

void ShellFields::add(std::string_view text, Place place) {
  if (!open) words.push_back({{}, place}), open = true;
  words.back().text += text;
}

bool ShellExpansion::is_known(std::string_view text) { return text.find(mark_begins) == std::string_view::npos; }

ShellWord ShellExpansion::settled(ShellWord word) const {
  for (std::size_t at = word.text.find(mark_begins); at != std::string::npos; at = word.text.find(mark_begins)) {
    const std::size_t end = word.text.find(mark_ends, at);
    std::size_t number = unknowns_.size();
    std::from_chars(word.text.data() + at + 1, word.text.data() + std::min(end, word.text.size()), number);
    if (number < unknowns_.size()) word.unknown += (word.unknown.empty() ? "" : " ") + unknowns_[number];
    word.text.replace(at, end == std::string::npos ? end : end + 1 - at, "?");
  }
  return word;
}

void ShellExpansion::add_unknown(ShellFields& fields, const std::string& what, Place place) {
  fields.add(fmt::format("{}{}{}", mark_begins, unknowns_.size(), mark_ends), place);
  unknowns_.push_back(what);
}

const ShellValue* ShellExpansion::value_of(const std::string& name) const {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : &found->second;
}

void ShellExpansion::enter(const ShellCursor& text, Place place) {
  if (++depth > deepest) text.fail(place, "is nested too deep");
}

// The words of a text such as the default in ${N:-…}.
ShellValue ShellExpansion::expanded(const ShellCursor& around, const std::string& text) {
  enter(around, around.here());
  ShellCursor inner(text, around.file());
  ShellFields fields;
  while (!inner.over()) part(inner, fields, true);
  --depth;
  if (fields.words.empty()) fields.words.push_back({});
  return {std::move(fields.words)};
}

void ShellExpansion::expand(ShellCursor& text, ShellFields& fields, bool quoted) {
  const Place place = text.here();
  text.next();  // $
  const char c = text.peek();
  if (c == '(' && text.peek(1) == '(') {
    text.next(), text.next();
    const std::string inside = text.bracketed('(', ')', "(", place);
    if (text.peek() != ')') text.fail(place, "$(( is not closed");
    text.next();
    const auto number = arithmetic(inside, [&](const std::string& name) -> std::optional<std::string> {
      const ShellValue* value = value_of(name);
      if (value == nullptr || value->words.empty() || !is_known(value->words.front().text)) return std::nullopt;
      return value->words.front().text;
    });
    return number ? fields.add(std::to_string(*number), place) : add_unknown(fields, "$((" + inside + "))", place);
  }
  if (c == '(') {
    text.next();
    return add_unknown(fields, "$(" + text.bracketed('(', ')', "(", place) + ")", place);
  }
  if (c == '{') {
    text.next();
    return parameter(text, fields, text.bracketed('{', '}', "${", place), quoted, place);
  }
  if (begins_name(c)) {
    std::string name;
    while (is_of_name(text.peek())) name += text.next();
    return parameter(text, fields, name, quoted, place);
  }
  if (c == '@' || c == '*') {
    text.next();  // the script's own arguments: none are given
    return;
  }
  if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '#' || c == '?' || c == '$' || c == '!')
    return parameter(text, fields, std::string(1, text.next()), quoted, place);
  fields.add("$", place);
}

void ShellExpansion::parameter(const ShellCursor& text, ShellFields& fields, const std::string& inside, bool quoted,
                               Place place) {
  if (inside == "#") return fields.add("0", place);  // how many arguments the script has
  const Parameter its = parsed(inside);
  const std::string_view rest = its.rest;
  const bool each = its.all && (!its.each_if_bare || !quoted);
  const ShellValue* value = value_of(its.name);
  if (its.counts && value != nullptr) return fields.add(std::to_string(value->words.size()), place);
  const bool missing = value == nullptr || (!its.all && value->words.empty());
  const bool empty = missing || (value->words.size() == 1 && value->words[0].text.empty());
  for (const std::string_view sign : {":-", "-", ":=", "="})
    if (rest.starts_with(sign)) {
      const bool falls_back = sign.starts_with(':') ? empty : missing;
      if (!falls_back) return add_value(fields, *value, quoted, each, place);
      const ShellValue other = expanded(text, std::string(rest.substr(sign.size())));
      if (sign.ends_with('=')) variables[its.name] = other;
      return add_value(fields, other, quoted, true, place);
    }
  if (rest.starts_with(":+") || rest.starts_with("+")) {
    if (!empty) add_value(fields, expanded(text, std::string(rest.substr(rest.find('+') + 1))), quoted, true, place);
    return;
  }
  if (rest.starts_with('[') && rest.ends_with(']') && value != nullptr) {
    const auto index = arithmetic(rest.substr(1, rest.size() - 2), [](const std::string&) { return std::nullopt; });
    if (index && *index >= 0 && *index < static_cast<std::int64_t>(value->words.size()))
      return add_value(fields, {{value->words[static_cast<std::size_t>(*index)]}}, quoted, true, place);
  }
  if (!rest.empty() && !rest.starts_with(":?") && !rest.starts_with('?'))
    return add_unknown(fields, "${" + inside + "}", place);
  if (value == nullptr) return add_unknown(fields, its.all ? "${" + inside + "}" : "$" + its.name, place);
  if (!its.all && value->array) {
    if (!value->words.empty()) add_value(fields, {{value->words.front()}}, quoted, true, place);
    return;
  }
  // One text where an array is meant was said from outside: its words.
  add_value(fields, *value, quoted && !(its.all && !value->array), each, place);
}

// Between double quotes, the first of which is read.
void ShellExpansion::quoted(ShellCursor& text, ShellFields& fields) {
  const Place place = text.here();
  text.next();
  const std::size_t words = fields.words.size();
  const bool open = fields.open;
  bool array = false;
  while (text.peek() != '"') {
    if (text.over()) text.fail(place, "\" is not closed");
    if (text.peek() == '\\' && text.rest().size() > 1) {
      text.next();
      const char escaped = text.next();
      if (escaped == '\n') continue;
      const bool escapes = std::string_view("\"\\$`").find(escaped) != std::string_view::npos;
      fields.add((escapes ? "" : "\\") + std::string(1, escaped), place);
    } else if (text.peek() == '$') {
      const std::string_view ahead = text.rest();
      array |= ahead.starts_with("$@") ||
               (ahead.starts_with("${") && ahead.substr(0, ahead.find('}')).find("[@]") != std::string_view::npos);
      expand(text, fields, true);
    } else if (text.peek() == '`') {
      text.next();
      add_unknown(fields, "`" + text.until('`', place) + "`", place);
    } else {
      fields.add(std::string(1, text.next()), place);
    }
  }
  text.next();
  fields.quoted = true;
  // "" is a word, and "${EMPTY[@]}" is none.
  if (fields.words.size() == words && fields.open == open && !array) fields.add("", place);
}

void ShellExpansion::part(ShellCursor& text, ShellFields& fields, bool bare) {
  const Place place = text.here();
  switch (text.peek()) {
    case '\\': {
      text.next();
      if (text.over()) return;
      const char escaped = text.next();
      if (escaped != '\n') fields.add(std::string(1, escaped), place);
      return;
    }
    case '\'':
      text.next();
      fields.add(text.until('\'', place), place);
      fields.quoted = true;
      return;
    case '"':
      return quoted(text, fields);
    case '$':
      return expand(text, fields, bare);
    case '`':
      text.next();
      return add_unknown(fields, "`" + text.until('`', place) + "`", place);
    default:
      fields.add(std::string(1, text.next()), place);
  }
}

ShellFields ShellExpansion::word(ShellCursor& text, bool bare) {
  ShellFields fields;
  while (!text.ends_word()) part(text, fields, bare);
  return fields;
}

}  // namespace tidemark::scenarios
