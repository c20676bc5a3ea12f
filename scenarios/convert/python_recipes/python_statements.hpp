#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/formats/problems.hpp"
#include "scenarios/formats/toml_value.hpp"

// As much of Python as recipes of settings are written in: nothing is run.

namespace tidemark::scenarios {

/// A logical line: without its comment, and with what brackets hold together on one line.
struct PythonLine {
  int indent = 0;
  std::string text;
  Place place;
};
/// "NAME = VALUE" at the top of a file, and its functions with their lines.
struct PythonFunction {
  std::string name;
  Place place;
  std::vector<PythonLine> lines;
  std::string parameters = {};  ///< "a: int = 1, b=2"
};
struct PythonClass {
  std::string name;
  std::string bases = {};         ///< "GPTConfig, Mixin"
  std::vector<PythonLine> lines;  ///< of its body, those of its methods too
};
struct PythonFile {
  std::vector<PythonLine> top;
  std::vector<PythonFunction> functions;
  std::vector<PythonClass> classes;
};
[[nodiscard]] PythonFile parse_python(std::string_view text);

/// "from module import name as as_name"; "import module as as_name" has no name.
struct PythonImport {
  std::string module, name, as;
  Place place;
};
[[nodiscard]] std::vector<PythonImport> imports_in(const PythonLine& line);

/// What stands between commas that are in no bracket and no quotes.
[[nodiscard]] std::vector<std::string> between_commas_of(std::string_view text);

/// "cfg.model.seq_length = 4096": what stands on each side.
struct PythonAssignment {
  std::string target, value;
};
[[nodiscard]] std::optional<PythonAssignment> assignment_in(const PythonLine& line);

/// The text of a call, "f(a, b=2)": its function's name, and what stands between its commas.
struct PythonCall {
  std::string function;
  std::vector<std::string> arguments;
};
[[nodiscard]] std::optional<PythonCall> call_in(std::string_view text);

/// A number, a text, True, False, a list of those, or a type of torch's by our name. Nothing where it is anything else.
[[nodiscard]] std::optional<decltype(TomlValue::value)> literal_in(std::string_view text, Place place);

}  // namespace tidemark::scenarios
