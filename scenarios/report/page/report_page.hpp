#pragma once

#include <string>
#include <vector>

#include "scenarios/prediction.hpp"

// A report: one page of HTML that needs nothing else, made of one block of JSON. docs/report.md says what stands in it.

namespace tidemark::scenarios {

/// Where a report comes from.
struct ReportOrigin {
  std::string version;
  std::string command;
  std::string file;
  std::string text;  ///< of the file, where people wrote it
};

/// Data of a prediction's report, schema "tidemark.report/1". The trace has a timeline, unless the job deadlocks.
[[nodiscard]] std::string report_json(const Job& job, const Trace& trace, const Prediction& prediction,
                                      const ReportOrigin& origin);

/// The page that shows the data.
[[nodiscard]] std::string report_page(const std::string& title, const std::string& data);

}  // namespace tidemark::scenarios
