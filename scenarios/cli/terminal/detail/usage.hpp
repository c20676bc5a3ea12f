#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/cli/shipped_names.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/formats/input_error.hpp"

// What verbs have in common, and what is wrong with a command line, said as all that is wrong is said.

namespace tidemark::cli {

/// What CLI11 found, with the option that was probably meant: one of nearly that name, or what other programs call so.
[[nodiscard]] InputError misuse(const CLI::App& app, const CLI::ParseError& error);

/// Throws InputError where the first word is none of its verbs: CLI11 would only say that one is required.
void refuse_unknown_verb(const CLI::App& app, int argc, char** argv);

/// Throws InputError where an option is given an empty text. Only settings of the allocator and words of a
/// command may be none at all.
void refuse_empty_texts(const CLI::App& app);

/// The option that most verbs have.
void add_json(CLI::App& verb, std::string& file);

/// The scenario that a question is about: a file, or the name of an example that is shipped, which becomes its file.
CLI::Option* add_scenario(CLI::App& verb, std::string& file, const std::string& what = "scenario file (TOML)");
/// Makes an option take a file, or a name of that kind, which becomes its file. Any other text is refused with the
/// names that were probably meant. One option of a verb.
CLI::Option* takes_shipped(CLI::App& verb, CLI::Option* option, const Shipped& kind);

/// Of questions that can take a while: not to tell how far they are.
void add_quiet(CLI::App& verb, Loudness& loudness);

}  // namespace tidemark::cli
