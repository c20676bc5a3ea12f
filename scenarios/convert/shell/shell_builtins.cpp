#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/shell/shell_arithmetic.hpp"
#include "scenarios/convert/shell/shell_conditions.hpp"
#include "scenarios/convert/shell/shell_read.hpp"
#include "scenarios/convert/shell/shell_reader.hpp"

namespace tidemark::scenarios {

ShellStatus ShellReader::declare(const ShellNode& its, const WordList& words) {
  if (!words.empty() && words.front().text == "local") return declare_local(its, words);
  const bool exports = words.front().text == "export";
  std::string flags;
  for (std::size_t i = 1; i < words.size(); ++i)
    if (words[i].text.starts_with('-') || words[i].text.starts_with('+')) flags += words[i].text;
  const std::string why = fmt::format("line {} declares it", its.place().line);
  if (!exports && flags.find('n') != std::string::npos) shell_.expansion.lose_track(why);  // a name of a name
  const bool odd = flags.find_first_of("iAluc") != std::string::npos;
  const bool is_exported = (exports && flags.find_first_of("nf") == std::string::npos) ||
                           (!exports && flags.find('x') != std::string::npos) || shell_.exports_all;
  const auto declared = [&](const std::string& name) {
    if (odd || words.front().text == "readonly" || flags.find('r') != std::string::npos)
      shell_.expansion.odd.insert(name);
    if (exports && flags.find('n') != std::string::npos) {
      shell_.expansion.odd.insert(name);
      shell_.expansion.doubt(name, why);
    }
    if (odd) shell_.expansion.doubt(name, why);
    if (is_exported) shell_.exported.insert(name);
  };
  for (const ShellAssignment& one : its.assignments) {
    set(its, one);
    declared(one.name);
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    if (text.starts_with('-') || text.starts_with('+')) continue;
    const std::size_t sign = text.find('=');
    const std::string name = text.substr(0, sign);
    if (!is_name(name)) {
      if (flags.find('f') == std::string::npos)
        shell_.expansion.doubt_all(fmt::format("{} in line {} may assign it", words.front().text, its.place().line));
      continue;
    }
    if (sign != std::string::npos) shell_.expansion.assign(name, {{{text.substr(sign + 1), words[i].place}}});
    if (sign == std::string::npos && flags.find('a') != std::string::npos && !shell_.expansion.variables.contains(name))
      shell_.expansion.assign(name, {.words = {}, .array = true});
    declared(name);
  }
  return ShellStatus::Success;
}

ShellStatus ShellReader::declare_local(const ShellNode& its, const WordList& words) {
  if (functions_ == 0) return ShellStatus::Failure;
  const auto keep = [&](const std::string& name) {
    const auto known = shell_.expansion.variables.find(name);
    locals_.emplace(name, known == shell_.expansion.variables.end() ? std::nullopt : std::optional(known->second));
    if (known != shell_.expansion.variables.end() && !shell_.expansion.fixed.contains(name))
      shell_.expansion.variables.erase(known);
  };
  for (const ShellAssignment& one : its.assignments) {
    const ShellValue value = value_of(its, one);  // may be of what it hides
    keep(one.name);
    if (value.doubt.empty())
      shell_.expansion.assign(one.name, value);
    else
      shell_.expansion.doubt(one.name, fmt::format("{} in line {}", value.doubt, its.place().line));
  }
  for (std::size_t i = 1; i < words.size(); ++i)
    if (is_name(words[i].text)) keep(words[i].text), shell_.expansion.assign(words[i].text, {{{{}, its.place()}}});
  return ShellStatus::Success;
}

// Commands of the shell itself; nothing where it is none.
std::optional<ShellStatus> ShellReader::builtin(const ShellNode& its, const WordList& words) {
  const std::string& front = words.front().text;
  const int line = its.place().line;
  ShellExpansion& expansion = shell_.expansion;
  if (front == "eval") return evaluate(words);
  if (front == "source" || front == ".") return source(its, words);
  if (is_declaration(front)) return declare(its, words);  // behind `command`
  if (front == "exit" || front == "return") return leave(words, its.place());
  if (front == "set") return set_options(its, words);
  if (front == "shift") return shift(words, line);
  if (front == "trap") {
    if (std::ranges::any_of(words, [](const ShellWord& w) { return is_one_of(w.text, {"DEBUG", "RETURN", "ERR"}); }))
      expansion.lose_track(fmt::format("a trap in line {} may assign it", line));
    return ShellStatus::Success;
  }
  if (front == "alias" || front == "enable") return ShellStatus::Success;  // no effect without expand_aliases
  if (front == "shopt") {
    for (std::size_t i = 1; i < words.size(); ++i)
      if (!words[i].text.starts_with('-') &&
          !is_one_of(words[i].text, {"nullglob", "globstar", "dotglob", "failglob", "huponexit", "extglob"}))
        changes_reading(its);
    return ShellStatus::Success;
  }
  if (front == "unset") return unset(words, line);
  if (is_one_of(front, {"[", "test", "true", "false", ":"})) {
    const ShellAnswer answer = exit_status_of(words);
    return !answer ? ShellStatus::Unknown : *answer ? ShellStatus::Success : ShellStatus::Failure;
  }
  const std::optional<ShellEffects> assigned = assigned_by_builtin(its, words);
  if (!assigned) return std::nullopt;
  doubt(*assigned, fmt::format("{} in line {} may assign it", front, line));
  return ShellStatus::Unknown;
}

// exit, return.
ShellStatus ShellReader::leave(const WordList& words, Place place) {
  const bool returns = words.front().text == "return";
  const bool fails = !returns && words.size() == 2 && is_one_of(words[1].text, {"1", "2", "-1"});
  if (fails && script_.stopped.line == 0) script_.stopped = words.front().place;
  if (fails && exits_ == FailingExits::PassedOver) return ShellStatus::Success;
  if (shell_.expansion.unsure.empty()) {
    shell_.ended = true;
    returned_ = returns && functions_ > 0;
  } else {
    script_.skips.push_back({"an exit that only running it would tell", place});
  }
  return ShellStatus::Unknown;
}

ShellStatus ShellReader::unset(const WordList& words, int line) {
  ShellEffects found;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string name = words[i].text.substr(0, words[i].text.find('['));
    if (is_name(name))
      found.names.insert(name);
    else
      found.all |= !words[i].text.starts_with('-');
  }
  doubt(found, fmt::format("unset in line {} may assign it", line));
  for (const std::string& name : found.names)
    if (shell_.expansion.unsure.empty()) shell_.exported.erase(name);
  return ShellStatus::Success;
}

// What others assign, which only running them would tell; nothing where it is none of them.
std::optional<ShellEffects> ShellReader::assigned_by_builtin(const ShellNode& its, const WordList& words) {
  const std::string& front = words.front().text;
  if (front == "let") {
    ShellEffects found = effects(its);
    for (std::size_t i = 1; i < words.size(); ++i) {
      found.all |= !ShellExpansion::is_known(words[i].text);
      const std::set<std::string> names = assigned_by_arithmetic(words[i].text);
      found.names.insert(names.begin(), names.end());
    }
    return found;
  }
  if (is_one_of(front, {"read", "mapfile", "readarray", "getopts", "wait"})) {
    ShellEffects found = effects(its);
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (is_name(words[i].text)) found.names.insert(words[i].text);
      found.all |= !ShellExpansion::is_known(words[i].text) && !words[i - 1].text.starts_with('-');
    }
    return found;
  }
  if (front == "printf" && words.size() > 1 && words[1].text.starts_with("-v")) {
    ShellEffects found;
    const std::string name = words[1].text.size() > 2 ? words[1].text.substr(2)
                             : words.size() > 2       ? words[2].text
                                                      : std::string();
    if (is_name(name))
      found.names.insert(name);
    else
      found.all = true;
    return found;
  }
  return std::nullopt;
}

// read, of a here-document or a here-string that is known.
bool ShellReader::reads(const WordList& words, const Given& given) {
  if (!given.document || !ShellExpansion::is_known(*given.document) || !shell_.expansion.unsure.empty()) return false;
  std::optional<std::string> separators;
  if (const auto own = given.own.find("IFS"); own != given.own.end()) {
    if (!own->second.doubt.empty() || own->second.words.size() != 1) return false;
    separators = own->second.words.front().text;
  }
  std::vector<std::string> texts;
  for (const ShellWord& word : words) texts.push_back(word.text);
  const std::optional<std::vector<ShellRead>> made = read_by(texts, *given.document, separators);
  if (!made) return false;
  const Place place = words.front().place;
  for (const ShellRead& one : *made) {
    ShellValue value{.words = {}, .array = one.array};
    for (const std::string& text : one.values) value.words.push_back({text, place});
    shell_.expansion.assign(one.name, std::move(value));
  }
  return true;
}

void ShellReader::changes_reading(const ShellNode& its) {
  ShellCursor(*its.source, its.span)
      .fail(its.place(), fmt::format("{} changes how what follows is read, which is not followed", its.text(its.span)));
}

ShellStatus ShellReader::set_options(const ShellNode& its, const WordList& words) {
  const std::string why = fmt::format("set in line {} changes it", its.place().line);
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    const bool on = text.starts_with('-');
    if (text.size() < 2 || text == "--" || (!on && !text.starts_with('+'))) {
      WordList given(words.begin() + static_cast<std::ptrdiff_t>(text == "--" ? i + 1 : i), words.end());
      const bool known = (text == "--" || !text.starts_with('-')) && shell_.expansion.unsure.empty() &&
                         std::ranges::all_of(given, [](const ShellWord& word) {
                           return word.unknown.empty() && ShellExpansion::is_known(word.text);
                         });
      if (known) shell_.expansion.arguments_doubt.clear();
      known ? take_arguments(std::move(given)) : lose_arguments(why);
      break;
    }
    std::string letters = text.substr(1), option;
    if (letters.find('o') != std::string::npos && i + 1 < words.size()) option = words[++i].text;
    if (letters.find('e') != std::string::npos || option == "errexit") shell_.exits_on_failure = on;
    if (letters.find('a') != std::string::npos || option == "allexport") shell_.exports_all = on;
    // What is left changes how words are read.
    const bool plain = letters.find_first_not_of("aeuvxoETmbh") == std::string::npos &&
                       is_one_of(option, {"", "errexit", "allexport", "pipefail", "nounset", "xtrace", "verbose",
                                          "errtrace", "functrace", "monitor"});
    if (!plain) changes_reading(its);
  }
  return ShellStatus::Success;
}

}  // namespace tidemark::scenarios
