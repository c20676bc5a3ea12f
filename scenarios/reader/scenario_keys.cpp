#include "scenarios/reader/scenario_keys.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "scenarios/reader/document_parts.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;
using Content = decltype(TomlValue::value);

constexpr Place requested_here{777'777, 7};  // of no key that is there
constexpr std::string_view no_key = "zzzzzzzzzzzzzzzzzzzzzzzz";

/// A scenario that is sound under its runtime, and one key of it changed.
class Question {
 public:
  Question(std::string_view runtime, const std::filesystem::path& data_root)
      : runtime_(runtime), folders_{data_root, data_root} {
    const bool megatron = runtime == "megatron";
    std::string text = fmt::format(
        "model = \"models/{}.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
        "[train]\nsequence_length = 4096\nmicro_batch = 1\n[runtime]\nname = \"{}\"\n",
        megatron ? "mixtral-8x7b" : "llama-3.1-8b", runtime);
    if (runtime == "deepspeed") text += "[layout]\nsharding = \"zero3\"\n";
    document_ = parse_toml(text, "keys");
    if (files_.texts.empty()) files_ = files_of(document_, "keys.toml", folders_);
  }

  /// What is wrong once `path` has the value.
  [[nodiscard]] std::vector<Problem> problems(const std::string& path, Content content) const {
    TomlTable changed = document_;
    TomlTable* table = &changed;
    std::string rest = path;
    for (std::size_t dot = rest.find('.'); dot != std::string::npos; dot = rest.find('.')) {
      TomlKey& key = made(*table, rest.substr(0, dot));
      if (!std::holds_alternative<TomlTable>(key.value.value)) key.value.value = TomlTable{};
      table = &std::get<TomlTable>(key.value.value);
      rest.erase(0, dot + 1);
    }
    TomlKey& key = made(*table, rest);
    key.place = requested_here;
    key.value = {std::move(content), requested_here};
    std::vector<Problem> found;
    for (Problem& problem : problems_of_keys(changed, "keys.toml", folders_, files_))
      if (problem.line == requested_here.line) found.push_back(std::move(problem));
    return found;
  }

  [[nodiscard]] Json defaults() const {
    const Scenario scenario = scenario_of(document_, "keys.toml", folders_, files_);
    return Json::parse(scenario_json(scenario, -1));
  }

 private:
  static TomlKey& made(TomlTable& table, const std::string& name) {
    const auto found = std::ranges::find(table.keys, name, &TomlKey::name);
    if (found != table.keys.end()) return *found;
    const auto after = std::ranges::find_if(table.keys, [&](const TomlKey& key) { return key.name > name; });
    return *table.keys.insert(after, TomlKey{name, {}, {TomlTable{}, {}}});
  }

  std::string runtime_;
  ScenarioFolders folders_;
  TomlTable document_;
  ScenarioFiles files_;
};

// "a, b or c".
std::vector<std::string> split(std::string text) {
  std::vector<std::string> names;
  if (const std::size_t last = text.rfind(" or "); last != std::string::npos) text.replace(last, 4, ", ");
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(", ", begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    begin = end + 2;
  }
  return names;
}

std::vector<std::string> known_keys(const Question& question, const std::string& table) {
  constexpr std::string_view lead = "known here: ";
  const std::string path = table.empty() ? std::string(no_key) : fmt::format("{}.{}", table, no_key);
  for (const Problem& problem : question.problems(path, std::int64_t{1}))
    if (problem.hint.starts_with(lead)) return split(problem.hint.substr(lead.size()));
  return {};
}

std::string without(std::string text, std::string_view ending) {
  if (text.ends_with(ending)) text.erase(text.size() - ending.size());
  return text;
}

void add_keys(const Question& question, const std::string& table, const Json& defaults, const std::string& runtime,
              std::vector<ScenarioKey>& keys) {
  for (const std::string& name : known_keys(question, table)) {
    ScenarioKey key{.table = table, .name = name, .takes = {}, .values = {}, .usual = {}, .runtimes = {runtime}};
    for (const Problem& problem : question.problems(key.path(), TomlTime{})) {
      const std::size_t takes = problem.message.find(" takes "), no = problem.message.find(", not ");
      if (takes == std::string::npos || no == std::string::npos || no < takes) continue;
      key.takes = problem.message.substr(takes + 7, no - takes - 7);
      key.values = without(problem.hint, " would do");
      // An example of how to write it is none of what it may be.
      if (key.values.starts_with("between quotes:") || key.values.starts_with("such as " + name)) key.values.clear();
      break;
    }
    if (key.takes == "a table") {
      const std::size_t before = keys.size();
      add_keys(question, key.path(), defaults.is_object() && defaults.contains(name) ? defaults.at(name) : Json(),
               runtime, keys);
      if (keys.size() > before) continue;
      key.values.clear();
    }
    if (defaults.is_object() && defaults.contains(name) && !defaults.at(name).is_object())
      key.usual = defaults.at(name).dump();
    keys.push_back(std::move(key));
  }
}

/// What keys mean. Those that are switches of a framework are that framework's own, which its documentation explains.
const std::map<std::string, std::string>& meanings() {
  static const std::map<std::string, std::string> all{
#include "scenarios/reader/detail/key_meanings.inc"
  };
  return all;
}

}  // namespace

std::vector<ScenarioKey> scenario_keys(const std::filesystem::path& data_root) {
  std::vector<ScenarioKey> all;
  for (const RuntimeKind& kind : runtimes()) {
    const Question question(kind.name, data_root);
    Json defaults = question.defaults();
    // What the scenario itself had to say is no default.
    for (const char* said : {"model", "cluster", "gpus", "name"}) defaults.erase(said);
    for (const char* said : {"sequence_length", "micro_batch", "global_batch"}) defaults["train"].erase(said);
    defaults["layout"].erase("data");
    std::vector<ScenarioKey> keys;
    add_keys(question, "", defaults, std::string(kind.name), keys);
    for (ScenarioKey& key : keys) {
      const auto known = std::ranges::find_if(all, [&](const ScenarioKey& k) { return k.path() == key.path(); });
      if (known == all.end()) {
        all.push_back(std::move(key));
        continue;
      }
      known->runtimes.emplace_back(kind.name);
      // Some runtimes take more of them: offload to hosts, or to drives.
      if (known->takes.empty() || key.values.size() > known->values.size())
        known->takes = key.takes, known->values = key.values;
      if (known->usual != key.usual) known->usual.clear();  // each its own
    }
  }
  std::ranges::stable_sort(all, {}, &ScenarioKey::table);
  return all;
}

std::string meaning_of(const std::string& path) {
  const auto found = meanings().find(path);
  return found == meanings().end() ? std::string() : found->second;
}

}  // namespace tidemark::scenarios
