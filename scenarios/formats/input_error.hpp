#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// One thing that is wrong with the input: where, what was found and why it cannot work, and what would.
/// `line` and `column` count from 1; 0 where the place is not known.
struct Problem {
  std::string file;
  int line = 0;
  int column = 0;
  std::string message;
  std::string hint;
  bool not_modelled = false;  ///< nothing is wrong with it: a launch file asks for more than is modelled

  bool operator==(const Problem&) const = default;
};

/// The problem as compilers print theirs: "file:line:column: error: message" and, below it, "  hint: hint". "not
/// modelled" stands for "error" where nothing is wrong.
std::string text(const Problem& problem);

/// The input is wrong. Carries every problem that was found; `what()` shows them all, one block each.
class InputError : public std::runtime_error {
 public:
  explicit InputError(std::vector<Problem> problems);
  explicit InputError(Problem problem);

  [[nodiscard]] const std::vector<Problem>& problems() const { return problems_; }
  /// Nothing is wrong with the input, and nobody can say what becomes of it: it asks for what is not modelled.
  [[nodiscard]] bool leaves_open() const;

 private:
  std::vector<Problem> problems_;
};

/// Some problems are known of a scenario that has only a name any more: they get its file.
[[nodiscard]] InputError with_file(const InputError& error, const std::string& scenario);

}  // namespace tidemark::scenarios
