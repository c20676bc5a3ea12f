#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/predict/prediction.hpp"

// A report: one page of HTML that needs nothing else, made of one block of JSON. docs/report.md says what stands in it.

namespace tidemark::scenarios {

/// Where a report comes from.
struct ReportOrigin {
  std::string version;
  std::string command;
  std::string file;
  std::string text;  ///< of the file, where people wrote it
};

/// How much of a prediction is told.
enum class ReportDetail : std::uint8_t {
  Whole,
  Fullest,  ///< the memory of the fullest rank, beside others'
};

/// Data of a prediction's report, schema "tidemark.report/1". The trace has a timeline, unless the job deadlocks.
[[nodiscard]] std::string report_json(const Job& job, const Trace& trace, const Prediction& prediction,
                                      const ReportOrigin& origin, ReportDetail detail = ReportDetail::Whole);

/// What a page says of something, and whether that is yes.
struct Report {
  std::string title;
  std::string verdict;  ///< its first line is the answer
  bool answer = false;
  std::string data;   ///< schema "tidemark.report/1"
  bool open = false;  ///< the answer is that nobody can say
};

/// Of what another verb wrote with --json: plan, capacity, compare, validate. `text` is the file's. Throws InputError.
[[nodiscard]] Report report_of_record(const std::string& text, const ReportOrigin& origin);

/// Of several predictions beside each other: data that `report_json` made of each.
[[nodiscard]] Report report_beside(const std::vector<std::string>& reports, const ReportOrigin& origin);

/// The page that shows the data.
[[nodiscard]] std::string report_page(const std::string& title, const std::string& data);

}  // namespace tidemark::scenarios
