#include "tests/golden/golden_rows.hpp"

#define TOML_EXCEPTIONS 1
#include <algorithm>

#include <toml++/toml.h>

#include "scenarios/io/scenario_reader.hpp"

namespace tidemark::golden {
namespace {

const std::filesystem::path root = TIDEMARK_SOURCE_DIR;

std::vector<double> numbers(const toml::table& table, std::string_view key) {
  std::vector<double> found;
  for (const toml::node& node : *table[key].as_array()) found.push_back(node.value<double>().value());
  return found;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mib(Bytes bytes) { return static_cast<double>(bytes.count()) / (1 << 20); }

Family read_family(const std::filesystem::path& path) {
  Family family{path.stem().string(), {}};
  const toml::table file = toml::parse_file(path.string());
  for (const auto& [key, node] : file) {
    const toml::table& table = *node.as_table();
    family.rows.push_back({std::string(key.str()), root / table["scenario"].value<std::string>().value(),
                           table["source"].value<std::string>().value(), table["independent"].value<bool>().value(),
                           numbers(table, "allocated_max_mib"), numbers(table, "reserved_median_mib"),
                           numbers(table, "reserved_min_mib"), numbers(table, "reserved_max_mib"),
                           table["step_ms"].value<double>().value(), table["step_fitted"].value<bool>().value()});
  }
  return family;
}

}  // namespace

std::vector<Family> families() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests" / "golden"))
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Family> found;
  for (const std::filesystem::path& file : files) found.push_back(read_family(file));
  return found;
}

Figures predicted(const Row& row) {
  const Prediction prediction = predict(read_scenario(row.scenario, root / "scenarios"));
  Figures found;
  found.step_ms = static_cast<double>(prediction.step.step.count()) / 1e9;
  std::vector<StageFigures>& stages = found.stages;
  stages.resize(static_cast<std::size_t>(prediction.scenario.layout.pipeline));
  for (std::size_t s = 0; s < stages.size(); ++s) {
    std::vector<double> reserved;
    for (const RankGroup& group : prediction.groups) {
      if (group.coordinates.pipeline != static_cast<std::int32_t>(s)) continue;
      stages[s].allocated_max = std::max(stages[s].allocated_max, mib(group.memory.allocated.bytes));
      reserved.insert(reserved.end(), group.ranks.size(), mib(group.memory.peak_reserved));
    }
    const auto [low, high] = std::minmax_element(reserved.begin(), reserved.end());
    stages[s].reserved_min = *low;
    stages[s].reserved_max = *high;
    stages[s].reserved_median = median(reserved);
  }
  return found;
}

}  // namespace tidemark::golden
