#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/text_file.hpp"
#include "tests/namespace.hpp"

// Inputs in the style of public recipes: tests/convert/recipes.toml.

namespace tidemark::tests {

struct Recipe {
  std::string name;  ///< of its first file, without its ending; of several files, of all
  ConvertRequest requested;
  Dialect to{};
};

inline std::filesystem::path convert_folder() {
  return std::filesystem::path(TIDEMARK_SOURCE_DIR) / "tests" / "convert";
}
inline std::filesystem::path shipped_data() { return std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scenarios"; }

inline std::vector<Recipe> recipes() {
  const std::filesystem::path list = convert_folder() / "recipes.toml";
  const TomlTable document = parse_toml(read_text(list), list.string());
  std::vector<Recipe> all;
  for (const TomlValue& entry : std::get<std::vector<TomlValue>>(document.keys.front().value.value)) {
    Recipe recipe;
    recipe.requested.data_root = shipped_data();
    recipe.requested.cluster = "clusters/h100-sxm-80g.toml";
    for (const TomlKey& key : std::get<TomlTable>(entry.value).keys) {
      const auto number = [&] { return std::get<std::int64_t>(key.value.value); };
      const auto text = [&] { return std::get<std::string>(key.value.value); };
      if (key.name == "gpus") recipe.requested.gpus = number();
      if (key.name == "sequence") recipe.requested.sequence_length = number();
      if (key.name == "micro_batch") recipe.requested.micro_batch = number();
      if (key.name == "model") recipe.requested.model = "models/" + text() + ".json";
      if (key.name == "cluster") recipe.requested.cluster = "clusters/" + text() + ".toml";
      if (key.name == "to") recipe.to = dialect_named(text()).value();
      if (key.name != "files") continue;
      for (const TomlValue& file : std::get<std::vector<TomlValue>>(key.value.value)) {
        const std::filesystem::path path = convert_folder() / "recipes" / std::get<std::string>(file.value);
        recipe.requested.files.push_back(path);
        recipe.name += (recipe.name.empty() ? "" : "+") + path.stem().string();
      }
    }
    all.push_back(std::move(recipe));
  }
  return all;
}

/// A conversion of one file of that text, on a cluster of H100s.
inline ConvertRequest requested_of(const std::string& file, const std::string& text) {
  ConvertRequest requested;
  requested.files = {file};
  requested.texts = {{file, text}};
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  return requested;
}

}  // namespace tidemark::tests
