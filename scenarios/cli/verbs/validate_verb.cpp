#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "kernels/execute/process_memory.hpp"
#include "kernels/execute/world/mpi_world.hpp"
#include "scenarios/calibrate/math_times.hpp"
#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/job_request.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/ranks.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/report/json/validation_json.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "scenarios/report/text/validation_text.hpp"
#include "scenarios/validate/arithmetic/check_math.hpp"
#include "scenarios/validate/arithmetic/math_work.hpp"
#include "scenarios/validate/validation.hpp"

namespace tidemark::cli {
namespace {

struct ValidateArguments {
  JobWords words;
  std::string json;
  std::int64_t scale = 1;
  std::string mutation = "none";
  std::int64_t time_limit = 60;
  std::string back_end = "host";
  std::string job;
  bool math = false, no_math = false;  ///< neither: where it is little work
  std::string machine;                 ///< cluster file whose times are laid beside what training takes
  std::int64_t timed_runs = 5;
  Loudness loudness;
  std::string command;  ///< the whole line
};

Mutation requested_mutation(const std::string& name) {
  const auto found = std::find(mutation_names.begin(), mutation_names.end(), name);
  if (found == mutation_names.end())
    refuse("--mutate", fmt::format("there is no mutation '{}'", name),
           fmt::format("{}", fmt::join(mutation_names, ", ")));
  return static_cast<Mutation>(found - mutation_names.begin());
}

void hold_to_arithmetic(const Scenario& scenario, const std::string& file) {
  if (const std::string beyond = beyond_arithmetic(resolved_scenario(scenario)); !beyond.empty())
    refuse(file, "--math does not follow " + beyond.substr(0, beyond.find('\n')), beyond.substr(beyond.find('\n') + 1));
}

// A program beside this one that runs on GPUs.
std::string device_program(const std::string& name) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
  if (!std::filesystem::exists(program))
    refuse("--back-end", "this build has no GPU back end",
           "install the CUDA toolkit with nvcc and NCCL, then scripts/setup --target " + name);
  return program.string();
}

// Becomes a program, which the first of the words names; returns only where that cannot be.
int become(std::vector<std::string> words, const ValidateArguments& requested) {
  words.insert(words.end(), {"--time-limit", std::to_string(requested.time_limit)});
  if (!requested.json.empty()) words.insert(words.end(), {"--results", requested.json});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  execv(argv[0], argv.data());
  throw std::runtime_error("cannot run " + words.front());
}

int run_on_devices(const ValidateArguments& requested) {
  if (requested.scale != 1) refuse("--scale", "divides pages of host memory", "leave it out with --back-end cuda");
  if (requested.mutation != "none") refuse("--mutate", "is for the host back end", "leave it out");
  if (requested.json == "-") refuse("--json", "goes to a file with --back-end cuda", "give it a name");
  const std::string program = device_program(requested.math ? "tidemark_gpu_math" : "tidemark_gpu");
  const JobRequest job = requested_job(requested.words);
  const Scenario& scenario = job.scenario;
  check_outputs({{"--json", requested.json}}, job.files);
  if (!job.not_judged.empty())
    refuse(requested.words.file, "has names that are not judged: " + job.not_judged.front().what,
           "use --ignore NAME for each that has no effect");
  if (requested.math) {
    if (job.file != as_typed(requested.words.file))
      refuse(requested.words.file, "is read by another program with --math, which takes only a scenario file",
             "tidemark convert -o job.toml writes one; predict --print-scenario writes one with the keys that you set");
    hold_to_arithmetic(scenario, requested.words.file);
    return become({program, requested.words.file, "--data", data_root().string()}, requested);
  }
  std::string path = (std::filesystem::temp_directory_path() / "tidemark-job-XXXXXX").string();
  const int file = mkstemp(path.data());
  if (file < 0) refuse("--back-end", "cannot write a job to " + path, "set TMPDIR to a folder that can be written to");
  close(file);
  write_file(path, [&](std::ostream& out) { out << device_job_file(scenario); });
  return become({program, path, "--discard-job"}, requested);
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

// Why the model is not trained with real numbers; empty where it is.
std::string why_without_math(const ValidateArguments& requested, const Scenario& scenario) {
  if (requested.math) return {};
  if (requested.no_math) return "--no-math";
  if (requested.mutation != "none") return "a fault was injected (--math runs them anyway)";
  const std::string beyond = beyond_arithmetic(scenario);
  return beyond.empty() ? too_much_arithmetic(work_of(scenario))
                        : "they do not follow " + beyond.substr(0, beyond.find('\n'));
}

// Where a text first differs from that of the first rank.
std::string first_difference(const std::string& first, const std::string& its) {
  std::istringstream ours(first), theirs(its);
  std::string a, b;
  while (std::getline(ours, a) && std::getline(theirs, b) && a == b) {
  }
  const auto trimmed = [](const std::string& line) {
    const std::size_t begin = line.find_first_not_of(' '), end = line.find_last_not_of(",");
    return begin == line.npos || end < begin ? std::string("nothing") : line.substr(begin, end + 1 - begin);
  };
  return fmt::format("{} here, {} there", trimmed(b), trimmed(a));
}

// Files of one name may say different things on different machines: what each rank has read, model and cluster
// included, is compared before any of it is run.
std::string who_read_otherwise(World& world, const std::string& read, const std::string& scenario) {
  const std::vector<std::string> all = world.gather(read);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all.front())
      return InputError(Problem{.file = scenario,
                                .message = fmt::format("rank {} read another scenario than rank 0: {}", rank,
                                                       first_difference(all.front(), all[rank])),
                                .hint = "give all ranks the same files: scenario, model and cluster"})
          .what();
  return {};
}

void check_arguments(const World& world, const ValidateArguments& requested, const ValidateOptions& options,
                     const Scenario& scenario) {
  if (scenario.gpus != world.size())
    refuse(requested.words.file,
           fmt::format("the job has {} ranks, and mpirun started {}", scenario.gpus, world.size()),
           fmt::format("mpirun -np {} tidemark validate …", scenario.gpus));
  if (is_of_meaning(options.mutation) && !requested.math)
    refuse("--mutate", fmt::format("only real numbers show {}", requested.mutation), "add --math");
  if (requested.math) hold_to_arithmetic(scenario, requested.words.file);
  if (!requested.machine.empty() && (requested.no_math || requested.mutation != "none"))
    refuse("--machine", "is for training with real numbers, without a fault",
           "leave out --no-math and --mutate, or --machine");
}

Validation validated(World& world, const ValidateArguments& requested, const ValidateOptions& options,
                     const Scenario& scenario, const Cluster& machine) {
  const bool speaks = world.rank().value == 0;
  const bool predicts = spoils_prediction(options.mutation);
  const Mutation in_numbers = predicts ? Mutation::None : options.mutation;
  Validation validation = validate(scenario, world, options);
  validation.without_math = world.broadcast(speaks ? why_without_math(requested, resolved_scenario(scenario)) : "");
  if (validation.without_math.empty()) {
    const Progress progress = speaks ? progress_on_terminal("training with real numbers", requested.loudness) : nullptr;
    constexpr std::array storages{math::Storage::Wide, math::Storage::Native};
    for (const math::Storage storage : storages) {
      validation.math.push_back(check_math(scenario, world, storage, in_numbers));
      if (progress) progress(validation.math.size(), storages.size());
    }
  }
  if (!requested.machine.empty() && validation.without_math.empty()) {
    MathTimes& times = validation.math_times;
    times.cluster = machine.name;
    times.source = machine.device.efficiency.source;
    times.repeats = requested.timed_runs;
    times.measured = measured_math_steps(scenario, world, requested.timed_runs);
    if (speaks) times.predicted = predicted_math_steps(scenario, machine);
  }
  return validation;
}

// Ranks do not know which of them is the first before MPI is up. They may not all find the same mistakes: files of one
// machine may not be there on another.
int run_on(World& world, const ValidateArguments& requested) {
  const bool speaks = world.rank().value == 0;
  const auto agreed = [&](const std::string& mistakes) {
    const std::string first = world.first_said(mistakes);
    if (speaks && !first.empty()) complain(first);
    return first.empty();
  };
  ValidateOptions options{.scale = {requested.scale}};
  JobRequest job;
  Scenario scenario;
  std::string read;  // all that ranks have to have read alike
  Cluster machine;
  const std::string misread = mistakes_of(requested.words.file, [&] {
    options.mutation = requested_mutation(requested.mutation);
    job = requested_job(requested.words);
    scenario = job.scenario;
    if (speaks) check_outputs({{"--json", requested.json}}, job.files);
    check_arguments(world, requested, options, scenario);
    if (!requested.machine.empty()) machine = read_cluster(requested.machine);
    read = scenario_json(resolved_scenario(scenario), 1);
  });
  if (!agreed(misread)) return bad_input;
  if (!agreed(who_read_otherwise(world, read, requested.words.file))) return bad_input;

  if (speaks) options.progress = progress_on_terminal("running allocations and messages", requested.loudness);
  std::string agrees;
  // What it refuses, it refuses on all ranks.
  const std::string refused = mistakes_of(requested.words.file, [&] {
    Validation validation = validated(world, requested, options, scenario, machine);
    if (!speaks) return;
    agrees = validation.agrees() ? "yes" : "no";
    answer(job.lead() + validation_text(validation), requested.json, [&] {
      return with_not_judged(validation_json(validation, {.command = requested.command,
                                                          .back_end = "host",
                                                          .tidemark = TIDEMARK_VERSION,
                                                          .mpi = mpi_version(),
                                                          .machine = machine_description()}),
                             job.not_judged);
    });
  });
  if (!agreed(refused)) return bad_input;
  if (world.broadcast(agrees) != "yes") return no;
  return job.not_judged.empty() ? yes : cannot_say;
}

int run(const ValidateArguments& requested) {
  if (!requested.job.empty()) {
    const JobRequest job = requested_job(requested.words);
    check_outputs({{"--write-job", requested.job}}, job.files);
    write_file(requested.job, [&](std::ostream& out) { out << device_job_file(job.scenario); });
    if (!job.lead().empty()) complain(job.lead());
    return job.not_judged.empty() ? yes : cannot_say;
  }
  if (requested.back_end == "cuda") return run_on_devices(requested);
  return on_ranks(requested.time_limit, [&](World& world) { return run_on(world, requested); });
}

}  // namespace

Verb validate_verb(CLI::App& app, const std::string& command) {
  const auto requested = std::make_shared<ValidateArguments>();
  requested->command = command;
  CLI::App* verb = app.add_subcommand(
      "validate", "run the job's allocations and messages under mpirun, on hosts or GPUs, and check the prediction");
  add_job(*verb, requested->words);
  verb->add_option("--json", requested->json, "write the record as JSON to FILE, or '-': then text goes to stderr")
      ->type_name("FILE");
  add_quiet(*verb, requested->loudness);
  verb->add_option("--scale", requested->scale,
                   "allocate one page in N of each block, so that large jobs run on a laptop")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->type_name("N");
  verb->add_option("--time-limit", requested->time_limit, "end the run if a rank waits longer than this for another")
      ->check(CLI::Range(1, 86400))
      ->type_name("SECONDS");
  verb->add_option("--back-end", requested->back_end, "host (memory and MPI, the default) or cuda (GPUs and NCCL)")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->type_name("NAME");
  verb->add_option("--write-job", requested->job, "write FILE for a GPU machine to run, and stop")->type_name("FILE");
  verb->add_flag(
          "--math", requested->math,
          "also train with real numbers, however long it takes, and compare losses and gradients with one rank's")
      ->excludes(verb->add_flag("--no-math", requested->no_math,
                                "do not train with real numbers, even if it takes only seconds"));
  verb->add_option("--machine", requested->machine,
                   "cluster file of this machine (see calibrate), to predict the time of steps with real numbers")
      ->type_name("FILE");
  verb->add_option("--timed-runs", requested->timed_runs, "number of timed trainings for --machine (default: 5)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  verb->add_option("--mutate", requested->mutation, "inject one fault, to test that validation detects it")
      ->type_name("WHAT");
  add_examples(*verb,
               {{"validate seeds/llama-2-7b-megatron --scale 10000 --no-math",
                 "one rank, which holds one page in 10000 of each block"},
                {"validate llama-3.1-8b-8xh100 --write-job job.toml", "writes the job file for a machine with GPUs"}});
  return {verb, [requested] { return run(*requested); }, &requested->words.file};
}

}  // namespace tidemark::cli
