#include <memory>
#include <string>
#include <vector>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/launch_options.hpp"
#include "scenarios/cli/detail/timeline_options.hpp"
#include "scenarios/cli/detail/usage.hpp"
#include "scenarios/cli/detail/verbs.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/output.hpp"
#include "scenarios/cli/predicted_files.hpp"
#include "scenarios/cli/progress.hpp"
#include "scenarios/io/output_file.hpp"
#include "scenarios/prediction.hpp"
#include "scenarios/report/prediction_text.hpp"

namespace tidemark::cli {
namespace {

struct Asked {
  std::string scenario, json;
  TimelineOptions picked;
  PredictedFiles files;
  LaunchOptions launch;
};

int run(const Asked& asked) {
  const PredictOptions options{.links = asked_link_model(asked.picked.link_model)};
  check_files(asked.files, asked.json);
  if (!asked.files.any() && asked.picked.ranks)
    refuse("--rank", "picks from a file, and none is asked for", "give --timeline, --trace or --snapshot FILE too");
  if (!asked.files.shows_steps()) asked.picked.refuse_filters("give --timeline or --trace FILE too");
  const Scenario scenario = asked_scenario(asked.scenario, asked.launch);
  TimelineQuery query = asked.picked.query(scenario);
  if (asked.picked.ranks) query.ranks = asked_ranks(*asked.picked.ranks, scenario);
  check_snapshot_ranks(asked.files, query.ranks);
  std::vector<Output> written = outputs(asked.files, query.ranks, scenario);
  written.push_back({"--json", asked.json});
  check_outputs(written, files_behind(asked.scenario));

  const Job job(scenario);
  const Trace trace = simulate_time(job, options);
  const Prediction prediction = predict(job, trace, progress_on_terminal("simulating ranks"), options);
  if (!prediction.deadlock) write_files(asked.files, job, trace, prediction, query);
  answer(prediction_text(prediction), asked.json, [&] { return prediction_json(prediction); });
  return prediction.fits ? yes : no;
}

}  // namespace

Verb predict_verb(CLI::App& app) {
  const auto asked = std::make_shared<Asked>();
  CLI::App* verb = app.add_subcommand("predict", "does it fit, where is the peak on each rank, what is it made of");
  verb->add_option("SCENARIO", asked->scenario, "scenario file (TOML), or a file that convert takes")->required();
  add_launch_options(*verb, asked->launch);
  add_json(*verb, asked->json);
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
  return {verb, [asked] { return run(*asked); }, &asked->scenario};
}

}  // namespace tidemark::cli
