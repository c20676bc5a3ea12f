#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "scenarios/cli/namespace.hpp"
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

}  // namespace tidemark::cli
