#include <algorithm>
#include <cctype>

#include "scenarios/convert/formats.hpp"
#include "scenarios/io/config_reader.hpp"
#include "scenarios/io/text_file.hpp"

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

std::vector<ShippedModel> shipped_models(const std::filesystem::path& data_root) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(data_root / "models", ignored))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<ShippedModel> models;
  for (const std::filesystem::path& path : files) {
    std::string text = read_text(path);
    Model model = parse_model(text, path);
    models.push_back({"models/" + path.filename().string(), path, std::move(text), std::move(model)});
  }
  return models;
}

std::string shipped_model(const std::vector<ShippedModel>& models, const std::string& checkpoint) {
  std::string name = plain(checkpoint.substr(checkpoint.rfind('/') + 1));
  if (name.starts_with("metallama")) name.erase(0, 4);
  const ShippedModel* best = nullptr;
  std::size_t longest = 0;
  for (const ShippedModel& its : models) {
    const std::string shipped = plain(its.model.name);
    // What is behind the name is how it was tuned: -hf, -Instruct, -v0.1.
    const bool whole = name == shipped;
    const std::string rest = name.starts_with(shipped) ? name.substr(shipped.size()) : "?";
    bool tuned = false;
    for (const char* suffix :
         {"hf", "instruct", "chat", "base", "it", "pt", "v01", "instructv01", "instructhf", "chathf"})
      tuned |= rest == suffix;
    if ((whole || tuned) && shipped.size() > longest) best = &its, longest = shipped.size();
  }
  return best == nullptr ? std::string() : best->file;
}

}  // namespace tidemark::scenarios
