#include "scenarios/convert/interpolation.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/draft.hpp"

namespace tidemark::scenarios {
namespace {

using Path = std::vector<std::string>;

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t") - begin + 1));
}

// What stands between "${" and its own "}", where the text is no more than that.
std::optional<std::string> inside(const std::string& text) {
  if (!text.starts_with("${") || !text.ends_with('}')) return std::nullopt;
  int open = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') ++open;
    if (text[i] == '}' && --open == 0 && i + 1 < text.size()) return std::nullopt;
  }
  return text.substr(2, text.size() - 3);
}

std::vector<std::string> between_commas(const std::string& text) {
  std::vector<std::string> parts{""};
  int open = 0;
  for (const char c : text) {
    open += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c == ',' && open == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

class Interpolation {
 public:
  explicit Interpolation(const TomlTable& document) : document_(document) {}

  // Null where the value comes to nothing.
  std::optional<TomlValue> value(const TomlValue& its, const Path& at, int depth) {
    const auto* const text = std::get_if<std::string>(&its.value);
    const std::optional<std::string> what = text == nullptr ? std::nullopt : inside(*text);
    if (!what || depth > deepest) return its;
    const std::size_t sign = what->find(':');
    if (sign != std::string::npos && what->find('$') > sign) return computed(its, *what, sign, at, depth);
    if (what->find_first_of(":{") != std::string::npos) return its;
    Path path = at;
    std::string_view name = *what;
    if (name.starts_with('.')) {
      name.remove_prefix(1);
      while (name.starts_with('.')) {
        name.remove_prefix(1);
        if (path.empty()) return its;
        path.pop_back();
      }
    } else {
      path.clear();
    }
    for (std::size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.')) {
      path.emplace_back(name.substr(0, dot));
      name.remove_prefix(dot + 1);
    }
    // NeMo's launcher hangs such a file in as `training`.
    const bool hangs = !path.empty() && path.front() == "training" &&
                       std::ranges::find(document_.keys, path.front(), &TomlKey::name) == document_.keys.end();
    if (hangs) path.erase(path.begin());
    const std::string key(name);
    const TomlTable* table = &document_;
    for (const std::string& part : path) {
      const auto found = std::ranges::find(table->keys, part, &TomlKey::name);
      table = found == table->keys.end() ? nullptr : std::get_if<TomlTable>(&found->value.value);
      if (table == nullptr) return its;  // another file's
    }
    const auto found = std::ranges::find(table->keys, key, &TomlKey::name);
    if (found == table->keys.end() && path.empty()) return its;  // a variable of a shell, or of another file
    if (found == table->keys.end()) return std::nullopt;         // null
    std::optional<TomlValue> made = value(found->value, path, depth + 1);
    if (made) made->place = its.place;
    return made;
  }

  TomlTable table(const TomlTable& its, const Path& at) {
    TomlTable made;
    for (const TomlKey& key : its.keys) {
      Path below = at;
      below.push_back(key.name);
      if (const auto* inner = std::get_if<TomlTable>(&key.value.value))
        made.keys.push_back({key.name, key.place, {table(*inner, below), key.value.place}});
      else if (std::optional<TomlValue> plain = value(key.value, at, 0))
        made.keys.push_back({key.name, key.place, *std::move(plain)});
    }
    return made;
  }

 private:
  static constexpr int deepest = 16;

  // Resolvers that NeMo and its launcher register.
  std::optional<TomlValue> computed(const TomlValue& its, const std::string& what, std::size_t sign, const Path& at,
                                    int depth) {
    const std::string function = what.substr(0, sign);
    std::vector<std::int64_t> numbers;
    for (const std::string& part : between_commas(what.substr(sign + 1))) {
      const std::string word = trimmed(part);
      const std::optional<TomlValue> argument =
          value({word.starts_with("${") ? Content(word) : typed(word), its.place}, at, depth + 1);
      const auto* const number = argument ? std::get_if<std::int64_t>(&argument->value) : nullptr;
      if (number == nullptr) return its;
      numbers.push_back(*number);
    }
    if (numbers.empty()) return its;
    std::int64_t made = numbers.front();
    for (std::size_t i = 1; i < numbers.size(); ++i) {
      const std::int64_t n = numbers[i];
      if (function == "multiply" && !__builtin_mul_overflow(made, n, &made)) continue;
      if (function == "sum" && !__builtin_add_overflow(made, n, &made)) continue;
      if ((function == "divide_floor" || function == "int_div") && n > 0 && made >= 0) {
        made /= n;
        continue;
      }
      if (function == "divide_ceil" && n > 0 && made >= 0) {
        made = (made + n - 1) / n;
        continue;
      }
      return its;
    }
    return TomlValue{made, its.place};
  }

  const TomlTable& document_;
};

}  // namespace

void interpolate(TomlTable& document) { document = Interpolation(document).table(document, {}); }

}  // namespace tidemark::scenarios
