#include <algorithm>
#include <cctype>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

// Lines of a file count from 1: those below 0 are overrides, from the first on.
Place place_of_override(std::size_t index) { return {-static_cast<int>(index) - 1, 0}; }

// Columns tell values of one override apart.
void put_on_line(int line, Content& content) {
  if (auto* const list = std::get_if<std::vector<TomlValue>>(&content))
    for (TomlValue& value : *list) value.place.line = line, put_on_line(line, value.value);
  if (auto* const table = std::get_if<TomlTable>(&content))
    for (TomlKey& key : table->keys) key.place.line = key.value.place.line = line, put_on_line(line, key.value.value);
}

}  // namespace

bool is_override(const std::string& word) {
  const std::size_t sign = word.find('=');
  if (sign == std::string::npos || sign == 0) return false;
  const std::string key = word.substr(0, sign);
  const bool is_path = std::ranges::all_of(
      key, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-'; });
  return is_path && !key.starts_with('-') && !key.starts_with('.') && !key.ends_with('.');
}

InputError placed_at(const std::vector<std::string>& overrides, const InputError& error) {
  std::vector<Problem> problems = error.problems();
  for (Problem& problem : problems) {
    if (problem.line >= 0 || -problem.line > std::ssize(overrides)) continue;
    problem.file = overrides[static_cast<std::size_t>(-problem.line - 1)];
    problem.line = problem.column = 0;
  }
  return InputError(std::move(problems));
}

void set_overrides(TomlTable& document, const std::vector<std::string>& overrides) {
  Draft draft;
  draft.document = std::move(document);
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    const std::string& text = overrides[i];
    const std::size_t sign = text.find('=');
    if (!is_override(text))
      throw InputError(Problem{
          .file = text, .message = "is no key with a value", .hint = "such as layout.tensor=4 or train.micro_batch=2"});
    draft.file = text;
    const std::string value = text.substr(sign + 1);
    Content content = value;
    try {  // a word that is no value of TOML's is a text: train.precision=fp16
      content = parse_toml("x = " + value, text).keys.front().value.value;
    } catch (const InputError&) {
    }
    put_on_line(place_of_override(i).line, content);
    draft.set(text.substr(0, sign), std::move(content), place_of_override(i));
  }
  document = std::move(draft.document);
}

}  // namespace tidemark::scenarios
