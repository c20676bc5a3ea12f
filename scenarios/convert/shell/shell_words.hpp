#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/formats/problems.hpp"

// A shell script as data: which commands it would call with which words. Nothing is ever run.

namespace tidemark::scenarios {

/// A word after expansion. What only running something could tell stands in it as "?", and in `unknown`.
struct ShellWord {
  std::string text;
  Place place;
  /// "$(hostname)", "$NNODES", "$TP (a loop (for) in line 3 may assign it)"; empty where everything is known
  std::string unknown = {};

  /// Whether only running something would tell how many words it is: "$EXTRA_ARGS" may be some, or none.
  [[nodiscard]] bool is_any_words() const { return text == "?" && !unknown.empty(); }
};

using ShellEnvironment = std::map<std::string, ShellWord>;

struct ShellCommand {
  std::vector<ShellWord> words;
  std::shared_ptr<const ShellEnvironment> environment;
  std::set<std::string> presumed = {};  ///< variables of it that a sourced file may assign which is not there
};

/// What is not followed: a loop, a function, a branch whose condition is not known.
struct ShellSkip {
  std::string what;
  Place place;
  bool trains = false;   ///< it may start a training
  bool assigns = false;  ///< a file that is not there, and may assign what the script assigned before
};

struct ShellScript {
  std::set<std::string> taken_for_unset;        ///< variables that tests ask about and nothing assigns
  std::vector<ShellCommand> commands;           ///< simple ones, in their order; of branches those that are taken
  std::map<std::string, std::string> exported;  ///< environment at the end, as far as it is known
  std::vector<ShellSkip> skips;
  std::vector<ShellSkip> found;  ///< sourced files that are not where the script says, but lie about it
  /// Variables that an if may assign whose condition is not known, and all that they may hold.
  std::map<std::string, std::vector<std::string>> candidates;
  Place stopped;  ///< where it ends itself with a failure: `exit 1`
};

enum class FailingExits : std::uint8_t { Followed, PassedOver };

/// Quotes, continuations, comments, variables, arrays, defaults ("${N:-8}"), arithmetic, groups, shells within shells,
/// `if`, && and || on plain tests, `export`, and what Slurm sets by #SBATCH lines. What is not followed may have
/// assigned variables: those that it names, or all of them, are unknown behind it. `given` are variables from outside,
/// the script's own assignments aside. Throws InputError where the syntax is wrong, or where it comes to too much.
[[nodiscard]] ShellScript read_shell(std::string_view text, const std::string& file,
                                     const std::map<std::string, std::string>& given = {},
                                     FailingExits exits = FailingExits::Followed);

}  // namespace tidemark::scenarios
