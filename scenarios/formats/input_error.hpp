#pragma once

#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// What is the matter with something that an input says.
enum class ProblemKind : std::uint8_t {
  Wrong,        ///< nobody could take it
  NotModelled,  ///< nothing is wrong with it: it asks for more than is modelled
};

/// A problem in words, and its kind, which is said where the words are.
struct ProblemText {
  template <class Text>
  requires(std::constructible_from<std::string, Text> && !std::same_as<std::remove_cvref_t<Text>, ProblemText>)
      ProblemText(Text&& words)
      : text(std::forward<Text>(words)) {}  // NOLINT: most problems are plain words
  ProblemText(std::string words, ProblemKind its) : text(std::move(words)), kind(its) {}

  std::string text;
  ProblemKind kind = ProblemKind::Wrong;
};
[[nodiscard]] inline ProblemText not_modelled(std::string words) {
  return {std::move(words), ProblemKind::NotModelled};
}

/// One thing that is wrong with the input: where, what was found and why it cannot work, and what would.
/// `line` and `column` count from 1; 0 where the place is not known.
struct Problem {
  std::string file;
  int line = 0;
  int column = 0;
  std::string message;
  std::string hint;
  ProblemKind kind = ProblemKind::Wrong;
  bool leaves_open = false;  ///< it is not modelled, and of a launch file: the answer is open, and nothing is refused

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
