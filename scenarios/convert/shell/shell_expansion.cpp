#include "scenarios/convert/shell/shell_expansion.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/shell/shell_arithmetic.hpp"
#include "scenarios/convert/shell/shell_conditions.hpp"
#include "scenarios/convert/shell/shell_pipelines.hpp"
#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::string_view spaces = " \t\n\r";

// What is not known stands in a text as its number between these two.
constexpr char mark_begins = '\x01', mark_ends = '\x02';

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
  const bool special = end < inside.size() && !begins_name(inside[end]);
  if (special) ++end;  // $? and its like
  while (end < inside.size() && is_of_name(inside[end]) &&
         (!special || std::isdigit(static_cast<unsigned char>(inside[begin])) != 0))
    ++end;
  found.name = inside.substr(begin, end - begin);
  found.rest = inside.substr(end);
  if (found.rest.starts_with("[@]") || found.rest.starts_with("[*]")) {
    found.all = true;
    found.each_if_bare = found.rest[1] == '*';
    found.rest.erase(0, 3);
  }
  return found;
}

bool is_argument(const std::string& name) {
  return name == "@" || name == "*" || name == "#" ||
         (!name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) != 0 && name != "0");
}

// Whether {a,b} or {1..4} stands between no quotes.
bool has_braces(const ShellSource& source, const ShellSpan& span) {
  int open = 0;
  bool several = false;
  for (ShellCursor text(source, span); !text.over();) {
    const char c = text.peek();
    if (c == '\\' || c == '\'' || c == '"' || c == '`' || c == '$') {
      ShellCursor behind = text;
      const Place place = text.here();
      behind.next();
      if (c == '\\') {
        if (!behind.over()) behind.next();
      } else if (c == '"') {
        behind.double_quoted(place);
      } else if (c != '$') {
        (void)behind.until(c, place);
      } else if (behind.peek() == '{' || behind.peek() == '(') {
        const bool brace = behind.next() == '{';
        (void)(brace ? behind.braced(false, place) : behind.parenthesised("(", place));
      }
      text = behind;
      continue;
    }
    if (c == '{') ++open;
    if (open > 0 && (c == ',' || (c == '.' && text.peek(1) == '.'))) several = true;
    if (c == '}' && open > 0 && several) return true;
    text.next();
  }
  return false;
}

// IFS where nothing changes it.
const ShellValue& usual_separators() {
  static const ShellValue value{.words = {{" \t\n", {}}}, .array = false};
  return value;
}

// ${NAME#PATTERN}, ##, % and %%: without the shortest or longest beginning or end that is like the pattern; nothing
// where it is another expansion, or something is not known.
std::optional<std::string> trimmed(const ShellValue& value, std::string_view rest) {
  if (rest.empty() || (rest[0] != '#' && rest[0] != '%') || value.words.size() != 1) return std::nullopt;
  const bool front = rest[0] == '#', longest = rest.size() > 1 && rest[1] == rest[0];
  const std::string pattern(rest.substr(longest ? 2 : 1));
  const std::string& text = value.words.front().text;
  if (pattern.find_first_of("$`'\"\\(") != std::string::npos || !ShellExpansion::is_known(text)) return std::nullopt;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const std::size_t length = longest ? text.size() - i : i;
    if (is_like(front ? text.substr(0, length) : text.substr(text.size() - length), pattern))
      return front ? text.substr(length) : text.substr(0, text.size() - length);
  }
  return text;
}

bool holds_one(const ShellValue& value, const std::string& text) {
  return !value.array && value.doubt.empty() && value.words.size() == 1 && value.words.front().text == text;
}

// "[0]*3+[1]*58" and "M-M-*M-", which Megatron-LM's flags take: no file is called so.
bool is_pattern_of_layers(std::string_view text) {
  constexpr std::size_t fewest = 8;  // letters, of which a name of a file might begin with fewer
  const bool list = text.starts_with('[') && text.find("]*") != std::string_view::npos;
  return list ? text.find_first_not_of("0123456789[]*+,") == std::string_view::npos
              : text.size() >= fewest && text.find('-') != std::string_view::npos &&
                    text.find_first_not_of("M-*E") == std::string_view::npos;
}

}  // namespace

void ShellFields::add(std::string_view text, Place place) {
  if (!open) words.push_back({{}, place}), open = true;
  words.back().text += text;
}

void ShellFields::add_bare(std::string_view text, Place place) {
  add(text, place);
  for (const char c : text) {
    if (c == '*' || c == '?' || (c == ']' && opened_ == words.size())) patterns.insert(words.size() - 1);
    if (c == '[') opened_ = words.size();
  }
}

void ShellShared::spend_step(Place place) {
  constexpr std::int64_t most = 100'000;
  if (++steps > most)
    throw InputError(Problem{file, place.line, place.column,
                             fmt::format("comes to more than {} commands, with all that it evaluates", most),
                             "give the command alone, as it would be typed"});
}

void ShellShared::spend_bytes(std::size_t count, Place place) {
  constexpr std::int64_t most = std::int64_t{64} << 20;
  bytes += static_cast<std::int64_t>(count);
  if (bytes > most)
    throw InputError(Problem{file, place.line, place.column,
                             fmt::format("its expansions come to more than {} MiB of text", most >> 20),
                             "give the command alone, as it would be typed"});
}

void ShellShared::enter(Place place) {
  constexpr int deepest = 32;
  if (++depth > deepest)
    throw InputError(
        Problem{file, place.line, place.column, "is nested too deep", "give the command alone, as it would be typed"});
}

bool ShellExpansion::is_known(std::string_view text) { return text.find(mark_begins) == std::string_view::npos; }

ShellWord ShellExpansion::resolved_scenario(ShellWord word) const {
  const std::vector<std::string>& unknowns = shared_->unknowns;
  for (std::size_t at = word.text.find(mark_begins); at != std::string::npos; at = word.text.find(mark_begins)) {
    const std::size_t end = word.text.find(mark_ends, at);
    std::size_t number = unknowns.size();
    std::from_chars(word.text.data() + at + 1, word.text.data() + std::min(end, word.text.size()), number);
    if (number < unknowns.size()) word.unknown += (word.unknown.empty() ? "" : " ") + unknowns[number];
    word.text.replace(at, end == std::string::npos ? end : end + 1 - at, "?");
  }
  return word;
}

void ShellExpansion::add_unknown(ShellFields& fields, const std::string& what, Place place) {
  std::vector<std::string>& unknowns = shared_->unknowns;
  shared_->spend_bytes(what.size(), place);
  fields.add(fmt::format("{}{}{}", mark_begins, unknowns.size(), mark_ends), place);
  unknowns.push_back(what);
}

// ---- variables

std::string ShellExpansion::argument_held_by(const ShellValue& value) const {
  if (value.array || value.words.size() != 1 || !arguments_doubt.empty()) return {};
  const std::string& text = value.words.front().text;
  const std::size_t end = text.find(mark_ends);
  if (!text.starts_with(mark_begins) || end + 1 != text.size()) return {};
  std::size_t number = 0;
  if (std::from_chars(text.data() + 1, text.data() + end, number).ptr != text.data() + end) return {};
  std::string what = shared_->unknowns.at(number);
  if (what.starts_with("${") && what.ends_with('}')) what = "$" + what.substr(2, what.size() - 3);
  const bool is_argument =
      what.size() > 1 && what != "$0" && what[0] == '$' && what.find_first_not_of("0123456789", 1) == std::string::npos;
  return is_argument ? what.substr(1) : std::string();
}

const ShellValue* ShellExpansion::value_of(const std::string& name) const {
  if (name == "IFS" && !variables.contains(name) && all_doubt.empty()) return &usual_separators();
  const auto found = variables.find(name);
  if (found == variables.end()) return nullptr;
  shared_->presumed.insert(found->second.presumed.begin(), found->second.presumed.end());
  return &found->second;
}

std::string ShellExpansion::doubt_of(const std::string& name) const {
  if (fixed.contains(name)) return {};
  if (const ShellValue* value = value_of(name)) return value->doubt;
  return is_argument(name) ? arguments_doubt : all_doubt;
}

void ShellExpansion::assign(const std::string& name, ShellValue value, bool adds) {
  // Bash assigns some of these itself.
  static constexpr std::array<std::string_view, 14> own{
      "RANDOM", "SECONDS",  "LINENO",   "SRANDOM",    "EPOCHSECONDS", "EPOCHREALTIME", "BASHPID",
      "GROUPS", "DIRSTACK", "FUNCNAME", "PIPESTATUS", "UID",          "EUID",          "_"};
  if (fixed.contains(name)) return;
  if (name == "IFS" && !adds && holds_one(value, usual_separators().words.front().text) && !variables.contains(name))
    return;
  if (name == "IFS") lose_track("IFS is changed, which says where words end");
  if (!opaque.empty()) return doubt(name, opaque);
  if (!unsure.empty()) return doubt(name, unsure);
  if (odd.contains(name) || std::ranges::find(own, name) != own.end())
    return doubt(name, "what is assigned to it is not what it holds");
  const auto found = variables.find(name);
  if (found == variables.end()) {
    if (adds && !all_doubt.empty()) return doubt(name, all_doubt);
    variables[name] = std::move(value);
    return;
  }
  ShellValue& known = found->second;
  const bool keeps = adds || (known.array && !value.array);
  std::set<std::string> presumed = value.presumed;
  if (keeps) presumed.insert(known.presumed.begin(), known.presumed.end());
  if (!known.doubt.empty()) {
    if (keeps) return;
    known = std::move(value);
  } else if (adds && value.array) {
    known.array = true;
    known.words.insert(known.words.end(), value.words.begin(), value.words.end());
  } else if (known.array && !value.array) {  // the first element
    if (known.words.empty()) known.words.push_back({{}, value.words.front().place});
    known.words.front().text = (adds ? known.words.front().text : "") + value.words.front().text;
  } else if (adds && !known.words.empty()) {
    known.words.front().text += value.words.front().text;
  } else {
    known = std::move(value);
  }
  known.presumed = std::move(presumed);
}

void ShellExpansion::doubt(const std::string& name, const std::string& why) {
  if (fixed.contains(name)) return;
  if (name == "IFS") lose_track(why);
  shared_->candidates.erase(name);
  ShellValue& its = variables[name];
  its.words.clear();
  its.doubt = why;
}

void ShellExpansion::doubt_all(const std::string& why) {
  shared_->candidates.clear();
  for (auto& [name, value] : variables)
    if (!fixed.contains(name)) value.words.clear(), value.doubt = why;
  all_doubt = arguments_doubt = why;
}

void ShellExpansion::presume_all(const std::string& why) {
  // Another path says where data, code and checkpoints are.
  const auto is_path = [](const ShellValue& value) {
    return !value.array && value.words.size() == 1 && value.words.front().text.find('/') != std::string::npos &&
           value.words.front().text.find("--") == std::string::npos;
  };
  for (auto& [name, value] : variables)
    if (!fixed.contains(name) && value.doubt.empty() && !is_path(value)) value.presumed.insert(name);
  all_doubt = arguments_doubt = why;
}

void ShellExpansion::lose_track(const std::string& why) {
  doubt_all(why);
  opaque = why;
}

// ---- expansions

// The words of a text such as the default in ${N:-…}.
ShellValue ShellExpansion::expanded(const std::string& text, Place place) {
  shared_->enter(place);
  const ShellSource source{text, shared_->file, place};
  ShellFields fields;
  for (ShellCursor inner(source); !inner.over();) value_part(inner, fields);
  --shared_->depth;
  if (fields.words.empty()) fields.words.push_back({{}, place});
  return {std::move(fields.words)};
}

// What an expansion gives: whole between quotes, cut at spaces elsewhere. `each`: array elements are words of their
// own.
void ShellExpansion::add_value(ShellFields& fields, const ShellValue& value, bool quoted, bool each, Place place) {
  for (std::size_t i = 0; i < value.words.size(); ++i) {
    const ShellWord& word = value.words[i];
    shared_->spend_bytes(word.text.size() + sizeof(ShellWord), place);
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
      fields.add_bare(std::string_view(word.text).substr(from, at - from), place);
    }
  }
}

void ShellExpansion::sum(ShellCursor& text, ShellFields& fields, Place place) {
  const std::string inside = text.parenthesised("(", place);
  if (text.peek() != ')') text.fail(place, "$(( is not closed");
  text.next();
  std::string why;
  const auto number = arithmetic(inside, [&](const std::string& name) -> std::optional<std::string> {
    const ShellValue* value = value_of(name);
    if (const std::string doubt = doubt_of(name); why.empty() && !doubt.empty())
      why = fmt::format(" (of ${}: {})", name, doubt);
    if (value == nullptr || value->words.empty() || !is_known(value->words.front().text)) return std::nullopt;
    return value->words.front().text;
  });
  if (number) return fields.add(std::to_string(*number), place);
  for (const std::string& name : assigned_by_arithmetic(inside))
    doubt(name, fmt::format("arithmetic in line {} may assign it", place.line));
  add_unknown(fields, "$((" + inside + "))" + why, place);
}

// "expr 16 / $N": numbers, variables that hold one, and signs, each a word.
std::optional<std::int64_t> ShellExpansion::calculated(std::string_view command) {
  std::istringstream words{std::string(command)};
  std::string word, sum;
  if (!(words >> word) || word != "expr") return std::nullopt;
  const auto is_number = [](std::string_view its) {
    return !its.empty() && its.find_first_not_of("0123456789") == std::string_view::npos &&
           (its[0] != '0' || its == "0");
  };
  bool operand = true;
  while (words >> word) {
    if (operand) {
      if (word.starts_with("${") && word.ends_with('}'))
        word = word.substr(2, word.size() - 3);
      else if (word.starts_with('$'))
        word.erase(0, 1);
      if (!is_number(word)) {
        const ShellValue* const value = value_of(word);
        if (value == nullptr || value->words.size() != 1 || !doubt_of(word).empty()) return std::nullopt;
        word = value->words.front().text;
      }
      if (!is_number(word)) return std::nullopt;
    } else {
      if (word == "\\*" || word == "'*'" || word == "\"*\"") word = "*";
      if (word != "+" && word != "-" && word != "*" && word != "/" && word != "%") return std::nullopt;
    }
    sum += word + ' ';
    operand = !operand;
  }
  if (operand || sum.empty()) return std::nullopt;
  return arithmetic(sum, [](const std::string&) -> std::optional<std::string> { return std::nullopt; });
}

void ShellExpansion::dollar(ShellCursor& text, ShellFields& fields, Quotes quotes) {
  const Place place = text.here();
  text.next();  // $
  const char c = text.peek();
  if (c == '(' && text.peek(1) == '(') {
    text.next(), text.next();
    return sum(text, fields, place);
  }
  if (c == '(') {
    text.next();
    const std::string inside = text.parenthesised("(", place);
    if (const auto number = calculated(inside)) return fields.add(std::to_string(*number), place);
    const auto known = [&](const std::string& word) -> std::optional<std::string> {
      const ShellValue value = expanded(word, place);
      const bool one = value.words.size() == 1 && value.doubt.empty() && is_known(value.words.front().text);
      return one ? std::optional(value.words.front().text) : std::nullopt;
    };
    if (const auto printed = printed_by(inside, known)) return fields.add(*printed, place);
    return add_unknown(fields, "$(" + inside + ")", place);
  }
  if (c == '{') {
    text.next();
    return parameter(fields, text.braced(quotes == Quotes::Double, place), quotes, place);
  }
  if (c == '[') {  // arithmetic, as it was once written
    std::string inside = text.until(']', place);
    for (const std::string& name : assigned_by_arithmetic(inside))
      doubt(name, fmt::format("arithmetic in line {} may assign it", place.line));
    return add_unknown(fields, "$" + inside + "]", place);
  }
  if (c == '\'' && quotes != Quotes::Double) {  // with escapes of its own
    text.next();
    std::string inside;
    bool escapes = false;
    while (text.peek() != '\'' && !text.over()) {
      if (text.peek() == '\\') escapes = true, inside += text.next();
      if (!text.over()) inside += text.next();
    }
    if (text.over()) text.fail(place, "' is not closed");
    text.next();
    fields.quoted = true;
    return escapes ? add_unknown(fields, "$'" + inside + "'", place) : fields.add(inside, place);
  }
  if (c == '"' && quotes != Quotes::Double) return;  // translated, and between quotes
  if (begins_name(c)) {
    std::string name;
    while (is_of_name(text.peek())) name += text.next();
    return parameter(fields, name, quotes, place);
  }
  if (std::isdigit(static_cast<unsigned char>(c)) != 0 ||
      (c != '\0' && std::string_view("@*#?$!-").find(c) != std::string_view::npos))
    return parameter(fields, std::string(1, text.next()), quotes, place);
  fields.add("$", place);
}

void ShellExpansion::count(ShellFields& fields, const ShellValue* value, const std::string& inside, bool all,
                           Place place) {
  if (value == nullptr) return add_unknown(fields, "${" + inside + "}", place);
  if (all) return fields.add(std::to_string(value->words.size()), place);
  const std::string text = value->words.empty() ? std::string() : value->words.front().text;
  const bool plain = std::ranges::all_of(text, [](unsigned char c) { return c >= ' ' && c < 0x7f; });
  return plain ? fields.add(std::to_string(text.size()), place) : add_unknown(fields, "${" + inside + "}", place);
}

// What stands behind :- or :+ in place of the variable.
void ShellExpansion::otherwise(ShellFields& fields, const std::string& text, Quotes quotes, Place place) {
  if (text == "\"\"" || (text == "''" && quotes != Quotes::Double)) return;
  const bool quoted = quotes != Quotes::None;
  const bool has_quotes = text.find_first_of("'\"\\") != std::string::npos || text.starts_with('~');
  const bool whole = text.size() > 1 && text.front() == '"' && text.find_first_of("\"\\", 1) == text.size() - 1;
  if (has_quotes && !whole) return add_unknown(fields, "${…" + text + "}", place);
  add_value(fields, expanded(text, place), quoted || whole, true, place);
}

void ShellExpansion::parameter(ShellFields& fields, const std::string& inside, Quotes quotes, Place place) {
  const bool quoted = quotes != Quotes::None;
  Parameter its = parsed(inside);
  const bool arguments = inside == "@" || inside == "*";
  const std::string_view rest = its.rest;
  const std::string spelled =
      arguments || (!its.all && rest.empty() && !its.counts) ? "$" + inside : "${" + inside + "}";
  if (const std::string why = doubt_of(its.name); !why.empty())
    return add_unknown(fields, fmt::format("{} ({})", spelled, why), place);
  if (inside == "#") return fields.add(std::to_string(this->arguments.size()), place);
  if (arguments) {  // none are given to the script
    const ShellValue all{.words = this->arguments, .array = true};
    return add_value(fields, all, quoted, inside == "@" || !quoted, place);
  }
  const bool each = its.all && (!its.each_if_bare || !quoted);
  const ShellValue* value = value_of(its.name);
  if (its.counts)
    return rest.empty() ? count(fields, value, inside, its.all, place) : add_unknown(fields, spelled, place);
  const bool missing = value == nullptr || value->words.empty();
  const bool empty = missing || (value->words.size() == 1 && value->words[0].text.empty());
  for (const std::string_view sign : {":-", "-", ":=", "="})
    if (rest.starts_with(sign)) {
      const bool not_given = value != nullptr && !argument_held_by(*value).empty();
      const bool falls_back = sign.starts_with(':') ? empty || not_given : missing;
      if (!falls_back) return add_value(fields, *value, quoted, each, place);
      const std::string text(rest.substr(sign.size()));
      if (sign.ends_with('=')) {
        if (text.find_first_of("'\"\\") != std::string::npos)
          doubt(its.name, fmt::format("line {} may assign it", place.line));
        else
          assign(its.name, expanded(text, place));
      }
      return otherwise(fields, text, quotes, place);
    }
  if (rest.starts_with(":+") || rest.starts_with("+")) {
    const bool is_empty = rest.starts_with('+') ? missing : empty;
    if (!missing && !is_known(value->words.front().text)) return add_unknown(fields, spelled, place);
    if (!is_empty) otherwise(fields, std::string(rest.substr(rest.find('+') + 1)), quotes, place);
    return;
  }
  if (const std::optional<std::string> cut = value == nullptr || value->array ? std::nullopt : trimmed(*value, rest)) {
    ShellValue left = *value;
    left.words.front().text = *cut;
    return add_value(fields, left, quoted, true, place);
  }
  if (rest.starts_with('[') && rest.ends_with(']') && value != nullptr) {
    const auto index = arithmetic(rest.substr(1, rest.size() - 2), [](const std::string&) { return std::nullopt; });
    if (index && *index >= 0 && *index < static_cast<std::int64_t>(value->words.size()))
      return add_value(fields, {{value->words[static_cast<std::size_t>(*index)]}}, quoted, true, place);
    for (const std::string& name : assigned_by_arithmetic(rest))
      doubt(name, fmt::format("arithmetic in line {} may assign it", place.line));
  }
  const bool is_empty_here = in_test || shared_->left_out.contains(its.name);
  const bool of_script = in_test && !its.name.empty() && arguments_doubt.empty() &&
                         its.name.find_first_not_of("0123456789") == std::string::npos && its.name != "0";
  if (is_empty_here && value == nullptr && rest.empty() && (is_name(its.name) || of_script)) {
    shared_->unset.insert(its.name);
    if (quoted) fields.add("", place);
    return;
  }
  if (in_test && value != nullptr && rest.empty())
    if (const std::string argument = argument_held_by(*value); !argument.empty()) {
      shared_->unset.insert(argument);
      if (quoted) fields.add("", place);
      return;
    }
  const bool demands = rest.starts_with(":?") || rest.starts_with('?');
  if ((!rest.empty() && !demands) || value == nullptr || (demands && (rest[0] == ':' ? empty : missing)))
    return add_unknown(fields, demands ? "$" + its.name : spelled, place);
  if (!its.all && value->array) {
    if (!value->words.empty()) add_value(fields, {{value->words.front()}}, quoted, true, place);
    return;
  }
  // One text where an array is meant was said from outside: its words.
  const bool outside = its.all && !value->array && fixed.contains(its.name);
  add_value(fields, *value, quoted && !outside, each, place);
}

// Between double quotes, the first of which is read.
void ShellExpansion::quoted(ShellCursor& text, ShellFields& fields) {
  const Place place = text.here();
  text.next();
  const std::size_t words = fields.words.size();
  const bool open = fields.open;
  bool array = false;
  while (text.peek() != '"' || text.over()) {
    if (text.over()) text.fail(place, "\" is not closed");
    if (text.peek() == '\\' && text.rest().size() > 1) {
      text.next();
      const char escaped = text.next();
      if (escaped == '\n') continue;
      const bool escapes = std::string_view("\"\\$`").find(escaped) != std::string_view::npos;
      fields.add((escapes ? "" : "\\") + std::string(1, escaped), place);
    } else if (text.peek() == '$') {
      const std::string_view ahead = text.rest();
      array |= ahead.starts_with("$@") || ahead.starts_with("${@") ||
               (ahead.starts_with("${") && ahead.substr(0, ahead.find('}')).find("[@]") != std::string_view::npos);
      dollar(text, fields, Quotes::Double);
    } else if (text.peek() == '`') {
      text.next();
      add_unknown(fields, "`" + text.backquoted(place) + "`", place);
    } else {
      fields.add(std::string(1, text.next()), place);
    }
  }
  text.next();
  fields.quoted = true;
  // "" is a word, and "${EMPTY[@]}" is none.
  if (fields.words.size() == words && fields.open == open && !array) fields.add("", place);
}

void ShellExpansion::part(ShellCursor& text, ShellFields& fields, ShellContext context) {
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
      return dollar(text, fields, Quotes::None);
    case '`':
      text.next();
      return add_unknown(fields, "`" + text.backquoted(place) + "`", place);
    case '<':
    case '>': {  // <( … )
      const std::string sign(1, text.next());
      if (text.peek() != '(') return fields.add(sign, place);
      text.next();
      return add_unknown(fields, sign + "(" + text.parenthesised("(", place) + ")", place);
    }
    default: {
      const std::string c(1, text.next());
      return context == ShellContext::Arguments ? fields.add_bare(c, place) : fields.add(c, place);
    }
  }
}

// What is not cut at spaces: between its words stands one space each.
void ShellExpansion::in_one(ShellCursor& text, ShellFields& fields, Quotes quotes) {
  const Place place = text.here();
  ShellFields value;
  dollar(text, value, quotes);
  for (std::size_t i = 0; i < value.words.size(); ++i) fields.add((i > 0 ? " " : "") + value.words[i].text, place);
}

void ShellExpansion::value_part(ShellCursor& text, ShellFields& fields) {
  if (text.peek() != '$') return part(text, fields, ShellContext::Value);
  in_one(text, fields, Quotes::Value);
}

ShellFields ShellExpansion::word(const ShellSource& source, const ShellSpan& span, ShellContext context) {
  ShellFields fields;
  ShellCursor text(source, span);
  const std::string raw = source.text.substr(span.begin, span.end - span.begin);
  const Place place = text.here();
  shared_->spend_bytes(raw.size(), place);
  if (context == ShellContext::Arguments && has_braces(source, span)) {
    add_unknown(fields, raw, place);
    return fields;
  }
  const bool assigns = context == ShellContext::Value || is_name(std::string_view(raw).substr(0, raw.find('=')));
  bool home = true;  // where ~ is the home folder
  while (!text.over()) {
    const char c = text.peek();
    if (c == '~' && home) {
      text.next();
      add_unknown(fields, "~", place);
    } else if (context == ShellContext::Value) {
      value_part(text, fields);
    } else {
      part(text, fields, context);
    }
    home = assigns && (c == ':' || (c == '=' && context == ShellContext::Arguments));
  }
  if (context == ShellContext::Arguments)
    for (const std::size_t i : fields.patterns) {
      // No file is called so: it stays as it stands.
      if (fields.words[i].text.find_first_of("'\"()") != std::string::npos) continue;
      // "stages=[training]", an override of Hydra's.
      const std::string& text_of_word = fields.words[i].text;
      if (text_of_word.find_first_of("*?") == std::string::npos && text_of_word.find("=[") != std::string::npos)
        continue;
      if (is_pattern_of_layers(text_of_word)) continue;
      ShellFields unknown;
      add_unknown(unknown, fmt::format("{} (a pattern of file names)", resolved_scenario(fields.words[i]).text), place);
      fields.words[i].text = unknown.words.front().text;
    }
  return fields;
}

std::string ShellExpansion::document(const ShellSource& source, const ShellSpan& span) {
  ShellFields fields;
  shared_->spend_bytes(span.end - span.begin, ShellCursor(source, span).here());
  for (ShellCursor text(source, span); !text.over();) {
    const Place place = text.here();
    if (text.peek() == '\\' && text.rest().size() > 1) {
      text.next();
      const char escaped = text.next();
      if (escaped == '\n') continue;
      const bool escapes = std::string_view("\\$`").find(escaped) != std::string_view::npos;
      fields.add((escapes ? "" : "\\") + std::string(1, escaped), place);
    } else if (text.peek() == '$') {
      in_one(text, fields, Quotes::Double);
    } else if (text.peek() == '`') {
      text.next();
      add_unknown(fields, "`" + text.backquoted(place) + "`", place);
    } else {
      fields.add(std::string(1, text.next()), place);
    }
  }
  return fields.words.empty() ? std::string() : fields.words.front().text;
}

std::set<std::string> assigned_by_arithmetic(std::string_view expression) {
  bool assigns = expression.find("++") != std::string_view::npos || expression.find("--") != std::string_view::npos;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    if (expression[i] != '=') continue;
    if (i + 1 < expression.size() && expression[i + 1] == '=') {
      ++i;
      continue;
    }
    const char before = i > 0 ? expression[i - 1] : ' ';
    const bool shifts = i > 1 && (before == '<' || before == '>') && expression[i - 2] == before;
    assigns |= shifts || (before != '!' && before != '<' && before != '>');
  }
  std::set<std::string> names;
  for (std::size_t i = 0; assigns && i < expression.size();) {
    const std::size_t begin = i;
    while (i < expression.size() && is_of_name(expression[i])) ++i;
    if (i > begin && begins_name(expression[begin])) names.emplace(expression.substr(begin, i - begin));
    if (i == begin) ++i;
  }
  return names;
}

}  // namespace tidemark::scenarios
