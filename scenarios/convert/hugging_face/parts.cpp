#include "scenarios/convert/hugging_face/parts.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/hugging_face/names.hpp"
#include "scenarios/formats/json_table.hpp"
#include "scenarios/formats/text_file.hpp"

namespace tidemark::scenarios {

namespace hugging_face {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// A JSON text is a table, too, and so is a file of one (training_args.py): {"use_reentrant": false}, fsdp.json.
TomlTable table_or_text(Given& given, std::string_view name) {
  const TomlValue* value = given.take(name);
  if (value == nullptr) return {};
  if (const auto* table = std::get_if<TomlTable>(&value->value)) return *table;
  const auto* const text = std::get_if<std::string>(&value->value);
  if (text != nullptr && text->starts_with('{')) return parse_json_table(*text, given.draft().file, Automatic::Kept);
  if (text == nullptr || !text->ends_with(".json")) {
    given.tell(RemarkKind::NotExpressed, name, "is no table");
    return {};
  }
  const std::filesystem::path path = named_beside(given.draft().folder, *text);
  if (is_there(path)) return parse_json_table(read_text(path), path.string(), Automatic::Kept);
  given.tell(RemarkKind::NotExpressed, name, "is not there: put it where the script looks for it");
  return {};
}

void copy(Given& given, std::string_view name, std::string_view path) {
  if (const TomlValue* value = given.take(name)) given.draft().set(path, value->value, value->place);
}

bool is_type(std::string type) {
  if (type.starts_with("torch.")) type.erase(0, 6);
  constexpr auto known =
      std::to_array<std::string_view>({"bfloat16", "bf16", "float16", "half", "fp16", "float32", "float", "fp32"});
  return std::ranges::find(known, type) != known.end();
}

std::string our_type(const std::string& type) {
  const bool half = type.ends_with("float16") || type.ends_with("half") || type == "fp16";
  return type.ends_with("bfloat16") || type == "bf16" ? "bf16" : half ? "fp16" : "fp32";
}

// In which type a model is loaded ("bfloat16", "torch.bfloat16" or "bf16").
void set_held_type(Draft& draft, const std::string& held) {
  const std::string type = our_type(held);
  if (!draft.mixed_precision) draft.set("train.precision", type);
  if (type != "fp32") draft.set("train.master_dtype", type);
}

std::int64_t devices_per_node(const Draft& draft, std::int64_t nodes) {
  const std::int64_t gpus = draft.integer("gpus").value_or(0);
  return nodes > 0 && gpus % nodes == 0 ? gpus / nodes : 0;
}

}  // namespace hugging_face

}  // namespace tidemark::scenarios
