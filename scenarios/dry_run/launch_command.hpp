#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/namespace.hpp"

// The command with which a user starts a training, taken apart into the processes that its launcher would start.

namespace tidemark::scenarios {

enum class StartedBy : std::uint8_t { Python, Torchrun, TorchLaunch, DeepSpeed, Accelerate };

/// How many processes a launcher starts on each node.
struct ProcessesPerNode {
  std::optional<std::int64_t> count;  ///< nothing: one for each device
  friend bool operator==(const ProcessesPerNode&, const ProcessesPerNode&) = default;
};

struct LaunchCommand {
  StartedBy launcher = StartedBy::Python;
  std::string python;                  ///< the interpreter; empty: that of `launcher_script`
  std::string launcher_script;         ///< "torchrun", whose first line names the interpreter
  std::vector<std::string> arguments;  ///< of the interpreter: its options, the script or -m and a module, theirs
  std::vector<std::string> launcher_arguments;                   ///< of accelerate's launcher, which reads them itself
  std::vector<std::pair<std::string, std::string>> environment;  ///< NAME=VALUE before the command
  std::int64_t nodes = 1;
  ProcessesPerNode per_node{1};
  bool local_rank_argument = false;  ///< whether each process is given --local_rank=N behind its script
  std::string local_rank_name = "--local_rank";
  bool tells_ranks = true;  ///< whether the launcher tells processes of each other, as Python alone does not

  friend bool operator==(const LaunchCommand&, const LaunchCommand&) = default;
};

/// Takes apart what stands behind "--". Throws InputError where it is no command that starts Python.
[[nodiscard]] LaunchCommand launch_command(const std::vector<std::string>& words);

/// Takes in what accelerate's own launcher made of its flags (inside/tidemark_dry_run/accelerate_launch.py). Throws
/// std::runtime_error where the text is none of that.
void take_accelerate(LaunchCommand& command, const std::string& said);

/// The interpreter that the first line of a script names, as a path or a name; nothing where it names none. Of what pip
/// writes where a path is long, the second line.
[[nodiscard]] std::optional<std::string> interpreter_in(const std::string& begin_of_script);

/// "torchrun", "python -m torch.distributed.launch", …
[[nodiscard]] std::string launcher_text(StartedBy launcher);

}  // namespace tidemark::scenarios
