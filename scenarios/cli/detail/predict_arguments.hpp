#pragma once

#include <string>
#include <vector>

#include "scenarios/cli/detail/job_options.hpp"
#include "scenarios/cli/detail/job_request.hpp"
#include "scenarios/cli/detail/timeline_options.hpp"
#include "scenarios/cli/namespace.hpp"
#include "scenarios/cli/predicted_files.hpp"
#include "scenarios/cli/terminal/progress.hpp"

namespace tidemark::cli {

struct PredictArguments {
  JobWords words;
  std::string json;
  TimelineOptions picked;
  PredictedFiles files;
  Loudness loudness;
  bool verbose = false, print_scenario = false;
  std::string largest, clusters;  ///< what is asked instead of one answer
};

/// The job that is asked about, with keys set beside it. InputError where there is none.
[[nodiscard]] JobRequest predicted_job(const PredictArguments& requested, const std::vector<std::string>& keys = {});

/// "train.micro_batch" of "micro_batch", "mbs" or itself: what `--largest` means. InputError where it is no key.
[[nodiscard]] std::string requested_key(const std::string& word);
/// The largest value of one of its keys with which it fits, and the answer with that value: `--largest`.
[[nodiscard]] int answer_largest(const PredictArguments& requested);
/// The same of how long rows may be, for a launch file that leaves it to the data, and nothing else open: yes up to a
/// length, and no where not even the shortest fit.
[[nodiscard]] int answer_lengths(const PredictArguments& requested, const JobRequest& base);
/// The job on several clusters, the cheapest that it fits first: `--clusters`.
[[nodiscard]] int answer_clusters(const PredictArguments& requested);

}  // namespace tidemark::cli
