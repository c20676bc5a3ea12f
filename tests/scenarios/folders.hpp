#pragma once

#include <filesystem>
#include <string>

#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {

inline const std::filesystem::path source = TIDEMARK_SOURCE_DIR;
/// Where scenarios of tests find what they name.
inline const ScenarioFolders folders{source / "scenarios/examples", source / "scenarios"};

/// With what it leaves to its device decided.
inline Scenario scenario_of_text(const std::string& text) {
  return resolved_scenario(parse_scenario(text, "small.toml", folders));
}

}  // namespace tidemark::tests
