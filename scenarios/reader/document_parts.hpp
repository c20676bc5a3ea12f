#pragma once

#include <filesystem>
#include <vector>

#include "scenarios/namespace.hpp"
#include "scenarios/reader/scenario_reader.hpp"

// Of a scenario's document, what can be said before its keys are judged together.

namespace tidemark::scenarios {

/// What is wrong with its keys, each for itself or with its neighbours, and with the files that they name; that they
/// have to go together is left out.
[[nodiscard]] std::vector<Problem> problems_of_keys(const TomlTable& document, const std::filesystem::path& file,
                                                    const ScenarioFolders& folders, const ScenarioFiles& read_before);

/// The files that it names, as far as they are there.
[[nodiscard]] std::vector<std::filesystem::path> files_named(const TomlTable& document, const ScenarioFolders& folders);

}  // namespace tidemark::scenarios
