#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/shell/shell_words.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/toml_value.hpp"

// A training as a command line starts it: by what, on how many devices, which program with which arguments.

namespace tidemark::scenarios {

struct LaunchLine {
  std::string launcher;                 ///< "torchrun", "srun", "accelerate", … ; empty: the program itself
  std::string program;                  ///< "pretrain_gpt.py", "torchtitan.train"
  std::string path;                     ///< of it, as it is written: "trl/scripts/sft.py"
  std::vector<TomlKey> launcher_flags;  ///< with '_' as '-'
  std::vector<ShellWord> unread;        ///< given to the launcher, and known to nobody: "$DISTRIBUTED_ARGS", –flags
  std::vector<ShellWord> arguments;     ///< of the program
  std::optional<std::int64_t> gpus;     ///< as far as the launcher says
  std::int64_t visible = 0;             ///< devices that CUDA_VISIBLE_DEVICES leaves; 0: nothing says it
  std::int64_t each_node = 0;           ///< of `gpus`, on each of several nodes; 0: nothing says it
  std::string starts_all;               ///< who starts a process on each device of a node, where nobody says more
  std::int64_t starts_nodes = 1;        ///< on how many of them
  std::optional<Problem> gpus_problem;  ///< why it says that and it is not known
  std::shared_ptr<const ShellEnvironment> environment;
  std::set<std::string> presumed = {};  ///< variables of it that a sourced file may assign which is not there
  Place place;
};

/// What the script starts of programs that may be trainings, in their order; arguments alone where it starts none.
[[nodiscard]] std::vector<LaunchLine> launch_lines(const ShellScript& script, const std::string& file);
/// Whether a word of a command says that it starts a training: torchrun, pretrain_gpt.py.
[[nodiscard]] bool may_train(std::string_view word);

/// Whether a dash that is none of a keyboard's stands where a flag's own would.
[[nodiscard]] bool begins_with_other_dash(std::string_view word);

/// How to say outside of a script what it leaves to whoever runs it: "say it with --set NODES=VALUE".
[[nodiscard]] std::string hint_of_unknown(std::string_view unknown);
/// "EXTRA_ARGS" of "${EXTRA_ARGS[@]}"; empty of what is no variable.
[[nodiscard]] std::string variable_of(std::string_view unknown);

/// Begins the text that stands for a value which only running the script would tell.
inline constexpr std::string_view unknown_value = "\x01";

/// Arguments as a table: a flag without a value is true, one with several a list. What may be any number of flags goes
/// to `unread`: arrays that are assigned nowhere, variables that no flag takes for its value, or are called so
/// ("$EXTRA_ARGS"); and what belongs to no flag, which is known.
[[nodiscard]] std::vector<TomlKey> flags_of(const std::vector<ShellWord>& arguments, std::vector<ShellWord>& unread);

}  // namespace tidemark::scenarios
