#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/convert/draft.hpp"
#include "scenarios/convert/shell/launch_line.hpp"

// Which of the commands that a script starts is the training, and whose program that is.

namespace tidemark::scenarios {

/// The one training that the script starts. InputError where it starts none, or several.
[[nodiscard]] LaunchLine training_of(const ShellScript& script, const std::string& file, Draft& draft);

/// Flags as HfArgumentParser has them: with '_'.
[[nodiscard]] std::vector<TomlKey> underscored(std::vector<TomlKey> flags);

[[nodiscard]] bool is_titan(const LaunchLine& line, const std::vector<TomlKey>& flags);
[[nodiscard]] bool is_swift(const LaunchLine& line);
[[nodiscard]] bool is_megatron(const LaunchLine& line, const std::vector<TomlKey>& flags);
/// OpenRLHF's supervised fine-tuning.
[[nodiscard]] bool is_openrlhf(const LaunchLine& line);
/// verl's, whose arguments are Hydra's overrides.
[[nodiscard]] bool is_verl(const LaunchLine& line);
/// Flags that scripts around transformers' Trainer have, one of them at least.
[[nodiscard]] bool has_training_arguments(const std::vector<TomlKey>& flags);
/// "axolotl train", "swift sft", "trl sft".
[[nodiscard]] bool is_command_of_tool(const LaunchLine& line);
/// A file that the program takes its arguments from.
[[nodiscard]] std::optional<ShellWord> configuration_in(const LaunchLine& line, const std::vector<TomlKey>& flags,
                                                        const std::vector<ShellWord>& unread);

/// Says of programs and tasks that are not modelled that they are not.
void refuse_other_programs(const LaunchLine& line, Draft& draft);
void refuse_other_tasks(const LaunchLine& line, Draft& draft);

}  // namespace tidemark::scenarios
