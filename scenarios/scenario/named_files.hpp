#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/formats/toml_value.hpp"
#include "scenarios/scenario/scenario_files.hpp"

// Files that a scenario names: its model, its cluster, its calibration, the loads of its experts.

namespace tidemark::scenarios {

/// What [moe] imbalance says where it names no file.
inline constexpr std::string_view equal_loads = "uniform";

/// The key of a scenario's model, which may be a checkpoint's name, too.
inline constexpr std::string_view model_key = "model";

/// The texts of a document that name files, as its keys go.
[[nodiscard]] std::vector<std::string*> file_names(TomlTable& document);
/// The same, each with its key: "model", "config".
[[nodiscard]] std::vector<std::pair<std::string_view, const std::string*>> names_of_files(const TomlTable& document);

/// Renames files that lie in the scenario's folder, so that the same document in another folder names them: by their
/// path below the data root, or else by one from `to`.
void name_files_from(TomlTable& document, const ScenarioFolders& folders, const std::filesystem::path& to);

/// Where a name leads: into the scenario's folder, or the data root.
[[nodiscard]] std::optional<std::filesystem::path> resolved(const std::string& name, const ScenarioFolders& folders);

/// The same, or the file that says what a checkpoint's name stands for, where `key` is a model's.
[[nodiscard]] std::optional<std::filesystem::path> file_behind(std::string_view key, const std::string& name,
                                                               const ScenarioFolders& folders);
/// What is in it; its path gives the model its name. Throws InputError where it cannot be read.
[[nodiscard]] std::optional<ScenarioFiles::File> read_named(std::string_view key, const std::string& name,
                                                            const ScenarioFolders& folders);

/// A file beside the one that was asked for and is not there, with nearly its name; empty where there is none.
[[nodiscard]] std::string near_file(const std::string& name, const ScenarioFolders& folders);

/// What a name that leads to no file may have meant, where files are shipped as `key`s.
[[nodiscard]] std::string hint_for_file(std::string_view key, const std::string& name, const ScenarioFolders& folders);

}  // namespace tidemark::scenarios
