#pragma once

#include <optional>
#include <vector>

#include "scenarios/convert/shell/shell_words.hpp"

namespace tidemark::scenarios {

/// Yes, no, or what only running it would tell.
using ShellAnswer = std::optional<bool>;

/// What tests ([ … ], [[ … ]], test …) say that && and || join, before variables are settled. An operator is a word of
/// its own for each of its characters, with something in `unknown`.
[[nodiscard]] ShellAnswer answer_of(const std::vector<ShellWord>& condition);

/// What a command says by its end: that it did as it was told, unless it is one that is asked something.
/// Whether a word is like a pattern, as case and [[ … ]] compare them.
[[nodiscard]] bool is_like(const std::string& word, const std::string& pattern);
[[nodiscard]] ShellAnswer exit_status_of(const std::vector<ShellWord>& words);

}  // namespace tidemark::scenarios
