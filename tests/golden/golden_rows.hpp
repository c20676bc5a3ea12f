#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "scenarios/prediction.hpp"

namespace tidemark::golden {

/// What was measured for one scenario; lists have one entry per pipeline stage, in MiB.
struct Row {
  std::string name;
  std::filesystem::path scenario;
  std::string source;
  bool independent = true;  ///< false: repeats another row's memory
  std::vector<double> allocated_max;
  std::vector<double> reserved_median, reserved_min, reserved_max;
  double step_ms = 0;
  bool step_fitted = false;  ///< the device's efficiencies were fitted on it
};

/// A family of rows that share their assumptions.
struct Family {
  std::string name;
  std::vector<Row> rows;
};

/// Every family under tests/golden, rows by name.
[[nodiscard]] std::vector<Family> families();

/// Predicted figures of one stage, in MiB: the maxima and the median over its ranks.
struct StageFigures {
  double allocated_max = 0;
  double reserved_median = 0, reserved_min = 0, reserved_max = 0;
};

struct Figures {
  std::vector<StageFigures> stages;
  double step_ms = 0;
};
[[nodiscard]] Figures predicted(const Row& row);

}  // namespace tidemark::golden
