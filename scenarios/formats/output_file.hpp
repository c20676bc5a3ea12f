#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// A file that a command was asked to write, and by which option; an empty path: not asked for. "-", for --json alone,
/// is standard output.
struct Output {
  std::string option;
  std::string path;
};

/// Judges what a command is to write before its work begins: each can be written, none is one of the files that the
/// work reads, no two are one. Leaves everything as it was. Throws InputError, or std::system_error where the machine
/// is at fault.
void check_outputs(const std::vector<Output>& outputs, const std::vector<std::filesystem::path>& inputs);

/// The same of a folder that may not be there yet.
void check_output_folder(const Output& folder);

/// Writes a file. A regular one, through links that lead to it, is written beside its place and moved there: it appears
/// whole or not at all, and keeps its mode, and its owner where that is allowed. What else can be written to (a device,
/// a FIFO) is opened and written. Throws InputError where it cannot be written, std::system_error where the machine is
/// at fault (a full disk).
void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

/// Removes what write_file has begun and not yet moved to its place, in this process; a signal handler may call it.
void remove_unfinished_files() noexcept;

}  // namespace tidemark::scenarios
