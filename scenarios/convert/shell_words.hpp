#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/io/problems.hpp"

// A shell script as data: which commands it would call with which words. Nothing is ever run.

namespace tidemark::scenarios {

/// A word after expansion. What only running something could tell stands in it as "?", and in `unknown`.
struct ShellWord {
  std::string text;
  Place place;
  std::string unknown = {};  ///< "$(hostname)", "$NNODES"; empty where everything is known

  /// Whether only running something would tell how many words it is: "$EXTRA_ARGS" may be some, or none.
  [[nodiscard]] bool is_any_words() const { return text == "?" && !unknown.empty(); }
};

struct ShellScript {
  std::vector<std::vector<ShellWord>> commands;      ///< simple ones, in their order; of branches those that are taken
  std::map<std::string, std::string> exported;       ///< environment
  std::map<std::string, std::string> variables;      ///< what is known at the end
  std::vector<std::pair<std::string, Place>> skips;  ///< what was not followed: loops, functions
};

/// Quotes, continuations, comments, variables, arrays, defaults ("${N:-8}"), arithmetic, `if` on plain tests, `export`,
/// and what Slurm sets by #SBATCH lines. `given` are variables from outside, the script's own assignments aside.
/// Throws InputError where quotes or brackets do not close.
[[nodiscard]] ShellScript read_shell(std::string_view text, const std::string& file,
                                     const std::map<std::string, std::string>& given = {});

}  // namespace tidemark::scenarios
