#pragma once

#include <filesystem>
#include <string_view>

#include "scenarios/scenario.hpp"

namespace tidemark {

/// The question that a scenario file asks, every default filled in and every cross-check done. Files that it names are
/// looked for in its own folder, then in `data_root`. Throws one InputError with all problems of the scenario and of
/// the files it names.
Scenario read_scenario(const std::filesystem::path& path, const std::filesystem::path& data_root);

/// Where the files that a scenario names are looked for: `folder` first.
struct ScenarioFolders {
  std::filesystem::path folder;
  std::filesystem::path data_root;
};

/// The same from text; `file` names it in messages and gives the scenario its name.
Scenario parse_scenario(std::string_view text, const std::filesystem::path& file, const ScenarioFolders& folders);

}  // namespace tidemark
