#include "scenarios/convert/shell/shell_arithmetic.hpp"

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
    const Number value = choice();
    skip();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  // Of two characters, or of one that does not go on: "<" is no beginning of "<=" or "<<".
  bool takes(std::string_view operation) {
    skip();
    if (text_.substr(at_, operation.size()) != operation) return false;
    const char next = at_ + operation.size() < text_.size() ? text_[at_ + operation.size()] : '\0';
    if (operation.size() == 1 && (next == '=' || next == operation[0])) return false;
    at_ += operation.size();
    return true;
  }

  Number choice() {
    const Number condition = any();
    if (!takes("?")) return condition;
    const Number first = choice();
    if (!takes(":")) return std::nullopt;
    const Number second = choice();
    return condition && first && second ? Number(*condition != 0 ? *first : *second) : std::nullopt;
  }

  Number any() {
    Number value = all();
    while (takes("||")) {
      const Number next = all();
      value = value && next ? Number(*value != 0 || *next != 0 ? 1 : 0) : std::nullopt;
    }
    return value;
  }

  Number all() {
    Number value = equality();
    while (takes("&&")) {
      const Number next = equality();
      value = value && next ? Number(*value != 0 && *next != 0 ? 1 : 0) : std::nullopt;
    }
    return value;
  }

  Number equality() {
    Number value = order();
    for (bool same = takes("=="); same || takes("!="); same = takes("==")) {
      const Number next = order();
      value = value && next ? Number((*value == *next) == same ? 1 : 0) : std::nullopt;
    }
    return value;
  }

  Number order() {
    Number value = sum();
    for (;;) {
      const std::string_view operation = takes("<=")   ? "<="
                                         : takes(">=") ? ">="
                                         : takes("<")  ? "<"
                                         : takes(">")  ? ">"
                                                       : "";
      if (operation.empty()) return value;
      const Number next = sum();
      if (!value || !next) return std::nullopt;
      const bool holds = operation == "<="   ? *value <= *next
                         : operation == ">=" ? *value >= *next
                         : operation == "<"  ? *value < *next
                                             : *value > *next;
      value = holds ? 1 : 0;
    }
  }

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
      const Number inside = c == '-' ? factor() : choice();
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
