#include "scenarios/report/measured_comparison.hpp"

#include <algorithm>
#include <fstream>
#include <utility>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/deadlock.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/recordings/logs/log_comparison.hpp"
#include "scenarios/recordings/logs/training_log.hpp"
#include "scenarios/recordings/pickle/gzip.hpp"
#include "scenarios/recordings/recorded_trace.hpp"
#include "scenarios/recordings/snapshot_comparison.hpp"
#include "scenarios/recordings/snapshot_replay.hpp"
#include "scenarios/report/simulated_snapshot.hpp"
#include "scenarios/report/step_range.hpp"
#include "scenarios/report/text/comparison_text.hpp"

namespace tidemark::scenarios {
namespace {

constexpr char first_of_a_pickle = '\x80';  // PROTO; a log begins with text

MeasuredComparison with_snapshot(const Scenario& scenario, const Measurement& measured) {
  if (measured.ranks.size() > 1)
    throw InputError(Problem{.file = "--rank",
                             .message = "a snapshot is of one rank",
                             .hint = "name the rank that wrote it, or compare with a log"});
  const Rank rank = measured.ranks.empty() ? Rank{0} : measured.ranks.front();
  SnapshotQuestion question;
  question.path = measured.file;
  question.device = measured.device;
  SnapshotReplay replayed = replay_snapshot(question);
  const Job job(scenario);
  const Trace trace = simulate_time(job);
  if (const auto report = deadlock_of(job, trace)) return {false, deadlock_text(*report), {}};
  MemorySnapshot simulated = simulated_snapshot(job, trace, rank);
  RecordedTrace simulated_trace = recorded_trace(simulated);
  const SnapshotComparison comparison =
      compare_recordings({std::move(simulated), std::move(simulated_trace)},
                         {std::move(replayed.snapshot), std::move(replayed.trace), replayed.device});
  const ComparisonSubject subject{scenario.name, measured.file, measured.tolerance, scenario_json(scenario, -1)};
  return {comparison.agrees(measured.tolerance), comparison_text(comparison, subject, rank),
          comparison_json(comparison, subject, rank)};
}

// A step with a rollout has a part whose time is not modelled.
std::optional<StepBeside> step_beside(const Prediction& prediction, const std::vector<LoggedStep>& steps) {
  const Scenario& s = prediction.scenario;
  const auto samples = static_cast<double>(s.train.global_batch);
  const std::optional<MeasuredStep> measured =
      measured_step(steps, samples, samples * static_cast<double>(s.train.sequence_length), s.gpus);
  if (!measured || s.train.rollout) return std::nullopt;
  const StepRange range = step_range(prediction.step, s.cluster.device.efficiency);
  return StepBeside{prediction.step.step, range.low, range.high, *measured};
}

MeasuredComparison with_log(const Scenario& scenario, const Measurement& measured, const std::string& text,
                            const Progress& progress) {
  if (measured.device)
    throw InputError(
        Problem{.file = "--device", .message = "picks from a snapshot, and this is a log", .hint = "leave it out"});
  // Where lines name no rank, a log is of one.
  const std::vector<Rank>& requested = measured.ranks;
  std::vector<LoggedPeak> logged =
      training_log(text, measured.file, requested.size() == 1 ? requested.front() : Rank{0});
  if (!requested.empty())
    std::erase_if(logged, [&](const LoggedPeak& peak) {
      return !std::binary_search(requested.begin(), requested.end(), peak.rank);
    });
  const std::vector<LoggedStep> steps = logged_steps(text);
  if (logged.empty() && (steps.empty() || !requested.empty()))
    throw InputError(Problem{.file = measured.file,
                             .message = "has no memory report of the ranks that --rank asks for",
                             .hint = "Megatron-LM writes those of the first data-parallel ranks only"});
  const Job job(scenario);
  const Trace trace = simulate_time(job);
  if (const auto report = deadlock_of(job, trace)) return {false, deadlock_text(*report), {}};
  const Prediction prediction = predict(job, trace, progress);
  LogComparison comparison = compare_log(prediction, logged, measured.file);
  comparison.step = step_beside(prediction, steps);
  const ComparisonSubject subject{scenario.name, measured.file, measured.tolerance, scenario_json(scenario, -1)};
  return {comparison.agrees(measured.tolerance), comparison_text(comparison, subject),
          comparison_json(comparison, subject)};
}

}  // namespace

MeasuredComparison compare_with(const Scenario& scenario, const Measurement& measurement, const Progress& progress) {
  std::string text;
  char first = 0;
  std::ifstream(measurement.file, std::ios::binary).get(first);
  if (first != first_of_a_pickle) text = read_plain_or_gzip(measurement.file);
  if (first == first_of_a_pickle || text.starts_with(first_of_a_pickle)) return with_snapshot(scenario, measurement);
  return with_log(scenario, measurement, text, progress);
}

}  // namespace tidemark::scenarios
