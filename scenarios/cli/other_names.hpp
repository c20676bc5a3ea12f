#pragma once

#include <string>
#include <vector>

#include "scenarios/cli/namespace.hpp"

// What training frameworks and other programs call what questions and options are called here.

namespace tidemark::cli {

/// Of a flag such as "--tp" or "--seq-len": the option that says it, where `options` has it, or else the key of a
/// scenario's file. Empty where no flag of that name is known.
[[nodiscard]] std::string hint_of_flag(const std::string& flag, const std::vector<std::string>& options);

/// The key of a scenario that an option or another program's flag says: "train.micro_batch" of "mbs" or "micro_batch".
/// Empty where none is known.
[[nodiscard]] std::string key_of_flag(const std::string& flag);

/// The question that `word` probably meant, by nearly its name ("predct") or by another one ("simulate"); or empty.
[[nodiscard]] std::string verb_meant(const std::string& word, const std::vector<std::string>& verbs);

}  // namespace tidemark::cli
