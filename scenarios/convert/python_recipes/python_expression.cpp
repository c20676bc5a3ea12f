#include "scenarios/convert/python_recipes/python_expression.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "scenarios/convert/draft.hpp"

namespace tidemark::scenarios {
namespace {

constexpr int deepest_expression = 48;
constexpr std::size_t longest_text = 64 << 10;  // that expressions put together

bool of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::optional<double> as_real(const PythonValue& value) {
  if (const auto* const its = std::get_if<std::int64_t>(&value.is)) return static_cast<double>(*its);
  if (const auto* const its = std::get_if<double>(&value.is)) return *its;
  return std::nullopt;
}

// Numbers that stay whole where Python's would; nothing where one is none.
std::optional<PythonValue> calculated(const PythonValue& a, char sign, const PythonValue& b, Place place) {
  const auto* const x = std::get_if<std::int64_t>(&a.is);
  const auto* const y = std::get_if<std::int64_t>(&b.is);
  if (x != nullptr && y != nullptr && sign != '/') {
    std::int64_t made = 0;
    const bool over = sign == '+'   ? __builtin_add_overflow(*x, *y, &made)
                      : sign == '-' ? __builtin_sub_overflow(*x, *y, &made)
                      : sign == '*' ? __builtin_mul_overflow(*x, *y, &made)
                                    : *y <= 0 || *x < 0;  // '|' stands for //
    if (sign == '|' && !over) made = *x / *y;
    return over ? std::nullopt : std::optional(PythonValue{made, place});
  }
  const std::optional<double> p = as_real(a), q = as_real(b);
  if (!p || !q || ((sign == '/' || sign == '|') && *q == 0)) return std::nullopt;
  const double made = sign == '+'   ? *p + *q
                      : sign == '-' ? *p - *q
                      : sign == '*' ? *p * *q
                      : sign == '/' ? *p / *q
                                    : std::floor(*p / *q);
  return PythonValue{made, place};
}

std::optional<bool> equal(const PythonValue& a, const PythonValue& b) {
  if (const auto p = as_real(a), q = as_real(b); p && q) return *p == *q;
  if (std::holds_alternative<PythonUnknown>(a.is) || std::holds_alternative<PythonUnknown>(b.is)) return std::nullopt;
  if (a.is.index() != b.is.index()) return false;
  if (a.none()) return true;
  if (const auto* const x = std::get_if<std::string>(&a.is)) return *x == std::get<std::string>(b.is);
  if (const auto* const x = std::get_if<bool>(&a.is)) return *x == std::get<bool>(b.is);
  if (const auto* const x = std::get_if<PythonSymbol>(&a.is)) return x->text == std::get<PythonSymbol>(b.is).text;
  return std::nullopt;
}

}  // namespace

void PythonExpression::blanks() {
  while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
}
bool PythonExpression::ahead(std::string_view word) {
  blanks();
  return text_.substr(at_, word.size()) == word;
}
bool PythonExpression::take(std::string_view sign) {
  if (!ahead(sign)) return false;
  at_ += sign.size();
  return true;
}
bool PythonExpression::take_word(std::string_view word) {
  if (!ahead(word) || (at_ + word.size() < text_.size() && of_word(text_[at_ + word.size()]))) return false;
  at_ += word.size();
  return true;
}

PythonValue PythonExpression::value() {
  blanks();
  if (at_ == text_.size()) return {};
  PythonValue made = conditional();
  blanks();
  // "1, 2" is a tuple, which no setting here is.
  return failed_ || at_ < text_.size() ? unknown() : made;
}

PythonValue PythonExpression::conditional() {
  if (++depth_ > deepest_expression) failed_ = true;
  if (failed_) return unknown();
  PythonValue made = disjunction();
  if (take_word("if")) {
    const std::optional<bool> said = truth_of(disjunction());
    PythonValue other = take_word("else") ? conditional() : unknown();
    made = !said ? unknown() : *said ? made : other;
  }
  --depth_;
  return made;
}

PythonValue PythonExpression::disjunction() {
  PythonValue made = conjunction();
  while (take_word("or")) {
    PythonValue other = conjunction();
    const std::optional<bool> said = truth_of(made);
    made = !said ? unknown() : *said ? made : other;
  }
  return made;
}

PythonValue PythonExpression::conjunction() {
  PythonValue made = negation();
  while (take_word("and")) {
    PythonValue other = negation();
    const std::optional<bool> said = truth_of(made);
    made = !said ? unknown() : *said ? other : made;
  }
  return made;
}

PythonValue PythonExpression::negation() {
  if (!take_word("not")) return comparison();
  if (++depth_ > deepest_expression) failed_ = true;
  const std::optional<bool> said = failed_ ? std::nullopt : truth_of(negation());
  --depth_;
  return said ? PythonValue{!*said, place_} : unknown();
}

PythonValue PythonExpression::comparison() {
  PythonValue left = sum();
  const auto answer = [&](std::optional<bool> said, bool inverted) {
    return said ? PythonValue{*said != inverted, place_} : unknown();
  };
  if (take("==")) return answer(equal(left, sum()), false);
  if (take("!=")) return answer(equal(left, sum()), true);
  if (take_word("is")) {
    const bool inverted = take_word("not");
    return answer(equal(left, sum()), inverted);
  }
  const bool outside = ahead("not ");
  if (outside) take_word("not");
  if (take_word("in")) {
    const PythonValue all = sum();
    const auto* const list = std::get_if<std::shared_ptr<PythonList>>(&all.is);
    if (list == nullptr) return unknown();
    std::optional<bool> found = false;
    for (const PythonValue& one : **list) {
      const std::optional<bool> same = equal(left, one);
      if (same == true) return answer(true, outside);
      if (!same) found.reset();
    }
    return answer(found, outside);
  }
  for (const std::string_view sign : {"<=", ">=", "<", ">"})
    if (take(sign)) {
      const std::optional<double> p = as_real(left), q = as_real(sum());
      if (!p || !q) return unknown();
      const bool said = sign == "<=" ? *p <= *q : sign == ">=" ? *p >= *q : sign == "<" ? *p < *q : *p > *q;
      return {said, place_};
    }
  return left;
}

PythonValue PythonExpression::sum() {
  PythonValue made = term();
  for (bool more = true; more && !failed_;) {
    const char sign = take("+") ? '+' : take("-") ? '-' : '\0';
    more = sign != '\0';
    if (!more) break;
    const PythonValue other = term();
    const auto* const a = std::get_if<std::string>(&made.is);
    const auto* const b = std::get_if<std::string>(&other.is);
    if (a != nullptr && b != nullptr && sign == '+')
      made = a->size() + b->size() > longest_text ? unknown() : PythonValue{*a + *b, place_};
    else
      made = calculated(made, sign, other, place_).value_or(unknown());
  }
  return made;
}

PythonValue PythonExpression::term() {
  PythonValue made = factor();
  for (bool more = true; more && !failed_;) {
    const bool power = ahead("**");
    const char sign = power ? '\0' : take("*") ? '*' : take("//") ? '|' : take("/") ? '/' : '\0';
    more = sign != '\0';
    if (more) made = calculated(made, sign, factor(), place_).value_or(unknown());
  }
  return made;
}

PythonValue PythonExpression::factor() {
  if (++depth_ > deepest_expression) failed_ = true;
  PythonValue made;
  if (failed_)
    made = unknown();
  else if (take("-"))
    made = calculated({std::int64_t{0}, place_}, '-', factor(), place_).value_or(unknown());
  else
    made = postfix();
  --depth_;
  return made;
}

bool PythonExpression::arguments(std::vector<PythonValue>& plain, Names& named) {
  while (!take(")")) {
    blanks();
    if (at_ >= text_.size() || failed_) return false;
    if (ahead("*")) return false;
    std::size_t end = at_;
    while (end < text_.size() && of_word(text_[end])) ++end;
    std::size_t sign = end;
    while (sign < text_.size() && text_[sign] == ' ') ++sign;
    const bool is_named = end > at_ && sign + 1 < text_.size() && text_[sign] == '=' && text_[sign + 1] != '=';
    if (is_named) {
      const std::string name(text_.substr(at_, end - at_));
      at_ = sign + 1;
      named.insert_or_assign(name, conditional());
    } else {
      plain.push_back(conditional());
    }
    if (take(")")) return true;
    if (!take(",")) return false;
  }
  return true;
}

PythonValue PythonExpression::call(const PythonValue& callee) {
  std::vector<PythonValue> plain;
  Names named;
  if (!arguments(plain, named)) {
    failed_ = true;
    return unknown();
  }
  return meaning_.call(callee, std::move(plain), std::move(named));
}

PythonValue PythonExpression::postfix() {
  PythonValue made = primary();
  while (!failed_) {
    if (take(".")) {
      std::size_t end = at_;
      while (end < text_.size() && of_word(text_[end])) ++end;
      const std::string name(text_.substr(at_, end - at_));
      at_ = end;
      const bool is_value =
          std::holds_alternative<std::string>(made.is) || std::holds_alternative<std::shared_ptr<PythonList>>(made.is);
      if (is_value && take("(")) {
        std::vector<PythonValue> plain;
        Names named;
        if (!arguments(plain, named)) failed_ = true;
        made = failed_ ? unknown() : meaning_.method(made, name, plain);
      } else {
        made = meaning_.attribute(made, name);
      }
    } else if (take("(")) {
      made = call(made);
    } else if (take("[")) {  // an element: Optional[int], PEFT_STR2CLS[...]
      (void)conditional();
      if (!take("]")) failed_ = true;
      made = unknown();
    } else {
      break;
    }
  }
  return made;
}

PythonValue PythonExpression::list(char closes) {
  auto made = std::make_shared<PythonList>();
  const std::string close(1, closes);
  bool commas = false;
  while (!take(close)) {
    blanks();
    if (at_ >= text_.size() || failed_) {
      failed_ = true;
      return unknown();
    }
    made->push_back(conditional());
    if (take(","))
      commas = true;
    else if (!ahead(close))
      failed_ = true;
  }
  if (closes == ')' && !commas && made->size() == 1) return made->front();
  return {std::move(made), place_};
}

PythonValue PythonExpression::quoted(bool formatted) {
  const char quote = text_[at_++];
  std::string made;
  while (at_ < text_.size() && text_[at_] != quote) {
    if (made.size() > longest_text) failed_ = true;
    if (failed_) return unknown();
    if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
    if (formatted && text_[at_] == '{') {
      const std::size_t end = std::min(text_.find('}', at_), text_.size());
      const PythonValue value = meaning_.name(text_.substr(at_ + 1, end - at_ - 1));
      const auto* const text = std::get_if<std::string>(&value.is);
      const auto* const number = std::get_if<std::int64_t>(&value.is);
      made += text != nullptr ? *text : number != nullptr ? std::to_string(*number) : "?";
      at_ = std::min(end + 1, text_.size());
      continue;
    }
    made += text_[at_++];
  }
  if (at_ < text_.size())
    ++at_;
  else
    failed_ = true;
  return {std::move(made), place_};
}

PythonValue PythonExpression::number() {
  std::string digits;
  std::size_t end = at_;
  const auto exponent = [&](char c) {
    return (c == '-' || c == '+') && end > at_ && std::tolower(text_[end - 1]) == 'e';
  };
  while (end < text_.size() && (of_word(text_[end]) || text_[end] == '.' || exponent(text_[end]))) {
    if (text_[end] != '_') digits += text_[end];
    ++end;
  }
  at_ = end;
  const Content made = typed(digits);
  if (const auto* const its = std::get_if<std::int64_t>(&made)) return {*its, place_};
  if (const auto* const its = std::get_if<double>(&made)) return {*its, place_};
  return unknown();
}

PythonValue PythonExpression::primary() {
  blanks();
  if (at_ >= text_.size()) {
    failed_ = true;
    return unknown();
  }
  const char c = text_[at_];
  if (c == '"' || c == '\'') return quoted(false);
  if (c == 'f' && at_ + 1 < text_.size() && (text_[at_ + 1] == '"' || text_[at_ + 1] == '\''))
    return ++at_, quoted(true);
  if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.') return number();
  if (c == '(' || c == '[') return ++at_, list(c == '(' ? ')' : ']');
  for (const auto& [word, value] : {std::pair{"True", true}, {"False", false}})
    if (take_word(word)) return {value, place_};
  if (take_word("None")) return {std::monostate{}, place_};
  std::size_t end = at_;
  while (end < text_.size() && of_word(text_[end])) ++end;
  if (end == at_ || take_word("lambda")) {
    failed_ = true;
    return unknown();
  }
  const std::string_view name = text_.substr(at_, end - at_);
  at_ = end;
  if (name == "hasattr" && take("(")) {
    std::vector<PythonValue> plain;
    Names named;
    if (!arguments(plain, named) || plain.size() != 2) return failed_ = true, unknown();
    const auto* const key = std::get_if<std::string>(&plain[1].is);
    const PythonObject* const object = plain[0].object();
    return key == nullptr || object == nullptr ? unknown() : PythonValue{object->fields.contains(*key), place_};
  }
  return meaning_.name(name);
}

}  // namespace tidemark::scenarios
