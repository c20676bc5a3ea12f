#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// The whole of a file. InputError where there is no such regular file, it cannot be read or is absurdly large.
std::string read_text(const std::filesystem::path& path);

/// Whether something is there. A name that no system takes, too long or a link to itself, is of nothing.
bool is_there(const std::filesystem::path& path);

/// From here on this process reads no files but those of these folders; any other is said not to be there. For a
/// process that answers somebody else's question.
void read_only_in(const std::vector<std::filesystem::path>& folders);

}  // namespace tidemark::scenarios
