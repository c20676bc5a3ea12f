#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/job_request.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/detail/job_options.hpp"
#include "scenarios/cli/detail/timeline_options.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/predicted_files.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/reader/document_parts.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/plan/changes/accepted_changes.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/report/text/prediction_text.hpp"

namespace tidemark::cli {
namespace {

struct AskedToPredict {
  JobWords words;
  std::string json;
  TimelineOptions picked;
  PredictedFiles files;
  JobOptions job;
  Loudness loudness;
  bool verbose = false, print_scenario = false;
};

AskedJob from_options(const AskedToPredict& asked) {
  JobOptions job = asked.job;
  const LaunchOptions& launch = asked.words.launch;
  job.model = launch.model;
  job.cluster = launch.cluster;
  job.gpus = launch.gpus;
  job.sequence = launch.sequence;
  job.micro_batch = launch.micro_batch;
  job.global_batch = launch.global_batch;
  const ScenarioFolders folders{std::filesystem::current_path(), data_root()};
  AskedJob made{document_of(job), {}, "tidemark predict", folders, {}, {}};
  made.scenario = scenario_of(made.document, made.at, folders);
  made.files = files_named(made.document, folders);
  made.scenario.name = fmt::format("{} on {} devices", made.scenario.model.name, made.scenario.gpus);
  return made;
}

AskedJob source_of(const AskedToPredict& asked) {
  if (asked.words.file.empty()) return from_options(asked);
  if (asked.job.lays_out())
    throw InputError(
        Problem{.file = asked.words.file,
                .message = is_foreign(asked.words.file) ? "a training, and options that say what it says"
                                                        : "a scenario, and options that say what it says",
                .hint = "change them in the file, or set keys beside it, as in layout.tensor=4: --model, --cluster and "
                        "others are for files of frameworks, and all of them for where there is no file"});
  return asked_job(asked.words);
}

// Where memory runs out.
std::optional<AcceptedChanges> accepted_changes(AskedJob source, const Prediction& prediction) {
  if (std::ranges::none_of(prediction.groups, [](const RankGroup& group) { return group.failure.has_value(); }))
    return {};
  return AcceptedChanges(std::move(source.document), source.at, source.folders, prediction.scenario);
}

// Throws InputError where something is to be written beside the scenario that is printed: nothing is predicted.
void refuse_outputs(const AskedToPredict& asked) {
  for (const auto& [option, file] :
       {std::pair("--json", &asked.json), std::pair("--timeline", &asked.files.timeline),
        std::pair("--trace", &asked.files.trace), std::pair("--snapshot", &asked.files.snapshot)})
    if (!file->empty())
      refuse(option, "is of a prediction, and --print-scenario predicts nothing",
             fmt::format("leave {} out, or --print-scenario", option));
}

int run(const AskedToPredict& asked) {
  const PredictOptions options{.links = asked_link_model(asked.picked.link_model)};
  if (asked.print_scenario) refuse_outputs(asked);
  check_files(asked.files, asked.json);
  if (!asked.files.any() && asked.picked.ranks)
    refuse("--rank", "picks from a file, and none is asked for", "give --timeline, --trace or --snapshot FILE too");
  if (!asked.files.shows_steps()) asked.picked.refuse_filters("give --timeline or --trace FILE too");
  const AskedJob source = source_of(asked);
  if (asked.print_scenario) {
    answer(toml_text(source.document), "", {});
    return yes;
  }
  const Scenario& scenario = source.scenario;
  TimelineQuery query = asked.picked.query(scenario);
  if (asked.picked.ranks) query.ranks = asked_ranks(*asked.picked.ranks, scenario);
  check_snapshot_ranks(asked.files, query.ranks);
  std::vector<Output> written = outputs(asked.files, query.ranks, scenario);
  written.push_back({"--json", asked.json});
  check_outputs(written, source.files);

  const Job job(scenario, Job::Steps::All, progress_on_terminal("lowering programs", asked.loudness));
  const Trace trace = simulate_time(job, options.links);
  Prediction prediction = predict(job, trace, progress_on_terminal("simulating ranks", asked.loudness), options);
  source.complete(prediction);
  std::vector<std::string> told;
  if (!prediction.deadlock) told = write_files(asked.files, job, trace, prediction, query);
  const std::optional<AcceptedChanges> accepted = accepted_changes(source, prediction);
  const AcceptedChanges* const those = accepted ? &*accepted : nullptr;
  answer(asked.verbose ? prediction_text(prediction, those) : brief_text(prediction, source.file, those), asked.json,
         [&] { return prediction_json(prediction, those); });
  if (!asked.loudness.quiet)
    for (const std::string& line : told) complain(line);
  return prediction.fits ? yes : prediction.open ? cannot_say : no;
}

}  // namespace

Verb predict_verb(CLI::App& app) {
  const auto asked = std::make_shared<AskedToPredict>();
  CLI::App* verb = app.add_subcommand("predict", "does it fit, where is the peak on each rank, what is it made of");
  add_job(*verb, asked->words, false);
  add_layout_options(*verb, asked->job);
  verb->add_flag("--print-scenario", asked->print_scenario,
                 "predict nothing: write the scenario that options or another framework's file come to");
  add_json(*verb, asked->json);
  add_quiet(*verb, asked->loudness);
  verb->add_flag(
      "-v,--verbose", asked->verbose,
      "all of the answer: moments of peaks, what they are made of, where a step's time goes, what is assumed");
  add_timeline_options(*verb, asked->picked,
                       "ranks in the files that are asked for (default: those that stand for others)");
  verb->add_option("--timeline", asked->files.timeline, "write every span and memory event to FILE (JSON Lines)")
      ->type_name("FILE");
  verb->add_option("--trace", asked->files.trace, "write spans and memory to FILE for ui.perfetto.dev (Chrome's JSON)")
      ->type_name("FILE");
  verb->add_option("--snapshot", asked->files.snapshot,
                   "write the allocator's history as PyTorch's memory snapshot, for pytorch.org/memory_viz: of the "
                   "fullest rank, of --rank R, or one file for each rank with '{rank}' in its name")
      ->type_name("FILE");
  add_examples(
      *verb,
      {{"predict llama-3.1-70b-64xh100",
        "an example that comes along; copy its file from scenarios/examples and change it"},
       {"predict --model llama-3.1-70b --cluster h100-sxm-80g --gpus 64 --sequence 8192 --global-batch 128 --tensor 8 "
        "--sequence-parallel --pipeline 4 --sharding zero1",
        "without a file"},
       {"predict --model llama-3.1-8b --cluster h100-sxm-80g --gpus 8 --sequence 8192 --tensor 2 --print-scenario > "
        "job.toml",
        "the file that such options stand for"},
       {"predict job.toml --json - 2> answer.txt", "for programs: every class of ranks, with bounds and sources"}});
  return {verb, [asked] { return run(*asked); }, &asked->words.file};
}

}  // namespace tidemark::cli
