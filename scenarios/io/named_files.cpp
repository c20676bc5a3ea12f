#include "scenarios/io/named_files.hpp"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "scenarios/io/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

template <class Table, class Text>
std::vector<Text*> names_in(Table& document) {
  std::vector<Text*> names;
  for (auto& key : document.keys) {
    if (key.name == "model" || key.name == "cluster" || key.name == "calibration")
      if (auto* const name = std::get_if<std::string>(&key.value.value)) names.push_back(name);
    auto* const runtime = key.name == "runtime" ? std::get_if<TomlTable>(&key.value.value) : nullptr;
    for (std::size_t i = 0; runtime != nullptr && i < runtime->keys.size(); ++i)
      if (runtime->keys[i].name == "config")
        if (auto* const name = std::get_if<std::string>(&runtime->keys[i].value.value)) names.push_back(name);
    auto* const moe = key.name == "moe" ? std::get_if<TomlTable>(&key.value.value) : nullptr;
    for (std::size_t i = 0; moe != nullptr && i < moe->keys.size(); ++i)
      if (moe->keys[i].name == "imbalance")
        if (auto* const name = std::get_if<std::string>(&moe->keys[i].value.value); name && *name != equal_loads)
          names.push_back(name);
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

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// Of the files that come along as `key`s, those that a name without a folder may mean ("h100"), or all.
std::vector<std::string> shipped_files(std::string_view key, const std::string& name, const ScenarioFolders& folders) {
  const std::filesystem::path kind = std::string(key) + "s";
  const std::string asked = lower(std::filesystem::path(name).filename().stem().string());
  std::vector<std::string> all = files_in(folders.data_root / kind, kind), alike, stems;
  for (const std::string& file : all) {
    stems.push_back(lower(std::filesystem::path(file).stem().string()));
    if (!asked.empty() && stems.back().starts_with(asked)) alike.push_back(file);
  }
  if (!alike.empty()) return alike;
  const auto meant = std::find(stems.begin(), stems.end(), nearest(asked, stems));
  if (meant != stems.end()) return {all[static_cast<std::size_t>(meant - stems.begin())]};
  return all;
}

}  // namespace

std::vector<const std::string*> file_names(const TomlTable& document) {
  return names_in<const TomlTable, const std::string>(document);
}
std::vector<std::string*> file_names(TomlTable& document) { return names_in<TomlTable, std::string>(document); }

std::optional<std::filesystem::path> resolved(const std::string& name, const ScenarioFolders& folders) {
  if (name.find('\0') != std::string::npos) return std::nullopt;
  for (const std::filesystem::path& folder : {folders.folder, folders.data_root}) {
    std::error_code failure;
    const std::filesystem::path path = folder / name;
    if (std::filesystem::is_regular_file(path, failure)) return path.lexically_normal();
  }
  return std::nullopt;
}

std::string near_file(const std::string& name, const ScenarioFolders& folders) {
  const std::filesystem::path asked(name);
  std::vector<std::string> beside;
  for (const std::filesystem::path& folder : {folders.folder, folders.data_root})
    for (std::string& file : files_in(folder / asked.parent_path(), asked.parent_path()))
      beside.push_back(std::move(file));
  return nearest(name, beside);
}

std::string hint_for_file(std::string_view key, const std::string& name, const ScenarioFolders& folders) {
  if (name.find('\0') != std::string::npos) return {};
  if (const std::string meant = near_file(name, folders); !meant.empty())
    return fmt::format("did you mean {}?", in_quotes(meant));
  std::vector<std::string> shipped;
  for (const std::string& file : shipped_files(key, name, folders)) shipped.push_back(in_quotes(file));
  constexpr std::size_t most_shown = 12;
  if (shipped.size() <= most_shown) return shipped.empty() ? "" : one_of(shipped) + " would do";
  return fmt::format("{} files come along in {}", shipped.size(),
                     (folders.data_root / (std::string(key) + "s")).string());
}

}  // namespace tidemark::scenarios
