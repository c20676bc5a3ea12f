#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/python_recipes/python_values.hpp"

namespace tidemark::scenarios {

/// One expression of Python's: literals, names, attributes, calls, lists, arithmetic, comparisons and conditions.
class PythonExpression {
 public:
  using Names = std::map<std::string, PythonValue, std::less<>>;
  /// What its names and calls mean.
  struct Meaning {
    std::function<PythonValue(std::string_view)> name;
    std::function<PythonValue(const PythonValue&, const std::string&)> attribute;
    std::function<PythonValue(const PythonValue&, std::vector<PythonValue>, Names)> call;
    std::function<PythonValue(const PythonValue&, const std::string&, const std::vector<PythonValue>&)> method;
  };
  PythonExpression(std::string_view text, Place place, Meaning meaning)
      : text_(text), place_(place), meaning_(std::move(meaning)) {}

  /// What is not of these is not known.
  PythonValue value();

 private:
  PythonValue conditional();
  PythonValue disjunction();
  PythonValue conjunction();
  PythonValue negation();
  PythonValue comparison();
  PythonValue sum();
  PythonValue term();
  PythonValue factor();
  PythonValue postfix();
  PythonValue primary();
  PythonValue quoted(bool formatted);
  PythonValue number();
  PythonValue list(char closes);
  PythonValue call(const PythonValue& callee);
  bool arguments(std::vector<PythonValue>& plain, Names& named);

  [[nodiscard]] PythonValue unknown() const { return {PythonUnknown{std::string(text_.substr(0, 60))}, place_}; }
  void blanks();
  [[nodiscard]] bool ahead(std::string_view word);
  bool take(std::string_view sign);
  bool take_word(std::string_view word);

  std::string_view text_;
  Place place_;
  Meaning meaning_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool failed_ = false;
};

}  // namespace tidemark::scenarios
