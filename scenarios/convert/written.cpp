#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/read_again.hpp"
#include "scenarios/io/scenario_json.hpp"
#include "scenarios/io/toml_text.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

// A word as a shell takes it.
std::string quoted(const std::string& word) {
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+./:,@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string made = "'";
  for (const char c : word) made += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return made + "'";
}

struct Machines {
  std::int32_t nodes = 1, each = 1;
};

Machines machines_of(const Scenario& s) {
  const std::int32_t devices = std::max(s.cluster.node.devices, 1);
  if (s.gpus <= devices) return {1, s.gpus};
  if (s.gpus % devices == 0) return {s.gpus / devices, devices};
  return {s.gpus, 1};
}

std::string program_of(Dialect dialect) {
  switch (dialect) {
    case Dialect::Megatron:
      return "pretrain_gpt.py";
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

/// The head of a batch script, and what comes before the program.
struct Start {
  std::string head, line;
};

Start start_of(const Scenario& s, Dialect dialect, Launcher launcher) {
  const auto [nodes, each] = machines_of(s);
  std::string run = fmt::format("torchrun --nnodes {} --nproc-per-node {}", nodes, each);
  if (dialect == Dialect::Accelerate) run = "accelerate launch --config_file accelerate.yaml";
  if (nodes > 1 && launcher != Launcher::Sbatch && dialect != Dialect::Accelerate)
    run += " --rdzv-backend c10d --rdzv-endpoint HOST:29500";
  switch (launcher) {
    case Launcher::Torchrun:
      return {"#!/bin/bash\n", run};
    case Launcher::Sbatch:
      return {fmt::format("#!/bin/bash\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node={}\n",
                          nodes, each),
              nodes > 1 && dialect != Dialect::Accelerate
                  ? fmt::format("srun {} --rdzv-backend c10d --rdzv-endpoint \"$(scontrol show hostnames "
                                "\"$SLURM_JOB_NODELIST\" | head -n 1)\":29500",
                                run)
                  : "srun " + run};
    case Launcher::Mpirun:
      return {"#!/bin/bash\n", fmt::format("mpirun -np {} --map-by ppr:{}:node python", s.gpus, each)};
  }
  return {};
}

std::string exports_of(const Scenario& s) {
  std::string text;
  const Json runtime = Json::parse(scenario_json(s, -1)).at("runtime");
  for (const auto& [name, value] : runtime.at("environment").items())
    text += fmt::format("export {}={}\n", name, quoted(value.get<std::string>()));
  if (!s.runtime.allocator.empty())
    text += fmt::format("export PYTORCH_CUDA_ALLOC_CONF={}\n", quoted(s.runtime.allocator));
  return text;
}

std::string megatron_script(const Scenario& s, Launcher launcher) {
  const Start start = start_of(s, Dialect::Megatron, launcher);
  std::string text = start.head + exports_of(s) + "\n" + start.line + " " + program_of(Dialect::Megatron);
  for (const std::vector<std::string>& argument : megatron_arguments(s)) {
    text += " \\\n ";
    for (const std::string& word : argument) text += ' ' + quoted(word);
  }
  return text + '\n';
}

std::string file_of(const Scenario& s, Dialect dialect, Launcher launcher) {
  switch (dialect) {
    case Dialect::Megatron:
      return megatron_script(s, launcher);
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
                const std::string& cluster, const std::filesystem::path& data_root) {
  Written made;
  made.text = file_of(scenario, dialect, launcher);
  if (dialect != Dialect::Megatron) {
    std::string exports = exports_of(scenario);
    std::ranges::replace(exports, '\n', ' ');
    for (std::size_t at = exports.find("export "); at != std::string::npos; at = exports.find("export "))
      exports.erase(at, 7);
    made.launch = exports + start_of(scenario, dialect, launcher).line + ' ' + program_of(dialect);
  }
  made.remarks = differences(scenario, dialect, made.text, {model, cluster, data_root});
  return made;
}

}  // namespace tidemark::scenarios
