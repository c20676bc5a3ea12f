#include "scenarios/formats/detail/config_document.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {

using nlohmann::json;

namespace {

constexpr int deepest = 64;
constexpr std::int64_t most_objects = 10'000;  // the library looks through all before one, each time that one ends

/// Builds the document and refuses what the library lets pass: keys given twice, and absurd depth and number.
class Watch {
 public:
  explicit Watch(Problems& problems) : problems_(&problems) {}

  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (depth > deepest) throw InputError(Problem{problems_->file(), 0, 0, "is nested too deep", {}});
    if (event == json::parse_event_t::object_start) {
      seen_.emplace_back();
      if (++objects_ > most_objects)
        throw InputError(Problem{problems_->file(), 0, 0, fmt::format("has more than {} objects", most_objects),
                                 "a config.json has one for each layer at most"});
    }
    if (event == json::parse_event_t::object_end) seen_.pop_back();
    if (event == json::parse_event_t::key && !seen_.back().insert(parsed.get<std::string>()).second) {
      problems_->add({}, fmt::format("{}: is there twice", parsed.get<std::string>()), "leave one of them out");
    }
    return true;
  }

 private:
  Problems* problems_;
  std::vector<std::set<std::string>> seen_;
  std::int64_t objects_ = 0;
};

Place place_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte == 0 ? 0 : byte - 1, text.size()));
  const std::size_t newline = before.rfind('\n');
  const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
  return {static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          static_cast<int>(before.size() - line_start) + 1};
}

/// The library's words without its own name, number and place.
std::string reason(std::string_view what) {
  const std::size_t syntax = what.find("syntax error");
  if (syntax != std::string_view::npos) return std::string(what.substr(syntax));
  const std::size_t end = what.find("] ");
  return std::string(end == std::string_view::npos ? what : what.substr(end + 2));
}

/// Where the number is that "number overflow parsing '1e999'" is about: the library does not say.
Place place_of_number(std::string_view text, std::string_view what) {
  const std::size_t open = what.find('\''), close = what.rfind('\'');
  if (open == std::string_view::npos || close <= open) return {};
  const std::size_t at = text.find(what.substr(open + 1, close - open - 1));
  return at == std::string_view::npos ? Place{} : place_of(text, at + 1);
}

// Python's json module writes Infinity, for which JSON has no word (Nemotron-H: time_step_limit). Here such a value
// says nothing; places stay what they are.
std::string without_infinity(std::string text) {
  constexpr std::string_view infinity = "Infinity";
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_text && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      in_text = !in_text;
    else if (!in_text && text.compare(i, infinity.size(), infinity) == 0) {
      const std::size_t first = i > 0 && text[i - 1] == '-' ? i - 1 : i, size = i + infinity.size() - first;
      text.replace(first, size, std::string("null").append(size - 4, ' '));
    }
  }
  return text;
}

constexpr const char* hint_of_json =
    "JSON: {\"key\": value}, text in double quotes, no comma behind the last value, no comments";

}  // namespace

json parse_config(std::string_view given, Problems& problems) {
  const std::string text = without_infinity(std::string(given));
  json document;
  try {
    document = json::parse(text.begin(), text.end(), Watch(problems));
  } catch (const json::parse_error& error) {
    if (std::string_view(problems.file()).ends_with(".toml"))
      throw InputError(Problem{problems.file(), 1, 1, "is not a config.json of a model",
                               "a model is JSON; a cluster's file goes to cluster, or --cluster"});
    const Place place = place_of(text, error.byte);
    throw InputError(Problem{problems.file(), place.line, place.column, reason(error.what()), hint_of_json});
  } catch (const json::exception& error) {
    const Place place = place_of_number(text, error.what());
    throw InputError(Problem{problems.file(), place.line, place.column, reason(error.what()), {}});
  }
  problems.raise_if_any();
  if (!document.is_object())
    throw InputError(
        Problem{problems.file(), 1, 1, "is not a JSON object", "a config.json begins with { and names its model_type"});
  return document;
}

std::string shown(const json& value) {
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  return value.dump();
}

bool says_nothing(const json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0.0;
  return value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty();
}

}  // namespace tidemark::scenarios
