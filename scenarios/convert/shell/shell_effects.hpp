#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scenarios/convert/shell/shell_syntax.hpp"

// What a part of a shell script may do to the shell that runs it, whichever way it goes.

namespace tidemark::scenarios {

/// By name; several bodies where only running the script tells which of them is defined.
using ShellFunctions = std::map<std::string, std::vector<ShellNodePtr>>;

struct ShellEffects {
  std::set<std::string> names;  ///< variables that it may assign
  bool all = false;             ///< it may assign any: `eval`, `source`
  bool arguments = false;       ///< it may change $1 and $@: `set --`, `shift`
  bool trains = false;          ///< it may start a training
  ShellFunctions defines;
};

/// `text_of`: what a word comes to, as far as that is known where the part stands.
[[nodiscard]] ShellEffects effects_of(
    const ShellNode& node, const ShellFunctions& functions,
    const std::function<std::optional<std::string>(const ShellNode&, const ShellSpan&)>& text_of);

}  // namespace tidemark::scenarios
