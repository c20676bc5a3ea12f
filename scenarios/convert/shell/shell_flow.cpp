#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/shell/shell_arithmetic.hpp"
#include "scenarios/convert/shell/shell_conditions.hpp"
#include "scenarios/convert/shell/shell_reader.hpp"

namespace tidemark::scenarios {
namespace {

ShellStatus status_of_answer(ShellAnswer answer) {
  return !answer ? ShellStatus::Unknown : *answer ? ShellStatus::Success : ShellStatus::Failure;
}

}  // namespace

ShellStatus ShellReader::list(const ShellNode& its) {
  ShellStatus last = ShellStatus::Success;
  for (std::size_t i = 0; i < its.parts.size() && !shell_.ended; ++i) {
    const ShellNode& part = *its.parts[i];
    if (its.signs[i] == '&') {
      (void)apart(part);
      last = ShellStatus::Success;
      continue;
    }
    last = run(part);
    const bool counts =
        part.kind != ShellNode::Kind::AndOr && !part.inverted && part.kind != ShellNode::Kind::If && conditions_ == 0;
    if (counts && last == ShellStatus::Failure && shell_.exits_on_failure) shell_.ended = true;
  }
  return last;
}

ShellStatus ShellReader::and_or(const ShellNode& its) {
  ++conditions_;
  ShellStatus last = run(*its.parts.front());
  --conditions_;
  for (std::size_t i = 1; i < its.parts.size() && !shell_.ended; ++i) {
    const ShellNode& part = *its.parts[i];
    const bool and_then = its.signs[i - 1] == '&';
    if (last == ShellStatus::Unknown && is_test(part)) {
      const ShellStatus right = run(part);
      if (right == (and_then ? ShellStatus::Failure : ShellStatus::Success)) last = right;
    } else if (last == ShellStatus::Unknown) {
      (void)skip(part, "what stands behind a condition that only running it would tell");
    } else if (last == ShellStatus::Presumed && and_then) {
      const std::string before = shell_.expansion.unsure;
      if (before.empty())
        shell_.expansion.unsure = fmt::format("what stands behind && in line {} may assign it", part.place().line);
      last = run(part);
      shell_.expansion.unsure = before;
      if (last == ShellStatus::Success || last == ShellStatus::Failure) last = ShellStatus::Presumed;
    } else if (last == ShellStatus::Presumed) {
      doubt(effects(part), fmt::format("what stands behind || in line {} may assign it", part.place().line));
    } else if ((last == ShellStatus::Success) == and_then) {
      if (i + 1 < its.parts.size()) ++conditions_;
      last = run(part);
      if (i + 1 < its.parts.size())
        --conditions_;
      else if (last == ShellStatus::Failure && shell_.exits_on_failure && conditions_ == 0)
        shell_.ended = true;
    }
  }
  return last;
}

// A test that changes nothing, whether it is come to or not.
bool ShellReader::is_test(const ShellNode& its) {
  const bool words = its.kind == ShellNode::Kind::Simple && !its.words.empty() &&
                     is_one_of(its.text(its.words.front()), {"[", "test", "true", "false", ":"});
  return (words || its.kind == ShellNode::Kind::Test) && effects(its).names.empty();
}

ShellStatus ShellReader::pipeline(const ShellNode& its) {
  ShellStatus last = ShellStatus::Success;
  if (its.parts.size() == 1) {
    ++conditions_;
    last = run(*its.parts.front());
    --conditions_;
  } else {
    for (const ShellNodePtr& part : its.parts) last = apart(*part);
    if (last == ShellStatus::Success || last == ShellStatus::Failure) last = ShellStatus::Unknown;  // pipefail
  }
  if (!its.inverted) return last;
  return last == ShellStatus::Success   ? ShellStatus::Failure
         : last == ShellStatus::Failure ? ShellStatus::Success
                                        : ShellStatus::Unknown;
}

// In a shell of its own, whose variables are its own.
ShellStatus ShellReader::apart(const ShellNode& its) {
  const ShellEffects found = effects(its);
  if (found.names.empty() && !found.all && !found.arguments && found.defines.empty() &&
      its.kind == ShellNode::Kind::Simple && !ends(its))
    return run(its);
  shared_->spend_bytes(shell_.expansion.variables.size() * sizeof(ShellValue), its.place());
  ShellState outer = shell_;
  const ShellStatus last = run(its);
  shell_ = std::move(outer);
  return last;
}

bool ShellReader::ends(const ShellNode& its) {
  return !its.words.empty() && is_one_of(its.text(its.words.front()), {"exit", "exec", "return"});
}

ShellStatus ShellReader::conditional(const ShellNode& its) {
  std::size_t i = 0;
  for (; i + 1 < its.parts.size(); i += 2) {
    ++conditions_;
    const ShellStatus said = run(*its.parts[i]);
    --conditions_;
    presume_behind();
    if (said == ShellStatus::Success) {
      for (std::size_t k = i + 2; k < its.parts.size(); ++k) leave_out(*its.parts[k]);
      return run(*its.parts[i + 1]);
    }
    if (said == ShellStatus::Failure) {
      leave_out(*its.parts[i + 1]);
      continue;
    }
    ShellEffects together;
    for (std::size_t k = i + 1; k < its.parts.size(); ++k) add(together, effects(*its.parts[k]));
    std::map<std::string, std::vector<std::string>> held = candidates(its, i + 1, together);
    note("an if whose condition only running it would tell", its.place(), together);
    shared_->candidates.merge(held);
    return ShellStatus::Unknown;
  }
  return i < its.parts.size() ? run(*its.parts[i]) : ShellStatus::Success;
}

// What a variable may hold behind an if: what it holds before, and what bodies assign that do nothing else to it.
std::map<std::string, std::vector<std::string>> ShellReader::candidates(const ShellNode& its, std::size_t first,
                                                                        const ShellEffects& all) {
  std::map<std::string, std::vector<std::string>> made;
  if (all.all) return made;
  for (const std::string& name : all.names) {
    const auto before = shell_.expansion.variables.find(name);
    const bool is_text = before == shell_.expansion.variables.end() ||
                         (!before->second.array && before->second.doubt.empty() && before->second.words.size() == 1);
    if (!is_text || shell_.expansion.fixed.contains(name)) continue;
    std::vector<std::string> held{before == shell_.expansion.variables.end() ? std::string()
                                                                             : before->second.words.front().text};
    bool known = true;
    for (std::size_t k = first; k < its.parts.size() && known; ++k) known = held_behind(*its.parts[k], name, held);
    if (known && std::ranges::all_of(held, ShellExpansion::is_known)) made.emplace(name, std::move(held));
  }
  return made;
}

// Adds what a body assigns to the variable; false where it does so in another way.
bool ShellReader::held_behind(const ShellNode& body, const std::string& name, std::vector<std::string>& held) {
  if (!effects(body).names.contains(name)) return true;
  if (body.kind == ShellNode::Kind::List)
    return std::ranges::all_of(body.parts, [&](const ShellNodePtr& part) { return held_behind(*part, name, held); });
  if (body.kind != ShellNode::Kind::Simple || !body.words.empty()) return false;
  for (const ShellAssignment& one : body.assignments) {
    if (one.name != name) continue;
    const ShellValue value = value_of(body, one);
    if (one.adds || one.element || value.array || value.words.size() != 1) return false;
    held.push_back(value.words.front().text);
  }
  return true;
}

// Of a case, the bodies of the first pattern that the word is like. Where it or a pattern before that is not known,
// the case is not followed.
ShellStatus ShellReader::chosen(const ShellNode& its) {
  shared_->presumed.clear();
  const std::optional<std::string> word = known_text(its, its.words.front(), false);
  presume_behind();
  bool runs = false, ended_by_next = false;
  std::vector<const ShellNode*> taken;
  std::size_t pattern = 1, body = 0;
  if (!word) return skip(its, "a case");
  for (const char sign : its.signs) {
    if (sign == 'p') {
      if (runs || ended_by_next || !taken.empty()) {
        ++pattern;
        continue;
      }
      const std::optional<std::string> its_text = known_text(its, its.words[pattern++], true);
      if (!its_text) return skip(its, "a case");
      runs = is_like(*word, *its_text);
      continue;
    }
    if (runs) {
      if (sign == '+') return skip(its, "a case");
      taken.push_back(its.parts[body].get());
      ended_by_next = sign == ';';
      runs = sign == '&';
    }
    ++body;
  }
  for (const ShellNodePtr& part : its.parts)
    if (std::ranges::find(taken, part.get()) == taken.end()) leave_out(*part);
  ShellStatus last = ShellStatus::Success;
  for (const ShellNode* part : taken) last = run(*part);
  return last;
}

// What comes next depends on all that was just read.
void ShellReader::presume_behind() { presumed_.insert(shared_->presumed.begin(), shared_->presumed.end()); }

// Nothing where only running it would tell, or where quotes hide what is special in a pattern.
std::optional<std::string> ShellReader::known_text(const ShellNode& its, const ShellSpan& span, bool pattern) {
  const ReadingTest requested(shell_.expansion);
  const std::string_view raw = its.text(span);
  ShellFields fields = expand(its, span, ShellContext::Value);
  std::string text;
  for (std::size_t i = 0; i < fields.words.size(); ++i) text += (i > 0 ? " " : "") + fields.words[i].text;
  const bool special = (text + std::string(raw)).find_first_of("*?[") != std::string::npos;
  const bool quoted = raw.find_first_of("'\"\\") != std::string_view::npos;
  if (!ShellExpansion::is_known(text) || (pattern && special && (quoted || raw.find('$') != std::string_view::npos)))
    return std::nullopt;
  return text;
}

// Variables that a branch would assign which is not taken: without it they are empty.
void ShellReader::leave_out(const ShellNode& its) {
  const ShellEffects found = effects(its);
  shared_->left_out.insert(found.names.begin(), found.names.end());
}

ShellStatus ShellReader::arithmetic_command(const ShellNode& its) {
  const std::string inside(its.text(its.words.front()));
  const std::set<std::string> assigned = assigned_by_arithmetic(inside);
  for (const std::string& name : assigned)
    shell_.expansion.doubt(name, fmt::format("arithmetic in line {} may assign it", its.place().line));
  if (!assigned.empty()) return ShellStatus::Unknown;
  const auto number = arithmetic(inside, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = shell_.expansion.variables.find(name);
    if (found == shell_.expansion.variables.end() || found->second.words.empty()) return std::nullopt;
    return found->second.words.front().text;
  });
  return !number ? ShellStatus::Unknown : *number != 0 ? ShellStatus::Success : ShellStatus::Failure;
}

ShellStatus ShellReader::test(const ShellNode& its) {
  WordList words{{"[[", its.place()}};
  bool compares = false;  // what follows is a pattern
  const ReadingTest requested(shell_.expansion);
  for (std::size_t i = 0; i < its.words.size(); ++i) {
    const std::string_view raw = its.text(its.words[i]);
    if (its.signs[i] != ' ') {
      words.push_back({std::string(raw), its.place(), "an operator"});
      continue;
    }
    const bool is_quoted = compares && raw.find_first_of("'\"\\") != std::string_view::npos;
    compares = is_one_of(raw, {"=", "==", "!="});
    ShellFields fields = expand(its, its.words[i], ShellContext::Value);
    std::string text;
    for (std::size_t k = 0; k < fields.words.size(); ++k) text += (k > 0 ? " " : "") + fields.words[k].text;
    const bool looks_like_pattern = (text + std::string(raw)).find_first_of("*?[") != std::string::npos;
    words.push_back({text, its.place(), is_quoted && looks_like_pattern ? "a pattern" : ""});
  }
  words.push_back({"]]", its.place()});
  return status_of_answer(answer_of(words));
}

ShellFields ShellReader::expand(const ShellNode& its, const ShellSpan& word, ShellContext context) {
  return shell_.expansion.word(*its.source, word, context);
}

// What a part may do, whichever way it goes.
ShellEffects ShellReader::effects(const ShellNode& its) {
  std::set<std::string> used;
  const auto text_of = [&](const ShellNode& node, const ShellSpan& word) -> std::optional<std::string> {
    const std::string_view raw = node.text(word);
    if (raw == "[") return std::string(raw);  // a test, and no pattern
    if (raw.find_first_of("`$<>*?[~\\\"'{") == std::string_view::npos) return std::string(raw);
    const bool names = raw.starts_with('$') && is_name(raw.substr(1));
    if (!names && raw.find_first_of("`$<>*?[~{") != std::string_view::npos) return std::nullopt;
    const ShellFields fields = expand(node, word, ShellContext::Arguments);
    if (fields.words.size() != 1 || !ShellExpansion::is_known(fields.words.front().text)) return std::nullopt;
    if (names) used.emplace(raw.substr(1));
    return fields.words.front().text;
  };
  ShellEffects found = effects_of(its, shell_.functions, text_of);
  found.all |= std::ranges::any_of(used, [&](const std::string& name) { return found.names.contains(name); });
  return found;
}

void ShellReader::add(ShellEffects& to, const ShellEffects& more) {
  to.names.insert(more.names.begin(), more.names.end());
  to.all |= more.all, to.arguments |= more.arguments, to.trains |= more.trains;
  for (const auto& [name, bodies] : more.defines) {
    std::vector<ShellNodePtr>& all = to.defines[name];
    all.insert(all.end(), bodies.begin(), bodies.end());
  }
}

void ShellReader::doubt(const ShellEffects& found, const std::string& why) {
  ShellExpansion& expansion = shell_.expansion;
  if (found.all) expansion.doubt_all(why);
  for (const std::string& name : found.names) expansion.doubt(name, why);
  if (found.arguments) expansion.arguments_doubt = why;
  for (const auto& [name, bodies] : found.defines) {
    std::vector<ShellNodePtr>& all = shell_.functions[name];
    all.insert(all.end(), bodies.begin(), bodies.end());
  }
}

void ShellReader::note(const std::string& what, Place place, const ShellEffects& found) {
  script_.skips.push_back({what, place, found.trains});
  doubt(found, fmt::format("{} in line {} may assign it", what, place.line));
}

ShellStatus ShellReader::skip(const ShellNode& its, const std::string& what) {
  shared_->spend_step(its.place());
  const ShellEffects found = effects(its);
  note(what, its.place(), found);
  forget_files(std::string(its.text(its.span)));
  return ShellStatus::Unknown;
}

}  // namespace tidemark::scenarios
