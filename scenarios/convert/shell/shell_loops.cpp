#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/shell/shell_reader.hpp"

namespace tidemark::scenarios {
namespace {

// Loops that wait for something have no end.
constexpr int most_turns = 256;

// Whether a turn may end before its body does.
bool leaves_a_turn(const ShellNode& its) {
  if (its.kind == ShellNode::Kind::Function) return false;
  if (!its.words.empty() && is_one_of(its.text(its.words.front()), {"break", "continue"})) return true;
  return std::ranges::any_of(its.parts, [](const ShellNodePtr& part) { return leaves_a_turn(*part); });
}

}  // namespace

// A loop whose turns are known before each of them; any other is passed over. Of one that starts a training, a turn at
// most is followed: a scenario is of one.
ShellStatus ShellReader::loop(const ShellNode& its) {
  const std::string what = fmt::format("a loop ({})", its.name);
  const bool is_for = its.name == "for";
  const bool follows = its.redirections.empty() && (!is_for || (!its.variable.empty() && !its.words.empty()));
  if (!follows || its.name == "select") return skip(its, what);
  return is_for ? for_each(its, what) : turns(its, what);
}

// while, until.
ShellStatus ShellReader::turns(const ShellNode& its, const std::string& what) {
  const ShellStatus ends = its.name == "while" ? ShellStatus::Failure : ShellStatus::Success;
  const ShellNode& body = *its.parts.back();
  const bool one_turn = effects(body).trains || leaves_a_turn(body);
  for (int turn = 0; turn < most_turns; ++turn) {
    ++conditions_;
    const ShellStatus said = run(*its.parts.front());
    --conditions_;
    presume_behind();
    if (said == ends && turn == 0) leave_out(body);
    if (said == ends) return ShellStatus::Success;
    if (one_turn || (said != ShellStatus::Success && said != ShellStatus::Failure)) break;
    (void)run(body);
    if (shell_.ended) return ShellStatus::Success;
  }
  return skip(its, what);
}

ShellStatus ShellReader::for_each(const ShellNode& its, const std::string& what) {
  WordList values;
  for (const ShellSpan& span : its.words) {
    const ShellFields fields = expand(its, span, ShellContext::Arguments);
    values.insert(values.end(), fields.words.begin(), fields.words.end());
  }
  const ShellNode& body = *its.parts.back();
  const auto is_known = [](const ShellWord& word) {
    return word.unknown.empty() && ShellExpansion::is_known(word.text);
  };
  const bool follows = std::ranges::all_of(values, is_known) && values.size() <= most_turns &&
                       (values.empty() || (!leaves_a_turn(body) && (values.size() == 1 || !effects(body).trains)));
  if (!follows) return skip(its, what);
  presume_behind();
  if (values.empty()) leave_out(body);
  ShellStatus last = ShellStatus::Success;
  for (ShellWord& value : values) {
    shell_.expansion.assign(its.variable, {{std::move(value)}});
    last = run(body);
    if (shell_.ended) return ShellStatus::Success;
  }
  return last;
}

// What comes behind is $1 then. Of arguments that nobody gave the script, which they are is not known.
ShellStatus ShellReader::shift(const WordList& words, int line) {
  ShellExpansion& expansion = shell_.expansion;
  std::size_t count = 1;
  bool is_count = words.size() <= 2;
  if (is_count && words.size() == 2) {
    const std::string& text = words[1].text;
    is_count = text.size() == 1 && text.front() >= '0' && text.front() <= '9';
    count = is_count ? static_cast<std::size_t>(text.front() - '0') : 0;
  }
  const bool given = functions_ > 0 || !expansion.arguments.empty();
  if (!is_count || !given || !expansion.unsure.empty() || !expansion.arguments_doubt.empty()) {
    lose_arguments(fmt::format("shift in line {} changes it", line));
    return ShellStatus::Unknown;
  }
  if (count > expansion.arguments.size()) return ShellStatus::Failure;
  WordList left(expansion.arguments.begin() + static_cast<std::ptrdiff_t>(count), expansion.arguments.end());
  take_arguments(std::move(left));
  return ShellStatus::Success;
}

// Of a function; those of the script are as they are told from outside.
void ShellReader::lose_arguments(std::string why) {
  shell_.expansion.arguments_doubt = std::move(why);
  if (functions_ > 0)
    std::erase_if(shell_.expansion.variables, [](const auto& one) { return is_positional(one.first); });
}

// $1, $2 … and $@.
void ShellReader::take_arguments(WordList arguments) {
  ShellExpansion& expansion = shell_.expansion;
  std::erase_if(expansion.fixed, is_positional);
  std::erase_if(expansion.variables, [](const auto& one) { return is_positional(one.first); });
  for (std::size_t i = 0; i < arguments.size(); ++i) expansion.variables[std::to_string(i + 1)] = {{arguments[i]}};
  expansion.arguments = std::move(arguments);
}

}  // namespace tidemark::scenarios
