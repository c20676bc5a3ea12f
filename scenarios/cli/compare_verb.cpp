#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/usage.hpp"
#include "scenarios/cli/detail/verbs.hpp"
#include "scenarios/cli/exit_code.hpp"
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

struct Asked {
  std::string scenario;
  std::string measured;  ///< a memory snapshot or a training log
  std::optional<std::string> ranks;
  std::optional<std::int64_t> device;  ///< of the snapshot
  double tolerance = 2;                ///< percent
  std::string json;
};

constexpr char first_of_a_pickle = '\x80';  // PROTO; a log begins with text

bool compare_with_snapshot(const Asked& options, const Scenario& scenario, const ComparisonSubject& subject) {
  const std::vector<Rank> ranks = asked_ranks(options.ranks.value_or("0"), scenario);
  if (ranks.size() > 1)
    throw InputError(Problem{.file = "--rank",
                             .message = "a snapshot is of one rank",
                             .hint = "name the rank that wrote it, or compare with a log"});
  SnapshotQuestion question;
  question.path = options.measured;
  question.device = options.device;
  SnapshotReplay replayed = replay_snapshot(question);
  const Job job(scenario);
  MemorySnapshot simulated = simulated_snapshot(job, simulate_time(job), ranks.front());
  RecordedTrace simulated_trace = recorded_trace(simulated);
  const SnapshotComparison comparison =
      compare_recordings({std::move(simulated), std::move(simulated_trace)},
                         {std::move(replayed.snapshot), std::move(replayed.trace), replayed.device});
  answer(comparison_text(comparison, subject, ranks.front()), options.json,
         [&] { return comparison_json(comparison, subject, ranks.front()); });
  return comparison.agrees(subject.tolerance);
}

bool compare_with_log(const Asked& options, const Scenario& scenario, const ComparisonSubject& subject,
                      const std::string& text) {
  if (options.device)
    throw InputError(
        Problem{.file = "--device", .message = "picks from a snapshot, and this is a log", .hint = "leave it out"});
  std::vector<Rank> asked;
  if (options.ranks) asked = asked_ranks(*options.ranks, scenario);
  // Where lines name no rank, a log is of one.
  const Rank unnamed = asked.size() == 1 ? asked.front() : Rank{0};
  std::vector<LoggedPeak> logged = training_log(text, options.measured, unnamed);
  if (options.ranks)
    std::erase_if(logged,
                  [&](const LoggedPeak& peak) { return !std::binary_search(asked.begin(), asked.end(), peak.rank); });
  if (logged.empty())
    throw InputError(Problem{.file = options.measured,
                             .message = "has no memory report of the ranks that --rank asks for",
                             .hint = "Megatron-LM writes those of the first data-parallel ranks only"});
  const Job job(scenario);
  const LogComparison comparison =
      compare_log(predict(job, simulate_time(job), progress_on_terminal("simulating ranks")), logged, options.measured);
  answer(comparison_text(comparison, subject), options.json, [&] { return comparison_json(comparison, subject); });
  return comparison.agrees(subject.tolerance);
}

bool agrees(const Asked& options) {
  if (!(options.tolerance >= 0 && options.tolerance <= 100))
    throw InputError(Problem{.file = "--tolerance",
                             .message = fmt::format("{:g} is no part of a measurement", options.tolerance),
                             .hint = "percent: 0 to 100"});
  const Scenario scenario = read_scenario(options.scenario, data_root());
  std::vector<std::filesystem::path> inputs = files_behind(options.scenario);
  inputs.emplace_back(options.measured);
  check_outputs({{"--json", options.json}}, inputs);
  const ComparisonSubject subject{scenario.name, options.measured, options.tolerance / 100};
  std::string text;
  char first = 0;
  std::ifstream(options.measured, std::ios::binary).get(first);
  if (first != first_of_a_pickle) text = read_plain_or_gzip(options.measured);
  if (first == first_of_a_pickle || text.starts_with(first_of_a_pickle))
    return compare_with_snapshot(options, scenario, subject);
  return compare_with_log(options, scenario, subject, text);
}

}  // namespace

Verb compare_verb(CLI::App& app) {
  const auto asked = std::make_shared<Asked>();
  CLI::App* verb = app.add_subcommand("compare", "the prediction beside a real run's memory snapshot or training log");
  verb->add_option("SCENARIO", asked->scenario, "scenario file (TOML)")->required();
  verb->add_option("MEASURED", asked->measured,
                   "torch.cuda.memory's snapshot (pickle), or the log of Megatron-LM or torchtitan")
      ->required();
  verb->add_option("--rank", asked->ranks,
                   "the rank of the snapshot (default: 0), or ranks of the log (default: all that it has)")
      ->type_name("R[,R...]");
  verb->add_option("--device", asked->device, "the device of a snapshot that has several")->type_name("N");
  verb->add_option("--tolerance", asked->tolerance, "largest difference, in percent of the measurement")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str()
      ->type_name("PERCENT");
  add_json(*verb, asked->json);
  return {verb, [asked] { return agrees(*asked) ? yes : no; }, &asked->scenario};
}

}  // namespace tidemark::cli
