#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "kernels/execute/process_memory.hpp"
#include "kernels/execute/world/mpi_world.hpp"
#include "scenarios/calibrate/calibrate.hpp"
#include "scenarios/calibrate/calibration_report.hpp"
#include "scenarios/calibrate/device_file.hpp"
#include "scenarios/calibrate/machine_file.hpp"
#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/program_fingerprint.hpp"
#include "scenarios/cli/ranks.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace tidemark::cli {
namespace {

struct CalibrateArguments {
  std::string output = "machine.toml";
  std::string json, journal, date;
  std::vector<std::string> scenarios;
  std::int64_t repeats = 15, time_limit = 600;
  std::int32_t ranks_per_node = 0;  ///< 0: of each host
  bool brief = false;
  std::string from, like;  ///< points of GPUs, and a cluster's file for what they do not say
  Loudness loudness;
};

std::filesystem::path calibration_file(const CalibrateArguments& a) {
  std::filesystem::path path(a.output);
  return path.replace_extension(".calibration.toml");
}

// On every rank alike, or first on rank 0.
void check(const CalibrateArguments& a, const World& world) {
  if (std::filesystem::path(a.output).extension() != ".toml")
    refuse("--output", fmt::format("{} is not a name of a cluster file", a.output), "such as machine.toml");
  for (const std::string& file : a.scenarios) {
    const Scenario scenario = read_scenario(file, data_root());
    if (world.size() % scenario.gpus != 0)
      refuse(file, fmt::format("the job has {} ranks, and mpirun started {}", scenario.gpus, world.size()),
             fmt::format("mpirun -np {} tidemark calibrate …", scenario.gpus));
  }
  if (world.rank().value != 0) return;
  std::vector<std::filesystem::path> inputs;
  for (const std::string& file : a.scenarios)
    for (std::filesystem::path& behind : files_behind(file)) inputs.push_back(std::move(behind));
  check_outputs({{"--output", a.output},
                 {"--output", calibration_file(a).string()},
                 {"--journal", a.journal},
                 {"--json", a.json}},
                inputs);
}

// Nodes are ranks one after another, as many on each, as jobs fill them; `of_host`: 0 where hosts are filled otherwise.
void check_nodes(const CalibrateArguments& a, std::int32_t of_host) {
  if (of_host == 0)
    refuse("calibrate", "ranks do not fill their hosts one after another, as many on each",
           "mpirun --map-by slot, with as many slots on each host");
  if (a.ranks_per_node == 0 || of_host % a.ranks_per_node == 0) return;
  std::vector<std::int32_t> would;
  for (std::int32_t n = 1; n <= of_host; ++n)
    if (of_host % n == 0) would.push_back(n);
  refuse("--ranks-per-node", fmt::format("{} does not divide the {} of a host", a.ranks_per_node, of_host),
         fmt::format("{} would", fmt::join(would, ", ")));
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

MachineRun run_of(const CalibrateArguments& a, const World& world, std::vector<std::string> hosts,
                  std::vector<Point> points) {
  MachineRun run;
  run.name = std::filesystem::path(a.output).stem().string();
  run.machine = machine_description();
  run.ranks = world.size();
  run.ranks_per_host = world.size() / static_cast<std::int32_t>(hosts.size());
  run.ranks_per_node = a.ranks_per_node > 0 ? a.ranks_per_node : run.ranks_per_host;
  run.hosts = std::move(hosts);
  run.cores = static_cast<std::int32_t>(std::thread::hardware_concurrency());
  run.host_memory = Bytes{static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE)};
  run.tidemark = TIDEMARK_VERSION;
  run.mpi = mpi_version();
  run.date = a.date;
  run.repeats = a.repeats;
  run.points = std::move(points);
  return run;
}

// Rank 0's part, which writes and tells.
void conclude(const CalibrateArguments& a, const MachineRun& run, const MachineFiles& files) {
  write_file(calibration_file(a), [&](std::ostream& out) { out << files.calibration; });
  write_file(a.output, [&](std::ostream& out) { out << files.cluster; });
  static_cast<void>(read_cluster(a.output));  // as predict does
  answer(calibration_report(run, files, fmt::format("in {} and {}", a.output, calibration_file(a).string())), a.json,
         [&] { return calibration_json(run, files); });
}

int run_on(World& world, const CalibrateArguments& a) {
  const auto mistakes_of = [](auto&& work) -> std::string {
    try {
      work();
    } catch (const InputError& error) {
      return error.what();
    }
    return {};
  };
  const auto agreed = [&](const std::string& mistakes) {
    const std::string first = world.first_said(mistakes);
    if (world.rank().value == 0 && !first.empty()) complain(first);
    return first.empty();
  };
  std::vector<std::string> hosts;
  if (!agreed(mistakes_of([&] { check(a, world); }))) return bad_input;
  hosts = hosts_of(world, host_name());
  const std::int32_t of_host = ranks_per_host(world, host_name());
  if (!agreed(mistakes_of([&] { check_nodes(a, of_host); }))) return bad_input;
  const std::int32_t of_node = a.ranks_per_node > 0 ? a.ranks_per_node : hosts.size() > 1 ? of_host : 0;
  const CalibrateOptions options{
      {a.scenarios, data_root(), of_node, a.repeats, a.brief}, a.journal, program_fingerprint()};
  const std::string refused = mistakes_of([&] {
    std::optional<std::vector<Point>> points = calibrate(world, options, hosts, plan_progress_on_terminal(a.loudness));
    if (!points) return;
    const MachineRun run = run_of(a, world, hosts, *std::move(points));
    conclude(a, run, host_files(run));
  });
  return agreed(refused) ? yes : bad_input;
}

// Points that tidemark_gpu_points measured on GPUs, which need not be here.
int run_from_points(const CalibrateArguments& a) {
  if (a.like.empty())
    refuse("--from", "values that were not measured on a GPU machine come from another cluster",
           "name the nearest one: --like h100-sxm-80g");
  if (!a.journal.empty() || !a.scenarios.empty())
    refuse("--from", "measures nothing", "leave out --journal and --kernels-of");
  check_outputs({{"--output", a.output}, {"--output", calibration_file(a).string()}, {"--json", a.json}},
                {a.from, a.like});
  MachineRun run;
  const MachineFiles files =
      device_files({std::filesystem::path(a.output).stem().string(), a.like, TIDEMARK_VERSION, a.date, a.from}, run);
  conclude(a, run, files);
  return yes;
}

int run(const CalibrateArguments& a) {
  if (!a.from.empty()) return run_from_points(a);
  return on_ranks(a.time_limit, [&](World& world) { return run_on(world, a); });
}

}  // namespace

Verb calibrate_verb(CLI::App& app) {
  const auto requested = std::make_shared<CalibrateArguments>();
  CLI::App* verb = app.add_subcommand("calibrate", "measure this machine under mpirun and write a cluster file");
  verb->add_option("-o,--output", requested->output,
                   "cluster file to write (default: machine.toml); kernel times go to NAME.calibration.toml next to it")
      ->type_name("FILE");
  add_json(*verb, requested->json);
  add_quiet(*verb, requested->loudness);
  verb->add_option("--journal", requested->journal, "keep measurements in FILE, so that an interrupted run can resume")
      ->type_name("FILE");
  verb->add_option("--date", requested->date, "date to write into the files (default: none)")->type_name("TEXT");
  verb->add_option("--kernels-of", requested->scenarios, "also measure the kernels of this job, in its order")
      ->expected(1)
      ->take_all()
      ->type_name("SCENARIO");
  verb->add_option(
          "--ranks-per-node", requested->ranks_per_node,
          "treat so many consecutive ranks as a node, such as those of one socket (default: those of one host)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  verb->add_option("--repeats", requested->repeats, "number of repetitions of each measurement (default: 15)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  verb->add_option("--time-limit", requested->time_limit, "end the run if a rank waits longer than this for another")
      ->check(CLI::Range(1, 86400))
      ->type_name("SECONDS");
  verb->add_option("--from", requested->from,
                   "write the files from points that tidemark_gpu_points measured on GPUs; measure nothing here")
      ->type_name("FILE");
  CLI::Option* like =
      verb->add_option("--like", requested->like, "with --from: cluster file to take unmeasured values from");
  takes_shipped(*verb, like, clusters_shipped)->type_name("FILE");
  verb->add_flag("--brief", requested->brief, "measure few sizes in some seconds, to try it out");
  add_examples(*verb, {{"calibrate --brief --repeats 3 --output brief.toml", "measures few sizes on one rank"},
                       {"calibrate --brief --repeats 3 --output brief.toml --journal brief.journal",
                        "the same, and can be resumed"}});
  return {verb, [requested] { return run(*requested); }, nullptr};
}

}  // namespace tidemark::cli
