#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/formats/slips.hpp"
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
  // Its text model, for which whoever reads the launch file bounds the tower (Converter).
  if (const std::optional<ImageModel> whole = image_model(checkpoint, models.data_root))
    if (auto its = named_config(whole->name + std::string(of_text), models.data_root)) {
      Model model = parse_model(its->text, its->path);
      return ShippedModel{its->name, its->path, std::move(its->text), std::move(model)};
    }
  // Nobody else says what a checkpoint is that is called as a file is.
  std::string name = plain(checkpoint.substr(checkpoint.rfind('/') + 1));
  if (name.ends_with("hf")) name.resize(name.size() - 2);
  if (name.starts_with("metallama")) name.erase(0, 4);
  for (const ShippedModel& its : models.files)
    if (plain(its.model.name) == name) return its;
  // Of a folder or a copy that is called as a shape is ("~/weights/llama-13b", "huggyllama/llama-13b").
  if (checkpoint.find('/') == std::string::npos) return std::nullopt;
  if (std::optional<NamedConfig> its = named_config(checkpoint.substr(checkpoint.rfind('/') + 1), models.data_root))
    return ShippedModel{its->name, its->path, its->text, parse_model(its->text, its->path)};
  return std::nullopt;
}

ProblemText why_not_shipped(const ShippedModels& models, const std::string& checkpoint) {
  // Parts of names that say what else a model reads, and families whose layers no reader knows.
  constexpr auto towers =
      std::to_array<std::string_view>({"-vl-", "-vl", "vision", "llava", "-omni", "audio", "whisper", "pixtral",
                                       "internvl", "paligemma", "multimodal"});
  constexpr auto families = std::to_array<std::string_view>(
      {"/opt-",      "bloom",    "qwen/qwen-", "internlm",  "falcon-7b", "falcon-40b",   "falcon-180b", "gpt-j",
       "mpt-",       "baichuan", "chatglm",    "mamba",     "jamba",     "olmo-1",       "olmoe",       "falcon-h1",
       "nemotron-h", "qwen3.5",  "qwen3-next", "command-r", "dbrx",      "glm-4.7-flash"});
  std::string name = checkpoint;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto has = [&](std::string_view part) {
    return part == "-vl" ? name.ends_with(part) : name.find(part) != std::string::npos;
  };
  constexpr auto packed = std::to_array<std::string_view>({"-awq", "-gptq", "-aqlm", "-hqq"});
  if (std::ranges::any_of(packed, has)) return not_modelled("a checkpoint that is quantized already is not modelled");
  if (std::ranges::any_of(towers, has)) return not_modelled("a model that reads more than text is not modelled");
  if (std::ranges::any_of(families, has)) return not_modelled("a model of this family is not modelled");
  // "org/name" of which nobody says a shape: nothing is wrong with it, but for one slip from a name that is known.
  const bool is_folder =
      checkpoint.find_first_of("/~.$<") != checkpoint.find('/') || std::ranges::count(checkpoint, '/') != 1;
  std::vector<std::string> names;
  for (const ModelName& its : model_names(models.data_root)) names.push_back(its.name);
  if (!is_folder && one_slip_from(checkpoint, names).empty())
    return not_modelled("no model is known here by this name: give its config.json with --model");
  return fmt::format("this model is not shipped{}: give its config.json with --model",
                     perhaps_meant(models, checkpoint));
}

std::string perhaps_meant(const ShippedModels& models, const std::string& checkpoint) {
  const std::vector<std::string> near = near_model_names(checkpoint, models.data_root);
  return near.empty() ? "" : " (did you mean " + one_of(near) + "?)";
}

std::optional<ShippedModel> name_checkpoint(const ShippedModels& models, const std::string& checkpoint,
                                            const std::string& what, Place place, Draft& draft) {
  std::optional<ShippedModel> its = shipped_model(models, checkpoint);
  if (draft.find("model") != nullptr) return its;
  if (its)
    draft.set("model", its->file, place);
  else
    draft.remark(RemarkKind::NotExpressed, fmt::format("{} = {}", what, in_quotes(checkpoint)),
                 why_not_shipped(models, checkpoint), place);
  return its;
}

}  // namespace tidemark::scenarios
