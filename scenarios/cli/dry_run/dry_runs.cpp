#include "scenarios/cli/dry_run/dry_runs.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/dry_run/child_process.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/environment/nccl_environment.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"

namespace tidemark::cli {
namespace {

constexpr std::size_t shown_output = 6000;     // letters of what a script printed, where it failed
constexpr std::int64_t kept_copy = 1LL << 20;  // bytes of one copy to the device that are kept: token ids, not weights

std::filesystem::path null_device() {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path library = program.parent_path().parent_path() / "lib" / "tidemark" / "null_cuda.so";
  if (!std::filesystem::exists(library, ignored))
    throw std::runtime_error(fmt::format("the null device is not there: {}", library.string()));
  return library;
}

std::filesystem::path found_by_shell(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::filesystem::path file = std::filesystem::path(folder.empty() ? "." : folder) / program;
    std::error_code ignored;
    if (access(file.c_str(), X_OK) == 0 && !std::filesystem::is_directory(file, ignored)) return file;
  }
  throw InputError(Problem{.file = "the command",
                           .message = fmt::format("there is no program {}", in_quotes(program)),
                           .hint = "activate the environment that has it, or name it by its path"});
}

// The interpreter of a launcher's script.
std::string python_of(LaunchCommand& launch) {
  if (!launch.python.empty()) return launch.python;
  const std::filesystem::path script = found_by_shell(launch.launcher_script);
  std::ifstream file(script, std::ios::binary);
  std::string begin(4096, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  const std::optional<std::string> python = interpreter_in(begin);
  if (!python)
    throw InputError(Problem{.file = "the command",
                             .message = fmt::format("{} is not a script of Python", in_quotes(script.string())),
                             .hint = "python train.py, or torchrun, deepspeed or accelerate launch before the script"});
  if (launch.launcher == StartedBy::Python) launch.arguments.front() = script.string();
  return *python;
}

// Python says so too, but not to whoever asks whether a job fits.
void refuse_missing_script(const LaunchCommand& launch) {
  bool is_value = false;
  for (const std::string& word : launch.arguments) {
    if (is_value || (word.starts_with("-") && word != "-m" && word != "-c")) {
      is_value = !is_value && (word == "-X" || word == "-W");
      continue;
    }
    std::error_code ignored;
    if (word.starts_with("-") || std::filesystem::exists(word, ignored)) return;
    throw InputError(Problem{.file = word, .message = "there is no such script", .hint = "paths are taken from here"});
  }
}

std::vector<std::int64_t> ranks_of(const DryRunRequest& requested, const DryWorld& world) {
  std::vector<std::int64_t> ranks = requested.ranks;
  if (ranks.empty()) ranks = {0, world.ranks - 1};
  std::ranges::sort(ranks);
  const auto same = std::ranges::unique(ranks);
  ranks.erase(same.begin(), same.end());
  for (const std::int64_t rank : ranks)
    if (rank < 0 || rank >= world.ranks)
      refuse("--rank", fmt::format("there is no rank {} among {}", rank, world.ranks),
             fmt::format("0 to {}, or more ranks by --world-size", world.ranks - 1));
  return ranks;
}

using Variables = std::map<std::string, std::string>;

void put_before(Variables& variables, const std::string& name, const std::string& value) {
  std::string& now = variables[name];
  now = now.empty() ? value : value + ':' + now;
}

// What a launcher tells each process.
void add_rank(Variables& variables, const LaunchCommand& launch, const DryWorld& world, std::int64_t rank) {
  variables["RANK"] = fmt::format("{}", rank);
  variables["WORLD_SIZE"] = fmt::format("{}", world.ranks);
  variables["LOCAL_RANK"] = fmt::format("{}", rank % world.per_node);
  variables["LOCAL_WORLD_SIZE"] = fmt::format("{}", world.per_node);
  variables.try_emplace("MASTER_ADDR", "localhost");
  variables.try_emplace("MASTER_PORT", "29500");
  if (launch.launcher == StartedBy::DeepSpeed) {
    variables["CROSS_RANK"] = fmt::format("{}", rank / world.per_node);
    variables["CROSS_SIZE"] = fmt::format("{}", (world.ranks + world.per_node - 1) / world.per_node);
    variables["LOCAL_SIZE"] = variables["LOCAL_WORLD_SIZE"];
    return;
  }
  variables["GROUP_RANK"] = fmt::format("{}", rank / world.per_node);
  variables["GROUP_WORLD_SIZE"] = fmt::format("{}", (world.ranks + world.per_node - 1) / world.per_node);
  variables["ROLE_RANK"] = variables["RANK"];
  variables["ROLE_WORLD_SIZE"] = variables["WORLD_SIZE"];
  variables["ROLE_NAME"] = "default";
  variables["TORCHELASTIC_RUN_ID"] = "none";
  variables["TORCHELASTIC_RESTART_COUNT"] = variables["TORCHELASTIC_MAX_RESTARTS"] = "0";
  if (world.per_node > 1) variables.try_emplace("OMP_NUM_THREADS", "1");
}

// How many devices the script sees.
std::int64_t devices_of(const LaunchCommand& launch, const DryWorld& world) {
  for (const auto& [name, value] : launch.environment)
    if (name == "CUDA_VISIBLE_DEVICES") return 1 + std::ranges::count(value, ',');
  return world.per_node;
}

class DryRuns {
 public:
  DryRuns(const DryRunRequest& requested, const Cluster& cluster, const TemporaryFolder& folder)
      : requested_(requested), cluster_(cluster), folder_(folder), library_(null_device()) {
    answer_.command = requested.command;
    answer_.launch = launch_command(requested.command);
    answer_.cluster = cluster;
    answer_.steps_requested = requested.steps;
    python_ = python_of(answer_.launch);
    if (answer_.launch.launcher == StartedBy::Accelerate) ask_accelerate();
    refuse_missing_script(answer_.launch);
    answer_.world = world_of(answer_.launch, requested, cluster);
    read_nccl_variables();
    std::filesystem::create_symlink(library_, folder_.path() / "libcuda.so.1");  // Triton looks for it by that name
  }

  DryRunAnswer run() {
    for (const std::int64_t rank : ranks_of(requested_, answer_.world)) {
      answer_.ranks.push_back(run_rank(rank));
      // What one rank's script cannot do, no other one's can.
      if (answer_.verdict() == DryVerdict::ScriptFailed) break;
    }
    return std::move(answer_);
  }

 private:
  DryRank run_rank(std::int64_t rank) {
    DryRank its;
    const Bytes capacity = cluster_.device.capacity;
    its.limit = capacity - sum_of(world_communicator_rows(cluster_, settings_, answer_.world)).high;
    its.report = run_under(rank, its.limit);
    its.rows = driver_rows(cluster_, settings_, its.report, answer_.world);
    // Its groups may take more than was thought before they were known: then the allocator has less.
    const Bytes left = capacity - sum_of(its.rows).high;
    if (!its.ran_out() && its.report.peak().reserved > left && left > Bytes{}) {
      its.limit = left;
      its.report = run_under(rank, left);
    }
    if (its.ran_out()) {
      its.need = run_under(rank, Bytes{});
      its.rows = driver_rows(cluster_, settings_, *its.need, answer_.world);
    }
    return its;
  }

  RankReport run_under(std::int64_t rank, Bytes limit) {
    const std::filesystem::path folder = folder_.path() / (limit > Bytes{} ? "limited" : "unlimited");
    std::filesystem::create_directories(folder);
    const std::filesystem::path report = folder / fmt::format("rank-{}.json", rank);
    std::filesystem::remove(report);
    Child child{{python_}, variables(rank, limit, folder), {}, requested_.time_limit};
    child.words.insert(child.words.end(), answer_.launch.arguments.begin(), answer_.launch.arguments.end());
    if (answer_.launch.local_rank_argument)
      add_local_rank(child.words, fmt::format("{}={}", answer_.launch.local_rank_name, rank % answer_.world.per_node));
    if (!requested_.show_output) child.output = folder / fmt::format("rank-{}.log", rank);
    std::filesystem::remove(child.output);
    if (!requested_.loudness.quiet && isatty(STDERR_FILENO) != 0)
      complain(fmt::format("rank {} of {}{} …", rank, answer_.world.ranks, limit > Bytes{} ? "" : ", without a limit"));
    const ChildEnd end = run_child(child, [this] { folder_.remove(); });
    if (end.took_too_long) {
      tell_output(child.output);
      throw std::runtime_error(
          fmt::format("rank {} took longer than {} s (--timeout)", rank, requested_.time_limit.count()));
    }
    std::error_code ignored;
    if (!std::filesystem::exists(report, ignored)) {
      tell_output(child.output);
      throw std::runtime_error(
          fmt::format("rank {} ended with status {} and left no report: {}", rank, end.status,
                      end.status >= 128 ? "it crashed" : "is it Python, and does it read PYTHONPATH?"));
    }
    RankReport read = read_rank_report(report);
    if (!read.exit_status && end.status != 0) read.exit_status = end.status;
    if (read.outcome == DryOutcome::Error || read.outcome == DryOutcome::Refused || read.steps.empty())
      tell_output(child.output);
    return read;
  }

  // Behind the script or the module, as launchers do.
  static void add_local_rank(std::vector<std::string>& words, const std::string& argument) {
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i] == "-X" || words[i] == "-W") ++i;
      if (words[i].starts_with("-") && words[i] != "-m") continue;
      if (words[i] == "-m") ++i;
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(std::min(i + 1, words.size())), argument);
      return;
    }
  }

  void add_device(Variables& out, std::int64_t devices) const {
    put_before(out, "LD_PRELOAD", library_.string());
    out["NULL_CUDA_CAPABILITY"] = fmt::format("{}", cluster_.device.compute_capability);
    out["NULL_CUDA_MULTIPROCESSORS"] = fmt::format("{}", cluster_.device.multiprocessors);
    out["NULL_CUDA_NAME"] = cluster_.device.name;
    out["NULL_CUDA_DEVICES"] = fmt::format("{}", devices);
    out["NULL_CUDA_MEMORY"] = fmt::format("{}", cluster_.device.capacity.count());
  }

  // accelerate's own code reads its flags and its configuration.
  void ask_accelerate() {
    const std::filesystem::path said = folder_.path() / "accelerate.json", log = folder_.path() / "accelerate.log";
    const std::filesystem::path script =
        data_root() / "dry_run" / "inside" / "tidemark_dry_run" / "accelerate_launch.py";
    Child child{{python_, script.string(), said.string()}, own_environment(), log, requested_.time_limit};
    const std::vector<std::string>& flags = answer_.launch.launcher_arguments;
    child.words.insert(child.words.end(), flags.begin(), flags.end());
    child.environment.erase("CUDA_VISIBLE_DEVICES");
    for (const auto& [name, value] : answer_.launch.environment) child.environment[name] = value;
    add_device(child.environment, cluster_.node.devices);
    const ChildEnd end = run_child(child, [this] { folder_.remove(); });
    std::error_code ignored;
    if (end.status != 0 || !std::filesystem::exists(said, ignored)) {
      tell_output(log);
      throw InputError(Problem{.file = "the command",
                               .message = fmt::format("accelerate launch does not take it (status {})", end.status),
                               .hint = "see its output above"});
    }
    take_accelerate(answer_.launch, read_text(said));
  }

  Variables variables(std::int64_t rank, Bytes limit, const std::filesystem::path& folder) const {
    const LaunchCommand& launch = answer_.launch;
    Variables out = own_environment();
    out.erase("CUDA_VISIBLE_DEVICES");  // of this machine, whose devices nobody opens
    for (const auto& [name, value] : launch.environment) out[name] = value;
    if (launch.tells_ranks || requested_.world_size) add_rank(out, launch, answer_.world, rank);
    out["TIDEMARK_DRY_RUN"] = folder.string();
    out["TIDEMARK_DRY_RUN_PYTHONPATH"] = out["PYTHONPATH"];
    out["TIDEMARK_DRY_RUN_STEPS"] = fmt::format("{}", requested_.steps);
    out["TIDEMARK_DRY_RUN_ROUTING"] = requested_.routing;
    if (requested_.snapshots) out["TIDEMARK_DRY_RUN_SNAPSHOT"] = "1";
    put_before(out, "PYTHONPATH", (data_root() / "dry_run" / "inside").string());
    out["TRITON_LIBCUDA_PATH"] = folder_.path().string();
    // The allocator would ask NVML how handles could be shared.
    out["TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC"] = "0";
    add_device(out, devices_of(launch, answer_.world));
    if (limit > Bytes{})
      out["NULL_CUDA_LIMIT"] = fmt::format("{}", limit.count());
    else  // expandable segments take addresses for what a device has, and no more
      out["NULL_CUDA_MEMORY"] = fmt::format("{}", 8 * cluster_.device.capacity.count());
    out["NULL_CUDA_KEEP"] = fmt::format("{}", kept_copy);
    out["NULL_CUDA_GUARD"] = "1";
    return out;
  }

  static void tell_output(const std::filesystem::path& file) {
    if (file.empty()) return;
    std::ifstream in(file, std::ios::binary);
    std::ostringstream all;
    all << in.rdbuf();
    std::string text = std::move(all).str();
    if (text.size() > shown_output) {
      const std::size_t from = text.find('\n', text.size() - shown_output);
      text = "… the last of what the script printed:\n" + text.substr(from == std::string::npos ? 0 : from + 1);
    }
    while (text.ends_with('\n')) text.pop_back();
    if (!text.empty()) complain(text);
  }

  // Variables of NCCL that change what it takes.
  void read_nccl_variables() {
    Variables all = own_environment();
    for (const auto& [name, value] : answer_.launch.environment) all[name] = value;
    for (const auto& [name, value] : all) {
      if (!is_nccl_variable(name) || is_harmless_nccl_variable(name)) continue;
      const TomlTable nowhere;
      Problems problems("the environment");
      TomlReader table(&nowhere, {}, "", problems);
      NcclSettings with_it = settings_;
      read_nccl_variable(table, name, value, with_it);
      if (!problems.any())
        settings_ = with_it;
      else
        answer_.not_modelled.push_back(fmt::format("{}={}: NCCL's own default is taken", name, value));
    }
  }

  const DryRunRequest& requested_;
  const Cluster& cluster_;
  const TemporaryFolder& folder_;
  NcclSettings settings_;
  std::filesystem::path library_;
  std::string python_;
  DryRunAnswer answer_;
};

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "tidemark-dry-run-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() { remove(); }

void TemporaryFolder::remove() const noexcept {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

DryWorld world_of(const LaunchCommand& launch, const DryRunRequest& requested, const Cluster& cluster) {
  DryWorld world;
  world.per_node = launch.per_node.count.value_or(cluster.node.devices);
  world.ranks = world.per_node * launch.nodes;
  if (requested.world_size) {
    world.ranks = *requested.world_size;
    if (launch.launcher == StartedBy::Python) world.per_node = cluster.node.devices;
    world.per_node = std::min(world.per_node, world.ranks);
  }
  return world;
}

DryRunAnswer run_dry(const DryRunRequest& requested, const Cluster& cluster, const TemporaryFolder& folder) {
  return DryRuns(requested, cluster, folder).run();
}

std::filesystem::path snapshot_file(const TemporaryFolder& folder, const DryRank& rank) {
  return folder.path() / (rank.need ? "unlimited" : "limited") / fmt::format("rank-{}.pickle", rank.report.rank);
}

}  // namespace tidemark::cli
