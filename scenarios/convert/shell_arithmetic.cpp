#include "scenarios/convert/shell_arithmetic.hpp"

#include <cctype>
#include <charconv>

namespace tidemark::scenarios {
namespace {

using Number = std::optional<std::int64_t>;

class Sum {
 public:
  Sum(std::string_view text, const std::function<std::optional<std::string>(const std::string&)>& variable)
      : text_(text), variable_(variable) {}

  Number whole() {
    const Number value = sum();
    skip();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  char sign(std::string_view among) {
    skip();
    if (at_ >= text_.size() || among.find(text_[at_]) == std::string_view::npos) return '\0';
    return text_[at_++];
  }

  Number sum() {
    Number value = product();
    for (char c = sign("+-"); c != '\0'; c = sign("+-")) {
      const Number next = product();
      std::int64_t result = 0;
      if (!value || !next ||
          (c == '+' ? __builtin_add_overflow(*value, *next, &result) : __builtin_sub_overflow(*value, *next, &result)))
        return std::nullopt;
      value = result;
    }
    return value;
  }

  Number product() {
    Number value = factor();
    for (char c = sign("*/%"); c != '\0'; c = sign("*/%")) {
      const Number next = factor();
      if (!value || !next) return std::nullopt;
      std::int64_t result = 0;
      if (c == '*' ? __builtin_mul_overflow(*value, *next, &result) : *next <= 0) return std::nullopt;
      value = c == '*' ? result : c == '/' ? *value / *next : *value % *next;
    }
    return value;
  }

  Number factor() {
    constexpr int deepest = 64;
    skip();
    if (at_ >= text_.size() || depth_ > deepest) return std::nullopt;
    const char c = text_[at_];
    if (c == '-' || c == '(') {
      ++at_;
      ++depth_;
      const Number inside = c == '-' ? factor() : sum();
      --depth_;
      if (c == '-') return inside && *inside > INT64_MIN ? Number(-*inside) : std::nullopt;
      return sign(")") == ')' ? inside : std::nullopt;
    }
    if (c == '$') ++at_;
    const bool braces = c == '$' && at_ < text_.size() && text_[at_] == '{';
    if (braces) ++at_;
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    std::string word(text_.substr(begin, at_ - begin));
    if (braces && (at_ >= text_.size() || text_[at_++] != '}')) return std::nullopt;
    if (word.empty()) return std::nullopt;
    if (c == '$' || std::isdigit(static_cast<unsigned char>(word[0])) == 0) {
      const std::optional<std::string> value = variable_(word);
      if (!value) return std::nullopt;
      word = *value;
    }
    // Octal to a shell.
    const std::size_t first = word.starts_with('-') ? 1 : 0;
    if (word.size() > first + 1 && word[first] == '0') return std::nullopt;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    return error == std::errc{} && end == word.data() + word.size() ? Number(number) : std::nullopt;
  }

  std::string_view text_;
  const std::function<std::optional<std::string>(const std::string&)>& variable_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<std::int64_t> arithmetic(std::string_view text,
                                       const std::function<std::optional<std::string>(const std::string&)>& variable) {
  return Sum(text, variable).whole();
}

}  // namespace tidemark::scenarios
