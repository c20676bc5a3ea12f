#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "scenarios/formats/toml_value.hpp"

namespace tidemark::scenarios {

/// What becomes of "auto", which leaves a key of a ds_config.json to others.
enum class Automatic : std::uint8_t { LeftOut, Kept };

/// A JSON object as a table, so that it is read as TOML's are. Numbers without a fraction (5e8) are whole ones; what is
/// null, or "auto" as Hugging Face's Trainer fills in, is left out. `file` names the text in messages; throws
/// InputError.
[[nodiscard]] TomlTable parse_json_table(std::string_view text, const std::string& file,
                                         Automatic automatic = Automatic::LeftOut);

}  // namespace tidemark::scenarios
