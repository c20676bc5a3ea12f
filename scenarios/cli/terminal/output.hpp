#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "scenarios/cli/namespace.hpp"

namespace tidemark::cli {

/// Prints an answer: text to standard output, laid out for a terminal where that is one (`answer_on`), or, where `json`
/// names a file or "-", text to its place and JSON there
/// (`write_file`). Throws std::system_error where it does not get out, but not where its reader has seen enough.
void answer(const std::string& text, const std::string& json, const std::function<std::string()>& make_json);

/// Says on standard error what went wrong, as far as that takes it: there is nowhere else to say that it does not.
void complain(const std::string& text);

/// A scenario's file and those that it names: nothing that is written may be one of them.
[[nodiscard]] std::vector<std::filesystem::path> files_behind(const std::string& scenario);

/// Where shipped models and clusters are: $TIDEMARK_DATA_ROOT, share/tidemark beside the installed program's folder,
/// or `scenarios/` of the source tree it was built from. Throws InputError where that variable names no folder.
[[nodiscard]] std::filesystem::path data_root();

/// What people call: the installed program, or the script of the source tree that builds what is missing.
[[nodiscard]] std::filesystem::path program_path();

}  // namespace tidemark::cli
