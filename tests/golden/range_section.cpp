#include "tests/golden/range_section.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/predict/measured/measured_ranges.hpp"
#include "tests/golden/range_rows.hpp"

namespace tidemark::tests::golden {
namespace {

struct PredictionDetail {
  double low = 0, high = 0;
  [[nodiscard]] bool holds(double measured) const { return low <= measured && measured <= high; }
};

// Times have the ranges of their kernels and collectives.
PredictionDetail reported(const RangeRow& row, double share) {
  if (row.figure == MeasuredFigure::StepTime) return {row.low, row.high};
  return {row.reported * (1 - share), row.high * (1 + share)};
}

struct Count {
  std::vector<double> above;  // the central value
  std::set<std::string> releases;
  int within = 0;
};

std::string intro(MeasuredFigure figure) {
  switch (figure) {
    case MeasuredFigure::Allocated:
      return "### Allocated\n\n";
    case MeasuredFigure::Reserved:
      return "### Reserved\n\nWith what frees that other streams delay, batches that outlive their step and routing "
             "leave open besides.\n\n";
    case MeasuredFigure::StepTime:
      return "### Step time\n\nA step's range is that of its kernels and collectives, which are measured by themselves "
             "(`kernel_error`: nine of ten), all off the same way, and half of what the host thread makes the device "
             "wait for. No step set it.\n\n";
  }
  return {};
}

}  // namespace

Section range_section() {
  const std::vector<RangeRow> rows = range_rows();
  const std::string text = measured_rows_text(rows);
  const std::vector<MeasuredRow> measured = parse_measured_rows(text);
  std::string out =
      "## Ranges\n\nMeasured memory and times in the ranges that are told. A range of memory is as wide as the rows of "
      "*other* runtimes are off: the farthest of n, which a further run like them is within with a chance of n in "
      "n + 1. A runtime's own rows show whether it holds, and have no part in it; where there are none of a runtime, "
      "or of it on a device, the answer says \"not calibrated for\" it. What of a device is not the allocator's was "
      "measured by nobody whose run can be written down, so its estimates keep their own bounds. Rows are in "
      "`scenarios/predict/measured/measured_rows.tsv`, by runtime, release and device. The bands below are left out: "
      "their "
      "sources "
      "do not say what was measured, and nanotron is no runtime here.\n\n";
  std::string outside;
  int all = 0, all_within = 0;
  std::vector<double> above_80, above_80_large;
  for (const MeasuredFigure figure : {MeasuredFigure::Allocated, MeasuredFigure::Reserved, MeasuredFigure::StepTime}) {
    const bool memory = figure != MeasuredFigure::StepTime;
    std::map<std::pair<std::string, std::string>, Count> counts;
    for (const RangeRow& row : rows) {
      if (row.figure != figure) continue;
      const PredictionDetail its = reported(row, range_of(figure, row.on.runtime, measured).share);
      Count& count = counts[{row.on.runtime, row.on.device}];
      const bool holds = its.holds(row.measured);
      count.above.push_back(its.high - row.reported);
      count.releases.insert(row.on.release);
      count.within += holds ? 1 : 0;
      if (memory) {
        ++all;
        all_within += holds ? 1 : 0;
        if (row.on.capacity_gib > 79 && row.on.capacity_gib < 80.5) {
          above_80.push_back(count.above.back());
          if (row.reported > 20) above_80_large.push_back(count.above.back());
        }
      }
      if (!holds)
        outside += fmt::format("- {}: {:.3f}{} measured, {:.3f} to {:.3f} told\n", row.name, row.measured,
                               memory ? " GiB" : " s", its.low, its.high);
    }
    out += intro(figure);
    out += memory
               ? "| runtime | releases | device | rows | within | told, to both sides | from rows of others | which "
                 "hold | above the central value: median, GiB | widest |\n|---|---|---|---:|---:|---:|---:|---:|---:|"
                 "---:|\n"
               : "| runtime | releases | device | rows | within |\n|---|---|---|---:|---:|\n";
    for (const auto& [its, count] : counts) {
      out += fmt::format("| {} | {} | {} | {} | {} |", its.first, fmt::join(count.releases, "; "), its.second,
                         count.above.size(), count.within);
      if (memory) {
        const MeasuredRange range = range_of(figure, its.first, measured);
        const Errors width = errors(count.above);
        out += fmt::format(" {:.2f} % | {} | {:.0f} % | {:.2f} | {:.2f} |\n", 100 * range.share, range.rows,
                           std::floor(100 * range.coverage), width.median, width.worst);
      } else {
        out += '\n';
      }
    }
    out += '\n';
  }
  out += fmt::format("Of memory, {} of {} rows are within their range.", all_within, all);
  if (!above_80.empty())
    out += fmt::format(
        " Above the central value ranges are {:.2f} GiB wide in the median of {} rows on devices of 80 GB, and {:.2f} "
        "in that of the {} that take more than 20 GiB.",
        errors(above_80).median, above_80.size(), errors(above_80_large).median, above_80_large.size());
  out += "\n";
  if (!outside.empty()) out += "\nOutside of theirs:\n\n" + outside;
  return {out + "\n", {}};
}

}  // namespace tidemark::tests::golden
