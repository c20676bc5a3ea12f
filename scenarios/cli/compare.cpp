#include "scenarios/cli/compare.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/deadlocks.hpp"
#include "scenarios/cli/output.hpp"
#include "scenarios/cli/progress.hpp"
#include "scenarios/io/input_error.hpp"
#include "scenarios/io/output_file.hpp"
#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/prediction.hpp"
#include "scenarios/recordings/gzip.hpp"
#include "scenarios/recordings/log_comparison.hpp"
#include "scenarios/recordings/recorded_trace.hpp"
#include "scenarios/recordings/snapshot_comparison.hpp"
#include "scenarios/recordings/snapshot_replay.hpp"
#include "scenarios/recordings/training_log.hpp"
#include "scenarios/report/comparison_text.hpp"
#include "scenarios/report/simulated_snapshot.hpp"

namespace tidemark::cli {
namespace {

constexpr char first_of_a_pickle = '\x80';  // PROTO; a log begins with text

bool compare_with_snapshot(const CompareArguments& arguments, const Scenario& scenario,
                           const ComparisonSubject& subject) {
  const std::vector<Rank> ranks = asked_ranks(arguments.ranks.value_or("0"), scenario);
  if (ranks.size() > 1)
    throw InputError(Problem{.file = "--rank",
                             .message = "a snapshot is of one rank",
                             .hint = "name the rank that wrote it, or compare with a log"});
  SnapshotQuestion question;
  question.path = arguments.measured;
  question.device = arguments.device;
  SnapshotReplay replayed = replay_snapshot(question);
  const Job job(scenario);
  const Trace trace = simulate_time(job);
  if (deadlocks(job, trace)) return false;
  MemorySnapshot simulated = simulated_snapshot(job, trace, ranks.front());
  RecordedTrace simulated_trace = recorded_trace(simulated);
  const SnapshotComparison comparison =
      compare_recordings({std::move(simulated), std::move(simulated_trace)},
                         {std::move(replayed.snapshot), std::move(replayed.trace), replayed.device});
  answer(comparison_text(comparison, subject, ranks.front()), arguments.json,
         [&] { return comparison_json(comparison, subject, ranks.front()); });
  return comparison.agrees(subject.tolerance);
}

bool compare_with_log(const CompareArguments& arguments, const Scenario& scenario, const ComparisonSubject& subject,
                      const std::string& text) {
  if (arguments.device)
    throw InputError(
        Problem{.file = "--device", .message = "picks from a snapshot, and this is a log", .hint = "leave it out"});
  std::vector<Rank> asked;
  if (arguments.ranks) asked = asked_ranks(*arguments.ranks, scenario);
  // Where lines name no rank, a log is of one.
  const Rank unnamed = asked.size() == 1 ? asked.front() : Rank{0};
  std::vector<LoggedPeak> logged = training_log(text, arguments.measured, unnamed);
  if (arguments.ranks)
    std::erase_if(logged,
                  [&](const LoggedPeak& peak) { return !std::binary_search(asked.begin(), asked.end(), peak.rank); });
  if (logged.empty())
    throw InputError(Problem{.file = arguments.measured,
                             .message = "has no memory report of the ranks that --rank asks for",
                             .hint = "Megatron-LM writes those of the first data-parallel ranks only"});
  const Job job(scenario);
  const Trace trace = simulate_time(job);
  if (deadlocks(job, trace)) return false;
  const LogComparison comparison =
      compare_log(predict(job, trace, progress_on_terminal("simulating ranks")), logged, arguments.measured);
  answer(comparison_text(comparison, subject), arguments.json, [&] { return comparison_json(comparison, subject); });
  return comparison.agrees(subject.tolerance);
}

}  // namespace

bool run_compare(const CompareArguments& arguments) {
  if (!(arguments.tolerance >= 0 && arguments.tolerance <= 100))
    throw InputError(Problem{.file = "--tolerance",
                             .message = fmt::format("{:g} is no part of a measurement", arguments.tolerance),
                             .hint = "percent: 0 to 100"});
  const Scenario scenario = read_scenario(arguments.scenario, data_root());
  std::vector<std::filesystem::path> inputs = files_behind(arguments.scenario);
  inputs.emplace_back(arguments.measured);
  check_outputs({{"--json", arguments.json}}, inputs);
  const ComparisonSubject subject{scenario.name, arguments.measured, arguments.tolerance / 100};
  std::string text;
  char first = 0;
  std::ifstream(arguments.measured, std::ios::binary).get(first);
  if (first != first_of_a_pickle) text = read_plain_or_gzip(arguments.measured);
  if (first == first_of_a_pickle || text.starts_with(first_of_a_pickle))
    return compare_with_snapshot(arguments, scenario, subject);
  return compare_with_log(arguments, scenario, subject, text);
}

}  // namespace tidemark::cli
