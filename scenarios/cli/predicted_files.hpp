#pragma once

#include <string>
#include <vector>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/report/timeline.hpp"

namespace tidemark::cli {

/// The files that `predict` writes beside its answer; empty: not asked for.
struct PredictedFiles {
  std::string timeline;  ///< JSON Lines
  std::string trace;     ///< Chrome's JSON
  std::string snapshot;  ///< PyTorch's pickle; "{rank}" in its name stands for a rank

  [[nodiscard]] bool shows_steps() const { return !timeline.empty() || !trace.empty(); }
  [[nodiscard]] bool any() const { return shows_steps() || !snapshot.empty(); }
};

/// Throws InputError where one that goes to a file has "-" for its name.
void check_files(const PredictedFiles& files, const std::string& json);
/// The files themselves, of a snapshot one for each rank that may get one.
[[nodiscard]] std::vector<Output> outputs(const PredictedFiles& files, const std::vector<Rank>& ranks,
                                          const Scenario& scenario);
/// Throws InputError where several ranks would go into one snapshot.
void check_snapshot_ranks(const PredictedFiles& files, const std::vector<Rank>& requested);

/// Writes those that are asked for. `query` picks from timelines and traces; without ranks, a timeline is about the
/// lowest of each group, a trace about the lowest of each pipeline stage, and a snapshot about the fullest. Which those
/// are, a line of each file; nothing of ranks that were asked for, or stand in the file's name.
[[nodiscard]] std::vector<std::string> write_files(const PredictedFiles& files, const Job& job, const Trace& trace,
                                                   const Prediction& prediction, TimelineQuery query);

}  // namespace tidemark::cli
