#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/help.hpp"
#include "scenarios/cli/detail/job_options.hpp"
#include "scenarios/cli/detail/launch_options.hpp"
#include "scenarios/cli/detail/timeline_options.hpp"
#include "scenarios/cli/detail/usage.hpp"
#include "scenarios/cli/detail/verbs.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/output.hpp"
#include "scenarios/cli/predicted_files.hpp"
#include "scenarios/cli/progress.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/io/document_parts.hpp"
#include "scenarios/io/input_error.hpp"
#include "scenarios/io/output_file.hpp"
#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/io/text_file.hpp"
#include "scenarios/io/toml_text.hpp"
#include "scenarios/plan/accepted_changes.hpp"
#include "scenarios/prediction.hpp"
#include "scenarios/report/prediction_text.hpp"

namespace tidemark::cli {
namespace {

struct AskedToPredict {
  std::string scenario, json;
  TimelineOptions picked;
  PredictedFiles files;
  LaunchOptions launch;
  JobOptions job;
  Loudness loudness;
  bool verbose = false, print_scenario = false;
};

// What is asked about.
struct Source {
  TomlTable document;  ///< empty of a scenario's file, until it is asked for
  Scenario scenario;
  std::filesystem::path at;  ///< gives the scenario its name, and is where its problems are
  ScenarioFolders folders;
  std::vector<std::filesystem::path> files;  ///< that were read
  std::string file;                          ///< that has the scenario; empty where none has
  std::vector<std::string> assumed = {};     ///< of what another framework's file does not say
};

Source from_options(const AskedToPredict& asked) {
  JobOptions job = asked.job;
  job.model = asked.launch.model;
  job.cluster = asked.launch.cluster;
  job.gpus = asked.launch.gpus;
  job.sequence = asked.launch.sequence;
  job.micro_batch = asked.launch.micro_batch;
  job.global_batch = asked.launch.global_batch;
  const ScenarioFolders folders{std::filesystem::current_path(), data_root()};
  Source made{document_of(job), {}, "tidemark predict", folders, {}, {}};
  made.scenario = scenario_of(made.document, made.at, folders);
  made.files = files_named(made.document, folders);
  made.scenario.name = fmt::format("{} on {} devices", made.scenario.model.name, made.scenario.gpus);
  return made;
}

// A scenario's file, what another framework's file comes to, or options alone. InputError where something of the second
// does not come along, and where options are given to a file that says what they say.
Source source_of(const AskedToPredict& asked) {
  if (asked.scenario.empty()) return from_options(asked);
  const bool foreign = is_foreign(asked.scenario);
  if (asked.job.lays_out() || (!foreign && asked.launch.any()))
    throw InputError(
        Problem{.file = asked.scenario,
                .message = foreign ? "a training, and options that say what it says"
                                   : "a scenario, and options that say what it says",
                .hint = "change them in the file: --model, --cluster and others are for files of frameworks, and all "
                        "of them for where there is no file"});
  if (foreign) {
    Converted converted = convert(asked.launch.asked({asked.scenario}));
    Scenario scenario = scenario_of(converted, data_root());
    std::vector<std::string> assumed;
    for (const Remark& remark : converted.remarks)
      if (remark.kind == RemarkKind::Assumed)
        assumed.push_back(remark.place.line > 0
                              ? fmt::format("{}:{}: {}: {}", remark.file, remark.place.line, remark.what, remark.why)
                              : fmt::format("{}: {}", remark.what, remark.why));
    return {std::move(converted.document),
            std::move(scenario),
            converted.file,
            {converted.file.parent_path(), data_root()},
            files_behind(asked.scenario),
            {},
            std::move(assumed)};
  }
  const std::filesystem::path file = asked.scenario;
  return {asked.print_scenario ? parse_toml(read_text(asked.scenario), asked.scenario) : TomlTable{},
          read_scenario(file, data_root()),
          file,
          {file.parent_path(), data_root()},
          files_behind(asked.scenario),
          as_typed(asked.scenario)};
}

// Where memory runs out. Nothing where a scenario's file cannot be read again.
std::optional<AcceptedChanges> accepted_changes(Source source, const Prediction& prediction) {
  if (std::ranges::none_of(prediction.groups, [](const RankGroup& group) { return group.failure.has_value(); }))
    return {};
  if (source.document.keys.empty()) {
    if (!std::filesystem::is_regular_file(source.at)) return {};
    source.document = parse_toml(read_text(source.at), source.at.string());
  }
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
  const Source source = source_of(asked);
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
  prediction.assumptions.insert(prediction.assumptions.end(), source.assumed.begin(), source.assumed.end());
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
  add_scenario(*verb, asked->scenario, "scenario file (TOML), or a file that convert takes")->required(false);
  add_launch_options(*verb, asked->launch);
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
  return {verb, [asked] { return run(*asked); }, &asked->scenario};
}

}  // namespace tidemark::cli
