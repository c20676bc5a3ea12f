#pragma once

#include <string>

#include "scenarios/cli/namespace.hpp"

namespace tidemark::cli {

/// Tells builds of this program apart: its version and the build id that the linker made of its contents, which
/// installing and stripping leave as it is; without one, a hash of the program's file. Throws std::runtime_error where
/// neither can be read.
[[nodiscard]] std::string program_fingerprint();

}  // namespace tidemark::cli
