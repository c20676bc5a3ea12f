#include "scenarios/scenario/named_files.hpp"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/scenario/model_names.hpp"

namespace tidemark::scenarios {
namespace {

template <class Table, class Text>
std::vector<std::pair<std::string_view, Text*>> names_in(Table& document) {
  std::vector<std::pair<std::string_view, Text*>> names;
  for (auto& key : document.keys) {
    if (key.name == model_key || key.name == "cluster" || key.name == "calibration")
      if (auto* const name = std::get_if<std::string>(&key.value.value)) names.emplace_back(key.name, name);
    auto* const runtime = key.name == "runtime" ? std::get_if<TomlTable>(&key.value.value) : nullptr;
    for (std::size_t i = 0; runtime != nullptr && i < runtime->keys.size(); ++i)
      if (runtime->keys[i].name == "config")
        if (auto* const name = std::get_if<std::string>(&runtime->keys[i].value.value))
          names.emplace_back(runtime->keys[i].name, name);
    auto* const moe = key.name == "moe" ? std::get_if<TomlTable>(&key.value.value) : nullptr;
    for (std::size_t i = 0; moe != nullptr && i < moe->keys.size(); ++i)
      if (moe->keys[i].name == "imbalance")
        if (auto* const name = std::get_if<std::string>(&moe->keys[i].value.value); name && *name != equal_loads)
          names.emplace_back(moe->keys[i].name, name);
  }
  return names;
}

std::vector<std::string> files_in(const std::filesystem::path& folder, const std::filesystem::path& shown_under) {
  std::vector<std::string> found;
  std::error_code failure;
  const std::filesystem::path here = folder.empty() ? "." : folder;
  for (std::filesystem::directory_iterator at(here, failure), end; !failure && at != end; at.increment(failure)) {
    std::error_code gone;
    if (at->is_regular_file(gone)) found.push_back((shown_under / at->path().filename()).string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> shipped_files(std::string_view key, const ScenarioFolders& folders) {
  const std::filesystem::path kind = std::string(key) + "s";
  return files_in(folders.data_root / kind, kind);
}

// Those of `all` that a name without a folder may mean ("h100").
std::vector<std::string> near_files(const std::string& name, const std::vector<std::string>& all) {
  std::vector<std::string> near;
  std::string requested = std::filesystem::path(name).filename().string();
  for (const std::string_view ending : {".json", ".toml"})
    if (requested.ends_with(ending)) requested.resize(requested.size() - ending.size());
  std::vector<std::string> stems;
  for (const std::string& file : all) stems.push_back(std::filesystem::path(file).stem().string());
  const std::vector<std::string> meant = near_names(requested, stems);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (std::ranges::find(meant, stems[i]) != meant.end()) near.push_back(all[i]);
  return near;
}

}  // namespace

std::vector<std::pair<std::string_view, const std::string*>> names_of_files(const TomlTable& document) {
  return names_in<const TomlTable, const std::string>(document);
}
std::vector<std::string*> file_names(TomlTable& document) {
  std::vector<std::string*> names;
  for (const auto& [key, name] : names_in<TomlTable, std::string>(document)) names.push_back(name);
  return names;
}

void name_files_from(TomlTable& document, const ScenarioFolders& folders, const std::filesystem::path& to) {
  const auto whole = [](const std::filesystem::path& path) {
    std::error_code failure;
    return std::filesystem::weakly_canonical(path.empty() ? "." : path, failure);
  };
  if (whole(folders.folder) == whole(to)) return;
  for (std::string* const name : file_names(document)) {
    const std::filesystem::path file = folders.folder / *name;
    std::error_code failure;
    if (std::filesystem::path(*name).is_absolute() || !std::filesystem::is_regular_file(file, failure)) continue;
    const std::filesystem::path shipped = whole(file).lexically_relative(whole(folders.data_root));
    const bool is_shipped = !shipped.empty() && *shipped.begin() != "..";
    *name = (is_shipped ? shipped : whole(file).lexically_relative(whole(to))).string();
  }
}

std::optional<std::filesystem::path> resolved(const std::string& name, const ScenarioFolders& folders) {
  if (name.find('\0') != std::string::npos) return std::nullopt;
  for (const std::filesystem::path& folder : {folders.folder, folders.data_root}) {
    std::error_code failure;
    const std::filesystem::path path = folder / name;
    if (std::filesystem::is_regular_file(path, failure)) return path.lexically_normal();
  }
  return std::nullopt;
}

namespace {

// A file in one of the folders, or what is shipped, by its name alone: "h100-sxm-80g", "nemotron-h-8b".
std::optional<std::filesystem::path> resolved_as(std::string_view key, const std::string& name,
                                                 const ScenarioFolders& folders) {
  if (std::optional<std::filesystem::path> path = resolved(name, folders)) return path;
  if (name.find('/') != std::string::npos) return std::nullopt;
  const ScenarioFolders shipped{folders.data_root, folders.data_root};
  if (key == "cluster") return resolved("clusters/" + name + ".toml", shipped);
  return key == model_key ? resolved("models/" + name + ".json", shipped) : std::nullopt;
}

}  // namespace

std::optional<std::filesystem::path> file_behind(std::string_view key, const std::string& name,
                                                 const ScenarioFolders& folders) {
  if (std::optional<std::filesystem::path> path = resolved_as(key, name, folders)) return path;
  if (key != model_key) return std::nullopt;
  const std::optional<NamedConfig> its = named_config(name, folders.data_root);
  return its ? std::optional(its->file) : std::nullopt;
}

std::optional<ScenarioFiles::File> read_named(std::string_view key, const std::string& name,
                                              const ScenarioFolders& folders) {
  if (const std::optional<std::filesystem::path> path = resolved_as(key, name, folders))
    return ScenarioFiles::File{*path, read_text(*path)};
  if (key != model_key) return std::nullopt;
  std::optional<NamedConfig> its = named_config(name, folders.data_root);
  return its ? std::optional(ScenarioFiles::File{its->path, std::move(its->text)}) : std::nullopt;
}

std::string near_file(const std::string& name, const ScenarioFolders& folders) {
  const std::filesystem::path requested(name);
  std::vector<std::string> beside;
  for (const std::filesystem::path& folder : {folders.folder, folders.data_root})
    for (std::string& file : files_in(folder / requested.parent_path(), requested.parent_path()))
      beside.push_back(std::move(file));
  return nearest(name, beside);
}

std::string hint_for_file(std::string_view key, const std::string& name, const ScenarioFolders& folders) {
  if (name.find('\0') != std::string::npos) return {};
  const std::vector<std::string> all = shipped_files(key, folders), near_ones = near_files(name, all);
  // "clusters/h100.toml" is spelled most like "clusters/a10-24g.toml", yet means an H100.
  if (const std::string meant = near_file(name, folders);
      !meant.empty() && (near_ones.empty() || std::ranges::find(near_ones, meant) != near_ones.end() ||
                         std::ranges::find(all, meant) == all.end()))
    return fmt::format("did you mean {}?", in_quotes(meant));
  // "meta-llama/Llama-9B" is nobody's file.
  if (key == model_key && name.find('/') != std::string::npos && !name.ends_with(".json")) {
    std::vector<std::string> near = near_model_names(name, folders.data_root);
    for (std::string& its : near) its = in_quotes(its);
    return near.empty() ? "tidemark list names lists the checkpoints that are known by name; a config.json of your own "
                          "also works"
                        : fmt::format("did you mean {}? tidemark list names lists all", one_of(near));
  }
  std::vector<std::string> shipped;
  for (const std::string& file : near_ones.empty() ? all : near_ones) shipped.push_back(in_quotes(file));
  constexpr std::size_t most_shown = 12;
  if (shipped.size() <= most_shown) return shipped.empty() ? "" : one_of(shipped) + " would do";
  return fmt::format("tidemark list {}s lists the {} that are shipped", key, shipped.size());
}

}  // namespace tidemark::scenarios
