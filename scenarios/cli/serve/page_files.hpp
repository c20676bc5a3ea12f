#pragma once

#include <string_view>

#include "scenarios/cli/namespace.hpp"

// Files of page/, as the build put them into the program.

namespace tidemark::cli {

[[nodiscard]] std::string_view serve_page();
[[nodiscard]] std::string_view serve_style();
[[nodiscard]] std::string_view serve_script();

}  // namespace tidemark::cli
