#pragma once

#include <string>

#include "scenarios/prediction.hpp"

namespace tidemark {

/// Shows how far a long computation is, on standard error if that is a terminal, after the first second.
[[nodiscard]] Progress progress_on_terminal(std::string what);

}  // namespace tidemark
