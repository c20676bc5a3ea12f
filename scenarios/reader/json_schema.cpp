#include "scenarios/reader/json_schema.hpp"

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "scenarios/reader/scenario_keys.hpp"

namespace tidemark::scenarios {
namespace {

using Schema = nlohmann::ordered_json;

// `"none", "full" or "selective"`: the words between quotes.
std::vector<std::string> words_in(const std::string& values) {
  std::vector<std::string> words;
  for (std::size_t open = values.find('"'); open != std::string::npos; open = values.find('"', open)) {
    const std::size_t close = values.find('"', open + 1);
    if (close == std::string::npos) break;
    words.push_back(values.substr(open + 1, close - open - 1));
    open = close + 1;
  }
  return words;
}

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// "1 to 1048576".
void add_range(Schema& schema, const std::string& values, bool whole) {
  const std::size_t to = values.find(" to ");
  if (to == std::string::npos) return;
  const std::optional<double> low = number_of(std::string_view(values).substr(0, to)),
                              high = number_of(std::string_view(values).substr(to + 4));
  if (!low || !high) return;
  if (whole) {
    schema["minimum"] = static_cast<std::int64_t>(*low);
    schema["maximum"] = static_cast<std::int64_t>(*high);
  } else {
    schema["minimum"] = *low;
    schema["maximum"] = *high;
  }
}

Schema of_key(const ScenarioKey& key) {
  Schema schema = Schema::object();
  const std::string& takes = key.takes;
  if (takes == "a whole number" || takes == "a number") {
    schema["type"] = takes == "a number" ? "number" : "integer";
    add_range(schema, key.values, takes != "a number");
  } else if (takes == "true or false") {
    schema["type"] = "boolean";
  } else if (takes.starts_with("a text")) {
    schema["type"] = "string";
    if (const std::vector<std::string> words = words_in(key.values);
        takes == "a text between quotes" && words.size() > 1)
      schema["enum"] = words;
  } else if (takes.starts_with("a list")) {
    schema["type"] = "array";
  } else if (takes == "a table") {
    schema["type"] = "object";
  }
  std::string meaning = meaning_of(key.path());
  if (key.runtimes.size() < 6 && !key.runtimes.empty())
    meaning += fmt::format("{}({})", meaning.empty() ? "" : " ", fmt::join(key.runtimes, ", "));
  if (!meaning.empty()) schema["description"] = meaning;
  if (!key.usual.empty())
    if (Schema usual = Schema::parse(key.usual, nullptr, false); !usual.is_discarded())
      schema["default"] = std::move(usual);
  return schema;
}

// The table that a path names, made where it is not there yet.
Schema& table_at(Schema& root, const std::string& path) {
  Schema* at = &root;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t dot = std::min(path.find('.', begin), path.size());
    Schema& next = (*at)["properties"][path.substr(begin, dot - begin)];
    next["type"] = "object";
    at = &next;
    begin = dot + 1;
  }
  return *at;
}

// A key that is in no table is a slip; but what other tools name is theirs.
void close_tables(Schema& table, const std::string& path) {
  const bool open = path == "model_override" || path == "runtime.switches" || path == "runtime.environment";
  if (table.contains("properties") && !open) table["additionalProperties"] = false;
  if (!table.contains("properties")) return;
  for (auto& [name, inner] : table["properties"].items()) close_tables(inner, path.empty() ? name : path + '.' + name);
}

}  // namespace

std::string scenario_json_schema(const std::filesystem::path& data_root) {
  Schema schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                   {"title", "Tidemark scenario"},
                   {"type", "object"},
                   {"required", {"model", "cluster", "gpus", "train", "runtime"}},
                   {"properties", Schema::object()}};
  for (const ScenarioKey& key : scenario_keys(data_root)) {
    Schema made = of_key(key);
    Schema& slot = table_at(schema, key.table)["properties"][key.name];
    if (slot.is_object() && slot.contains("properties")) made["properties"] = slot["properties"];
    slot = std::move(made);
  }
  close_tables(schema, "");
  return schema.dump(2, ' ', false, Schema::error_handler_t::replace) + '\n';
}

}  // namespace tidemark::scenarios
