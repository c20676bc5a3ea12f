#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "scenarios/formats/problems.hpp"

// A config.json as a document, before anybody asks what its keys mean.

namespace tidemark::scenarios {

/// Throws InputError where it is none: with the place, for keys given twice and absurd depth too.
[[nodiscard]] nlohmann::json parse_config(std::string_view text, Problems& problems);

/// A value as messages show it.
[[nodiscard]] std::string shown(const nlohmann::json& value);
/// null, false, 0, "" and empty lists say that a feature is not there.
[[nodiscard]] bool says_nothing(const nlohmann::json& value);

}  // namespace tidemark::scenarios
