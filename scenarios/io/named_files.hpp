#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/io/toml_value.hpp"

// Files that a scenario names: its model, its cluster, its calibration, the loads of its experts.

namespace tidemark::scenarios {

/// What [moe] imbalance says where it names no file.
inline constexpr std::string_view equal_loads = "uniform";

/// The texts of a document that name files, as its keys go.
[[nodiscard]] std::vector<const std::string*> file_names(const TomlTable& document);
[[nodiscard]] std::vector<std::string*> file_names(TomlTable& document);

/// Where a name leads: into the scenario's folder, or the data root.
[[nodiscard]] std::optional<std::filesystem::path> resolved(const std::string& name, const ScenarioFolders& folders);

/// A file beside the one that was asked for and is not there, with nearly its name; empty where there is none.
[[nodiscard]] std::string near_file(const std::string& name, const ScenarioFolders& folders);

/// What a name that leads to no file may have meant, where files come along as `key`s.
[[nodiscard]] std::string hint_for_file(std::string_view key, const std::string& name, const ScenarioFolders& folders);

}  // namespace tidemark::scenarios
