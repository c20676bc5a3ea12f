#include "scenarios/convert/read_again.hpp"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/io/scenario_json.hpp"
#include "scenarios/io/scenario_reader.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

std::string_view ending(Dialect dialect) {
  switch (dialect) {
    case Dialect::Megatron:
      return ".sh";
    case Dialect::Accelerate:
      return ".yaml";
    case Dialect::DeepSpeed:
    case Dialect::TrainingArguments:
      return ".json";
    case Dialect::Scenario:
    case Dialect::TorchTitan:
      break;
  }
  return ".toml";
}

/// Keys that a dialect leaves to the command line of the script, whatever they say.
std::vector<std::string_view> beside_of(Dialect dialect) {
  switch (dialect) {
    case Dialect::DeepSpeed:
      return {"model", "gpus", "train.sequence_length"};
    case Dialect::Accelerate:
      return {"model", "train.sequence_length", "train.micro_batch", "train.global_batch"};
    case Dialect::TrainingArguments:
      return {"model", "gpus", "train.sequence_length"};
    case Dialect::TorchTitan:
      return {"gpus"};
    case Dialect::Scenario:
    case Dialect::Megatron:
      break;
  }
  return {};
}

/// Why a key has no word there.
struct Reason {
  std::string_view path, why;
};
constexpr std::array reasons{
    Reason{"runtime.versions", "which releases run is a matter of what is installed"},
    Reason{"runtime.headroom", "is asked of Tidemark"},
    Reason{"train.steps", "is asked of Tidemark"},
    Reason{"moe.imbalance", "how tokens choose experts is expected, not asked for"},
    Reason{"moe.quantile", "how tokens choose experts is expected, not asked for"},
    Reason{"runtime.name", "this is another framework"},
    Reason{"runtime.switches", "is a switch of the scenario's own runtime"},
};

// One entry for each key, but for those of lists.
void flatten(const Json& value, const std::string& path, std::map<std::string, std::string>& out) {
  if (!value.is_object()) {
    out[path] = value.dump();
    return;
  }
  for (const auto& [key, inner] : value.items()) flatten(inner, path.empty() ? key : path + '.' + key, out);
}

std::map<std::string, std::string> keys_of(const Scenario& scenario, bool in_launch_line) {
  std::map<std::string, std::string> keys;
  flatten(Json::parse(scenario_json(scenario, -1)), "", keys);
  std::erase_if(keys, [&](const auto& entry) {
    const std::string& key = entry.first;
    return key == "name" || key.starts_with("cluster.") || key == "model.name" || key == "model.model_type" ||
           key == "layout.data" ||
           (in_launch_line && (key.starts_with("runtime.environment.") || key == "runtime.allocator")) ||
           (key == "model.max_position_embeddings" && scenario.model.positions == Positions::Rotary);
  });
  return keys;
}

}  // namespace

std::vector<Remark> differences(const Scenario& scenario, Dialect dialect, const std::string& text,
                                const Beside& beside) {
  const std::vector<std::string_view> aside = beside_of(dialect);
  const auto is_aside = [&](std::string_view key) { return std::ranges::find(aside, key) != aside.end(); };
  const bool in_launch_line = dialect != Dialect::Megatron;  // variables of the environment
  std::map<std::string, std::string> ours = keys_of(scenario, in_launch_line), theirs;
  std::vector<Remark> remarks;
  const auto remark = [&](std::string what, std::string why) {
    remarks.push_back({RemarkKind::NotExpressed, {}, {}, std::move(what), std::move(why)});
  };

  const std::filesystem::path file = scenario.name + std::string(ending(dialect));
  ConvertAsked asked{.files = {file},
                     .texts = {{file, text}},
                     .variables = {},
                     .model = {},
                     .cluster = beside.cluster,
                     .gpus = {},
                     .sequence_length = {},
                     .micro_batch = {},
                     .global_batch = {},
                     .data_root = beside.data_root};
  const bool names_model =
      is_aside("model") || (dialect == Dialect::TorchTitan && text.find("flavor") == std::string::npos);
  if (names_model) asked.model = beside.model;
  if (is_aside("gpus")) asked.gpus = scenario.gpus;
  if (is_aside("train.sequence_length")) asked.sequence_length = scenario.train.sequence_length;
  if (is_aside("train.micro_batch")) asked.micro_batch = scenario.train.micro_batch;
  if (is_aside("train.global_batch")) asked.global_batch = scenario.train.global_batch;
  Converted again = convert(asked);
  const auto read = scenario_or_problems(again.document, file, {file.parent_path(), beside.data_root}, {});
  if (const auto* found = std::get_if<Scenario>(&read)) {
    theirs = keys_of(*found, in_launch_line);
  } else {
    for (const Problem& problem : std::get<std::vector<Problem>>(read)) remark(problem.message, problem.hint);
  }

  const auto said_beside = [&](std::string what) {
    remarks.push_back(
        {RemarkKind::Beside, {}, {}, std::move(what), "an argument of the script, or of what launches it"});
  };
  if (names_model) said_beside(fmt::format("model = {}", beside.model));
  for (const std::string_view key : aside)
    if (key != "model" && key != "gpus") said_beside(fmt::format("{} = {}", key, ours.at(std::string(key))));
  if (theirs.empty()) return remarks;
  for (const auto& [key, value] : ours) {
    const auto found = theirs.find(key);
    if (found != theirs.end() && found->second == value) continue;
    if (names_model && key.starts_with("model.")) continue;
    const auto* reason = std::ranges::find_if(reasons, [&](const Reason& r) { return key.starts_with(r.path); });
    const std::string other =
        found == theirs.end() ? "it has no such key" : fmt::format("it comes back as {}", found->second);
    remark(fmt::format("{} = {}", key, value),
           reason == reasons.end() ? other : fmt::format("{} ({})", reason->why, other));
  }
  for (const auto& [key, value] : theirs)
    if (!ours.contains(key) && !(names_model && key.starts_with("model.")))
      remark(fmt::format("{} left out", key), fmt::format("it comes back as {}", value));
  return remarks;
}

}  // namespace tidemark::scenarios
