#include "tests/seed_guides/lab.hpp"

#include <filesystem>

#include "scenarios/formats/text_file.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace tidemark::tests::seeds {
namespace {

const std::filesystem::path root = TIDEMARK_SOURCE_DIR;

// Every value within tables, by its whole key.
void flatten(const TomlTable& table, const KeyPath& at, std::vector<AxisValue::Setting>& into) {
  for (const TomlKey& key : table.keys) {
    KeyPath path = at;
    path.push_back(key.name);
    if (const auto* const within = std::get_if<TomlTable>(&key.value.value))
      flatten(*within, path, into);
    else
      into.push_back({std::move(path), key.value});
  }
}

}  // namespace

const Prediction& Lab::operator()(const std::string& scenario, const std::string& changes) {
  const auto [found, is_new] = known_.try_emplace({scenario, changes});
  if (!is_new) return found->second;
  const std::filesystem::path file = root / "scenarios/examples/seeds" / (scenario + ".toml");
  AxisValue its;
  flatten(parse_toml(changes, scenario + " changed"), {}, its.settings);
  Space space{.name = scenario,
              .base = parse_toml(read_text(file), file.string()),
              .folders = {file.parent_path(), root / "scenarios"},
              .files = {},
              .axes = {}};
  if (!its.settings.empty()) space.axes.push_back({"changes", {std::move(its)}});
  return found->second = predict(scenario_of(space.document(0), file, space.folders));
}

}  // namespace tidemark::tests::seeds
