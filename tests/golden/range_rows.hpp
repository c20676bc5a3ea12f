#pragma once

#include <string>
#include <vector>

#include "scenarios/predict/measured/measured_rows.hpp"
#include "tests/golden/golden_rows.hpp"
#include "tests/namespace.hpp"

// Rows whose memory or whose step's time was measured, beside the range that is told.

namespace tidemark::tests::golden {

/// On what a row ran, as far as its scenario says.
struct RunsOn {
  std::string runtime, release, device;
  double capacity_gib = 0;
};
[[nodiscard]] RunsOn runs_on(const std::filesystem::path& scenario);

/// A measured figure, in GiB or seconds.
struct RangeRow {
  MeasuredFigure figure = MeasuredFigure::Allocated;
  RunsOn on;
  std::string name;
  double measured = 0;
  double reported = 0;       ///< at central values
  double low = 0, high = 0;  ///< of a step's time; of memory, `high` with what mechanisms leave open

  [[nodiscard]] double off() const { return measured / reported - 1; }
};

/// Names alone, without predicting.
[[nodiscard]] std::vector<std::string> names_of_range_rows();
/// All of them, by figure and runtime. Those whose runtime is not one of those here, and whose sources do not say what
/// they are of (tests/golden/bands/), are left out.
[[nodiscard]] std::vector<RangeRow> range_rows();

/// The text of scenarios/predict/measured/measured_rows.tsv.
[[nodiscard]] std::string measured_rows_text(const std::vector<RangeRow>& rows);

}  // namespace tidemark::tests::golden
