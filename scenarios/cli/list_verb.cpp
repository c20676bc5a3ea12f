#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/help.hpp"
#include "scenarios/cli/detail/usage.hpp"
#include "scenarios/cli/detail/verbs.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/output.hpp"
#include "scenarios/io/cluster_reader.hpp"
#include "scenarios/io/config_reader.hpp"
#include "scenarios/io/megatron_switches.hpp"
#include "scenarios/io/output_file.hpp"
#include "scenarios/io/quantity.hpp"
#include "scenarios/io/scenario_keys.hpp"
#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/io/suggestion.hpp"

namespace tidemark::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Asked {
  std::string what, json;
};

/// Lines and the same as JSON.
struct Listed {
  std::string text;
  Json json = Json::array();
};

std::vector<std::filesystem::path> files_in(const char* folder, const char* ending) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(data_root() / folder))
    if (entry.path().extension() == ending) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

Listed models() {
  Listed all;
  for (const std::filesystem::path& file : files_in("models", ".json")) {
    const Model m = read_model(file);
    const std::string experts = m.experts ? fmt::format(", {} experts", m.experts->count) : "";
    all.text +=
        fmt::format("{:<20} {:<12} {:>3} layers, hidden {}{}\n", m.name, m.architecture, m.layers, m.hidden, experts);
    all.json.push_back({{"name", m.name},
                        {"model_type", m.architecture},
                        {"num_hidden_layers", m.layers},
                        {"hidden_size", m.hidden},
                        {"experts", m.experts ? Json(m.experts->count) : Json(nullptr)}});
  }
  return all;
}

Listed clusters() {
  Listed all;
  for (const std::filesystem::path& file : files_in("clusters", ".toml")) {
    const Cluster c = read_cluster(file);
    all.text += fmt::format("{:<22} {} x {}, {}\n", file.stem().string(), c.node.devices, c.device.name,
                            text(c.device.capacity));
    all.json.push_back({{"name", file.stem().string()},
                        {"device", c.device.name},
                        {"devices_per_node", c.node.devices},
                        {"capacity_bytes", c.device.capacity.count()}});
  }
  return all;
}

// Scenarios, as the questions take them by name.
Listed examples() {
  Listed all;
  for (const char* folder : {"examples", "examples/seeds"})
    for (const std::filesystem::path& file : files_in(folder, ".toml")) {
      const Scenario s = scenarios::read_scenario(file, data_root());
      const std::string name = file.lexically_relative(data_root() / "examples").replace_extension().string();
      const std::string runtime = s.runtime.name;
      all.text += fmt::format("{:<40} {} on {} x {}, {}\n", name, s.model.name, s.gpus, s.cluster.device.name, runtime);
      all.json.push_back({{"name", name},
                          {"model", s.model.name},
                          {"device", s.cluster.device.name},
                          {"gpus", s.gpus},
                          {"runtime", runtime}});
    }
  return all;
}

Listed keys(bool switches) {
  Listed all;
  for (const scenarios::ScenarioKey& key : scenarios::scenario_keys(data_root())) {
    if (key.table.starts_with("runtime.switches") != switches) continue;
    const std::string path = switches ? key.path().substr(std::string_view("runtime.switches.").size()) : key.path();
    all.text += fmt::format("{:<32} {}{}{}\n", path, key.takes, key.values.empty() ? "" : ": " + key.values,
                            switches ? fmt::format(" ({})", fmt::join(key.runtimes, ", ")) : "");
    all.json.push_back({{"key", path},
                        {"takes", key.takes},
                        {"values", key.values},
                        {"default", key.usual.empty() ? Json(nullptr) : Json::parse(key.usual)},
                        {"meaning", scenarios::meaning_of(key.path())},
                        {"runtimes", key.runtimes}});
  }
  if (!switches) return all;
  using Kind = scenarios::MegatronFlag::Kind;
  for (const std::string& flag : scenarios::megatron_flags()) {
    const auto its = scenarios::megatron_flag(flag);
    if (!its) continue;
    const std::string says = its->kind == Kind::Repeats      ? fmt::format("as {} in [{}]", its->key, its->table)
                             : its->kind == Kind::Unmodelled ? fmt::format("{} not modelled yet", its->why)
                             : its->kind == Kind::NoMatter   ? "changes neither memory nor time"
                                                             : "";
    all.text += fmt::format("{:<32} {}{}(megatron)\n", flag, says, says.empty() ? "" : " ");
    all.json.push_back({{"key", flag}, {"says", says}, {"runtimes", {"megatron"}}});
  }
  return all;
}

int run(const Asked& asked) {
  check_outputs({{"--json", asked.json}}, {});
  static const std::vector<std::string> kinds{"models", "clusters", "examples", "keys", "switches"};
  Listed all;
  if (asked.what == "models")
    all = models();
  else if (asked.what == "clusters")
    all = clusters();
  else if (asked.what == "examples")
    all = examples();
  else if (asked.what == "keys" || asked.what == "switches")
    all = keys(asked.what == "switches");
  else {
    const std::string meant = nearest(asked.what, kinds);
    refuse("list", fmt::format("there is no list of {}", in_quotes(asked.what)),
           meant.empty() ? one_of(kinds) + " would do" : fmt::format("did you mean {}?", meant));
  }
  answer(all.text, asked.json, [&] {
    const Json json = {{"schema", "tidemark.list/1"}, {asked.what, all.json}};
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  });
  return yes;
}

}  // namespace

Verb list_verb(CLI::App& app) {
  const auto asked = std::make_shared<Asked>();
  CLI::App* verb = app.add_subcommand(
      "list", "what there is: models, clusters, examples, keys of a scenario, switches of frameworks");
  verb->add_option("WHAT", asked->what, "models, clusters, examples, keys or switches")->required();
  add_json(*verb, asked->json);
  add_examples(*verb, {{"list models", "names that --model takes, and examples use"},
                       {"list examples", "names that questions take"},
                       {"list keys", "every key of a scenario file"}});
  return {verb, [asked] { return run(*asked); }};
}

}  // namespace tidemark::cli
