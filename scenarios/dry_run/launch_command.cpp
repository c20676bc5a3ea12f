#include "scenarios/dry_run/launch_command.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

[[noreturn]] void refuse_command(std::string message, std::string hint) {
  throw InputError(Problem{.file = "the command", .message = std::move(message), .hint = std::move(hint)});
}

// A flag of a launcher as launchers call it: "--nproc-per-node" of "--nproc_per_node=8". One dash, or two.
std::string flag_name(std::string_view word) {
  std::string name(word.substr(0, word.find('=')));
  std::ranges::replace(name, '_', '-');
  return name;
}

// What a launcher takes: flags with a value, and flags that are one. From torch/distributed/run.py and launch.py (2.5
// to 2.15) and deepspeed/launcher/runner.py (0.14 to 0.19).
constexpr std::array torchrun_values{"--nnodes",
                                     "--nproc-per-node",
                                     "--rdzv-backend",
                                     "--rdzv-endpoint",
                                     "--rdzv-id",
                                     "--rdzv-conf",
                                     "--max-restarts",
                                     "--monitor-interval",
                                     "--start-method",
                                     "--event-log-handler",
                                     "--role",
                                     "--log-dir",
                                     "-r",
                                     "--redirects",
                                     "-t",
                                     "--tee",
                                     "--local-ranks-filter",
                                     "--node-rank",
                                     "--master-addr",
                                     "--master-port",
                                     "--local-addr",
                                     "--logs-specs",
                                     "--numa-binding",
                                     "--signals-to-handle",
                                     "--virtual-local-rank",
                                     "--duplicate-stdout-filters",
                                     "--duplicate-stderr-filters",
                                     "--shutdown-timeout"};
constexpr std::array torchrun_switches{"--standalone", "--use-env", "--run-path"};
constexpr std::array deepspeed_values{"-H",
                                      "--hostfile",
                                      "-i",
                                      "--include",
                                      "-e",
                                      "--exclude",
                                      "--num-nodes",
                                      "--min-elastic-nodes",
                                      "--max-elastic-nodes",
                                      "--num-gpus",
                                      "--master-port",
                                      "--master-addr",
                                      "--node-rank",
                                      "--launcher",
                                      "--launcher-args",
                                      "--autotuning",
                                      "--enable-each-rank-log",
                                      "--bind-core-list",
                                      "--ssh-port",
                                      "--venv-script"};
constexpr std::array deepspeed_switches{"--no-ssh-check",       "--no-ssh",     "--save-pid", "--elastic-training",
                                        "--bind-cores-to-rank", "--force-multi"};

template <class Names>
bool is_one_of(std::string_view word, const Names& names) {
  return std::ranges::find(names, word) != std::end(names);
}

bool is_assignment(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  return std::ranges::all_of(word.substr(0, equals), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::int64_t count_of(const std::string& flag, std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > 1'000'000)
    refuse_command(fmt::format("{} {} is not a number of them", flag, in_quotes(text)), "a whole number from 1 on");
  return value;
}

bool is_python(std::string_view word) {
  const std::string name = std::filesystem::path(word).filename().string();
  return name.starts_with("python") || name.starts_with("pypy");
}

// Words of a command, taken one after another.
class Words {
 public:
  explicit Words(std::span<const std::string> words) : words_(words) {}
  [[nodiscard]] bool any() const { return !words_.empty(); }
  [[nodiscard]] const std::string& first() const { return words_.front(); }
  std::string take() {
    std::string word = words_.front();
    words_ = words_.subspan(1);
    return word;
  }
  /// The value of a flag: behind its '=', or the next word.
  std::string value_of(const std::string& word) {
    if (const std::size_t equals = word.find('='); equals != std::string::npos) return word.substr(equals + 1);
    if (!any()) refuse_command(fmt::format("ends with {}", in_quotes(word)), "give it a value");
    return take();
  }
  [[nodiscard]] std::vector<std::string> rest() const { return {words_.begin(), words_.end()}; }

 private:
  std::span<const std::string> words_;
};

// The script or the module of a launcher, and what follows.
void take_script(LaunchCommand& command, Words& words, bool module, const std::string& launcher) {
  if (!words.any() || words.first().empty())
    refuse_command(fmt::format("{} is given no script", launcher),
                   fmt::format("{} train.py, or {} -m package.train", launcher, launcher));
  if (module) command.arguments.emplace_back("-m");
  for (std::string& word : words.rest()) command.arguments.push_back(std::move(word));
}

[[noreturn]] void refuse_flag(const std::string& launcher, const std::string& word) {
  refuse_command(fmt::format("{} has no flag {}", launcher, in_quotes(word)),
                 "the launcher's flags come first, then the script, then the script's own");
}

void read_torchrun(LaunchCommand& command, Words& words, const std::string& launcher) {
  bool module = false, environment_only = false;
  while (words.any() && words.first().starts_with("-")) {
    const std::string word = words.take(), flag = flag_name(word);
    if (flag == "--") break;
    if (flag == "-m" || flag == "--module") {
      module = true;
    } else if (flag == "--no-python") {
      refuse_command("--no-python starts a program that is not Python", "name the Python script");
    } else if (flag == "--nnodes") {
      const std::string value = words.value_of(word);
      command.nodes = count_of(flag, std::string_view(value).substr(value.rfind(':') + 1));  // elastic: the most
    } else if (flag == "--nproc-per-node") {
      const std::string value = words.value_of(word);
      command.per_node.count.reset();
      if (value != "gpu" && value != "auto" && value != "cpu") command.per_node.count = count_of(flag, value);
    } else if (is_one_of(flag, torchrun_values)) {
      static_cast<void>(words.value_of(word));
    } else if (is_one_of(flag, torchrun_switches)) {
      environment_only = environment_only || flag == "--use-env";
    } else {
      refuse_flag(launcher, word);
    }
  }
  command.local_rank_argument = command.launcher == StartedBy::TorchLaunch && !environment_only;
  command.local_rank_name = "--local-rank";
  take_script(command, words, module, launcher);
}

void read_deepspeed(LaunchCommand& command, Words& words) {
  bool module = false;
  command.per_node.count.reset();
  command.local_rank_argument = true;
  while (words.any() && words.first().starts_with("-")) {
    const std::string word = words.take(), flag = flag_name(word);
    if (flag == "--module") {
      module = true;
    } else if (flag == "--no-python") {
      refuse_command("--no_python starts a program that is not Python", "name the Python script");
    } else if (flag == "--no-local-rank") {
      command.local_rank_argument = false;
    } else if (flag == "--num-nodes") {
      command.nodes = count_of(flag, words.value_of(word));
    } else if (flag == "--num-gpus" || flag == "--num-accelerators") {
      command.per_node.count = count_of(flag, words.value_of(word));
    } else if (flag == "-i" || flag == "--include") {
      // "localhost:0,1,2,3", or hosts with "@" between.
      const std::string value = words.value_of(word);
      command.nodes = 1 + std::ranges::count(value, '@');
      const std::size_t colon = value.find(':');
      const std::string devices =
          colon == std::string::npos ? "" : value.substr(colon + 1, value.find('@') - colon - 1);
      if (!devices.empty()) command.per_node.count = 1 + std::ranges::count(devices, ',');
    } else if (is_one_of(flag, deepspeed_values)) {
      static_cast<void>(words.value_of(word));
    } else if (!is_one_of(flag, deepspeed_switches)) {
      refuse_flag("deepspeed", word);
    }
  }
  take_script(command, words, module, "deepspeed");
}

// Flags of Python itself, up to its script. `-m torch.distributed.run` is a launcher.
void read_python(LaunchCommand& command, Words& words) {
  while (words.any() && words.first().starts_with("-")) {
    const std::string word = words.take();
    if (word == "-m") {
      if (!words.any()) refuse_command("ends with -m", "name a module");
      const std::string module = words.take();
      if (module == "torch.distributed.run" || module == "torch.distributed.launch") {
        command.launcher = module.ends_with("run") ? StartedBy::Torchrun : StartedBy::TorchLaunch;
        return read_torchrun(command, words, "python -m " + module);
      }
      if (module == "deepspeed.launcher.runner" || module == "deepspeed") {
        command.launcher = StartedBy::DeepSpeed;
        return read_deepspeed(command, words);
      }
      if (module == "accelerate.commands.launch") {
        command.launcher = StartedBy::Accelerate;
        command.launcher_arguments = words.rest();
        return;
      }
      command.arguments.insert(command.arguments.end(), {"-m", module});
      for (std::string& rest : words.rest()) command.arguments.push_back(std::move(rest));
      return;
    }
    if (!word.starts_with("--") && word.find_first_of("IES") != std::string::npos && word.find_first_of("XWc") != 1)
      refuse_command(fmt::format("{} keeps Python from reading its environment or its site", in_quotes(word)),
                     "leave it out: Tidemark observes the training through it");
    command.arguments.push_back(word);
    if (word == "-X" || word == "-W" || word == "--check-hash-based-pycs")
      command.arguments.push_back(words.value_of(word));
    if (word == "-c") break;
  }
  if (!words.any()) refuse_command("starts Python without a script", "python train.py, or python -m package.train");
  for (std::string& word : words.rest()) command.arguments.push_back(std::move(word));
}

}  // namespace

LaunchCommand launch_command(const std::vector<std::string>& given) {
  LaunchCommand command;
  Words words{given};
  if (words.any() && words.first() == "env") words.take();
  while (words.any() && is_assignment(words.first())) {
    const std::string word = words.take();
    const std::size_t equals = word.find('=');
    command.environment.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  if (!words.any() || words.first().empty())
    refuse_command("is empty", "tidemark dry-run -- torchrun --nproc-per-node 8 train.py");
  const std::string program = words.take(), name = std::filesystem::path(program).filename().string();
  if (is_python(program)) {
    command.python = program;
    read_python(command, words);
    command.tells_ranks = command.launcher != StartedBy::Python;
  } else if (name == "torchrun") {
    command.launcher = StartedBy::Torchrun;
    command.launcher_script = program;
    read_torchrun(command, words, name);
  } else if (name == "deepspeed" || name == "ds") {
    command.launcher = StartedBy::DeepSpeed;
    command.launcher_script = program;
    read_deepspeed(command, words);
  } else if (name == "accelerate" || name == "accelerate-launch") {
    command.launcher = StartedBy::Accelerate;
    command.launcher_script = program;
    if (name == "accelerate" && (!words.any() || words.take() != "launch"))
      refuse_command("accelerate starts a training with its launch command", "accelerate launch train.py");
    command.launcher_arguments = words.rest();
  } else if (name.ends_with(".py")) {
    refuse_command(fmt::format("{} is a script", in_quotes(program)), fmt::format("python {}", program));
  } else {
    command.tells_ranks = false;
    command.launcher_script = program;  // an entry point that pip installed, such as litgpt: itself a Python script
    command.arguments.push_back(program);
    for (std::string& word : words.rest()) command.arguments.push_back(std::move(word));
  }
  return command;
}

void take_accelerate(LaunchCommand& command, const std::string& said) {
  try {
    const nlohmann::json json = nlohmann::json::parse(said);
    for (const auto& [name, value] : json.at("environment").items())
      command.environment.emplace_back(name, value.get<std::string>());
    command.nodes = std::max<std::int64_t>(json.at("nodes").get<std::int64_t>(), 1);
    const std::int64_t ranks = std::max<std::int64_t>(json.at("ranks").get<std::int64_t>(), 1);
    command.per_node.count = std::max<std::int64_t>(ranks / command.nodes, 1);
    command.tells_ranks = json.at("tells_ranks").get<bool>();
    if (json.at("module").get<bool>()) command.arguments.emplace_back("-m");
    command.arguments.push_back(json.at("script").get<std::string>());
    for (std::string& word : json.at("arguments").get<std::vector<std::string>>())
      command.arguments.push_back(std::move(word));
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(fmt::format("what accelerate launch would start cannot be read: {}", error.what()));
  }
}

std::optional<std::string> interpreter_in(const std::string& begin_of_script) {
  const auto line_from = [&](std::size_t from) {
    return begin_of_script.substr(from, begin_of_script.find('\n', from) - from);
  };
  const std::string first = line_from(0);
  if (!first.starts_with("#!")) return std::nullopt;
  std::string line = first.substr(2);
  if (const std::size_t next = begin_of_script.find('\n'); next != std::string::npos && line.ends_with("/sh")) {
    // '''exec' "/a long/path/python" "$0" "$@"
    const std::string second = line_from(next + 1);
    constexpr std::string_view begins = "'''exec' ";
    if (!second.starts_with(begins)) return std::nullopt;
    line = second.substr(begins.size());
    if (line.starts_with('"')) line = line.substr(1, line.find('"', 1) - 1);
    return is_python(line) ? std::optional(line) : std::nullopt;
  }
  line.erase(0, line.find_first_not_of(' '));
  const std::size_t space = line.find(' ');
  std::string program = line.substr(0, space);
  if (program.ends_with("/env") && space != std::string::npos) {
    program = line.substr(line.find_first_not_of(' ', space));
    program = program.substr(0, program.find(' '));
  }
  return is_python(program) ? std::optional(program) : std::nullopt;
}

std::string launcher_text(StartedBy launcher) {
  switch (launcher) {
    case StartedBy::Python:
      return "python";
    case StartedBy::Torchrun:
      return "torchrun";
    case StartedBy::TorchLaunch:
      return "torch.distributed.launch";
    case StartedBy::DeepSpeed:
      return "deepspeed";
    case StartedBy::Accelerate:
      return "accelerate launch";
  }
  return {};
}

}  // namespace tidemark::scenarios
