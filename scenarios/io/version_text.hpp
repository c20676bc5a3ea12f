#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parallel/runtime/versions.hpp"
#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// "0.14", or "2.10.1": a patch release changes no habit and is dropped.
std::optional<Version> parse_version(std::string_view text);

/// "0.14"
std::string text(Version version);

}  // namespace tidemark::scenarios
