#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/shell/shell_words.hpp"
#include "scenarios/formats/toml_value.hpp"

// Tools whose files and commands are known, and not read: what they say is another language.

namespace tidemark::scenarios {

/// Whose configuration a file is ("axolotl"); empty: of none of these.
[[nodiscard]] std::string tool_of(const TomlTable& document);
/// Whose command it is ("ms-swift" of `swift sft …`), or whose program ("verl" of verl.trainer.main_ppo).
[[nodiscard]] std::string tool_called(const std::vector<ShellWord>& words);
[[nodiscard]] std::string tool_of_program(std::string_view path);

inline constexpr std::string_view instead_of_other_tools =
    "docs/convert.md lists what is read; --model, --cluster, --gpus, --sequence and others say a training without a "
    "file";

}  // namespace tidemark::scenarios
