#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// What was measured of a run.
enum class MeasuredFigure : std::uint8_t {
  Allocated,  ///< torch.cuda.max_memory_allocated, or what stayed allocated after a step
  Reserved,   ///< torch.cuda.max_memory_reserved
  StepTime,
};

/// A run that somebody else published, beside what is told of it.
struct MeasuredRow {
  MeasuredFigure figure = MeasuredFigure::Allocated;
  std::string_view runtime, release, device, name;
  double off = 0;  ///< measured less told, as a share of the central value that is told
};

/// One a line: figure, runtime, release, device, name and how far it is off, between tabs. Lines of # are none.
[[nodiscard]] std::vector<MeasuredRow> parse_measured_rows(std::string_view text);

/// Those of measured_rows.tsv, which scripts/accuracy writes of what is predicted now. They are part of the program.
[[nodiscard]] const std::vector<MeasuredRow>& measured_rows();

}  // namespace tidemark::scenarios
