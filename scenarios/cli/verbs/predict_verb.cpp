#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/predict_arguments.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/plan/changes/accepted_changes.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/document_parts.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "scenarios/scenario/named_files.hpp"

namespace tidemark::cli {
namespace {

// Where memory runs out.
std::optional<AcceptedChanges> accepted_changes(JobRequest source, const Prediction& prediction) {
  if (std::ranges::none_of(prediction.groups, [](const RankGroup& group) { return group.failure.has_value(); }))
    return {};
  return AcceptedChanges(std::move(source.document), source.at, source.folders, prediction.scenario);
}

// Throws InputError where something is to be written beside the scenario that is printed: nothing is predicted.
void refuse_outputs(const PredictArguments& requested) {
  for (const auto& [option, file] :
       {std::pair("--json", &requested.json), std::pair("--timeline", &requested.files.timeline),
        std::pair("--trace", &requested.files.trace), std::pair("--snapshot", &requested.files.snapshot)})
    if (!file->empty())
      refuse(option, "is of a prediction, and --print-scenario predicts nothing",
             fmt::format("leave {} out, or --print-scenario", option));
}

// What a scenario does not say of a launch file.
std::string comments_of(const JobRequest& source) {
  std::string text;
  for (const NotJudged& its : source.not_judged)
    text += fmt::format("# not judged, and left out: {}: {}\n", its.what, its.why);
  for (const MemoryBound& its : source.bounds)
    text += fmt::format("# not simulated, and up to {} B more: {}: {}\n", its.more.count(), its.what, its.why);
  return text;
}

// Questions that answer with something else than one prediction.
void refuse_beside(const PredictArguments& requested, const char* option) {
  if (requested.files.any() || requested.picked.ranks)
    refuse(option, "asks about several jobs, and timelines, traces and snapshots are of one",
           fmt::format("ask first, then without {} about the job that it found", option));
  if (!requested.largest.empty() && !requested.clusters.empty())
    refuse("--largest", "goes with one cluster", "leave --clusters out, or --largest");
  if (requested.print_scenario)
    refuse("--print-scenario", fmt::format("prints one job's, and {} asks about several", option),
           fmt::format("leave {} out", option));
}

int run(const PredictArguments& requested) {
  if (!requested.largest.empty()) {
    refuse_beside(requested, "--largest");
    return answer_largest(requested);
  }
  if (!requested.clusters.empty()) {
    refuse_beside(requested, "--clusters");
    return answer_clusters(requested);
  }
  const PredictOptions options{.links = requested_link_model(requested.picked.link_model)};
  if (requested.print_scenario) refuse_outputs(requested);
  check_files(requested.files, requested.json);
  if (!requested.files.any() && requested.picked.ranks)
    refuse("--rank", "selects from a file, and no file is requested",
           "give --timeline, --trace or --snapshot FILE too");
  if (!requested.files.shows_steps()) requested.picked.refuse_filters("give --timeline or --trace FILE too");
  const JobRequest source = predicted_job(requested);
  if (requested.print_scenario) {
    TomlTable document = source.document;
    name_files_from(document, source.folders, "");
    answer(comments_of(source) + toml_text(document), "", {});
    return yes;
  }
  const bool only_length = source.not_judged.size() == 1 && source.not_judged.front().is_length;
  if (only_length && !requested.files.any()) return answer_lengths(requested, source);
  const Scenario& scenario = source.scenario;
  TimelineQuery query = requested.picked.query(scenario);
  if (requested.picked.ranks) query.ranks = requested_ranks(*requested.picked.ranks, scenario);
  check_snapshot_ranks(requested.files, query.ranks);
  std::vector<Output> written = outputs(requested.files, query.ranks, scenario);
  written.push_back({"--json", requested.json});
  check_outputs(written, source.files);

  const Job job(scenario, Job::Steps::All, progress_on_terminal("lowering programs", requested.loudness));
  const Trace trace = simulate_time(job, options.links);
  Prediction prediction = predict(job, trace, progress_on_terminal("simulating ranks", requested.loudness), options);
  source.complete(prediction);
  std::vector<std::string> reported;
  if (!prediction.deadlock) reported = write_files(requested.files, job, trace, prediction, query);
  const std::optional<AcceptedChanges> accepted = accepted_changes(source, prediction);
  const AcceptedChanges* const those = accepted ? &*accepted : nullptr;
  answer(requested.verbose ? prediction_text(prediction, those) : brief_text(prediction, source.file, those),
         requested.json, [&] { return prediction_json(prediction, those); });
  if (!requested.loudness.quiet)
    for (const std::string& line : reported) complain(line);
  return prediction.fits ? yes : prediction.open ? cannot_say : no;
}

}  // namespace

JobRequest predicted_job(const PredictArguments& requested, const std::vector<std::string>& keys) {
  JobWords words = requested.words;
  words.beside.insert(words.beside.end(), keys.begin(), keys.end());
  return requested_job(words);
}

Verb predict_verb(CLI::App& app) {
  const auto requested = std::make_shared<PredictArguments>();
  CLI::App* verb = app.add_subcommand(
      "predict", "predict whether a job fits, each rank's peak memory and its composition, and step time");
  add_job(*verb, requested->words, JobSource::FileOrOptions);
  verb->add_flag("--print-scenario", requested->print_scenario,
                 "print the scenario that the options or the launch file amount to, and stop");
  verb->add_option("--largest", requested->largest,
                   "find the largest value of this key with which the job fits, and answer with that value: "
                   "micro_batch, sequence_length, train.global_batch, gpus or any whole number of the scenario")
      ->type_name("KEY");
  verb->add_option("--clusters", requested->clusters,
                   "compare these clusters, names or files with commas between them: which fits the job, and which "
                   "costs least")
      ->type_name("NAME[,NAME...]");
  add_json(*verb, requested->json);
  add_quiet(*verb, requested->loudness);
  verb->add_flag("-v,--verbose", requested->verbose,
                 "print details: when peaks occur, their composition, where step time goes, assumptions");
  add_timeline_options(*verb, requested->picked, "ranks to write (default: one of each class)");
  verb->add_option("--timeline", requested->files.timeline, "write every span and memory event to FILE (JSON Lines)")
      ->type_name("FILE");
  verb->add_option("--trace", requested->files.trace,
                   "write spans and memory to FILE for ui.perfetto.dev (Chrome's JSON)")
      ->type_name("FILE");
  verb->add_option("--snapshot", requested->files.snapshot,
                   "write the allocator's history as a PyTorch memory snapshot for pytorch.org/memory_viz: of the "
                   "fullest rank, of --rank R, or of each rank if FILE contains '{rank}'")
      ->type_name("FILE");
  add_examples(
      *verb,
      {{"predict llama-3.1-70b-64xh100", "an example; copy its file from scenarios/examples to change it"},
       {"predict --model llama-3.1-70b --cluster h100-sxm-80g --gpus 64 --sequence 8192 --global-batch 128 --tensor 8 "
        "--sequence-parallel --pipeline 4 --sharding zero1",
        "a job given by options alone"},
       {"predict --model llama-3.1-8b --cluster h100-sxm-80g --gpus 8 --sequence 8192 --tensor 2 --print-scenario > "
        "job.toml",
        "the scenario file of such options"},
       {"predict llama-3.1-8b-8xh100 --largest micro_batch", "how far it goes, and why not further"},
       {"predict llama-3.1-8b-8xh100 run.tokens=1000000000 run.price_per_gpu_hour=2.5", "what the training costs"},
       {"predict llama-3.1-8b-8xh100 --clusters h100-sxm-80g,h200-sxm-141g,a100-sxm-80g", "on which cluster"},
       {"predict job.toml --json - 2> answer.txt", "JSON for scripts: every class of ranks, with bounds and sources"}});
  return {verb, [requested] { return run(*requested); }, &requested->words.file};
}

}  // namespace tidemark::cli
