#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scenarios/formats/toml_value.hpp"

namespace tidemark::scenarios {

/// A YAML document whose top is a map. Values keep their places; null is left out. Throws InputError.
[[nodiscard]] TomlTable parse_yaml_table(std::string_view text, const std::string& file);
/// Of keys that are there twice, the last stands, as PyYAML has it; they are added to `repeated`.
[[nodiscard]] TomlTable parse_yaml_table(std::string_view text, const std::string& file,
                                         std::vector<TomlKey>& repeated);

}  // namespace tidemark::scenarios
