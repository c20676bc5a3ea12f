#pragma once

#include <filesystem>
#include <string>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// The whole of a file. InputError where there is no such regular file, it cannot be read or is absurdly large.
std::string read_text(const std::filesystem::path& path);

}  // namespace tidemark::scenarios
