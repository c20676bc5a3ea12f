#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "kernels/execute/world/mpi_worker_pool.hpp"
#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/job_options.hpp"
#include "scenarios/cli/detail/job_request.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/program_fingerprint.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/interrupts.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/cli/terminal/terminal.hpp"
#include "scenarios/cli/threads.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/plan/journal.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/plan/space/space_files.hpp"
#include "scenarios/plan/tasks.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/report/text/difference_text.hpp"
#include "scenarios/report/text/plan_text.hpp"
#include "scenarios/report/text/prediction_text.hpp"

namespace tidemark::cli {
namespace {

struct PlanArguments {
  JobWords words;  ///< a file with a base and perhaps a [space]; none: options say it
  std::string headroom;
  std::string json, csv;
  Loudness loudness;
  bool verbose = false;
  std::int64_t top = 10;
  bool show_space = false;
  std::string journal;
  std::string write_scenarios;      ///< folder
  std::vector<std::int64_t> why{};  ///< two candidates
  std::vector<std::string> with{};  ///< axes beyond the space
};

// What a file may leave to the command line.
void set_headroom(Space& space, const PlanArguments& a) {
  const KeyPath key{"runtime", "headroom"};
  if (says(space, key))
    throw InputError(Problem{.file = a.words.file,
                             .message = "says headroom, and so does --headroom",
                             .hint = "change it in the file, or leave --headroom out"});
  set_value(space.base, key, {text(requested_size("--headroom", a.headroom)), {}});
}

struct SpaceRequest {
  Space space;
  std::vector<NotJudged> not_judged = {};
  std::vector<MemoryBound> bounds = {};  ///< room is kept for these
};

// Of a file: a scenario, perhaps with a [space], or what launch files come to.
SpaceRequest space_of_file(const PlanArguments& a) {
  const std::filesystem::path file = a.words.file;
  if (is_foreign(file)) {
    JobRequest job = requested_job(a.words);
    return {with_overrides(a.words.overrides(),
                           [&] { return space_of(std::move(job.document), job.at, job.folders, a.with); }),
            std::move(job.not_judged), std::move(job.bounds)};
  }
  if (a.words.launch.any())
    throw InputError(Problem{.file = a.words.file,
                             .message = "a scenario, and flags that say what it says",
                             .hint = "change them in the file, set keys beside it, as in layout.tensor=4, or leave the "
                                     "file out"});
  TomlTable document = parse_toml(read_text(file), file.string());
  set_overrides(document, a.words.beside);
  return {with_overrides(a.words.beside, [&] {
    return space_of(std::move(document), file, {file.parent_path(), data_root()}, a.with);
  })};
}

SpaceRequest requested_space(const PlanArguments& a) {
  if (!a.words.file.empty()) {
    SpaceRequest requested = space_of_file(a);
    if (!a.headroom.empty())
      set_headroom(requested.space, a);
    else
      take_default_headroom(requested.space);
    keep_room(requested.space.base, requested.bounds);
    return requested;
  }
  const LaunchOptions& o = a.words.launch;
  std::string missing;
  for (const auto& [name, given] :
       {std::pair("--model", !o.model.empty()), std::pair("--cluster", !o.cluster.empty()),
        std::pair("--gpus", o.gpus.has_value()), std::pair("--sequence", o.sequence.has_value()),
        std::pair("--global-batch", o.global_batch.has_value())})
    if (!given) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
  if (!missing.empty())
    throw InputError(Problem{.file = "plan",
                             .message = fmt::format("{} left out", missing),
                             .hint = "give all five of --model --cluster --gpus --sequence --global-batch, or a file"});
  LayoutOptions searched;
  searched.headroom = a.headroom;
  TomlTable document = document_of(o, searched, "plan");
  set_overrides(document, a.words.beside);
  Space space = with_overrides(a.words.beside, [&] {
    return space_of(std::move(document), "plan", {std::filesystem::current_path(), data_root()}, a.with);
  });
  take_default_headroom(space);
  return {std::move(space)};
}

// "02-candidate-17.toml": the folder may hold one that is read.
std::string scenario_file(std::size_t place, std::int64_t candidate) {
  return fmt::format("{:02}-candidate-{}.toml", place, candidate);
}

bool is_scenario_file(const std::filesystem::path& name) {
  std::size_t place = 0;
  std::int64_t candidate = 0;
  const std::string text = name.string();
  return std::sscanf(text.c_str(), "%zu-candidate-%" SCNd64 ".toml", &place, &candidate) == 2 &&
         text == scenario_file(place, candidate);
}

void check_places(const Space& space, const PlanArguments& a) {
  std::vector<std::filesystem::path> inputs = files_read(space);
  if (!a.words.file.empty()) inputs.emplace_back(a.words.file);
  check_outputs({{"--json", a.json}, {"--csv", a.csv}, {"--journal", a.journal}}, inputs);
  check_output_folder({"--write-scenarios", a.write_scenarios});
  if (a.write_scenarios.empty()) return;
  std::error_code unknown_name_problem;
  std::vector<std::filesystem::path> kept = inputs;
  for (const std::string& output : {a.json, a.csv, a.journal}) kept.emplace_back(output);
  for (const std::filesystem::path& file : kept)
    if (is_scenario_file(file.filename()) &&
        std::filesystem::equivalent(file.has_parent_path() ? file.parent_path() : ".", a.write_scenarios,
                                    unknown_name_problem))
      throw InputError(Problem{.file = file.string(),
                               .message = "may be overwritten by what --write-scenarios writes beside it",
                               .hint = "name another folder"});
}

void write_scenarios(const std::string& folder, const Space& space, const Plan& found) {
  std::filesystem::create_directories(folder);
  for (std::size_t i = 0; i < found.best.size(); ++i) {
    const Found& f = found.best[i];
    write_file(std::filesystem::path(folder) / scenario_file(i + 1, f.candidate), [&](std::ostream& file) {
      file << fmt::format("# candidate {} of {}: {:.0f} tokens/s per device, up to {:.2f} GiB\n", f.candidate,
                          space.name, f.figures.throughput,
                          static_cast<double>(f.figures.device_upper.count()) / (1 << 30))
           << scenario_text(space, f.candidate);
    });
  }
}

int why(const Space& space, const PlanArguments& a) {
  std::vector<Prediction> both;
  std::vector<std::string> names;
  for (const std::int64_t index : a.why) {
    if (index < 0 || index >= space.size())
      throw InputError(Problem{.file = "--why",
                               .message = fmt::format("there is no candidate {}", index),
                               .hint = fmt::format("the space has {} combinations", space.size())});
    const auto made = candidate(space, index);
    if (const auto* dropped = std::get_if<NoCandidate>(&made))
      throw InputError(Problem{.file = "--why",
                               .message = fmt::format("combination {} is not a candidate: {}", index, dropped->reason),
                               .hint = "the answer of plan lists candidates by number"});
    both.push_back(predict(std::get<Scenario>(made)));
    names.push_back(fmt::format("#{}", index));
  }
  std::string differ;
  const std::vector<std::size_t> x = space.values_of(a.why[0]), y = space.values_of(a.why[1]);
  for (std::size_t axis = 0; axis < space.axes.size(); ++axis)
    if (x[axis] != y[axis])
      differ += fmt::format("{}: {} in {}, {} in {}\n", space.axes[axis].name, space.axes[axis].values[x[axis]].text,
                            names[0], space.axes[axis].values[y[axis]].text, names[1]);
  answer(differ + '\n' + difference_text(both[0], names[0], both[1], names[1]), "", {});
  return yes;
}

/// What a search that is interrupted says.
class BestSoFar {
 public:
  BestSoFar(const Space& space, const PlanArguments& a)
      : last_words_([this, &space, &a] { complain(text(space, a)); }) {}

  void hear(const std::vector<Found>& best) {
    const std::lock_guard lock(mutex_);
    best_ = best;
  }

 private:
  std::string text(const Space& space, const PlanArguments& a) {
    const std::lock_guard lock(mutex_);
    const std::size_t columns = terminal(STDERR_FILENO).columns;
    return interrupted_text(space, best_, columns == 0 ? usual_columns : std::min(columns, usual_columns)) +
           (a.journal.empty() ? "next: with --journal FILE a search that is interrupted goes on where it was"
                              : fmt::format("next: the same command goes on from what {} remembers", a.journal));
  }

  std::mutex mutex_;
  std::vector<Found> best_;
  LastWords last_words_;  // the last to come and the first to go: it speaks of the others
};

Plan searched(const Space& space, const PlanArguments& a, TaskRunner& runner) {
  BestSoFar so_far(space, a);
  const PlanOptions options{.top = static_cast<std::size_t>(a.top),
                            .found = [&](const std::vector<Found>& best) { so_far.hear(best); }};
  if (a.journal.empty()) return plan(space, options, runner, plan_progress_on_terminal(a.loudness));
  const std::unique_ptr<TaskRunner> journal =
      journal_runner(runner, a.journal, question_of(space, options, program_fingerprint()));
  return plan(space, options, *journal, plan_progress_on_terminal(a.loudness));
}

int answered(const SpaceRequest& requested, const PlanArguments& a, const Plan& found) {
  const Space& space = requested.space;
  if (found.candidates == 0) refuse_no_candidates(space, a.words.file.empty() ? "plan" : a.words.file);
  if (!a.csv.empty()) write_file(a.csv, [&](std::ostream& file) { file << plan_csv(space, found); });
  if (!a.write_scenarios.empty()) write_scenarios(a.write_scenarios, space, found);
  const std::size_t columns = terminal(STDOUT_FILENO).columns;
  answer(not_judged_text(requested.not_judged) + bounds_text(requested.bounds) +
             (a.verbose ? plan_text(space, found)
                        : brief_text(space, found, columns == 0 ? usual_columns : std::min(columns, usual_columns))),
         a.json, [&] { return with_not_judged(plan_json(space, found), requested.not_judged); });
  if (!requested.not_judged.empty()) return cannot_say;
  return found.best.empty() ? no : yes;
}

// Axes that could be searched too, in one line; nothing where there are none.
std::string further_text(const Space& space) {
  std::string names;
  const auto is_there = [&](std::string_view name) {
    return std::ranges::find(space.axes, name, &Axis::name) != space.axes.end();
  };
  for (const FurtherAxis& f : further_axes(space, is_there("runtime") ? Runtimes::All : Runtimes::One)) {
    if (is_there(f.axis.name)) continue;
    std::string values;
    for (const AxisValue& value : f.axis.values) values += (values.empty() ? "" : ", ") + value.text;
    names += fmt::format("{}--with {} ({})", names.empty() ? "" : ", ", f.name, values);
  }
  return names.empty() ? "" : fmt::format("can be searched too: {}\n", names);
}

// The first process searches, the others do what it hands out.
int run_on_worker_pool(WorkerPool& worker_pool, const PlanArguments& a) {
  try {
    const SpaceRequest requested = requested_space(a);
    const Space& space = requested.space;
    const TaskFunction work = task_function(space);
    if (worker_pool.rank() != 0) return worker_pool.serve(work);
    int code = bad_input;
    try {
      check_places(space, a);
      code = answered(requested, a, searched(space, a, *worker_pool_runner(worker_pool, work)));
    } catch (const InputError& error) {
      complain(error.what());
    }
    worker_pool.dismiss(code);
    return code;
  } catch (const InputError& error) {
    if (worker_pool.rank() == 0) complain(error.what());
    return bad_input;
  } catch (const std::exception& error) {
    worker_pool.fail(error.what());
    return machine_failed;
  }
}

// Throws InputError where something is to be written, and nothing is searched.
void refuse_outputs(const PlanArguments& a) {
  const std::string_view instead = a.show_space ? "--show-space" : "--why";
  for (const auto& [option, file] :
       {std::pair("--json", &a.json), std::pair("--csv", &a.csv), std::pair("--journal", &a.journal),
        std::pair("--write-scenarios", &a.write_scenarios)})
    if (!file->empty())
      refuse(option, fmt::format("is of a search, and {} searches nothing", instead),
             fmt::format("leave {} out, or {}", option, instead));
}

int run(const PlanArguments& a) {
  const bool searches = !a.show_space && a.why.empty();
  if (!searches) refuse_outputs(a);
  if (under_mpirun() && searches) return run_on_worker_pool(*mpi_worker_pool(static_cast<int>(working_threads())), a);
  const SpaceRequest requested = requested_space(a);
  const Space& space = requested.space;
  if (a.show_space) {
    answer(space_text(space) + further_text(space), "", {});
    return yes;
  }
  if (!a.why.empty()) return why(space, a);
  check_places(space, a);
  return answered(requested, a, searched(space, a, *thread_runner(task_function(space))));
}

}  // namespace

Verb plan_verb(CLI::App& app) {
  const auto requested = std::make_shared<PlanArguments>();
  CLI::App* verb = app.add_subcommand("plan", "search for the fastest layout that fits, and say why the others lose");
  takes_shipped(
      *verb,
      verb->add_option("SPACE", requested->words.file,
                       "scenario file (TOML), perhaps with a table [space], a launch file that convert takes, "
                       "or the name of an example"),
      examples_shipped);
  add_beside(*verb, requested->words, JobSource::FileOrOptions);
  verb->add_option(
          "--headroom", requested->headroom,
          fmt::format("memory to keep free on every device, unless the file sets it (default: {})", default_headroom))
      ->type_name("SIZE");
  add_json(*verb, requested->json);
  add_quiet(*verb, requested->loudness);
  verb->add_flag("-v,--verbose", requested->verbose,
                 "print details: every axis, the Pareto front, near misses, why the others lose");
  verb->add_option("--csv", requested->csv, "write the best, the front and near misses to FILE")->type_name("FILE");
  verb->add_option("--top", requested->top, "number of layouts to list")->check(CLI::Range(1, 10000))->type_name("K");
  verb->add_option("--journal", requested->journal, "keep progress in FILE, so that an interrupted search can resume")
      ->type_name("FILE");
  verb->add_option("--write-scenarios", requested->write_scenarios, "write the best layouts as scenario files")
      ->type_name("DIR");
  verb->add_option("--why", requested->why,
                   "explain the difference between two candidates, given by number, term by term")
      ->expected(2)
      ->type_name("A B");
  verb->add_option("--with", requested->with, "also search this axis; may be repeated")
      ->expected(1)
      ->take_all()
      ->type_name("AXIS");
  verb->add_flag("--show-space", requested->show_space,
                 "print the axes, their values and the number of combinations, and stop");
  add_examples(*verb, {{"plan --model gpt2 --cluster a100-sxm-40g --gpus 2 --sequence 1024 --global-batch 8",
                        "all layouts of two GPUs"},
                       {"plan llama-3.1-8b-8xh100 --show-space", "the search space around an example"}});
  return {verb,
          [requested] {
            requested->words = requested->words.with_first_key();
            return run(*requested);
          },
          nullptr};
}

}  // namespace tidemark::cli
