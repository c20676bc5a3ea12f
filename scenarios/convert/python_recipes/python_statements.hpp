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
};
struct PythonFile {
  std::vector<PythonLine> top;
  std::vector<PythonFunction> functions;
};
[[nodiscard]] PythonFile parse_python(std::string_view text);

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
