#pragma once

#include <filesystem>
#include <string>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// JSON Schema (draft 7) of scenario files, made of the keys that their reader tells (scenario_keys.hpp): types,
/// ranges, words, defaults and meanings. For editors (taplo, Even Better TOML) and for checks before a file gets here;
/// what goes together, `tidemark predict` alone knows.
[[nodiscard]] std::string scenario_json_schema(const std::filesystem::path& data_root);

}  // namespace tidemark::scenarios
