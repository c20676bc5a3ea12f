#pragma once

#include <string>

#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// The model as its list of layers, equal ones in a line, each with the parameters that it has: nothing cut or padded.
[[nodiscard]] std::string layers_text(const Model& model);

}  // namespace tidemark::scenarios
