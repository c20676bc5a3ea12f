#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>

#include "scenarios/cli/namespace.hpp"

namespace tidemark::cli {

/// Prints an answer: text to standard output, or, where `json` names a file or "-", text to its place and JSON there.
/// A file appears whole or not at all. Throws InputError where it cannot be written.
void answer(const std::string& text, const std::string& json, const std::function<std::string()>& make_json);

/// Writes a file beside its place and moves it there: it appears whole or not at all. Throws InputError where it cannot
/// be written.
void write_file(const std::string& path, const std::function<void(std::ostream&)>& write);

/// Where shipped models and clusters are: $TIDEMARK_DATA_ROOT, share/tidemark beside the installed program's folder,
/// or `scenarios/` of the source tree it was built from.
[[nodiscard]] std::filesystem::path data_root();

}  // namespace tidemark::cli
