#pragma once

#include <string>
#include <string_view>

#include "scenarios/formats/toml_value.hpp"

namespace tidemark::scenarios {

/// A YAML document whose top is a map. Values keep their places; null is left out. Throws InputError.
[[nodiscard]] TomlTable parse_yaml_table(std::string_view text, const std::string& file);

}  // namespace tidemark::scenarios
