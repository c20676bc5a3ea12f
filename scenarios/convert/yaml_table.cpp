#include "scenarios/convert/yaml_table.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "scenarios/convert/draft.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

constexpr int deepest = 32;

class YamlWalk {
 public:
  explicit YamlWalk(std::string file, std::vector<TomlKey>* repeated = nullptr)
      : file_(std::move(file)), repeated_(repeated) {}

  [[nodiscard]] std::optional<TomlValue> value(const YAML::Node& node, int depth) {
    const Place place{node.Mark().line + 1, node.Mark().column + 1};
    if (++nodes_ > most_nodes)
      throw InputError(
          Problem{file_, place.line, place.column,
                  fmt::format("comes to more than {} values, with all that its aliases repeat", most_nodes),
                  "leave out what is not of the training"});
    if (depth > deepest)  // an anchor may stand within itself
      throw InputError(
          Problem{file_, place.line, place.column, "is nested too deep", "leave out what is not of the training"});
    if (node.IsNull() || !node.IsDefined()) return std::nullopt;
    if (node.IsMap()) return TomlValue{table(node, depth), place};
    if (node.IsSequence()) {
      std::vector<TomlValue> list;
      for (const YAML::Node& element : node)
        if (std::optional<TomlValue> its = value(element, depth + 1)) list.push_back(*std::move(its));
      return TomlValue{std::move(list), place};
    }
    // "!" marks a scalar between quotes: a text whatever it looks like.
    return TomlValue{node.Tag() == "!" ? Content(node.Scalar()) : scalar(node.Scalar()), place};
  }

  [[nodiscard]] TomlTable table(const YAML::Node& node, int depth) {
    TomlTable made;
    std::set<std::string> names;
    for (const auto& entry : node) {
      const Place place{entry.first.Mark().line + 1, entry.first.Mark().column + 1};
      if (!entry.first.IsScalar())
        throw InputError(Problem{file_, place.line, place.column, "a key that is no text", "key: value"});
      const std::string name = entry.first.Scalar();
      if (!names.insert(name).second) {
        if (repeated_ == nullptr)
          throw InputError(Problem{file_, place.line, place.column, fmt::format("{}: is there twice", in_quotes(name)),
                                   "leave one of them out"});
        repeated_->push_back({name, place, {true, place}});
        std::erase_if(made.keys, [&](const TomlKey& key) { return key.name == name; });
      }
      if (std::optional<TomlValue> its = value(entry.second, depth + 1))
        made.keys.push_back({name, place, *std::move(its)});
    }
    std::ranges::sort(made.keys, {}, &TomlKey::name);
    return made;
  }

 private:
  // As PyYAML has it, which all of those tools read with: 010 is eight.
  static constexpr int octal = 8;
  static bool is_octal(std::string_view text) {
    constexpr std::size_t longest = 20;
    if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
    return text.size() > 1 && text.size() <= longest && text.starts_with('0') &&
           text.find_first_not_of("01234567") == std::string_view::npos;
  }
  // 500_000.
  static bool is_grouped(std::string_view text) {
    if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
    return !text.empty() && text.front() >= '1' && text.front() <= '9' && text.find('_') != std::string_view::npos &&
           text.find_first_not_of("0123456789_") == std::string_view::npos;
  }
  static Content scalar(const std::string& text) {
    for (const char* yes : {"true", "True", "TRUE", "yes", "Yes", "on"})
      if (text == yes) return true;
    for (const char* no : {"false", "False", "FALSE", "no", "No", "off"})
      if (text == no) return false;
    if (is_grouped(text)) {
      std::string plain = text;
      std::erase(plain, '_');
      return typed(plain);
    }
    return is_octal(text) ? Content(static_cast<std::int64_t>(std::stoll(text, nullptr, octal))) : typed(text);
  }
  static constexpr int most_nodes = 100'000;
  std::string file_;
  std::vector<TomlKey>* repeated_;
  int nodes_ = 0;
};

TomlTable parsed(std::string_view text, const std::string& file, std::vector<TomlKey>* repeated) {
  try {
    std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    std::erase_if(documents, [](const YAML::Node& node) { return !node.IsDefined() || node.IsNull(); });
    if (documents.size() > 1)
      throw InputError(Problem{file, documents[1].Mark().line + 1, documents[1].Mark().column + 1,
                               "begins a second document, and a scenario is of one training",
                               "give each a file of its own"});
    const YAML::Node document = documents.empty() ? YAML::Node() : documents.front();
    if (!document.IsMap()) throw InputError(Problem{file, 1, 1, "is no YAML map", "key: value on lines of its own"});
    return YamlWalk(file, repeated).table(document, 0);
  } catch (const YAML::Exception& error) {
    throw InputError(Problem{file, error.mark.line + 1, error.mark.column + 1, error.msg,
                             "YAML is wanted: key: value on lines of its own, set in by spaces"});
  }
}

}  // namespace

TomlTable parse_yaml_table(std::string_view text, const std::string& file) { return parsed(text, file, nullptr); }

TomlTable parse_yaml_table(std::string_view text, const std::string& file, std::vector<TomlKey>& repeated) {
  return parsed(text, file, &repeated);
}

}  // namespace tidemark::scenarios
