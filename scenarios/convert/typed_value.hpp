#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include <fmt/format.h>

#include "scenarios/convert/draft.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/toml_value.hpp"

// What a key of a configuration says, as the type that its framework takes there. A value of another type is an
// InputError with its place, never a key that is left out.

namespace tidemark::scenarios {

/// `name`: of the key as it is told, "parallelism.dp".
class TypedValue {
 public:
  TypedValue(const TomlValue& value, std::string name, const Draft& draft)
      : value_(&value), name_(std::move(name)), file_(draft.file) {}

  [[nodiscard]] std::int64_t whole_number() const { return as<std::int64_t>("a whole number"); }
  [[nodiscard]] bool flag() const { return as<bool>("true or false"); }
  [[nodiscard]] const std::string& text() const { return as<std::string>("a text"); }
  [[nodiscard]] const TomlTable& table() const { return as<TomlTable>("a table"); }
  [[nodiscard]] double number() const {
    const auto* const whole = std::get_if<std::int64_t>(&value_->value);
    return whole != nullptr ? static_cast<double>(*whole) : as<double>("a number");
  }

  [[noreturn]] void wrong(std::string_view wanted) const {
    const auto* const said = std::get_if<std::string>(&value_->value);
    const bool quoted = said != nullptr && !std::holds_alternative<std::string>(typed(*said));
    throw InputError(Problem{
        .file = file_,
        .line = value_->place.line,
        .column = value_->place.column,
        .message = fmt::format("{} = {} is {} where {} is expected", name_, scenarios::text(*value_), kind(), wanted),
        .hint = quoted ? fmt::format("write {} without quotes", *said) : "a value such as the framework itself takes"});
  }

 private:
  template <class Type>
  [[nodiscard]] const Type& as(std::string_view wanted) const {
    const auto* const its = std::get_if<Type>(&value_->value);
    if (its == nullptr) wrong(wanted);
    return *its;
  }
  [[nodiscard]] std::string_view kind() const {
    if (std::holds_alternative<std::string>(value_->value)) return "a text";
    if (std::holds_alternative<bool>(value_->value)) return "true or false";
    if (std::holds_alternative<std::int64_t>(value_->value)) return "a whole number";
    if (std::holds_alternative<double>(value_->value)) return "a number with a fraction";
    if (std::holds_alternative<TomlTable>(value_->value)) return "a table";
    return std::holds_alternative<TomlTime>(value_->value) ? "a date" : "a list";
  }

  const TomlValue* value_;
  std::string name_, file_;
};

}  // namespace tidemark::scenarios
