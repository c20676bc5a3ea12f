#include "scenarios/formats/json_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "scenarios/formats/detail/config_document.hpp"

namespace tidemark::scenarios {
namespace {

using nlohmann::json;

// Goes through text that is known to be JSON, and says where everything begins.
class Walk {
 public:
  Walk(std::string_view text, Automatic automatic) : text_(text), automatic_(automatic) {}

  std::optional<TomlValue> value() {
    skip_space();
    TomlValue made;
    made.place = {line_, static_cast<int>(at_ - line_begin_) + 1};
    switch (text_[at_]) {
      case '{':
        made.value = table();
        return made;
      case '[':
        made.value = list();
        return made;
      default:
        break;
    }
    const json scalar = json::parse(text_[at_] == '"' ? string() : word());
    if (scalar.is_null() || (scalar == "auto" && automatic_ == Automatic::LeftOut)) return std::nullopt;
    if (scalar.is_boolean())
      made.value = scalar.get<bool>();
    else if (scalar.is_string())
      made.value = scalar.get<std::string>();
    else
      made.value = number(scalar);
    return made;
  }

 private:
  static decltype(TomlValue::value) number(const json& scalar) {
    constexpr double below = 9.2e18;  // of 64 bits
    const double real = scalar.get<double>();
    if (scalar.is_number_integer() && !(scalar.is_number_unsigned() && real > below)) return scalar.get<std::int64_t>();
    if (std::abs(real) < below && real == std::floor(real)) return static_cast<std::int64_t>(real);
    return real;
  }

  TomlTable table() {
    TomlTable made;
    ++at_;  // {
    for (skip_space(); text_[at_] != '}'; skip_space()) {
      if (text_[at_] == ',') {
        ++at_;
        continue;
      }
      const Place place{line_, static_cast<int>(at_ - line_begin_) + 1};
      const std::string name = json::parse(string()).get<std::string>();
      skip_space();
      ++at_;  // :
      if (std::optional<TomlValue> its = value()) made.keys.push_back({name, place, *std::move(its)});
    }
    ++at_;
    std::ranges::sort(made.keys, {}, &TomlKey::name);
    return made;
  }

  std::vector<TomlValue> list() {
    std::vector<TomlValue> made;
    ++at_;  // [
    for (skip_space(); text_[at_] != ']'; skip_space()) {
      if (text_[at_] == ',')
        ++at_;
      else if (std::optional<TomlValue> its = value())
        made.push_back(*std::move(its));
    }
    ++at_;
    return made;
  }

  std::string_view string() {
    const std::size_t begin = at_++;
    for (; text_[at_] != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    return text_.substr(begin, ++at_ - begin);
  }

  std::string_view word() {
    const std::size_t begin = at_;
    at_ = std::min(text_.find_first_of(",]} \t\r\n", at_), text_.size());
    return text_.substr(begin, at_ - begin);
  }

  void skip_space() {
    for (; at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n');
         ++at_)
      if (text_[at_] == '\n') ++line_, line_begin_ = at_ + 1;
  }

  std::string_view text_;
  Automatic automatic_;
  std::size_t at_ = 0, line_begin_ = 0;
  int line_ = 1;
};

}  // namespace

TomlTable parse_json_table(std::string_view text, const std::string& file, Automatic automatic) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  Problems problems(file);
  (void)parse_config(text, problems);
  return std::get<TomlTable>(Walk(text, automatic).value()->value);
}

}  // namespace tidemark::scenarios
