#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/shell/shell_arithmetic.hpp"
#include "scenarios/convert/shell/shell_reader.hpp"

namespace tidemark::scenarios {

ShellStatus ShellReader::simple(const ShellNode& its) {
  shared_->spend_step(its.place());
  shared_->presumed.clear();
  WordList words;
  const bool tests = !its.words.empty() && is_one_of(its.text(its.words.front()), {"[", "test"});
  const std::optional<ReadingTest> requested =
      tests ? std::optional<ReadingTest>(std::in_place, shell_.expansion) : std::nullopt;
  for (const ShellSpan& span : its.words) {
    const ShellFields fields = expand(its, span, ShellContext::Arguments);
    words.insert(words.end(), fields.words.begin(), fields.words.end());
  }
  Given given;
  for (const auto& redirection : its.redirections) redirect(its, *redirection, given);
  const bool declares = !its.words.empty() && is_declaration(its.text(its.words.front()));
  if (words.empty()) {
    for (const ShellAssignment& one : its.assignments) {
      set(its, one);
      if (shell_.exports_all) shell_.exported.insert(one.name);
    }
    const std::string_view all = its.text(its.span);
    const bool substitutes = all.find("$(") != std::string_view::npos || all.find('`') != std::string_view::npos;
    return substitutes || !its.words.empty() ? ShellStatus::Presumed : ShellStatus::Success;
  }
  if (declares) return declare(its, words);
  for (const ShellAssignment& one : its.assignments) given.own[one.name] = value_of(its, one);
  return called(its, std::move(words), std::move(given));
}

namespace {

// [3]=… and [3]+=…; [0]*3+[1]*58 is a word.
bool is_numbered(std::string_view element) {
  const std::size_t end = element.find(']');
  if (!element.starts_with('[') || end == std::string_view::npos) return false;
  const std::string_view behind = element.substr(end + 1);
  return behind.starts_with('=') || behind.starts_with("+=");
}

}  // namespace

ShellValue ShellReader::value_of(const ShellNode& its, const ShellAssignment& one) {
  std::set<std::string> before = std::exchange(shared_->presumed, {});
  ShellValue value = value_as_written(its, one);
  value.presumed = shared_->presumed;
  shared_->presumed.merge(before);
  return value;
}

ShellValue ShellReader::value_as_written(const ShellNode& its, const ShellAssignment& one) {
  if (one.element) return {{}, false, "an element is assigned"};
  ShellValue value{.words = {}, .array = one.array};
  if (!one.array) {
    const Place place = ShellCursor(*its.source, one.value).here();
    const ShellFields fields = expand(its, one.value, ShellContext::Value);
    value.words.push_back({{}, place});
    for (std::size_t i = 0; i < fields.words.size(); ++i)
      value.words.front().text += (i > 0 ? " " : "") + fields.words[i].text;
    return value;
  }
  for (const ShellSpan& element : one.elements) {
    if (is_numbered(its.text(element))) value.doubt = "its elements are numbered";
    const ShellFields fields = expand(its, element, ShellContext::Arguments);
    value.words.insert(value.words.end(), fields.words.begin(), fields.words.end());
  }
  return value;
}

void ShellReader::set(const ShellNode& its, const ShellAssignment& one) {
  ShellValue value = value_of(its, one);
  ShellExpansion& expansion = shell_.expansion;
  if (value.doubt.empty()) return expansion.assign(one.name, std::move(value), one.adds);
  if (one.element) expansion.variables[one.name].array = true;
  expansion.doubt(one.name, fmt::format("{} in line {}", value.doubt, its.place().line));
}

void ShellReader::redirect(const ShellNode& its, const ShellRedirection& one, Given& given) {
  if (one.sign == "<<") {
    given.document =
        one.quoted ? std::string(its.text(one.document)) : shell_.expansion.document(*its.source, one.document);
    if (!one.without_tabs) return;
    std::string without;
    for (const char c : *given.document)
      if (c != '\t' || (!without.empty() && without.back() != '\n')) without += c;
    given.document = std::move(without);
    return;
  }
  const ShellFields fields = expand(its, one.target, ShellContext::Value);
  const std::string target = fields.words.empty() ? std::string() : file_name(fields.words.front().text);
  if (one.sign == "<<<") {
    given.document = target + '\n';
  } else if (one.sign.find('>') != std::string::npos && one.sign != "<>" && !target.empty() &&
             std::isdigit(static_cast<unsigned char>(target.front())) == 0) {
    given.file = target;
    given.adds = one.sign == ">>" || one.sign == "&>>";
    if (const auto known = files_.find(target); known != files_.end() && given.adds) given.before = known->second;
    ShellExpansion::is_known(target) ? (void)files_.erase(target) : files_.clear();
  }
}

ShellStatus ShellReader::called(const ShellNode& its, WordList words, Given given) {
  const std::string front = words.front().text;
  if (!ShellExpansion::is_known(front)) return unknown_command(its, std::move(words), given);
  if (is_one_of(front, {"command", "builtin", "exec", "env", "nohup"})) {
    if (front == "exec" && words.size() == 1) return ShellStatus::Success;  // of redirections alone
    if (front == "command" && words.size() > 1 && words[1].text.starts_with("-")) return ShellStatus::Unknown;
    std::size_t next = 1;
    while (next < words.size() && words[next].text.starts_with('-')) ++next;
    if (front == "env")
      for (; next < words.size(); ++next) {
        const std::size_t sign = words[next].text.find('=');
        if (sign == std::string::npos || !is_name(words[next].text.substr(0, sign))) break;
        given.own[words[next].text.substr(0, sign)] = {{{words[next].text.substr(sign + 1), words[next].place}}};
      }
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(next));
    if (words.empty()) return ShellStatus::Success;
    const bool ends = front == "exec" && shell_.expansion.unsure.empty();
    const ShellStatus last = called(its, std::move(words), std::move(given));
    shell_.ended |= ends;
    return last;
  }
  if (is_one_of(front, {"eval", "source", "."}) || shell_.functions.contains(front))
    for (const auto& [name, value] : given.own)
      shell_.expansion.doubt(name, fmt::format("line {} gives it to {}", its.place().line, front));
  if (const auto body = shell_.functions.find(front); body != shell_.functions.end())
    return function(its, std::move(words), given);
  if (front == "read" && reads(words, given)) return ShellStatus::Presumed;
  if (const std::optional<ShellStatus> done = builtin(its, words)) return *done;
  return program(std::move(words), given);
}

// Only running it would tell what is called: it may be `export`.
ShellStatus ShellReader::unknown_command(const ShellNode& its, WordList words, const Given& given) {
  ShellEffects found;
  const bool file = words.front().text.find('/') != std::string::npos;
  for (std::size_t i = 1; i < words.size() && !file; ++i) {
    found.all |= !ShellExpansion::is_known(words[i].text);
    const std::set<std::string> names = assigned_by_arithmetic(words[i].text + "=");  // all in it
    found.names.insert(names.begin(), names.end());
  }
  record(std::move(words), given);
  doubt(found, fmt::format("a command in line {} may assign it", its.place().line));
  return ShellStatus::Presumed;
}

// A function runs where it is called, with arguments of its own. Not followed: where only running it would tell which
// of several it is, or that it comes to pass; a call of itself.
ShellStatus ShellReader::function(const ShellNode& its, WordList words, const Given& given) {
  const std::string name = words.front().text;
  const std::vector<ShellNodePtr>& bodies = shell_.functions.at(name);
  ShellEffects found;
  for (const ShellNodePtr& body : bodies) add(found, effects(*body));
  const ShellNodePtr body = bodies.front();
  const bool follows =
      bodies.size() == 1 && given.own.empty() && shell_.expansion.unsure.empty() && entered_.insert(name).second;
  if (!follows) {
    note("a function", its.place(), found);
    return ShellStatus::Unknown;
  }
  shared_->enter(its.place());
  std::map<std::string, ShellValue>& variables = shell_.expansion.variables;
  std::map<std::string, ShellValue> outer;
  for (auto it = variables.begin(); it != variables.end();)
    if (is_positional(it->first)) {
      outer.insert(variables.extract(it++));
    } else {
      ++it;
    }
  const std::string doubt_outside = std::exchange(shell_.expansion.arguments_doubt, {});
  const WordList arguments_outside = std::exchange(shell_.expansion.arguments, {});
  for (std::size_t i = 1; i < words.size(); ++i) variables[std::to_string(i)] = {{words[i]}};
  shell_.expansion.arguments.assign(words.begin() + 1, words.end());
  const std::map<std::string, std::optional<ShellValue>> locals_outside = std::exchange(locals_, {});
  ++functions_;
  const ShellStatus last = run(*body);
  --functions_;
  if (returned_) shell_.ended = returned_ = false;
  for (auto& [local, before] : locals_)
    if (before)
      variables[local] = *before;
    else
      variables.erase(local);
  locals_ = locals_outside;
  std::erase_if(variables, [](const auto& one) { return is_positional(one.first); });
  variables.merge(outer);
  shell_.expansion.arguments_doubt = doubt_outside;
  shell_.expansion.arguments = arguments_outside;
  --shared_->depth;
  entered_.erase(name);
  return last;
}

bool ShellReader::is_positional(const std::string& name) {
  return !name.empty() && name != "0" &&
         std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace tidemark::scenarios
