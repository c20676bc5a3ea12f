#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/cli/progress.hpp"
#include "scenarios/io/input_error.hpp"

// What verbs have in common, and what is wrong with a command line, said as all that is wrong is said.

namespace tidemark::cli {

/// What CLI11 found, with the option that was probably meant.
[[nodiscard]] InputError misuse(const CLI::App& app, const CLI::ParseError& error);

/// Throws InputError where the first word is none of its verbs: CLI11 would only say that one is required.
void refuse_unknown_verb(const CLI::App& app, int argc, char** argv);

/// Throws InputError where an option is given an empty text. Only settings of the allocator may be none at all.
void refuse_empty_texts(const CLI::App& app);

/// The option that most verbs have.
void add_json(CLI::App& verb, std::string& file);

/// The scenario that a question is about: a file, or the name of an example that comes along, which becomes its file.
CLI::Option* add_scenario(CLI::App& verb, std::string& file, const std::string& what = "scenario file (TOML)");
/// The same of files in another folder of what comes along, "studies".
[[nodiscard]] std::string shipped_file(const std::string& text, const char* folder);

/// The name of an example again, where a file is one that comes along; any other file as it is.
[[nodiscard]] std::string as_typed(const std::string& file);

/// Of questions that can take a while: not to tell how far they are.
void add_quiet(CLI::App& verb, Loudness& loudness);

}  // namespace tidemark::cli
