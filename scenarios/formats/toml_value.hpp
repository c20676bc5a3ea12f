#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "scenarios/formats/problems.hpp"

namespace tidemark::scenarios {

struct TomlKey;

/// A date or a time: no key of ours takes one.
struct TomlTime {};

struct TomlTable {
  std::vector<TomlKey> keys;  ///< in the order of their names
};

/// A value of a TOML file and where it begins.
struct TomlValue {
  std::variant<bool, std::int64_t, double, std::string, TomlTime, std::vector<TomlValue>, TomlTable> value;
  Place place;
};

struct TomlKey {
  std::string name;
  Place place;
  TomlValue value;
};

/// Reads TOML; a syntax error is an InputError with its line and column. `file` names the text in messages.
TomlTable parse_toml(std::string_view text, const std::string& file);

/// The value as one would write it: 1, 0.5, true, "none", ["fp32", "fp32"].
std::string text(const TomlValue& value);

}  // namespace tidemark::scenarios
