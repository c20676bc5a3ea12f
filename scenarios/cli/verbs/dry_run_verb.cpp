#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/job_request.hpp"
#include "scenarios/cli/dry_run/dry_runs.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/shipped_names.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/measured_comparison.hpp"

namespace tidemark::cli {
namespace {

struct DryRunArguments {
  DryRunRequest runs;
  std::string cluster = "h100-sxm-80g", against, json, snapshot;
  std::int64_t time_limit = 1800;
  double tolerance = 2;
};

constexpr std::string_view rank_in_name = "{rank}";

std::filesystem::path name_of(const std::string& pattern, std::int64_t rank) {
  std::string name = pattern;
  if (const std::size_t at = name.find(rank_in_name); at != std::string::npos)
    name.replace(at, rank_in_name.size(), fmt::format("{}", rank));
  return name;
}

// One file for each rank where its name says so; else of the fullest one.
void write_snapshots(const std::string& pattern, const DryRunAnswer& answer, const TemporaryFolder& folder) {
  if (pattern.empty()) return;
  const bool is_each = pattern.find(rank_in_name) != std::string::npos;
  const auto fullest =
      std::ranges::max_element(answer.ranks, {}, [](const DryRank& rank) { return rank.held().peak().reserved; });
  for (const DryRank& rank : answer.ranks) {
    if (!is_each && &rank != &*fullest) continue;
    const std::filesystem::path made = snapshot_file(folder, rank);
    std::error_code ignored;
    if (!std::filesystem::exists(made, ignored)) {
      complain(fmt::format("rank {} has no snapshot: its script asked for no memory of a device", rank.report.rank));
      continue;
    }
    write_file(name_of(pattern, rank.report.rank), [&](std::ostream& out) {
      std::ifstream in(made, std::ios::binary);
      out << in.rdbuf();
    });
  }
}

// What is predicted of the same training, and what stands before it: of a launch file what its scenario does not say.
struct DryPrediction {
  Scenario scenario;
  std::string lead;
};

constexpr std::string_view of_itself = "command";

std::string shell_words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    const std::size_t sign = word.find('=');  // NAME=VALUE stays one
    const std::size_t from = sign == std::string::npos ? 0 : sign + 1;
    std::string value;
    for (const char c : word.substr(from)) value += c == '\'' ? std::string("'\\''") : std::string(1, c);
    const bool is_plain = value.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "_./:,@%+-=") == std::string::npos;
    line += word.substr(0, from) + (is_plain && !word.empty() ? value : "'" + value + "'") + ' ';
  }
  return line + '\n';
}

std::string minor_release(const std::string& version) {
  const std::size_t first = version.find('.');
  return first == std::string::npos ? version : version.substr(0, version.find_first_not_of("0123456789", first + 1));
}

// The command as a launch script, of whose training this is.
DryPrediction of_the_command(const DryRunArguments& requested, std::optional<std::int64_t> ranks,
                             const std::map<std::string, std::string>& packages) {
  const std::filesystem::path script = "command.sh";
  LaunchOptions launch;
  launch.cluster = requested.cluster;
  launch.gpus = ranks;
  ConvertRequest launch_request = launch.requested({script});
  launch_request.texts[script] = shell_words(requested.runs.command);
  const auto read = [&] {
    const Converted converted = convert(launch_request);
    return DryPrediction{scenario_of(converted, data_root()), launch_remarks_text(converted.remarks, false)};
  };
  DryPrediction made = read();
  std::vector<std::string> taken;
  for (const auto& [name, version] : packages) {
    launch_request.overrides.push_back(fmt::format("runtime.versions.{}=\"{}\"", name, minor_release(version)));
    try {
      made = read();
      taken.push_back(fmt::format("{} {}", name, minor_release(version)));
    } catch (const InputError&) {  // a release that has no say in that training, or that Tidemark does not know
      launch_request.overrides.pop_back();
    }
  }
  if (!taken.empty()) made.lead += fmt::format("releases, of the environment: {}\n", fmt::join(taken, ", "));
  return made;
}

DryPrediction of_a_file(const DryRunArguments& requested, const std::string& file) {
  JobWords words{.file = file, .beside = {}, .launch = {}};
  if (is_foreign(file)) words.launch.cluster = requested.cluster;
  JobRequest job = requested_job(words);
  return {std::move(job.scenario), job.lead()};
}

// What each rank held beside what it is predicted to.
void compare_ranks(const DryRunArguments& requested, const DryPrediction& predicted, DryRunAnswer& answer,
                   const TemporaryFolder& folder) {
  const Scenario& scenario = predicted.scenario;
  if (!predicted.lead.empty()) answer.comparisons.push_back("the prediction\n" + predicted.lead);
  answer.agrees = true;
  for (const DryRank& rank : answer.ranks) {
    const std::filesystem::path made = snapshot_file(folder, rank);
    std::error_code ignored;
    if (!std::filesystem::exists(made, ignored) || rank.held().steps.empty()) {
      answer.agrees = false;  // there is nothing to compare
      continue;
    }
    const Measurement measurement{made.string(),
                                  {Rank{static_cast<std::int32_t>(rank.report.rank)}},
                                  rank.held().device,
                                  requested.tolerance / 100};
    const MeasuredComparison comparison =
        compare_with(scenario, measurement, progress_on_terminal("simulating ranks", requested.runs.loudness));
    std::string text = comparison.text;
    // The snapshot's own name is gone with its folder.
    if (const std::size_t at = text.find(measurement.file); at != std::string::npos)
      text.replace(at, measurement.file.size(), "the dry run");
    answer.comparisons.push_back(std::move(text));
    answer.agrees = *answer.agrees && comparison.agrees;
  }
}

void refuse_other_world(const Scenario& scenario, const DryRunAnswer& answer) {
  if (scenario.gpus == answer.world.ranks) return;
  refuse("--against", fmt::format("is of {} ranks, and the command starts {}", scenario.gpus, answer.world.ranks),
         "give a scenario of the same job, or set --world-size");
}

int exit_code_of(const DryRunAnswer& answer) {
  switch (answer.verdict()) {
    case DryVerdict::Fits:
      return answer.agrees.value_or(true) ? yes : no;
    case DryVerdict::DoesNotFit:
      return no;
    case DryVerdict::ScriptFailed:
      return bad_input;
    case DryVerdict::CannotSay:
      return cannot_say;
  }
  return cannot_say;
}

// "even", or numbers, of which at least one is above zero.
void check_routing(const std::string& text) {
  if (text == "even") return;
  double sum = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    double share = -1;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, share);
    if (error != std::errc{} || stop != text.data() + end || !std::isfinite(share) || share < 0)
      refuse("--routing", fmt::format("{} is not a list of shares", in_quotes(text)), "even, or numbers as in 4,1,1,1");
    sum += share;
    at = end + 1;
  }
  if (!(sum > 0)) refuse("--routing", "no expert has a share", "even, or numbers as in 4,1,1,1");
}

int run(DryRunArguments requested) {
  check_routing(requested.runs.routing);
  if (requested.runs.steps < 1 || requested.runs.steps > 1000)
    refuse("--steps", fmt::format("{} is not a number of steps to run", requested.runs.steps), "1 to 1000");
  if (requested.time_limit < 1) refuse("--timeout", "is not a valid time limit", "seconds, from 1 on");
  if (requested.runs.world_size && (*requested.runs.world_size < 1 || *requested.runs.world_size > 1'000'000))
    refuse("--world-size", fmt::format("{} is not a number of ranks", *requested.runs.world_size), "1 to 1000000");
  std::vector<Problem> problems;
  const std::string file = shipped_file(requested.cluster, clusters_shipped);
  if (const std::optional<Problem> problem = unknown_name_problem(requested.cluster, clusters_shipped))
    throw InputError(*problem);
  const Cluster cluster = read_cluster(file);
  std::vector<std::filesystem::path> inputs{file};
  std::optional<DryPrediction> predicted;
  const bool beside_itself = requested.against == of_itself;
  if (beside_itself) {
    const LaunchCommand launch = launch_command(requested.runs.command);
    const bool is_known = launch.launcher != StartedBy::Accelerate || requested.runs.world_size;
    predicted = of_the_command(
        requested, is_known ? std::optional(world_of(launch, requested.runs, cluster).ranks) : std::nullopt, {});
  } else if (!requested.against.empty()) {
    const std::string named = shipped_file(requested.against, examples_shipped);
    if (const std::optional<Problem> problem = unknown_name_problem(requested.against, examples_shipped))
      throw InputError(*problem);
    predicted = of_a_file(requested, named);
    for (std::filesystem::path& path : files_behind(named)) inputs.push_back(std::move(path));
  }
  check_outputs({{"--json", requested.json}, {"--snapshot", name_of(requested.snapshot, 0).string()}}, inputs);
  requested.runs.time_limit = std::chrono::seconds(requested.time_limit);
  requested.runs.snapshots = !requested.snapshot.empty() || predicted;
  const TemporaryFolder folder;
  DryRunAnswer answer_found = run_dry(requested.runs, cluster, folder);
  write_snapshots(requested.snapshot, answer_found, folder);
  if (predicted) {
    if (beside_itself)
      predicted = of_the_command(requested, answer_found.world.ranks, answer_found.ranks.front().held().packages);
    refuse_other_world(predicted->scenario, answer_found);
    compare_ranks(requested, *predicted, answer_found, folder);
  }
  answer(dry_run_text(answer_found), requested.json, [&] { return dry_run_json(answer_found); });
  return exit_code_of(answer_found);
}

}  // namespace

Verb dry_run_verb(CLI::App& app) {
  const auto requested = std::make_shared<DryRunArguments>();
  CLI::App* verb = app.add_subcommand(
      "dry-run",
      "run your own training command without a GPU, on a device that computes nothing, and measure its memory");
  verb->add_option("COMMAND", requested->runs.command,
                   "the training command after --: python, torchrun, deepspeed or accelerate launch, with its script "
                   "and arguments")
      ->required();
  verb->add_option("--cluster", requested->cluster, "cluster whose GPUs to emulate: a name or a file")
      ->capture_default_str()
      ->type_name("NAME");
  verb->add_option("--rank", requested->runs.ranks, "rank to run; may be repeated (default: the first and the last)")
      ->allow_extra_args(false)  // "--" ends options, not ranks
      ->type_name("N");
  verb->add_option("--world-size", requested->runs.world_size, "number of ranks (default: what the launcher starts)")
      ->type_name("N");
  verb->add_option("--steps", requested->runs.steps, "optimizer steps to run on each rank")
      ->capture_default_str()
      ->type_name("N");
  verb->add_option("--routing", requested->runs.routing,
                   "tokens of experts: even, or shares such as 4,1,1,1, which are repeated over all experts")
      ->capture_default_str()
      ->type_name("SHARES");
  verb->add_option("--timeout", requested->time_limit, "time limit of one rank in seconds")
      ->capture_default_str()
      ->type_name("SECONDS");
  verb->add_option(
          "--against", requested->against,
          "compare with the prediction of this scenario or launch file, or of the word command: of COMMAND itself")
      ->type_name("SCENARIO");
  verb->add_option("--tolerance", requested->tolerance, "largest accepted difference from the prediction, in percent")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str()
      ->type_name("PERCENT");
  add_json(*verb, requested->json);
  verb->add_option("--snapshot", requested->snapshot,
                   "write a PyTorch memory snapshot of the fullest rank, or of each rank if FILE contains '{rank}'")
      ->type_name("FILE");
  verb->add_flag("--show-output", requested->runs.show_output, "show the script's output on standard error");
  add_quiet(*verb, requested->runs.loudness);
  add_examples(*verb, {{"dry-run -- torchrun --nproc-per-node 8 train.py --config my.yaml",
                        "runs the first and the last rank of a job on eight H100"},
                       {"dry-run --cluster a100-sxm-40g --snapshot dry.pickle -- python train.py",
                        "another GPU, with a snapshot for replay, report and pytorch.org/memory_viz"}});
  return {verb, [requested] { return run(*requested); }, nullptr};
}

}  // namespace tidemark::cli
