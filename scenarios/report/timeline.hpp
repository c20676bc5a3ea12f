#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/predict/prediction.hpp"

// What happened when: spans of streams and events of memory, rank by rank. docs/timeline.md says what stands in the
// file.

namespace tidemark::scenarios {

/// What a timeline shows. Ranks and steps in any order, each once or more.
struct TimelineQuery {
  std::vector<Rank> ranks = {};
  std::vector<std::int32_t> steps = {};   ///< from 1; 0 is construction
  std::vector<Category> categories = {};  ///< of memory events; empty: all
  LinkModel links = LinkModel::MaxMin;    ///< that the trace was simulated with
};

enum class TimelineFormat : std::uint8_t {
  JsonLines,    ///< schema "tidemark.timeline/1"
  Table,        ///< a line for each record, columns between tabs
  ChromeTrace,  ///< JSON for ui.perfetto.dev
};

/// Writes it record by record; the same input gives the same bytes. `trace` has the timeline of the job.
void write_timeline(std::ostream& out, const Job& job, const Trace& trace, const TimelineQuery& query,
                    TimelineFormat format = TimelineFormat::JsonLines);

[[nodiscard]] std::string timeline(const Job& job, const Trace& trace, const TimelineQuery& query,
                                   TimelineFormat format = TimelineFormat::JsonLines);

/// The lowest rank of each group of ranks that the prediction tells apart.
[[nodiscard]] std::vector<Rank> first_ranks(const Prediction& prediction);

}  // namespace tidemark::scenarios
