#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parallel/runtime/versions.hpp"
#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// "0.14", or "2.10.1".
std::optional<Version> parse_version(std::string_view text);

/// "0.14", or with a patch release "0.2.2".
std::string text(Version version);

}  // namespace tidemark::scenarios
