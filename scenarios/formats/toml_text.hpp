#pragma once

#include <string>

#include "scenarios/formats/toml_value.hpp"

namespace tidemark::scenarios {

/// The document as a file: what `parse_toml` makes of it is the document again, but for places. Holds no dates.
[[nodiscard]] std::string toml_text(const TomlTable& document);

}  // namespace tidemark::scenarios
