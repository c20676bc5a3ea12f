#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "kernels/execute/mpi_world.hpp"
#include "kernels/execute/process_memory.hpp"
#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/compare.hpp"
#include "scenarios/cli/deadlocks.hpp"
#include "scenarios/cli/detail/plan_verbs.hpp"
#include "scenarios/cli/detail/usage.hpp"
#include "scenarios/cli/output.hpp"
#include "scenarios/cli/predicted_files.hpp"
#include "scenarios/cli/progress.hpp"
#include "scenarios/io/input_error.hpp"
#include "scenarios/io/output_file.hpp"
#include "scenarios/io/scenario_json.hpp"
#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/prediction.hpp"
#include "scenarios/report/explanation.hpp"
#include "scenarios/report/fabric_text.hpp"
#include "scenarios/report/prediction_text.hpp"
#include "scenarios/report/replay_text.hpp"
#include "scenarios/report/timeline.hpp"
#include "scenarios/report/validation_json.hpp"
#include "scenarios/report/validation_text.hpp"
#include "scenarios/validation.hpp"
#include "sim/clock/summary.hpp"

// One verb per question. Exit codes: 0 yes, 1 the answer is no, 2 bad input or usage, 3 the machine failed.

namespace tidemark::cli {
namespace {

constexpr int yes = 0, no = 1, bad_input = 2, machine_failed = 3;

struct Arguments {
  std::string scenario;
  std::string json;
  std::string at = "peak";
  std::string show = "memory";
  bool all = false;
  PredictedFiles files;
  std::string link_model = "max-min";
  std::int64_t scale = 1;
  std::string mutation = "none";
  std::int64_t time_limit = 60;
  std::string back_end = "host";
  std::string job;
  std::string command;  ///< the whole line
  CompareArguments compare;
  // Not given: as the verb likes it.
  std::optional<std::string> ranks, steps, categories;
  SnapshotQuestion snapshot;
  std::string capacity;
};

[[noreturn]] void refuse(std::string option, std::string message, std::string hint) {
  throw InputError(Problem{.file = std::move(option), .message = std::move(message), .hint = std::move(hint)});
}

void refuse_filters(const Arguments& arguments, const std::string& hint) {
  if (arguments.steps) refuse("--step", "picks from a timeline, and none is asked for", hint);
  if (arguments.categories) refuse("--category", "picks from a timeline, and none is asked for", hint);
}

// All but the ranks.
TimelineQuery timeline_query(const Arguments& arguments, const Scenario& scenario) {
  TimelineQuery query{.links = asked_link_model(arguments.link_model)};
  query.steps = {static_cast<std::int32_t>(scenario.train.steps)};
  if (arguments.steps) query.steps = asked_steps(*arguments.steps, scenario);
  if (arguments.categories) query.categories = asked_categories(*arguments.categories);
  return query;
}

int run_predict(const Arguments& arguments) {
  const PredictOptions options{.links = asked_link_model(arguments.link_model)};
  check_files(arguments.files, arguments.json);
  if (!arguments.files.any() && arguments.ranks)
    refuse("--rank", "picks from a file, and none is asked for", "give --timeline, --trace or --snapshot FILE too");
  if (!arguments.files.shows_steps()) refuse_filters(arguments, "give --timeline or --trace FILE too");
  const Scenario scenario = read_scenario(arguments.scenario, data_root());
  TimelineQuery query = timeline_query(arguments, scenario);
  if (arguments.ranks) query.ranks = asked_ranks(*arguments.ranks, scenario);
  check_snapshot_ranks(arguments.files, query.ranks);
  std::vector<Output> written = outputs(arguments.files, query.ranks, scenario);
  written.push_back({"--json", arguments.json});
  check_outputs(written, files_behind(arguments.scenario));

  const Job job(scenario);
  const Trace trace = simulate_time(job, options);
  const Prediction prediction = predict(job, trace, progress_on_terminal("simulating ranks"), options);
  if (!prediction.deadlock) write_files(arguments.files, job, trace, prediction, query);
  answer(prediction_text(prediction), arguments.json, [&] { return prediction_json(prediction); });
  return prediction.fits ? yes : no;
}

AskedMoment asked_moment(const std::string& at) {
  if (at == "peak") return {AskedMoment::Kind::DevicePeak};
  if (at == "allocated") return {AskedMoment::Kind::AllocatedPeak};
  if (at == "end") return {AskedMoment::Kind::End};
  std::size_t op = 0;
  const auto [end, error] = std::from_chars(at.data(), at.data() + at.size(), op);
  if (error != std::errc{} || end != at.data() + at.size())
    throw InputError(Problem{.file = "--at",
                             .message = fmt::format("'{}' is no moment", at),
                             .hint = "peak, allocated, end, or the number of an op as --show program counts them"});
  return {AskedMoment::Kind::OpIndex, op};
}

int show_timeline(const Arguments& arguments, const Scenario& scenario, const std::vector<Rank>& ranks) {
  TimelineQuery query = timeline_query(arguments, scenario);
  query.ranks = ranks;
  const Job job(scenario);
  const Trace trace = simulate_time(job, {.links = query.links});
  if (deadlocks(job, trace)) return no;
  // Only what goes out: a timeline can be long.
  if (arguments.json == "-")
    answer("", "-", [&] { return timeline(job, trace, query, TimelineFormat::JsonLines); });
  else if (!arguments.json.empty())
    write_file(arguments.json, [&](std::ostream& file) { write_timeline(file, job, trace, query); });
  if (arguments.json != "-") answer(timeline(job, trace, query, TimelineFormat::Table), "", {});
  return yes;
}

int run_explain(const Arguments& arguments) {
  const AskedMoment at = asked_moment(arguments.at);
  const LinkModel links = asked_link_model(arguments.link_model);
  if (arguments.show != "timeline") refuse_filters(arguments, "--show timeline shows one");
  if (links != LinkModel::MaxMin && arguments.show != "timeline")
    refuse("--link-model", fmt::format("--show {} does not depend on it", arguments.show),
           "leave it out, or ask for --show timeline");
  const Scenario scenario = read_scenario(arguments.scenario, data_root());
  const std::vector<Rank> ranks = asked_ranks(arguments.ranks.value_or("0"), scenario);
  check_outputs({{"--json", arguments.json}}, files_behind(arguments.scenario));
  if (arguments.show == "timeline") return show_timeline(arguments, scenario, ranks);
  if (ranks.size() > 1)
    refuse("--rank", fmt::format("--show {} looks at one rank", arguments.show), "--show timeline takes several");
  const Rank rank = ranks.front();
  const Job job(scenario);
  if (arguments.show == "memory") {
    answer(live_text(job, rank, at, arguments.all ? Detail::Everything : Detail::ByRole), arguments.json,
           [&] { return live_json(job, rank, at); });
    return yes;
  }
  if (!arguments.json.empty() && arguments.show != "scenario")
    refuse("--json", fmt::format("--show {} has no JSON form", arguments.show),
           "--show memory, --show scenario and --show timeline have one");
  Trace trace;
  if (arguments.show == "fabric") trace = simulate_time(job);
  if (deadlocks(job, trace)) return no;
  const auto shown = [&]() -> std::string {
    if (arguments.show == "scenario") return scenario_json(job.scenario, 2) + '\n';
    if (arguments.show == "model") return model_text(job);
    if (arguments.show == "schedule") return schedule_text(job);
    if (arguments.show == "communicators") return communicators_text(job, rank);
    if (arguments.show == "program") return program_text(job, rank);
    if (arguments.show == "prices") return prices_text(job, rank);
    return fabric_text(job, last_step(trace));
  };
  answer(shown(), arguments.json, [&] { return scenario_json(job.scenario, 2) + '\n'; });
  return yes;
}

int run_replay(const Arguments& arguments) {
  SnapshotQuestion question = arguments.snapshot;
  if (!arguments.capacity.empty()) question.capacity = asked_size("--capacity", arguments.capacity);
  if (const std::optional<double> fraction = question.memory_fraction; fraction && !(*fraction >= 0 && *fraction <= 1))
    refuse("--memory-fraction", fmt::format("{:g} is no part of the device", *fraction), "between 0 and 1");
  check_outputs({{"--json", arguments.json}}, {question.path});
  const SnapshotReplay replayed = replay_snapshot(question);
  answer(replay_text(replayed), arguments.json, [&] { return replay_json(replayed); });
  return replayed.yes() ? yes : no;
}

Mutation asked_mutation(const std::string& name) {
  const auto found = std::find(mutation_names.begin(), mutation_names.end(), name);
  if (found == mutation_names.end())
    refuse("--mutate", fmt::format("there is no mutation '{}'", name),
           fmt::format("{}", fmt::join(mutation_names, ", ")));
  return static_cast<Mutation>(found - mutation_names.begin());
}

// Becomes the program that runs jobs on GPUs; returns only where that cannot be.
int become_device_run(const Arguments& arguments) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "tidemark_gpu";
  if (!std::filesystem::exists(program))
    refuse("--back-end", "this build has no GPU back end",
           "install the CUDA toolkit with nvcc and NCCL, then scripts/setup --target tidemark_gpu");
  const Scenario scenario = read_scenario(arguments.scenario, data_root());
  check_outputs({{"--json", arguments.json}}, files_behind(arguments.scenario));
  std::string path = (std::filesystem::temp_directory_path() / "tidemark-job-XXXXXX").string();
  const int file = mkstemp(path.data());
  if (file < 0) refuse("--back-end", "cannot write a job to " + path, "set TMPDIR to a folder that can be written to");
  close(file);
  write_file(path, [&](std::ostream& out) { out << device_job_text(scenario); });
  const std::string limit = std::to_string(arguments.time_limit);
  std::vector<std::string> words{program.string(), path, "--discard-job", "--time-limit", limit};
  if (!arguments.json.empty()) words.insert(words.end(), {"--results", arguments.json});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  execv(argv[0], argv.data());
  throw std::runtime_error("cannot run " + program.string());
}

int run_on_devices(const Arguments& arguments) {
  if (arguments.scale != 1) refuse("--scale", "divides pages of host memory", "leave it out with --back-end cuda");
  if (arguments.mutation != "none") refuse("--mutate", "is there for the host back end", "leave it out");
  if (arguments.json == "-") refuse("--json", "goes to a file with --back-end cuda", "give it a name");
  return become_device_run(arguments);
}

// What the input's mistakes are on this rank, if `work` finds any.
template <class Work>
std::string mistakes_of(const std::string& scenario, Work&& work) {
  try {
    work();
  } catch (const InputError& error) {
    return with_file(error, scenario).what();
  }
  return {};
}

// Ranks do not know which of them is the first before MPI is up. They may not all find the same mistakes: files of one
// machine may not be there on another.
int run_validate_on(World& world, const Arguments& arguments) {
  const bool speaks = world.rank().value == 0;
  const auto agreed = [&](const std::string& mistakes) {
    const std::string first = world.first_said(mistakes);
    if (speaks && !first.empty()) complain(first);
    return first.empty();
  };
  ValidateOptions options{.scale = {arguments.scale}};
  Scenario scenario;
  const std::string misread = mistakes_of(arguments.scenario, [&] {
    options.mutation = asked_mutation(arguments.mutation);
    scenario = read_scenario(arguments.scenario, data_root());
    if (scenario.gpus != world.size())
      refuse(arguments.scenario,
             fmt::format("the job has {} ranks, and mpirun started {}", scenario.gpus, world.size()),
             fmt::format("mpirun -np {} scripts/tidemark validate …", scenario.gpus));
    if (speaks) check_outputs({{"--json", arguments.json}}, files_behind(arguments.scenario));
  });
  if (!agreed(misread)) return bad_input;

  std::string agrees;
  // What it refuses, it refuses on all ranks.
  const std::string refused = mistakes_of(arguments.scenario, [&] {
    const Validation validation = validate(scenario, world, options);
    if (!speaks) return;
    agrees = validation.agrees() ? "yes" : "no";
    answer(validation_text(validation), arguments.json, [&] {
      return validation_json(validation, {.command = arguments.command,
                                          .back_end = "host",
                                          .tidemark = TIDEMARK_VERSION,
                                          .mpi = mpi_version(),
                                          .machine = machine_description()});
    });
  });
  if (!agreed(refused)) return bad_input;
  return world.broadcast(agrees) == "yes" ? yes : no;
}

// Whatever goes wrong on one rank ends all of them.
int run_validate(const Arguments& arguments) {
  if (!arguments.job.empty()) {
    const Scenario scenario = read_scenario(arguments.scenario, data_root());
    check_outputs({{"--write-job", arguments.job}}, files_behind(arguments.scenario));
    write_file(arguments.job, [&](std::ostream& out) { out << device_job_text(scenario); });
    return yes;
  }
  if (arguments.back_end == "cuda") return run_on_devices(arguments);
  const std::unique_ptr<World> world = mpi_world(
      std::chrono::seconds(arguments.time_limit),
      [](const RunFailure& failure) { complain(fmt::format("tidemark: the run ended early: {}", failure.what())); });
  try {
    return run_validate_on(*world, arguments);
  } catch (const std::bad_alloc&) {
    world->report_failure("out of memory");
  } catch (const std::exception& error) {
    world->report_failure(error.what());
  }
  return machine_failed;
}

// CLI11 would only say that a verb is required.
void refuse_unknown_verb(const CLI::App& app, int argc, char** argv) {
  static constexpr std::array<std::string_view, 4> planned{"report", "calibrate", "convert", "estimate"};
  if (argc < 2 || argv[1][0] == '-') return;
  const std::string verb = argv[1];
  const auto verbs = app.get_subcommands([](const CLI::App*) { return true; });
  if (std::any_of(verbs.begin(), verbs.end(), [&](const CLI::App* known) { return known->get_name() == verb; })) return;
  const bool later = std::find(planned.begin(), planned.end(), verb) != planned.end();
  throw InputError(Problem{
      .file = "tidemark",
      .message = later ? fmt::format("{} is not there yet", verb) : fmt::format("there is no verb '{}'", verb),
      .hint = "predict, explain, plan, advise, capacity, compare, replay and validate are; see tidemark --help"});
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("tidemark: will this training job fit, on every rank, at every moment of the step?", "tidemark");
  app.set_version_flag("--version", TIDEMARK_VERSION);
  app.require_subcommand(1);

  CLI::App* predict = app.add_subcommand("predict", "does it fit, where is the peak on each rank, what is it made of");
  CLI::App* explain = app.add_subcommand("explain", "why: live tensors at a moment, or any stage of the flow as text");
  for (CLI::App* verb : {predict, explain}) {
    verb->add_option("SCENARIO", arguments.scenario, "scenario file (TOML)")->required();
    verb->add_option("--json", arguments.json, "write the answer as JSON to FILE, or '-': then text goes to stderr")
        ->type_name("FILE");
    verb->add_option("--rank", arguments.ranks,
                     verb == explain ? "rank to look at; a timeline takes several"
                                     : "ranks in the files that are asked for (default: those that stand for others)")
        ->type_name("R[,R...]");
    verb->add_option("--step", arguments.steps, "steps in the timeline or trace (default: the last)")
        ->type_name("N[,N...]");
    verb->add_option("--category", arguments.categories, "memory categories in the timeline (default: all)")
        ->type_name("NAME[,NAME...]");
    verb->add_option("--link-model", arguments.link_model,
                     "max-min (transfers share links, the default) or alpha-beta (they do not)")
        ->type_name("MODEL");
  }
  predict->add_option("--timeline", arguments.files.timeline, "write every span and memory event to FILE (JSON Lines)")
      ->type_name("FILE");
  predict
      ->add_option("--trace", arguments.files.trace,
                   "write spans and memory to FILE for ui.perfetto.dev (Chrome's JSON)")
      ->type_name("FILE");
  predict
      ->add_option("--snapshot", arguments.files.snapshot,
                   "write the allocator's history as PyTorch's memory snapshot, for pytorch.org/memory_viz: of the "
                   "fullest rank, of --rank R, or one file for each rank with '{rank}' in its name")
      ->type_name("FILE");
  explain->add_option("--at", arguments.at, "peak (of device memory), allocated (its peak), end, or an op's number");
  explain->add_flag("--all", arguments.all, "every tensor on its own line, not layers taken together");
  explain->add_option("--show", arguments.show, "what to print")
      ->check(CLI::IsMember(
          {"memory", "scenario", "model", "schedule", "communicators", "program", "prices", "fabric", "timeline"}));

  CLI::App* compare =
      app.add_subcommand("compare", "the prediction beside a real run's memory snapshot or training log");
  compare->add_option("SCENARIO", arguments.compare.scenario, "scenario file (TOML)")->required();
  compare
      ->add_option("MEASURED", arguments.compare.measured,
                   "torch.cuda.memory's snapshot (pickle), or the log of Megatron-LM or torchtitan")
      ->required();
  compare
      ->add_option("--rank", arguments.compare.ranks,
                   "the rank of the snapshot (default: 0), or ranks of the log (default: all that it has)")
      ->type_name("R[,R...]");
  compare->add_option("--device", arguments.compare.device, "the device of a snapshot that has several")
      ->type_name("N");
  compare->add_option("--tolerance", arguments.compare.tolerance, "largest difference, in percent of the measurement")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str()
      ->type_name("PERCENT");
  compare
      ->add_option("--json", arguments.compare.json,
                   "write the answer as JSON to FILE, or '-': then text goes to stderr")
      ->type_name("FILE");

  CLI::App* validate =
      app.add_subcommand("validate", "under mpirun: run it for real, on host memory or GPUs, and compare");
  validate->add_option("SCENARIO", arguments.scenario, "scenario file (TOML)")->required();
  validate->add_option("--json", arguments.json, "write the record as JSON to FILE, or '-': then text goes to stderr")
      ->type_name("FILE");
  validate->add_option("--scale", arguments.scale, "hold one page in N of each block, so that large jobs fit a laptop")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->type_name("N");
  validate->add_option("--time-limit", arguments.time_limit, "end the run when a rank waits longer for another")
      ->check(CLI::Range(1, 86400))
      ->type_name("SECONDS");
  validate->add_option("--back-end", arguments.back_end, "host (memory and MPI, the default) or cuda (GPUs and NCCL)")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->type_name("NAME");
  validate->add_option("--write-job", arguments.job, "write what a GPU machine needs to FILE, and run nothing")
      ->type_name("FILE");
  validate->add_option("--mutate", arguments.mutation, "do one thing wrong on purpose, to see that it shows")
      ->type_name("WHAT");

  CLI::App* replay = app.add_subcommand("replay", "a PyTorch memory snapshot through the emulated allocator; what if");
  replay
      ->add_option("SNAPSHOT", arguments.snapshot.path, "file of torch.cuda.memory._dump_snapshot, or the same in gzip")
      ->required();
  replay->add_option("--json", arguments.json, "write the answer as JSON to FILE, or '-': then text goes to stderr")
      ->type_name("FILE");
  replay->add_option("--device", arguments.snapshot.device, "device to look at (default: the one with a trace)")
      ->type_name("N");
  replay->add_option("--alloc-conf", arguments.snapshot.allocator_conf, "what if: the text of PYTORCH_CUDA_ALLOC_CONF")
      ->type_name("TEXT");
  replay->add_option("--capacity", arguments.capacity, "what if: what the allocator can get, such as \"79.1 GiB\"")
      ->type_name("SIZE");
  replay
      ->add_option("--memory-fraction", arguments.snapshot.memory_fraction, "what if: the part of it that it may take")
      ->type_name("F");
  PlanArguments plan_arguments;
  AdviseArguments advise_arguments;
  CapacityArguments capacity_arguments;
  const CLI::App* plan = add_plan(app, plan_arguments);
  const CLI::App* advise = add_advise(app, advise_arguments);
  const CLI::App* capacity = add_capacity(app, capacity_arguments);
  for (int i = 0; i < argc; ++i) arguments.command += (i == 0 ? "" : " ") + std::string(argv[i]);

  refuse_unknown_verb(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    throw misuse(app, error);
  }
  refuse_empty_texts(app);
  try {
    if (validate->parsed()) return run_validate(arguments);
    if (replay->parsed()) return run_replay(arguments);
    if (plan->parsed()) return run_plan(plan_arguments);
    if (compare->parsed()) return run_compare(arguments.compare) ? yes : no;
    if (advise->parsed()) return run_advise(advise_arguments);
    if (capacity->parsed()) return run_capacity(capacity_arguments);
    return predict->parsed() ? run_predict(arguments) : run_explain(arguments);
  } catch (const InputError& error) {
    throw with_file(error, compare->parsed()  ? arguments.compare.scenario
                           : advise->parsed() ? advise_arguments.scenario
                                              : arguments.scenario);
  }
}

}  // namespace
}  // namespace tidemark::cli

int main(int argc, char** argv) {
  // A reader that went away, or a limit on file sizes, is an error of the write that meets it.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  // A file that is opened must not become the standard stream that was closed.
  for (int stream = 0; stream <= STDERR_FILENO; ++stream)
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF) static_cast<void>(open("/dev/null", O_RDONLY));
  try {
    return tidemark::cli::run(argc, argv);
  } catch (const tidemark::scenarios::InputError& error) {
    tidemark::cli::complain(error.what());
    return tidemark::cli::bad_input;
  } catch (const std::exception& error) {
    tidemark::cli::complain(fmt::format("tidemark: {}", error.what()));
    return tidemark::cli::machine_failed;
  }
}
