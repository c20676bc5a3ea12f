#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "scenarios/cli/namespace.hpp"

// What the program teaches about itself.

namespace tidemark::cli {

struct Example {
  std::string command;  ///< after "tidemark ", as it can be typed in any folder, after those before it
  std::string says;     ///< what it is for
};

/// Puts them below the help of a verb. A test runs every one of them.
void add_examples(CLI::App& verb, const std::vector<Example>& examples);

/// Help as wide as the terminal.
[[nodiscard]] std::shared_ptr<CLI::FormatterBase> help_formatter();

/// For people who have typed the program's name only: a first answer, and how the shell finds the program.
[[nodiscard]] std::string first_steps();

}  // namespace tidemark::cli
