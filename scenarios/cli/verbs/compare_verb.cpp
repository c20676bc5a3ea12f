#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/job_request.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/shipped_names.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/report/measured_comparison.hpp"
#include "scenarios/report/text/prediction_text.hpp"

namespace tidemark::cli {
namespace {

struct CompareArguments {
  JobWords words;
  std::string measured;  ///< a memory snapshot or a training log
  std::optional<std::string> ranks;
  std::optional<std::int64_t> device;  ///< of the snapshot
  double tolerance = 2;                ///< percent
  std::string json;
  Loudness loudness;
};

int run(const CompareArguments& requested) {
  if (!(requested.tolerance >= 0 && requested.tolerance <= 100))
    refuse("--tolerance", fmt::format("{:g} is not a part of a measurement", requested.tolerance), "percent: 0 to 100");
  if (requested.measured.ends_with(".toml") || shipped_file(requested.measured, examples_shipped) != requested.measured)
    refuse("MEASURED", fmt::format("{} is a job, and no measurement of one", in_quotes(requested.measured)),
           fmt::format("tidemark report {} {} compares two jobs", requested.words.file, requested.measured));
  const JobRequest job = requested_job(requested.words);
  const Scenario& scenario = job.scenario;
  std::vector<std::filesystem::path> inputs = job.files;
  inputs.emplace_back(requested.measured);
  check_outputs({{"--json", requested.json}}, inputs);
  Measurement measurement{requested.measured, {}, requested.device, requested.tolerance / 100};
  if (requested.ranks) measurement.ranks = requested_ranks(*requested.ranks, scenario);
  const MeasuredComparison comparison =
      compare_with(scenario, measurement, progress_on_terminal("simulating ranks", requested.loudness));
  answer(job.lead() + comparison.text, comparison.json.empty() ? "" : requested.json,
         [&] { return with_not_judged(comparison.json, job.not_judged); });
  if (!job.not_judged.empty()) return cannot_say;
  return comparison.agrees ? yes : no;
}

}  // namespace

Verb compare_verb(CLI::App& app) {
  const auto requested = std::make_shared<CompareArguments>();
  CLI::App* verb =
      app.add_subcommand("compare", "compare a prediction with a real run's memory snapshot or training log");
  add_scenario(*verb, requested->words.file, "scenario file (TOML), or a file that convert takes");
  verb->add_option("MEASURED", requested->measured, "memory snapshot of torch.cuda.memory (pickle), or a training log")
      ->required();
  add_beside(*verb, requested->words);
  verb->add_option("--rank", requested->ranks, "rank of the snapshot (default: 0), or ranks of the log (default: all)")
      ->type_name("R[,R...]");
  verb->add_option("--device", requested->device, "device to use if the snapshot has several")->type_name("N");
  verb->add_option("--tolerance", requested->tolerance, "largest accepted difference, in percent of the measurement")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str()
      ->type_name("PERCENT");
  add_json(*verb, requested->json);
  add_quiet(*verb, requested->loudness);
  add_examples(*verb, {{"predict llama-3.1-8b-8xh100 --rank 0 --snapshot snapshot.pickle",
                        "writes a snapshot to compare with, without a real run"},
                       {"compare llama-3.1-8b-8xh100 snapshot.pickle --rank 0", "shows where the bytes differ"}});
  return {verb, [requested] { return run(*requested); }, &requested->words.file};
}

}  // namespace tidemark::cli
