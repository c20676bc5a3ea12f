#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "scenarios/namespace.hpp"

// Commands whose output is known from their text: how many devices CUDA_VISIBLE_DEVICES names.

namespace tidemark::scenarios {

/// What a word of the script stands for, quotes and all; nothing where that is not known.
using KnownWord = std::function<std::optional<std::string>(const std::string& word)>;

/// What "echo $DEVICES | awk -F, '{print NF}'" prints, less the newlines at its end: one word, and what cuts it,
/// changes its letters or counts (awk's NF, tr, wc, cut). Nothing where any of it is another command.
[[nodiscard]] std::optional<std::string> printed_by(std::string_view command, const KnownWord& known);

}  // namespace tidemark::scenarios
