#include "tests/golden/golden_rows.hpp"

#define TOML_EXCEPTIONS 1
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <type_traits>

#include <toml++/toml.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/step_range.hpp"
#include "tests/golden/root.hpp"

namespace tidemark::tests::golden {
namespace {

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

// Without the search for the least capacity, where all of it is enough.
Prediction figures_of(const std::filesystem::path& scenario, PredictionDetail stated = PredictionDetail::Figures) {
  return predict(read_scenario(scenario, root / "scenarios"), {}, {.reported = stated});
}

// What the device lacks that the prediction says must be had; a row that was measured lacked nothing.
Bytes lacks(const Prediction& figures) {
  if (figures.fits) return Bytes{};
  const Prediction its = predict(figures.scenario);
  const Bytes room = its.scenario.cluster.device.capacity - its.scenario.runtime.headroom;
  return std::max(Bytes{1}, its.most_required().required.upper - room);
}

ReservedRange range_of(const RankGroup& group) {
  const Bytes reserved = group.memory.peak_reserved;
  const auto gib = [](Bytes bytes) { return mib(bytes) / 1024; };
  return {gib(reserved), gib(reserved + group.of_deferred_frees + group.rerun_batches_bytes + group.of_routing)};
}

Family read_family(const std::filesystem::path& path) {
  Family family{path.stem().string(), {}};
  const toml::table file = toml::parse_file(path.string());
  for (const auto& [key, node] : file) {
    const toml::table& table = *node.as_table();
    family.rows.push_back({std::string(key.str()), root / table["scenario"].value<std::string>().value(),
                           table["source"].value<std::string>().value(), table["independent"].value<bool>().value(),
                           numbers(table, "allocated_max_mib"), numbers(table, "reserved_median_mib"),
                           numbers(table, "reserved_min_mib"), numbers(table, "reserved_max_mib"),
                           table["step_ms"].value<double>().value()});
  }
  return family;
}

LastRankFamily read_last_rank_family(const std::filesystem::path& path) {
  LastRankFamily family{path.stem().string(), {}, {}, {}};
  const toml::table file = toml::parse_file(path.string());
  family.precision = file["precision"].value<std::string>().value();
  family.remarks = file["remarks"].value_or(std::string());
  for (const auto& [key, node] : file) {
    if (!node.is_table()) continue;
    const toml::table& table = *node.as_table();
    LastRankRow row;
    row.name = std::string(key.str());
    row.source = table["source"].value<std::string>().value();
    row.excluded = table["excluded"].value_or(std::string());
    if (row.excluded.empty()) {
      const auto bytes = [&](std::string_view name) { return Bytes{table[name].value<std::int64_t>().value()}; };
      row.scenario = root / table["scenario"].value<std::string>().value();
      row.fully_specified = table["fully_specified"].value<bool>().value();
      row.only_one_step = table["steps"].value_or(std::int64_t{0}) == 1;
      row.static_bytes = bytes("static_bytes");
      if (table.contains("peak_bytes")) row.peak_bytes = bytes("peak_bytes");
      if (table.contains("first_step_peak_bytes")) row.first_step_peak_bytes = bytes("first_step_peak_bytes");
    }
    family.rows.push_back(std::move(row));
  }
  return family;
}

// What `predict` finds is asked for by the page and by each row's own test: found once in a process, from scenarios
// that do not change. Not for threads.
template <class Predict>
auto once(const std::filesystem::path& scenario, const Predict& predict) {
  static std::map<std::filesystem::path, std::invoke_result_t<Predict>> found;
  const auto known = found.find(scenario);
  return known != found.end() ? known->second : found.emplace(scenario, predict()).first->second;
}

std::vector<std::filesystem::path> tables_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<Family> families() {
  std::vector<Family> found;
  for (const std::filesystem::path& file : tables_in(root / "tests" / "golden")) found.push_back(read_family(file));
  return found;
}

std::vector<LastRankFamily> last_rank_families() {
  std::vector<LastRankFamily> found;
  for (const std::filesystem::path& file : tables_in(root / "tests" / "golden" / "last_rank"))
    found.push_back(read_last_rank_family(file));
  return found;
}

std::vector<BandFamily> band_families() {
  std::vector<BandFamily> found;
  for (const std::filesystem::path& path : tables_in(root / "tests" / "golden" / "bands")) {
    BandFamily& family = found.emplace_back(BandFamily{path.stem().string(), {}});
    const toml::table file = toml::parse_file(path.string());
    for (const auto& [key, node] : file) {
      const toml::table& table = *node.as_table();
      family.rows.push_back({std::string(key.str()), table["source"].value<std::string>().value(),
                             root / table["scenario"].value<std::string>().value(),
                             table["reported"].value<double>().value()});
    }
  }
  return found;
}

std::vector<ReservedFamily> reserved_families() {
  std::vector<ReservedFamily> found;
  for (const std::filesystem::path& path : tables_in(root / "tests" / "golden" / "reserved")) {
    const toml::table file = toml::parse_file(path.string());
    ReservedFamily& family =
        found.emplace_back(ReservedFamily{path.stem().string(), false, file["remarks"].value_or(""), {}});
    for (const auto& [key, node] : file) {
      if (!node.is_table()) continue;
      const toml::table& table = *node.as_table();
      ReservedRow& row = family.rows.emplace_back();
      row.name = key.str();
      row.source = table["source"].value<std::string>().value();
      row.excluded = table["excluded"].value_or("");
      if (!row.excluded.empty()) continue;
      row.scenario = root / table["scenario"].value<std::string>().value();
      family.allocated |= table.contains("allocated");
      row.reserved = table[family.allocated ? "allocated" : "reserved"].value<double>().value();
    }
  }
  return found;
}

namespace {

std::vector<RanRow> ran_rows_of(const std::string& name) {
  std::vector<RanRow> found;
  const toml::table file = toml::parse_file((root / "tests" / "golden" / "ran" / name).string());
  for (const auto& [key, node] : file) {
    const toml::table& table = *node.as_table();
    RanRow& row = found.emplace_back();
    row.name = key.str();
    row.source = table["source"].value<std::string>().value();
    row.excluded = table["excluded"].value_or("");
    if (!row.excluded.empty()) continue;
    row.scenario = root / table["scenario"].value<std::string>().value();
    row.ran = table["ran"].value<bool>().value();
    row.slow = table["slow"].value_or(false);
  }
  return found;
}

}  // namespace

std::vector<RanRow> ran_rows() { return ran_rows_of("facts.toml"); }
std::vector<RanRow> reported_rows() { return ran_rows_of("reports.toml"); }

std::string stated(const RanRow& row) {
  return once(row.scenario,
              [&] { return std::string(predict(read_scenario(row.scenario, root / "scenarios")).verdict()); });
}

std::string figure_of(const ReservedFamily& family) { return family.allocated ? "allocated peak" : "reserved peak"; }

ReservedFigure predicted_reserved(const ReservedFamily& family, const ReservedRow& row) {
  return once(row.scenario, [&] {
    const Prediction prediction = figures_of(row.scenario);
    const auto first = std::ranges::find_if(prediction.groups, [](const RankGroup& group) {
      return std::ranges::find(group.ranks, Rank{0}) != group.ranks.end();
    });
    return ReservedFigure{mib(family.allocated ? first->memory.allocated.bytes : first->memory.peak_reserved) / 1024,
                          range_of(*first), lacks(prediction)};
  });
}

Band predicted(const BandRow& row) {
  return once(row.scenario, [&] {
    const Prediction prediction = figures_of(row.scenario);
    Band band{.lacks = lacks(prediction)};
    for (const RankGroup& group : prediction.groups) {
      band.allocated = std::max(band.allocated, mib(group.memory.allocated.bytes) / 1024);
      band.reserved = std::max(band.reserved, mib(group.memory.peak_reserved) / 1024);
    }
    return band;
  });
}

double gap_of(const BandRow& row, const Band& band) {
  if (band.allocated <= row.reported && row.reported <= band.reserved) return 0;
  return (row.reported < band.allocated ? band.allocated : band.reserved) / row.reported - 1;
}

// A step at so many tokens in a second and on a device.
double step_of(const std::filesystem::path& scenario, double tokens_per_s) {
  const Scenario s = read_scenario(scenario, root / "scenarios");
  return static_cast<double>(s.train.sequence_length * s.train.global_batch) / s.gpus / tokens_per_s;
}

std::vector<StepFamily> step_families() {
  std::vector<StepFamily> found;
  for (const std::filesystem::path& path : tables_in(root / "tests" / "golden" / "steps")) {
    StepFamily& family = found.emplace_back(StepFamily{path.stem().string(), {}});
    const toml::table file = toml::parse_file(path.string());
    for (const auto& [key, node] : file) {
      const toml::table& table = *node.as_table();
      StepRow row{std::string(key.str()), root / table["scenario"].value<std::string>().value(),
                  table["source"].value<std::string>().value(), table["step_s"].value_or(0.0)};
      if (row.step_s == 0) row.step_s = step_of(row.scenario, table["tokens_per_s"].value<double>().value());
      family.rows.push_back(std::move(row));
    }
  }
  return found;
}

namespace {

PredictedStep step_of(const Prediction& prediction) {
  const StepRange range = step_range(prediction.step, prediction.scenario.cluster.device.efficiency);
  return {seconds(prediction.step.step), seconds(range.low), seconds(range.high)};
}

// Those whose steps were measured.
const std::set<std::filesystem::path>& scenarios_of_steps() {
  static const std::set<std::filesystem::path> all = [] {
    std::set<std::filesystem::path> found;
    for (const StepFamily& family : step_families())
      for (const StepRow& row : family.rows) found.insert(row.scenario);
    return found;
  }();
  return all;
}

LastRankFigures last_rank_of(const std::filesystem::path& scenario) {
  return once(scenario, [&] {
    const Prediction prediction = figures_of(
        scenario, scenarios_of_steps().contains(scenario) ? PredictionDetail::Causes : PredictionDetail::Figures);
    const Rank last{prediction.scenario.gpus - 1};
    for (const RankGroup& group : prediction.groups) {
      if (std::find(group.ranks.begin(), group.ranks.end(), last) == group.ranks.end()) continue;
      const std::vector<Bytes>& by_step = group.memory.peak_allocated_by_step;
      const Bytes first = std::max(by_step.at(0), by_step.at(1));
      return LastRankFigures{group.memory.final_allocated, group.memory.allocated.bytes, first, lacks(prediction),
                             step_of(prediction)};
    }
    return LastRankFigures{};
  });
}

}  // namespace

LastRankFigures predicted(const LastRankRow& row) {
  LastRankFigures its = last_rank_of(row.scenario);
  if (row.only_one_step) its.peak_bytes = its.first_step_peak_bytes;
  return its;
}

PredictedStep predicted(const StepRow& row) { return last_rank_of(row.scenario).step; }

Errors errors(std::vector<double> of_rows) {
  if (of_rows.empty()) return {};
  for (double& error : of_rows) error = std::abs(error);
  const auto within = std::count_if(of_rows.begin(), of_rows.end(), [](double error) { return error <= 0.006; });
  const double count = static_cast<double>(of_rows.size());
  return {median(of_rows), *std::max_element(of_rows.begin(), of_rows.end()), static_cast<double>(within) / count};
}

Figures predicted(const Row& row) {
  return once(row.scenario, [&] {
    const Prediction prediction = figures_of(row.scenario, PredictionDetail::Causes);
    Figures found;
    found.step = step_of(prediction);
    found.lacks = lacks(prediction);
    std::vector<StageFigures>& stages = found.stages;
    stages.resize(static_cast<std::size_t>(prediction.scenario.layout.pipeline));
    for (std::size_t s = 0; s < stages.size(); ++s) {
      std::vector<double> reserved;
      for (const RankGroup& group : prediction.groups) {
        if (group.coordinates.pipeline != static_cast<std::int32_t>(s)) continue;
        const double cached = mib(group.memory.peak_reserved - group.memory.allocated.bytes);
        stages[s].least_cached = reserved.empty() ? cached : std::min(stages[s].least_cached, cached);
        stages[s].allocated_max = std::max(stages[s].allocated_max, mib(group.memory.allocated.bytes));
        if (const ReservedRange its = range_of(group); its.central > stages[s].range.central) stages[s].range = its;
        reserved.insert(reserved.end(), group.ranks.size(), mib(group.memory.peak_reserved));
      }
      const auto [low, high] = std::minmax_element(reserved.begin(), reserved.end());
      stages[s].reserved_min = *low;
      stages[s].reserved_max = *high;
      stages[s].reserved_median = median(reserved);
    }
    return found;
  });
}

ReservedScore reserved_score(const std::vector<Family>& families) {
  ReservedScore score;
  std::vector<double> ratios;
  for (const Family& family : families)
    for (const Row& row : family.rows) {
      if (!row.independent) continue;
      const std::vector<StageFigures> stages = predicted(row).stages;
      for (std::size_t s = 0; s < stages.size(); ++s) {
        score.predicted.push_back({row.name, stages[s].reserved_median / row.reserved_median[s] - 1});
        ratios.push_back(row.reserved_median[s] / row.allocated_max[s]);
      }
    }
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    std::vector<double> others = ratios;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    score.by_factor.push_back(median(others) / ratios[i] - 1);
  }
  return score;
}

}  // namespace tidemark::tests::golden
