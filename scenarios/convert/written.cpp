#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/read_again.hpp"
#include "scenarios/formats/shell_quoted.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/scenario/model_names.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

struct Machines {
  std::int32_t nodes = 1, each = 1;
};

Machines machines_of(const Scenario& s) {
  const std::int32_t devices = std::max(s.cluster.node.devices, 1);
  if (s.gpus <= devices) return {1, s.gpus};
  if (s.gpus % devices == 0) return {s.gpus / devices, devices};
  return {s.gpus, 1};
}

std::string program_of(Dialect dialect, const Model& model) {
  switch (dialect) {
    case Dialect::Megatron:
      return model.hybrid() ? "pretrain_mamba.py" : "pretrain_gpt.py";
    case Dialect::TorchTitan:
      return "-m torchtitan.train --job.config_file train.toml";
    case Dialect::DeepSpeed:
      return "train.py --deepspeed ds_config.json";
    case Dialect::Accelerate:
      return "train.py";
    case Dialect::TrainingArguments:
      return "train.py training_arguments.json";
    case Dialect::Scenario:
      break;
  }
  return {};
}

/// The head of a script, and what comes before the program and its arguments, and behind them.
struct Start {
  std::string head, line, end = {};
};

constexpr std::string_view first_host = "$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)";

// One launcher on each node, whatever starts those: torchrun finds the others by its rendezvous, and tells ranks who
// they are by the variables that frameworks read, which neither srun nor mpirun sets.
Start start_of(const Scenario& s, Dialect dialect, Launcher launcher) {
  const auto [nodes, each] = machines_of(s);
  const bool slurm = launcher == Launcher::Sbatch;
  std::string run = fmt::format("torchrun --nnodes {} --nproc-per-node {}", nodes, each);
  if (nodes > 1)
    run += fmt::format(" --rdzv-backend c10d --rdzv-endpoint {}:29500",
                       slurm ? fmt::format("\"{}\"", first_host) : "HOST");
  Start made{"#!/bin/bash\n", run};
  if (dialect == Dialect::Accelerate) {
    made.line = "accelerate launch --config_file accelerate.yaml";
    // Its launcher takes a node's number from its file unless it is told.
    if (nodes > 1)
      made.line += fmt::format(" --machine_rank {} --main_process_ip {} --main_process_port 29500",
                               slurm                          ? "\\$SLURM_NODEID"
                               : launcher == Launcher::Mpirun ? "\\$OMPI_COMM_WORLD_RANK"
                                                              : "RANK",
                               slurm ? first_host : "HOST");
    if (nodes > 1 && s.runtime.name == "deepspeed") made.line += " --deepspeed_multinode_launcher standard";
    if (nodes > 1 && launcher != Launcher::Torchrun) made.line = "bash -c \"" + made.line, made.end = "\"";
  }
  if (launcher == Launcher::Mpirun) made.line = fmt::format("mpirun -np {} --map-by ppr:1:node {}", nodes, made.line);
  if (slurm) made.line = "srun " + made.line;
  return made;
}

// What sbatch is told: whole nodes with all their cores, where they are.
std::vector<std::string> batch_options(const Scenario& s) {
  const auto [nodes, each] = machines_of(s);
  std::vector<std::string> options{fmt::format("--nodes={}", nodes), "--ntasks-per-node=1",
                                   fmt::format("--gpus-per-node={}", each)};
  if (each == s.cluster.node.devices) options.emplace_back("--exclusive");
  return options;
}

// The scenario's variables, and `others` that it says nothing of.
std::string exports_of(const Scenario& s, std::map<std::string, std::string> others = {}) {
  std::string text;
  const Json runtime = Json::parse(scenario_json(s, -1)).at("runtime");
  for (const auto& [name, value] : runtime.at("environment").items()) others[name] = value.get<std::string>();
  for (const auto& [name, value] : others) text += fmt::format("export {}={}\n", name, shell_quoted(value));
  if (!s.runtime.allocator.empty())
    text += fmt::format("export PYTORCH_CUDA_ALLOC_CONF={}\n", shell_quoted(s.runtime.allocator));
  return text;
}

// The model's config.json, where it can be read.
std::string config_of(const std::string& model, const std::filesystem::path& data_root) {
  const std::filesystem::path shipped = data_root / model;
  if (!model.empty() && std::filesystem::is_regular_file(shipped)) return read_text(shipped);
  if (!model.empty() && std::filesystem::is_regular_file(model)) return read_text(model);
  const std::optional<NamedConfig> named = named_config(model, data_root);
  return named ? named->text : std::string();
}

// What the script says that the scenario does not: the original's, else the model's own.
std::vector<std::vector<std::string>> arguments_beside(const Scenario& s, const std::string& config,
                                                       const KeptArguments& kept) {
  std::vector<std::vector<std::string>> all = megatron_arguments(s);
  const auto add = [&](const std::vector<std::string>& argument) {
    const auto same = std::ranges::find_if(all, [&](const auto& its) { return its.front() == argument.front(); });
    if (same == all.end()) all.push_back(argument);
  };
  for (const std::vector<std::string>& argument : kept.flags) {
    // The original's reach of positions; it is at least the sequence's.
    if (argument.front() == "--max-position-embeddings" && s.model.positions != Positions::Learned)
      std::erase_if(all, [&](const auto& its) { return its.front() == argument.front(); });
    add(argument);
  }
  if (!config.empty() && !kept.describes_model)
    for (const std::vector<std::string>& argument : megatron_arguments_of(config)) add(argument);
  return all;
}

std::string megatron_script(const Scenario& s, Launcher launcher, const std::string& config,
                            const KeptArguments& kept) {
  const Start start = start_of(s, Dialect::Megatron, launcher);
  std::string text = start.head;
  if (launcher == Launcher::Sbatch)
    for (const std::string& option : batch_options(s)) text += fmt::format("#SBATCH {}\n", option);
  // arguments.py asserts it where ranks cut a layer, but for devices since Blackwell.
  constexpr std::int32_t blackwell = 100;
  constexpr const char* connections = "CUDA_DEVICE_MAX_CONNECTIONS";
  std::map<std::string, std::string> variables = kept.environment;
  if ((s.layout.tensor > 1 || s.layout.context > 1) && s.cluster.device.compute_capability < blackwell)
    variables.try_emplace(connections, "1");
  text += exports_of(s, std::move(variables)) + "\n" + start.line + " " + program_of(Dialect::Megatron, s.model);
  for (const std::vector<std::string>& argument : arguments_beside(s, config, kept)) {
    text += " \\\n ";
    for (const std::string& word : argument) text += ' ' + shell_quoted(word);
  }
  return text + '\n';
}

// What Megatron-LM does not start without and no scenario has (megatron/training: arguments.py, tokenizer,
// get_optimizer_param_scheduler), unless the original script says it.
void say_what_starts_it(const KeptArguments& kept, std::vector<Remark>& remarks) {
  const auto says = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::any_of(kept.flags,
                               [&](const auto& flag) { return std::ranges::find(names, flag.front()) != names.end(); });
  };
  std::vector<std::string_view> missing;
  if (!says({"--data-path", "--mock-data", "--train-data-path", "--data-args-path", "--per-split-data-args-path"}))
    missing.emplace_back("--data-path");
  if (!says({"--tokenizer-type", "--tokenizer-model", "--vocab-file"})) missing.emplace_back("--tokenizer-type");
  if (!says({"--lr"})) missing.emplace_back("--lr");
  if (!says({"--train-iters", "--train-samples"})) missing.emplace_back("--train-iters");
  if (!missing.empty())
    remarks.push_back({RemarkKind::Beside,
                       {},
                       {},
                       fmt::format("{}", fmt::join(missing, ", ")),
                       "Megatron-LM does not start without, and a scenario does not say it"});
}

std::string file_of(const Scenario& s, Dialect dialect, Launcher launcher, const std::string& config,
                    const KeptArguments& kept) {
  switch (dialect) {
    case Dialect::Megatron:
      return megatron_script(s, launcher, config, kept);
    case Dialect::TorchTitan:
      return toml_text(titan_config(s));
    case Dialect::DeepSpeed:
      return deepspeed_config(s);
    case Dialect::Accelerate:
      return accelerate_config(s);
    case Dialect::TrainingArguments:
      return training_arguments(s);
    case Dialect::Scenario:
      break;
  }
  return {};
}

}  // namespace

Written written(const Scenario& scenario, Dialect dialect, Launcher launcher, const std::string& model,
                const std::string& cluster, const std::filesystem::path& data_root, const KeptArguments& kept) {
  Written made;
  made.text = file_of(scenario, dialect, launcher,
                      dialect == Dialect::Megatron ? config_of(model, data_root) : std::string(), kept);
  if (dialect != Dialect::Megatron) {
    std::string exports = exports_of(scenario);
    std::ranges::replace(exports, '\n', ' ');
    for (std::size_t at = exports.find("export "); at != std::string::npos; at = exports.find("export "))
      exports.erase(at, 7);
    const Start start = start_of(scenario, dialect, launcher);
    std::string line = start.line + ' ' + program_of(dialect, scenario.model) + start.end;
    if (launcher == Launcher::Sbatch)
      line = fmt::format("sbatch {} --wrap {}", fmt::join(batch_options(scenario), " "), shell_quoted(line));
    made.launch = exports + line;
  }
  made.remarks = differences(scenario, dialect, made.text, {model, cluster, data_root});
  if (dialect == Dialect::Megatron) say_what_starts_it(kept, made.remarks);
  return made;
}

}  // namespace tidemark::scenarios
