#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// What goes wrong. Nothing else is thrown by the library.

namespace tidemark {

/// One thing that is wrong with the input: where, what was found and why it cannot work, and what would. Lines and
/// columns count from 1; 0 where the place is not known.
struct Problem {
  std::string file;
  int line = 0, column = 0;
  std::string message, hint;
  bool operator==(const Problem&) const = default;
};

/// The input is wrong. `what()` shows every problem that was found.
class InputError : public std::runtime_error {
 public:
  InputError(const std::string& what, std::vector<Problem> problems)
      : std::runtime_error(what), problems_(std::move(problems)) {}
  [[nodiscard]] const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

/// Tidemark or its machine failed: an invariant does not hold, memory ran out.
class InternalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tidemark
