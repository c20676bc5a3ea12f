#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "scenarios/formats/toml_value.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// Which of the changes that `advise` tries give a scenario, each made by itself.
class AcceptedChanges {
 public:
  /// Of a document and the scenario that it is; `file` and `folders` as they were read.
  AcceptedChanges(TomlTable document, const std::filesystem::path& file, const ScenarioFolders& folders,
                  const Scenario& scenario);

  /// Whether any does along that axis (changes.hpp), to a value that is shown with these first words.
  [[nodiscard]] bool any(std::string_view axis, std::string_view value = {}) const;

 private:
  Space space_;             ///< without axes
  std::vector<Axis> axes_;  ///< one per kind of change
};

}  // namespace tidemark::scenarios
