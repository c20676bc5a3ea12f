#include "scenarios/convert/gpt_neox/together.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "scenarios/convert/other_tools.hpp"
#include "scenarios/convert/yaml_table.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/text_file.hpp"

namespace tidemark::scenarios {
namespace {

bool is_yaml(const std::filesystem::path& file) { return file.extension() == ".yml" || file.extension() == ".yaml"; }

// megatron/neox_arguments/arguments.py from_ymls: a key stands in one of the files, however it is spelled.
void merge_into(TomlTable& all, const TomlTable& more, const std::string& file) {
  const auto spelled = [](std::string name) {
    std::ranges::replace(name, '-', '_');
    return name;
  };
  for (const TomlKey& key : more.keys) {
    if (std::ranges::any_of(all.keys, [&](const TomlKey& its) { return spelled(its.name) == spelled(key.name); }))
      throw InputError(Problem{file, key.place.line, key.place.column,
                               fmt::format("{} stands in another of these files, too", key.name),
                               "GPT-NeoX stops at a key that two of its files have: leave it out of one"});
    all.keys.push_back(key);
  }
}

}  // namespace

std::optional<FileContent> gpt_neox_together(ConvertRequest& requested) {
  std::vector<std::pair<std::filesystem::path, TomlTable>> parts;
  if (std::ranges::count_if(requested.files, is_yaml) < 2) return std::nullopt;
  std::vector<TomlKey> repeated;
  for (const std::filesystem::path& file : requested.files) {
    if (!is_yaml(file)) continue;
    const auto text = requested.texts.find(file);
    const std::string its = text == requested.texts.end() ? read_text(file) : text->second;
    parts.emplace_back(file, parse_yaml_table(its, file.string(), repeated));
  }
  const auto model = std::ranges::find_if(parts, [](const auto& part) { return tool_of(part.second) == "GPT-NeoX"; });
  if (parts.size() < 2 || model == parts.end()) return std::nullopt;
  std::swap(*model, parts.front());
  FileContent whole{FileKind::GptNeox, {}, parts.front().second, std::move(repeated)};
  for (auto part = parts.begin() + 1; part != parts.end(); ++part)
    merge_into(whole.document, part->second, part->first.string());
  std::erase_if(requested.files, is_yaml);
  requested.files.insert(requested.files.begin(), parts.front().first);
  return whole;
}

}  // namespace tidemark::scenarios
