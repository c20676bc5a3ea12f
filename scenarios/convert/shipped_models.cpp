#include <algorithm>
#include <cctype>

#include "scenarios/convert/formats.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/scenario/model_names.hpp"

namespace tidemark::scenarios {
namespace {

// Letters and digits alone: "Llama-3.1-8B" and "llama_3.1_8b" are one.
std::string plain(std::string_view name) {
  std::string made;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      made += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return made;
}

}  // namespace

ShippedModels shipped_models(const std::filesystem::path& data_root) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(data_root / "models", ignored))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::ranges::sort(files);
  ShippedModels models{data_root, {}};
  for (const std::filesystem::path& path : files) {
    std::string text = read_text(path);
    Model model = parse_model(text, path);
    models.files.push_back({"models/" + path.filename().string(), path, std::move(text), std::move(model)});
  }
  return models;
}

std::optional<ShippedModel> shipped_model(const ShippedModels& models, const std::string& checkpoint) {
  if (std::optional<NamedConfig> its = checkpoint_config(checkpoint, models.data_root)) {
    const auto file = std::ranges::find(models.files, its->file, &ShippedModel::path);
    if (file != models.files.end()) return *file;
    Model model = parse_model(its->text, its->path);
    return ShippedModel{its->name, its->path, std::move(its->text), std::move(model)};
  }
  // Nobody else says what a checkpoint is that is called as a file is.
  std::string name = plain(checkpoint.substr(checkpoint.rfind('/') + 1));
  if (name.ends_with("hf")) name.resize(name.size() - 2);
  if (name.starts_with("metallama")) name.erase(0, 4);
  for (const ShippedModel& its : models.files)
    if (plain(its.model.name) == name) return its;
  return std::nullopt;
}

std::string perhaps_meant(const ShippedModels& models, const std::string& checkpoint) {
  const std::vector<std::string> near = near_model_names(checkpoint, models.data_root);
  return near.empty() ? "" : " (did you mean " + one_of(near) + "?)";
}

}  // namespace tidemark::scenarios
