#pragma once

#include <filesystem>
#include <string_view>
#include <variant>
#include <vector>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "scenarios/scenario/scenario_files.hpp"

namespace tidemark::scenarios {

/// The question that a scenario file asks, every default filled in and every cross-check done. Files that it names are
/// looked for in its own folder, then in `data_root`. Throws one InputError with all problems of the scenario and of
/// the files it names.
Scenario read_scenario(const std::filesystem::path& path, const std::filesystem::path& data_root);

/// The same from text; `file` names it in messages and gives the scenario its name.
Scenario parse_scenario(std::string_view text, const std::filesystem::path& file, const ScenarioFolders& folders);

/// The same from a document, which need not have been a text.
Scenario scenario_of(const TomlTable& document, const std::filesystem::path& file, const ScenarioFolders& folders,
                     const ScenarioFiles& read_before = {});

/// The same, and what is wrong as a value, at least one problem: for whoever asks many documents that may be none.
std::variant<Scenario, std::vector<Problem>> scenario_or_problems(const TomlTable& document,
                                                                  const std::filesystem::path& file,
                                                                  const ScenarioFolders& folders,
                                                                  const ScenarioFiles& read_before);

/// What the document's scenarios will read: its model, its cluster and others. Throws InputError.
ScenarioFiles files_of(const TomlTable& document, const std::filesystem::path& file, const ScenarioFolders& folders);

/// Reads the files that a document names and that are there. What is not there, scenarios say themselves.
void add_files_of(const TomlTable& document, const ScenarioFolders& folders, ScenarioFiles& files);

}  // namespace tidemark::scenarios
