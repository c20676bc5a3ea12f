#include "tests/golden/range_rows.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "scenarios/predict/measured/measured_ranges.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/golden/root.hpp"

namespace tidemark::tests::golden {
namespace {

double gib_of(Bytes bytes) { return mib(bytes) / 1024; }

// What stayed after a step counts where no peak was published.
struct LastRankFigure {
  std::string name;
  Bytes measured;
  bool peak = false;
};
LastRankFigure figure_of(const LastRankRow& row) {
  if (row.peak_bytes) return {row.name, *row.peak_bytes, true};
  return {row.name + ", after a step", row.static_bytes, false};
}

std::string stage_name(const Row& row, std::size_t stage) { return fmt::format("{}, stage {}", row.name, stage); }

}  // namespace

RunsOn runs_on(const std::filesystem::path& scenario) {
  const Scenario its = read_scenario(scenario, root / "scenarios");
  return {its.runtime.name, releases_of(its), its.cluster.device.name, gib_of(its.cluster.device.capacity)};
}

std::vector<std::string> names_of_range_rows() {
  std::vector<std::string> names;
  for (const Family& family : families())
    for (const Row& row : family.rows) {
      for (std::size_t s = 0; row.independent && s < row.allocated_max.size(); ++s)
        names.insert(names.end(), 2, stage_name(row, s));
      names.push_back(row.name);
    }
  for (const LastRankFamily& family : last_rank_families())
    for (const LastRankRow& row : family.rows)
      if (row.excluded.empty()) names.push_back(figure_of(row).name);
  for (const ReservedFamily& family : reserved_families())
    for (const ReservedRow& row : family.rows)
      if (row.excluded.empty()) names.push_back(row.name);
  for (const StepFamily& family : step_families())
    for (const StepRow& row : family.rows) names.push_back(row.name);
  std::ranges::sort(names);
  return names;
}

std::vector<RangeRow> range_rows() {
  std::vector<RangeRow> rows;
  const auto add_step = [&](const RunsOn& on, const std::string& name, const PredictedStep& step, double measured) {
    rows.push_back({MeasuredFigure::StepTime, on, name, measured, step.s, step.low_s, step.high_s});
  };
  for (const Family& family : families())
    for (const Row& row : family.rows) {
      const RunsOn on = runs_on(row.scenario);
      const Figures its = predicted(row);
      for (std::size_t s = 0; row.independent && s < its.stages.size(); ++s) {
        const double allocated = its.stages[s].allocated_max / 1024;
        const ReservedRange& reserved = its.stages[s].range;
        rows.push_back({MeasuredFigure::Allocated, on, stage_name(row, s), row.allocated_max[s] / 1024, allocated,
                        allocated, allocated});
        rows.push_back({MeasuredFigure::Reserved, on, stage_name(row, s), row.reserved_max[s] / 1024, reserved.central,
                        reserved.central, reserved.high});
      }
      add_step(on, row.name, its.step, row.step_ms / 1e3);
    }
  for (const LastRankFamily& family : last_rank_families())
    for (const LastRankRow& row : family.rows) {
      if (!row.excluded.empty()) continue;
      const LastRankFigure figure = figure_of(row);
      const LastRankFigures its = predicted(row);
      const double reported = gib_of(figure.peak ? its.peak_bytes : its.static_bytes);
      rows.push_back({MeasuredFigure::Allocated, runs_on(row.scenario), figure.name, gib_of(figure.measured), reported,
                      reported, reported});
    }
  for (const ReservedFamily& family : reserved_families())
    for (const ReservedRow& row : family.rows) {
      if (!row.excluded.empty()) continue;
      const ReservedFigure its = predicted_reserved(family, row);
      rows.push_back({family.allocated ? MeasuredFigure::Allocated : MeasuredFigure::Reserved, runs_on(row.scenario),
                      row.name, row.reserved, its.gib, its.gib, family.allocated ? its.gib : its.range.high});
    }
  for (const StepFamily& family : step_families())
    for (const StepRow& row : family.rows) add_step(runs_on(row.scenario), row.name, predicted(row), row.step_s);
  std::ranges::stable_sort(
      rows, {}, [](const RangeRow& row) { return std::tuple(row.figure, row.on.runtime, row.on.device, row.name); });
  return rows;
}

std::string measured_rows_text(const std::vector<RangeRow>& rows) {
  constexpr std::string_view names[] = {"allocated", "reserved", "step_time"};
  std::string out =
      "# How far published runs are from what is told of them: figure, runtime, releases, device, row of tests/golden, "
      "measured less\n"
      "# told as a share of the latter. Written by scripts/accuracy, of what is predicted now.\n";
  for (const RangeRow& row : rows)
    out += fmt::format("{}\t{}\t{}\t{}\t{}\t{:.6f}\n", names[static_cast<std::size_t>(row.figure)], row.on.runtime,
                       row.on.release, row.on.device, row.name, row.off());
  return out;
}

}  // namespace tidemark::tests::golden
