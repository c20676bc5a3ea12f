#pragma once

#include <filesystem>
#include <string>

#include "scenarios/convert/convert.hpp"
#include "scenarios/convert/formats.hpp"

// A script, and the training that it starts.

namespace tidemark::scenarios {

/// Returns what it is written in.
[[nodiscard]] Dialect read_script(const std::filesystem::path& file, const std::string& text,
                                  const ConvertRequest& requested, const ShippedModels& models, Draft& draft);

}  // namespace tidemark::scenarios
