#pragma once

#include <optional>
#include <string>

#include "sim/program/program.hpp"

namespace tidemark::sim {

/// What is wrong with a kernel: operands that its operation does not take, or sizes that do not go together ("c is
/// [4x8], a times b [4x6]"). Nothing where it is sound.
[[nodiscard]] std::optional<std::string> problem_of(const Program& program, const Kernel& kernel);

}  // namespace tidemark::sim
