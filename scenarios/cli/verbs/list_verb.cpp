#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/shipped_names.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/plan/capacity.hpp"
#include "scenarios/reader/scenario_keys.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/scenario/model_names.hpp"

namespace tidemark::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ListArguments {
  std::string what, json;
};

/// Lines and the same as JSON.
struct Listed {
  std::string text;
  Json json = Json::array();
};

Listed models() {
  Listed all;
  const auto add = [&](const std::string& name, const Model& m) {
    const std::string experts = m.experts() ? fmt::format(", {} experts", m.experts()->count) : "";
    all.text += fmt::format("{:<28} {:<12} {:>3} layers, hidden {}{}\n", name, m.architecture, m.layers.size(),
                            m.hidden, experts);
    all.json.push_back({{"name", name},
                        {"model_type", m.architecture},
                        {"num_hidden_layers", m.layers.size()},
                        {"hidden_size", m.hidden},
                        {"experts", m.experts() ? Json(m.experts()->count) : Json(nullptr)}});
  };
  for (const std::string& name : shipped_names(models_shipped))
    add(name, read_model(shipped_file(name, models_shipped)));
  for (const std::string& shape : scenarios::named_shapes(data_root()))
    if (const auto its = scenarios::named_config(shape, data_root())) add(shape, parse_model(its->text, its->path));
  return all;
}

// Checkpoints, the model whose shape each has, and who says so.
Listed names() {
  Listed all;
  for (const scenarios::ModelName& its : scenarios::model_names(data_root())) {
    all.text +=
        fmt::format("{:<52} {:<28} {}\n", its.name, its.shape, its.source.substr(0, its.source.find_first_of(",:")));
    all.json.push_back({{"name", its.name}, {"model", its.shape}, {"source", its.source}});
  }
  return all;
}

Listed clusters() {
  Listed all;
  for (const std::string& name : shipped_names(clusters_shipped)) {
    const Cluster c = read_cluster(shipped_file(name, clusters_shipped));
    all.text += fmt::format("{:<22} {} x {}, {}\n", name, c.node.devices, c.device.name, text(c.device.capacity));
    all.json.push_back({{"name", name},
                        {"device", c.device.name},
                        {"devices_per_node", c.node.devices},
                        {"capacity_bytes", c.device.capacity.count()}});
  }
  return all;
}

// Scenarios, as the questions take them by name.
Listed examples() {
  Listed all;
  for (const std::string& name : shipped_names(examples_shipped)) {
    const Scenario s = scenarios::read_scenario(shipped_file(name, examples_shipped), data_root());
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

// What `capacity` takes by name.
Listed studies() {
  Listed all;
  for (const std::string& name : shipped_names(studies_shipped)) {
    const scenarios::Study study = scenarios::read_study(shipped_file(name, studies_shipped), data_root());
    const std::string largest = study.space.axes[study.grows].name;
    const std::string by = study.by ? study.space.axes[*study.by].name : "";
    all.text += fmt::format("{:<28} largest {}{}\n", name, largest, by.empty() ? "" : ", by " + by);
    all.json.push_back({{"name", name}, {"largest", largest}, {"by", by.empty() ? Json(nullptr) : Json(by)}});
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
                             : its->kind == Kind::Unmodelled ? its->why
                             : its->kind == Kind::Bound      ? its->why
                             : its->kind == Kind::NoMatter   ? "changes neither memory nor time"
                                                             : "";
    all.text += fmt::format("{:<32} {}{}(megatron)\n", flag, says, says.empty() ? "" : " ");
    all.json.push_back({{"key", flag}, {"says", says}, {"runtimes", {"megatron"}}});
  }
  return all;
}

struct Kind {
  const char* name;
  const char* says;
  Listed (*list)();
};
constexpr std::array kinds{
    Kind{"models", "names that --model takes, and scenarios", models},
    Kind{"names", "checkpoints that --model takes, and whose shape each has", names},
    Kind{"clusters", "names that --cluster takes, and scenarios", clusters},
    Kind{"examples", "scenarios that questions take by name", examples},
    Kind{"studies", "studies that capacity takes by name", studies},
    Kind{"keys", "every key of scenario files", [] { return keys(false); }},
    Kind{"switches", "what [runtime.switches] takes of each framework", [] { return keys(true); }}};

// The lists themselves.
Listed lists() {
  Listed all;
  for (const Kind& kind : kinds) {
    all.text += fmt::format("tidemark list {:<10} {}\n", kind.name, kind.says);
    all.json.push_back({{"name", kind.name}, {"says", kind.says}});
  }
  return all;
}

int run(const ListArguments& requested) {
  check_outputs({{"--json", requested.json}}, {});
  const auto kind = std::ranges::find_if(kinds, [&](const Kind& its) { return its.name == requested.what; });
  if (kind == kinds.end() && !requested.what.empty()) {
    std::vector<std::string> names;
    for (const Kind& its : kinds) names.emplace_back(its.name);
    const std::string meant = nearest(requested.what, names);
    refuse("list", fmt::format("there is no list of {}", in_quotes(requested.what)),
           meant.empty() ? one_of(names) + " would do" : fmt::format("did you mean {}?", meant));
  }
  const Listed all = requested.what.empty() ? lists() : kind->list();
  answer(all.text, requested.json, [&] {
    const Json json = {{"schema", "tidemark.list/1"}, {requested.what.empty() ? "lists" : requested.what, all.json}};
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  });
  return yes;
}

}  // namespace

Verb list_verb(CLI::App& app) {
  const auto requested = std::make_shared<ListArguments>();
  CLI::App* verb = app.add_subcommand(
      "list", "list models, checkpoint names, clusters, examples, studies, scenario keys and framework switches");
  verb->add_option("WHAT", requested->what, "models, names, clusters, examples, studies, keys or switches");
  add_json(*verb, requested->json);
  add_examples(*verb, {{"list", "the available lists"},
                       {"list models", "model names"},
                       {"list examples", "example names"},
                       {"list keys", "every key of scenario files"}});
  return {verb, [requested] { return run(*requested); }};
}

}  // namespace tidemark::cli
