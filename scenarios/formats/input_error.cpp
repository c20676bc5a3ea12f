#include "scenarios/formats/input_error.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

std::string text(const std::vector<Problem>& problems) {
  std::string all;
  for (const Problem& problem : problems) {
    if (!all.empty()) all += '\n';
    all += scenarios::text(problem);
  }
  return all;
}

// It may have several lines; what an input wrote into it is shown, whatever it is.
std::string printable_lines(std::string_view text) {
  std::string all;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    all += printable(text.substr(0, end)) + '\n';
    text.remove_prefix(end + 1);
  }
  return all + printable(text);
}

}  // namespace

std::string text(const Problem& problem) {
  std::string block = printable(problem.file);
  for (const int number : {problem.line, problem.column}) {
    if (number <= 0) break;
    block += ':';
    block += std::to_string(number);
  }
  if (!block.empty()) block += ": ";
  block += problem.leaves_open ? "not modelled: " : "error: ";
  block += printable_lines(problem.message);
  if (problem.hint.empty()) return block;
  block += "\n  hint: ";
  block += printable_lines(problem.hint);
  return block;
}

InputError::InputError(std::vector<Problem> problems)
    : std::runtime_error(text(problems)), problems_(std::move(problems)) {}

InputError::InputError(Problem problem) : InputError(std::vector<Problem>{std::move(problem)}) {}

bool InputError::leaves_open() const {
  return !problems_.empty() && std::ranges::all_of(problems_, &Problem::leaves_open);
}

InputError with_file(const InputError& error, const std::string& scenario) {
  std::vector<Problem> problems = error.problems();
  const std::string name = std::filesystem::path(scenario).stem().string();
  for (Problem& problem : problems)
    if (!scenario.empty() && problem.file == name) problem.file = scenario;
  return InputError(std::move(problems));
}

}  // namespace tidemark::scenarios
