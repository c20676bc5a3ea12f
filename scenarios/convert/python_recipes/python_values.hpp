#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "scenarios/convert/python_recipes/python_statements.hpp"

// As much of Python's meaning as recipes of settings have: functions that call each other, settings that are made and
// changed, conditions. Nothing else is evaluated, and nothing is ever run.

namespace tidemark::scenarios {

struct PythonModule;
struct PythonObject;
struct PythonValue;

/// A name that nothing here defines, as it is written: "nl.MegatronStrategy", "torch.bfloat16".
struct PythonSymbol {
  std::string text;
};
/// What only running it would tell.
struct PythonUnknown {
  std::string text;
};
struct PythonFunctionOf {
  const PythonModule* module = nullptr;
  const PythonFunction* function = nullptr;
};
struct PythonClassOf {
  const PythonModule* module = nullptr;
  const PythonClass* type = nullptr;
};
using PythonList = std::vector<PythonValue>;

struct PythonValue {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, PythonSymbol, PythonUnknown, PythonFunctionOf,
               PythonClassOf, const PythonModule*, std::shared_ptr<PythonList>, std::shared_ptr<PythonObject>>
      is;
  Place place = {};

  [[nodiscard]] bool none() const { return std::holds_alternative<std::monostate>(is); }
  [[nodiscard]] const PythonObject* object() const;
};

/// What a class or a call of something unknown made: run.Config(nl.Trainer, devices=8) is an nl.Trainer.
struct PythonObject {
  PythonValue type;
  std::vector<PythonValue> arguments;  ///< those without a name
  std::map<std::string, PythonValue, std::less<>> fields;
  /// "Trainer" of nl.Trainer.
  [[nodiscard]] std::string name() const;
  /// None where it says nothing of it.
  [[nodiscard]] PythonValue field(std::string_view name) const;
};

struct PythonModule {
  std::filesystem::path path;
  PythonFile file;
  std::map<std::string, PythonImport, std::less<>> imports;
  std::map<std::string, std::string, std::less<>> constants;  ///< NAME = VALUE at its top
};

class PythonEvaluation {
 public:
  /// `report`: hears of a line that is not evaluated.
  PythonEvaluation(std::filesystem::path file, std::string_view text, std::function<void(const PythonLine&)> report);
  ~PythonEvaluation();

  [[nodiscard]] const PythonModule& module() const { return *first_; }
  [[nodiscard]] PythonValue call(const PythonFunctionOf& function, std::vector<PythonValue> arguments,
                                 std::map<std::string, PythonValue, std::less<>> named);
  [[nodiscard]] PythonValue expression(std::string_view text, const PythonModule& module, Place place);
  /// The fields of a dataclass with their defaults, those that it inherits too; false where a class that it is of is
  /// not there and none of Megatron core's.
  bool fields_of(const PythonClassOf& type, std::map<std::string, PythonValue, std::less<>>& fields);
  /// The names of a function's parameters.
  [[nodiscard]] static std::vector<std::string> parameters_of(const PythonFunction& function);

 private:
  friend class PythonExpression;
  using Names = std::map<std::string, PythonValue, std::less<>>;
  struct Frame {
    const PythonModule* module = nullptr;
    Names* locals = nullptr;
  };

  const PythonModule* module_named(const std::string& name, const std::filesystem::path& from);
  PythonValue name(std::string_view name, const Frame& frame, Place place);
  PythonValue of_module(const PythonModule& module, std::string_view name, Place place);
  PythonValue attribute(const PythonValue& of, const std::string& name, Place place);
  PythonValue called(const PythonValue& callee, std::vector<PythonValue> arguments, Names named, Place place);
  PythonValue method(const PythonValue& of, const std::string& name, const std::vector<PythonValue>& arguments,
                     Place place);
  std::optional<PythonValue> run(const std::vector<PythonLine>& lines, std::size_t begin, std::size_t end,
                                 const Frame& frame);
  void assign(const PythonAssignment& its, const PythonLine& line, const Frame& frame);
  PythonValue evaluated(std::string_view text, const Frame& frame, Place place);
  void spend();

  std::function<void(const PythonLine&)> report_;
  std::vector<std::unique_ptr<PythonModule>> modules_;
  const PythonModule* first_ = nullptr;
  int depth_ = 0;
  std::int64_t steps_ = 0;
};

/// Whether it counts as true; nothing where only running it would tell.
[[nodiscard]] std::optional<bool> truth_of(const PythonValue& value);

}  // namespace tidemark::scenarios
