#pragma once

#include <filesystem>
#include <string>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// docs/scenario-format.md: every key of a scenario file, as its reader tells.
[[nodiscard]] std::string format_page(const std::filesystem::path& data_root);

}  // namespace tidemark::scenarios
