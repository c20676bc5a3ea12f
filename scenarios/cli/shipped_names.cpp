#include "scenarios/cli/shipped_names.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/scenario/model_names.hpp"

namespace tidemark::cli {
namespace {

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// "8xH100", "DGX-H100-80GB": those whose device is named in it, such as "h100".
std::vector<std::string> clusters_of_device(std::string text, const std::vector<std::string>& names) {
  const auto is_letter = [](unsigned char c) { return std::isalnum(c) != 0; };
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const std::string device = name.substr(0, name.find('-'));
    const std::size_t at = text.find(device), end = at + device.size();
    if (at == std::string::npos || device.find_first_of("0123456789") == std::string::npos) continue;
    const bool begins = at == 0 || text[at - 1] == 'x' || !is_letter(static_cast<unsigned char>(text[at - 1]));
    if (begins && (end == text.size() || !is_letter(static_cast<unsigned char>(text[end])))) found.push_back(name);
  }
  return found;
}

}  // namespace

std::vector<std::string> shipped_names(const Shipped& kind) {
  std::vector<std::string> names, deeper;
  std::error_code ignored;
  const std::filesystem::path folder = data_root() / kind.folder;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, ignored)) {
    if (entry.path().extension() != kind.ending) continue;
    std::filesystem::path name = entry.path().lexically_relative(folder);
    name.replace_extension();
    (name.has_parent_path() ? deeper : names).push_back(name.string());
  }
  std::ranges::sort(names);
  std::ranges::sort(deeper);
  names.insert(names.end(), deeper.begin(), deeper.end());
  return names;
}

std::string shipped_file(const std::string& text, const Shipped& kind) {
  if (text.empty() || text.find('.') == 0 || is_there(text)) return text;
  const std::filesystem::path shipped = data_root() / kind.folder / (text + kind.ending);
  return is_there(shipped) ? shipped.string() : text;
}

std::string hint_of_names(const std::string& text, const Shipped& kind) {
  // "meta-llama/Llama-3.1-8B", "llama-3.1-8b.json", "models/llama-3.1-8b": the name is what is left.
  std::string requested = std::filesystem::path(text).filename().string();
  for (const std::string_view ending : {".json", ".toml"})
    if (requested.ends_with(ending)) requested.resize(requested.size() - ending.size());
  std::vector<std::string> names = shipped_names(kind);
  const bool model = kind.folder == std::string_view(models_shipped.folder);
  // "meta-llama/Llama-9B" is nobody's file.
  if (model && text.find('/') != std::string::npos) {
    const std::vector<std::string> near = near_model_names(text, data_root());
    if (near.empty() && !text.ends_with(".json"))
      return "tidemark list names lists the checkpoints that are known by name; a config.json of your own also works";
    if (!near.empty()) return fmt::format("did you mean {}? tidemark list names lists all", one_of(near));
  }
  std::vector<std::string> near = near_names(requested, names);
  if (model) {
    for (std::string& shape : named_shapes(data_root())) names.push_back(std::move(shape));
    const std::string closest = nearest(requested, names);
    if (!closest.empty() && std::ranges::find(near, closest) == near.end()) near.insert(near.begin(), closest);
  }
  const bool cluster = kind.folder == std::string_view(clusters_shipped.folder);
  if (cluster && near.empty()) near = clusters_of_device(requested, names);
  if (cluster && near.empty())
    return "tidemark list clusters lists those that are shipped; of other devices write a file, from a copy of the "
           "nearest "
           "one in scenarios/clusters (docs/device.md)";
  const std::string list = fmt::format("tidemark list {}", kind.folder);
  return near.empty() ? fmt::format("{} lists those that are shipped", list)
                      : fmt::format("did you mean {}? {} lists all", one_of(near), list);
}

std::optional<Problem> unknown_name_problem(const std::string& text, const Shipped& kind) {
  if (text.empty() || is_there(shipped_file(text, kind))) return std::nullopt;
  if (kind.folder == std::string_view(examples_shipped.folder) && is_there(shipped_file(text, studies_shipped)))
    return Problem{
        .file = text,
        .message = "is a shipped study, not a scenario",
        .hint = fmt::format(
            "tidemark capacity {} answers it; tidemark list examples lists the scenarios that are shipped", text)};
  try {
    static_cast<void>(read_text(text));
  } catch (const InputError& error) {
    Problem problem = error.problems().front();
    const std::string names = hint_of_names(text, kind);
    problem.hint = problem.hint.empty() ? names : fmt::format("{} {}", problem.hint, names);
    return problem;
  }
  return std::nullopt;
}

std::string named_in_scenario(const std::string& option, const std::string& text, const Shipped& kind,
                              std::vector<Problem>& problems) {
  if (is_there(text)) return std::filesystem::absolute(text).string();
  const std::filesystem::path shipped = std::filesystem::path(kind.folder) / (text + kind.ending);
  if (is_there(data_root() / shipped)) return shipped.string();
  const bool model = kind.folder == std::string_view(models_shipped.folder);
  if (model && named_config(text, data_root())) return text;
  if (!is_there(data_root() / text))
    problems.push_back(
        {.file = option,
         .message = fmt::format("{} is neither a file nor a {} that is shipped", in_quotes(text), kind.what),
         .hint = hint_of_names(text, kind)});
  return text;
}

std::string as_typed(const std::string& file) {
  const std::filesystem::path name = std::filesystem::path(file).lexically_relative(data_root() / "examples");
  if (name.empty() || *name.begin() == "..") return file;
  return std::filesystem::path(name).replace_extension().string();
}

}  // namespace tidemark::cli
