#include "scenarios/convert/shell/shell_words.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/shell/shell_arithmetic.hpp"
#include "scenarios/convert/shell/shell_conditions.hpp"
#include "scenarios/convert/shell/shell_effects.hpp"
#include "scenarios/convert/shell/shell_expansion.hpp"
#include "scenarios/convert/shell/shell_read.hpp"
#include "scenarios/convert/shell/shell_syntax.hpp"
#include "scenarios/convert/shell/slurm_variables.hpp"
#include "scenarios/formats/text_file.hpp"

namespace tidemark::scenarios {
namespace {

using WordList = std::vector<ShellWord>;

// "./job.sh" is "job.sh".
std::string file_name(const std::string& path) { return path.starts_with("./") ? path.substr(2) : path; }
std::string program_of(const std::string& word) { return word.substr(word.rfind('/') + 1); }

/// How a command ends. Programs that nothing is known of are presumed to succeed: what stands behind && is run, and
/// what that assigns is not known.
enum class Status : std::uint8_t { Success, Failure, Presumed, Unknown };

Status status_of(ShellAnswer answer) { return !answer ? Status::Unknown : *answer ? Status::Success : Status::Failure; }

/// One shell: a subshell has a copy.
struct Shell {
  ShellExpansion expansion;
  std::set<std::string> exported;
  ShellFunctions functions;
  bool exits_on_failure = false, exports_all = false;
  bool ended = false;
};

/// While the words of a test are read.
class InTest {
 public:
  explicit InTest(ShellExpansion& expansion) : expansion_(expansion) { expansion_.in_test = true; }
  InTest(const InTest&) = delete;
  InTest& operator=(const InTest&) = delete;
  ~InTest() { expansion_.in_test = false; }

 private:
  ShellExpansion& expansion_;
};

class ShellReader {
 public:
  ShellReader(std::shared_ptr<ShellShared> shared, const std::map<std::string, std::string>& given, FailingExits exits)
      : shared_(std::move(shared)), shell_{ShellExpansion(shared_), {}, {}}, exits_(exits) {
    for (const auto& [name, value] : given) {
      shell_.expansion.variables[name] = {{{value, {}}}};
      shell_.expansion.fixed.insert(name);
    }
  }

  ShellScript read(std::string_view text) {
    set_by_slurm(text);
    const ShellSource& source = shared_->sources.emplace_back(ShellSource{std::string(text), shared_->file});
    (void)run(*parse_shell(source));
    for (const auto& [name, word] : *environment())
      if (word.unknown.empty()) script_.exported[name] = word.text;
    script_.exported.insert(within_.begin(), within_.end());
    script_.taken_for_unset = shared_->unset;
    script_.candidates = shared_->candidates;
    return std::move(script_);
  }

 private:
  // ---- lists

  Status run(const ShellNode& its) {
    if (shell_.ended) return Status::Success;
    if (Given ignored; its.kind != ShellNode::Kind::Simple && its.kind != ShellNode::Kind::Function)
      for (const auto& redirection : its.redirections) redirect(its, *redirection, ignored);
    switch (its.kind) {
      case ShellNode::Kind::Simple:
        return simple(its);
      case ShellNode::Kind::List:
        return list(its);
      case ShellNode::Kind::AndOr:
        return and_or(its);
      case ShellNode::Kind::Pipeline:
        return pipeline(its);
      case ShellNode::Kind::Group:
        return run(*its.parts.front());
      case ShellNode::Kind::Subshell:
        return apart(*its.parts.front());
      case ShellNode::Kind::If:
        return conditional(its);
      case ShellNode::Kind::Loop:
        return skip(its, fmt::format("a loop ({})", its.name));
      case ShellNode::Kind::Case:
        return chosen(its);
      case ShellNode::Kind::Coprocess:
        return skip(its, "a coprocess");
      case ShellNode::Kind::Function:
        shell_.functions[its.name] = {its.parts.front()};
        if (!shell_.expansion.unsure.empty()) shell_.functions[its.name].push_back(its.parts.front());
        return Status::Success;
      case ShellNode::Kind::Arithmetic:
        return arithmetic_command(its);
      case ShellNode::Kind::Test:
        return test(its);
    }
    return Status::Unknown;
  }

  Status list(const ShellNode& its) {
    Status last = Status::Success;
    for (std::size_t i = 0; i < its.parts.size() && !shell_.ended; ++i) {
      const ShellNode& part = *its.parts[i];
      if (its.signs[i] == '&') {
        (void)apart(part);
        last = Status::Success;
        continue;
      }
      last = run(part);
      const bool counts =
          part.kind != ShellNode::Kind::AndOr && !part.inverted && part.kind != ShellNode::Kind::If && conditions_ == 0;
      if (counts && last == Status::Failure && shell_.exits_on_failure) shell_.ended = true;
    }
    return last;
  }

  Status and_or(const ShellNode& its) {
    ++conditions_;
    Status last = run(*its.parts.front());
    --conditions_;
    for (std::size_t i = 1; i < its.parts.size() && !shell_.ended; ++i) {
      const ShellNode& part = *its.parts[i];
      const bool and_then = its.signs[i - 1] == '&';
      if (last == Status::Unknown && is_test(part)) {
        const Status right = run(part);
        if (right == (and_then ? Status::Failure : Status::Success)) last = right;
      } else if (last == Status::Unknown) {
        (void)skip(part, "what stands behind a condition that only running it would tell");
      } else if (last == Status::Presumed && and_then) {
        const std::string before = shell_.expansion.unsure;
        if (before.empty())
          shell_.expansion.unsure = fmt::format("what stands behind && in line {} may assign it", part.place().line);
        last = run(part);
        shell_.expansion.unsure = before;
        if (last == Status::Success || last == Status::Failure) last = Status::Presumed;
      } else if (last == Status::Presumed) {
        doubt(effects(part), fmt::format("what stands behind || in line {} may assign it", part.place().line));
      } else if ((last == Status::Success) == and_then) {
        if (i + 1 < its.parts.size()) ++conditions_;
        last = run(part);
        if (i + 1 < its.parts.size())
          --conditions_;
        else if (last == Status::Failure && shell_.exits_on_failure && conditions_ == 0)
          shell_.ended = true;
      }
    }
    return last;
  }

  // A test that changes nothing, whether it is come to or not.
  bool is_test(const ShellNode& its) {
    const bool words = its.kind == ShellNode::Kind::Simple && !its.words.empty() &&
                       is_one_of(its.text(its.words.front()), {"[", "test", "true", "false", ":"});
    return (words || its.kind == ShellNode::Kind::Test) && effects(its).names.empty();
  }

  Status pipeline(const ShellNode& its) {
    Status last = Status::Success;
    if (its.parts.size() == 1) {
      ++conditions_;
      last = run(*its.parts.front());
      --conditions_;
    } else {
      for (const ShellNodePtr& part : its.parts) last = apart(*part);
      if (last == Status::Success || last == Status::Failure) last = Status::Unknown;  // pipefail
    }
    if (!its.inverted) return last;
    return last == Status::Success ? Status::Failure : last == Status::Failure ? Status::Success : Status::Unknown;
  }

  // In a shell of its own, whose variables are its own.
  Status apart(const ShellNode& its) {
    const ShellEffects found = effects(its);
    if (found.names.empty() && !found.all && !found.arguments && found.defines.empty() &&
        its.kind == ShellNode::Kind::Simple && !ends(its))
      return run(its);
    shared_->spend_bytes(shell_.expansion.variables.size() * sizeof(ShellValue), its.place());
    Shell outer = shell_;
    const Status last = run(its);
    shell_ = std::move(outer);
    return last;
  }
  static bool ends(const ShellNode& its) {
    return !its.words.empty() && is_one_of(its.text(its.words.front()), {"exit", "exec", "return"});
  }

  Status conditional(const ShellNode& its) {
    std::size_t i = 0;
    for (; i + 1 < its.parts.size(); i += 2) {
      ++conditions_;
      const Status said = run(*its.parts[i]);
      --conditions_;
      presume_behind();
      if (said == Status::Success) {
        for (std::size_t k = i + 2; k < its.parts.size(); ++k) leave_out(*its.parts[k]);
        return run(*its.parts[i + 1]);
      }
      if (said == Status::Failure) {
        leave_out(*its.parts[i + 1]);
        continue;
      }
      ShellEffects together;
      for (std::size_t k = i + 1; k < its.parts.size(); ++k) add(together, effects(*its.parts[k]));
      std::map<std::string, std::vector<std::string>> held = candidates(its, i + 1, together);
      note("an if whose condition only running it would tell", its.place(), together);
      shared_->candidates.merge(held);
      return Status::Unknown;
    }
    return i < its.parts.size() ? run(*its.parts[i]) : Status::Success;
  }

  // What a variable may hold behind an if: what it holds before, and what bodies assign that do nothing else to it.
  std::map<std::string, std::vector<std::string>> candidates(const ShellNode& its, std::size_t first,
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
  bool held_behind(const ShellNode& body, const std::string& name, std::vector<std::string>& held) {
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
  Status chosen(const ShellNode& its) {
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
    Status last = Status::Success;
    for (const ShellNode* part : taken) last = run(*part);
    return last;
  }

  // What comes next depends on all that was just read.
  void presume_behind() { presumed_.insert(shared_->presumed.begin(), shared_->presumed.end()); }

  // Nothing where only running it would tell, or where quotes hide what is special in a pattern.
  std::optional<std::string> known_text(const ShellNode& its, const ShellSpan& span, bool pattern) {
    const InTest requested(shell_.expansion);
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
  void leave_out(const ShellNode& its) {
    const ShellEffects found = effects(its);
    shared_->left_out.insert(found.names.begin(), found.names.end());
  }

  Status arithmetic_command(const ShellNode& its) {
    const std::string inside(its.text(its.words.front()));
    const std::set<std::string> assigned = assigned_by_arithmetic(inside);
    for (const std::string& name : assigned)
      shell_.expansion.doubt(name, fmt::format("arithmetic in line {} may assign it", its.place().line));
    if (!assigned.empty()) return Status::Unknown;
    const auto number = arithmetic(inside, [&](const std::string& name) -> std::optional<std::string> {
      const auto found = shell_.expansion.variables.find(name);
      if (found == shell_.expansion.variables.end() || found->second.words.empty()) return std::nullopt;
      return found->second.words.front().text;
    });
    return !number ? Status::Unknown : *number != 0 ? Status::Success : Status::Failure;
  }

  Status test(const ShellNode& its) {
    WordList words{{"[[", its.place()}};
    bool compares = false;  // what follows is a pattern
    const InTest requested(shell_.expansion);
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
    return status_of(answer_of(words));
  }

  // ---- what is not followed

  ShellFields expand(const ShellNode& its, const ShellSpan& word, ShellContext context) {
    return shell_.expansion.word(*its.source, word, context);
  }

  // What a part may do, whichever way it goes.
  ShellEffects effects(const ShellNode& its) {
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

  static void add(ShellEffects& to, const ShellEffects& more) {
    to.names.insert(more.names.begin(), more.names.end());
    to.all |= more.all, to.arguments |= more.arguments, to.trains |= more.trains;
    for (const auto& [name, bodies] : more.defines) {
      std::vector<ShellNodePtr>& all = to.defines[name];
      all.insert(all.end(), bodies.begin(), bodies.end());
    }
  }

  void doubt(const ShellEffects& found, const std::string& why) {
    ShellExpansion& expansion = shell_.expansion;
    if (found.all) expansion.doubt_all(why);
    for (const std::string& name : found.names) expansion.doubt(name, why);
    if (found.arguments) expansion.arguments_doubt = why;
    for (const auto& [name, bodies] : found.defines) {
      std::vector<ShellNodePtr>& all = shell_.functions[name];
      all.insert(all.end(), bodies.begin(), bodies.end());
    }
  }

  void note(const std::string& what, Place place, const ShellEffects& found) {
    script_.skips.push_back({what, place, found.trains});
    doubt(found, fmt::format("{} in line {} may assign it", what, place.line));
  }

  Status skip(const ShellNode& its, const std::string& what) {
    shared_->spend_step(its.place());
    const ShellEffects found = effects(its);
    note(what, its.place(), found);
    forget_files(std::string(its.text(its.span)));
    return Status::Unknown;
  }

  // ---- commands

  // What a command is given beside its words.
  struct Given {
    std::optional<std::string> document;    // <<, as it finds it
    std::string file;                       // >
    bool adds = false;                      // >>
    std::optional<std::string> before;      // what is known to stand in that file
    std::map<std::string, ShellValue> own;  // NAME=VALUE command: of its environment
  };

  Status simple(const ShellNode& its) {
    shared_->spend_step(its.place());
    shared_->presumed.clear();
    WordList words;
    const bool tests = !its.words.empty() && is_one_of(its.text(its.words.front()), {"[", "test"});
    const std::optional<InTest> requested =
        tests ? std::optional<InTest>(std::in_place, shell_.expansion) : std::nullopt;
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
      return substitutes || !its.words.empty() ? Status::Presumed : Status::Success;
    }
    if (declares) return declare(its, words);
    for (const ShellAssignment& one : its.assignments) given.own[one.name] = value_of(its, one);
    return called(its, std::move(words), std::move(given));
  }

  ShellValue value_of(const ShellNode& its, const ShellAssignment& one) {
    std::set<std::string> before = std::exchange(shared_->presumed, {});
    ShellValue value = value_as_written(its, one);
    value.presumed = shared_->presumed;
    shared_->presumed.merge(before);
    return value;
  }

  ShellValue value_as_written(const ShellNode& its, const ShellAssignment& one) {
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
      if (its.text(element).starts_with('[')) value.doubt = "its elements are numbered";
      const ShellFields fields = expand(its, element, ShellContext::Arguments);
      value.words.insert(value.words.end(), fields.words.begin(), fields.words.end());
    }
    return value;
  }

  void set(const ShellNode& its, const ShellAssignment& one) {
    ShellValue value = value_of(its, one);
    ShellExpansion& expansion = shell_.expansion;
    if (value.doubt.empty()) return expansion.assign(one.name, std::move(value), one.adds);
    if (one.element) expansion.variables[one.name].array = true;
    expansion.doubt(one.name, fmt::format("{} in line {}", value.doubt, its.place().line));
  }

  Status declare(const ShellNode& its, const WordList& words) {
    if (!words.empty() && words.front().text == "local") {
      if (functions_ == 0) return Status::Failure;
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
      return Status::Success;
    }
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
      if (sign == std::string::npos && flags.find('a') != std::string::npos &&
          !shell_.expansion.variables.contains(name))
        shell_.expansion.assign(name, {.words = {}, .array = true});
      declared(name);
    }
    return Status::Success;
  }

  void redirect(const ShellNode& its, const ShellRedirection& one, Given& given) {
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

  Status called(const ShellNode& its, WordList words, Given given) {
    const std::string front = words.front().text;
    if (!ShellExpansion::is_known(front)) return unknown_command(its, std::move(words), given);
    if (is_one_of(front, {"command", "builtin", "exec", "env", "nohup"})) {
      if (front == "exec" && words.size() == 1) return Status::Success;  // of redirections alone
      if (front == "command" && words.size() > 1 && words[1].text.starts_with("-")) return Status::Unknown;
      std::size_t next = 1;
      while (next < words.size() && words[next].text.starts_with('-')) ++next;
      if (front == "env")
        for (; next < words.size(); ++next) {
          const std::size_t sign = words[next].text.find('=');
          if (sign == std::string::npos || !is_name(words[next].text.substr(0, sign))) break;
          given.own[words[next].text.substr(0, sign)] = {{{words[next].text.substr(sign + 1), words[next].place}}};
        }
      words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(next));
      if (words.empty()) return Status::Success;
      const bool ends = front == "exec" && shell_.expansion.unsure.empty();
      const Status last = called(its, std::move(words), std::move(given));
      shell_.ended |= ends;
      return last;
    }
    if (is_one_of(front, {"eval", "source", "."}) || shell_.functions.contains(front))
      for (const auto& [name, value] : given.own)
        shell_.expansion.doubt(name, fmt::format("line {} gives it to {}", its.place().line, front));
    if (const auto body = shell_.functions.find(front); body != shell_.functions.end())
      return function(its, std::move(words), given);
    if (front == "read" && reads(words, given)) return Status::Presumed;
    if (const std::optional<Status> done = builtin(its, words)) return *done;
    return program(std::move(words), given);
  }

  // Only running it would tell what is called: it may be `export`.
  Status unknown_command(const ShellNode& its, WordList words, const Given& given) {
    ShellEffects found;
    const bool file = words.front().text.find('/') != std::string::npos;
    for (std::size_t i = 1; i < words.size() && !file; ++i) {
      found.all |= !ShellExpansion::is_known(words[i].text);
      const std::set<std::string> names = assigned_by_arithmetic(words[i].text + "=");  // all in it
      found.names.insert(names.begin(), names.end());
    }
    record(std::move(words), given);
    doubt(found, fmt::format("a command in line {} may assign it", its.place().line));
    return Status::Presumed;
  }

  // A function runs where it is called, with arguments of its own. Not followed: where only running it would tell which
  // of several it is, or that it comes to pass; `shift` within one; a call of itself.
  Status function(const ShellNode& its, WordList words, const Given& given) {
    const std::string name = words.front().text;
    const std::vector<ShellNodePtr>& bodies = shell_.functions.at(name);
    ShellEffects found;
    for (const ShellNodePtr& body : bodies) add(found, effects(*body));
    const ShellNodePtr body = bodies.front();
    const bool follows = bodies.size() == 1 && given.own.empty() && !found.arguments &&
                         shell_.expansion.unsure.empty() && entered_.insert(name).second;
    if (!follows) {
      note("a function", its.place(), found);
      return Status::Unknown;
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
    const Status last = run(*body);
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
  static bool is_positional(const std::string& name) {
    return !name.empty() && name != "0" &&
           std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c) != 0; });
  }

  // Commands of the shell itself; nothing where it is none.
  std::optional<Status> builtin(const ShellNode& its, const WordList& words) {
    const std::string& front = words.front().text;
    const int line = its.place().line;
    ShellExpansion& expansion = shell_.expansion;
    const auto may_assign = [&](const ShellEffects& found) {
      doubt(found, fmt::format("{} in line {} may assign it", front, line));
      return Status::Unknown;
    };
    if (front == "eval") return evaluate(words);
    if (front == "source" || front == ".") return source(its, words);
    if (is_declaration(front)) return declare(its, words);  // behind `command`
    if (front == "exit" || front == "return") {
      const bool fails = front == "exit" && words.size() == 2 && is_one_of(words[1].text, {"1", "2", "-1"});
      if (fails && script_.stopped.line == 0) script_.stopped = words.front().place;
      if (fails && exits_ == FailingExits::PassedOver) return Status::Success;
      if (expansion.unsure.empty()) {
        shell_.ended = true;
        returned_ = front == "return" && functions_ > 0;
      } else {
        script_.skips.push_back({"an exit that only running it would tell", its.place()});
      }
      return Status::Unknown;
    }
    if (front == "set") return set_options(its, words);
    if (front == "shift") {
      expansion.arguments_doubt = fmt::format("shift in line {} changes it", line);
      return Status::Unknown;
    }
    if (front == "trap") {
      if (std::ranges::any_of(words, [](const ShellWord& w) { return is_one_of(w.text, {"DEBUG", "RETURN", "ERR"}); }))
        expansion.lose_track(fmt::format("a trap in line {} may assign it", line));
      return Status::Success;
    }
    if (front == "alias" || front == "enable") return Status::Success;  // no effect without expand_aliases
    if (front == "shopt") {
      for (std::size_t i = 1; i < words.size(); ++i)
        if (!words[i].text.starts_with('-') &&
            !is_one_of(words[i].text, {"nullglob", "globstar", "dotglob", "failglob", "huponexit", "extglob"}))
          changes_reading(its);
      return Status::Success;
    }
    if (front == "let") {
      ShellEffects found = effects(its);
      for (std::size_t i = 1; i < words.size(); ++i) {
        found.all |= !ShellExpansion::is_known(words[i].text);
        const std::set<std::string> names = assigned_by_arithmetic(words[i].text);
        found.names.insert(names.begin(), names.end());
      }
      return may_assign(found);
    }
    if (front == "unset") {
      ShellEffects found;
      for (std::size_t i = 1; i < words.size(); ++i) {
        const std::string name = words[i].text.substr(0, words[i].text.find('['));
        if (is_name(name))
          found.names.insert(name);
        else
          found.all |= !words[i].text.starts_with('-');
      }
      (void)may_assign(found);
      for (const std::string& name : found.names) {
        if (expansion.unsure.empty()) shell_.exported.erase(name);
      }
      return Status::Success;
    }
    if (is_one_of(front, {"read", "mapfile", "readarray", "getopts", "wait"})) {
      ShellEffects found = effects(its);
      for (std::size_t i = 1; i < words.size(); ++i) {
        if (is_name(words[i].text)) found.names.insert(words[i].text);
        found.all |= !ShellExpansion::is_known(words[i].text) && !words[i - 1].text.starts_with('-');
      }
      return may_assign(found);
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
      return may_assign(found);
    }
    if (is_one_of(front, {"[", "test", "true", "false", ":"})) {
      return status_of(exit_status_of(words));
    }
    return std::nullopt;
  }

  // read, of a here-document or a here-string that is known.
  bool reads(const WordList& words, const Given& given) {
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

  [[noreturn]] static void changes_reading(const ShellNode& its) {
    ShellCursor(*its.source, its.span)
        .fail(its.place(),
              fmt::format("{} changes how what follows is read, which is not followed", its.text(its.span)));
  }

  Status set_options(const ShellNode& its, const WordList& words) {
    const std::string why = fmt::format("set in line {} changes it", its.place().line);
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::string& text = words[i].text;
      const bool on = text.starts_with('-');
      if (text.size() < 2 || text == "--" || (!on && !text.starts_with('+'))) {
        shell_.expansion.arguments_doubt = why;
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
    return Status::Success;
  }

  // ---- scripts in scripts

  Status evaluate(const WordList& words) {
    std::string text;
    const std::size_t first = words.size() > 1 && words[1].text == "--" ? 2 : 1;
    for (std::size_t i = first; i < words.size(); ++i) text += (i > first ? " " : "") + words[i].text;
    const Place place = words.front().place;
    // What is not known may be a word, or end one: `eval "$(tool)"`.
    const bool known = ShellExpansion::is_known(text);
    const Status last = run_text(text, place);
    if (!known) shell_.expansion.doubt_all(fmt::format("eval in line {} may assign it", place.line));
    return last;
  }

  Status run_text(const std::string& text, Place place) {
    presume_behind();
    shared_->enter(place);
    shared_->spend_bytes(text.size(), place);
    const ShellSource& source = shared_->sources.emplace_back(ShellSource{text, shared_->file, place});
    const ShellNodePtr tree = parse_shell(source);
    const Status last = run(*tree);
    --shared_->depth;
    return last;
  }

  Status source(const ShellNode& its, const WordList& words) {
    const Place place = its.place();
    const std::string why = fmt::format("{} in line {} may assign it", words.front().text, place.line);
    if (words.size() > 1)
      if (const auto file = files_.find(file_name(words[1].text)); file != files_.end() && words.size() == 2) {
        const std::string text = file->second;
        const Status last = run_text(text, place);
        if (shell_.ended) shell_.ended = text.find("return") == std::string::npos;
        if (text.find("return") != std::string::npos) shell_.expansion.doubt_all(why);
        return last;
      }
    const ShellWord named = words.size() == 2 ? shell_.expansion.resolved_scenario(words[1]) : ShellWord{};
    if (const std::optional<std::string> name = named.unknown.empty() ? named.text : within_own_folder(named);
        words.size() == 2 && name)
      if (const std::optional<std::string> text = text_beside(*name)) {
        const Status last = run_text(*text, place);
        if (shell_.ended) shell_.ended = text->find("return") == std::string::npos;
        return last;
      }
    const std::string file = words.size() > 1 ? shell_.expansion.resolved_scenario(words[1]).text : std::string();
    ShellSkip& skipped = script_.skips.emplace_back(fmt::format("{} {}", words.front().text, file), place);
    // What sets up an environment of Python or of modules says nothing of a training's arguments.
    constexpr std::array<std::string_view, 5> environments{"/activate", "conda.sh", "/modules.sh", ".bashrc",
                                                           "/profile"};
    if (std::ranges::any_of(environments, [&](std::string_view ending) { return file.ends_with(ending); }))
      return Status::Presumed;
    // Slurm's own variables are of the job, which nothing that is sourced changes.
    std::map<std::string, ShellValue> of_slurm;
    for (const auto& [name, value] : shell_.expansion.variables)
      if (name.starts_with("SLURM_")) of_slurm.emplace(name, value);
    skipped.assigns = true;
    shell_.expansion.presume_all(why);
    for (const auto& [name, value] : of_slurm) shell_.expansion.variables[name] = value;
    return Status::Presumed;
  }

  // "$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/common.sh" is "../common.sh".
  static std::optional<std::string> within_own_folder(const ShellWord& word) {
    const std::string& how = word.unknown;
    const bool own = how.find("dirname") != std::string::npos && word.text.starts_with("?/") &&
                     word.text.find('?', 1) == std::string::npos &&
                     (how.find("$0") != std::string::npos || how.find("BASH_SOURCE") != std::string::npos);
    if (!own) return std::nullopt;
    std::string above;
    for (std::size_t at = how.find("/.."); at != std::string::npos; at = how.find("/..", at + 3)) above += "../";
    return above + word.text.substr(2);
  }

  // Of a file that is there, from where the script is, or from where it is started.
  [[nodiscard]] std::optional<std::string> text_beside(const std::string& name) const {
    const std::filesystem::path script(shared_->file);
    constexpr std::uintmax_t most = std::uintmax_t{1} << 20;
    for (const std::filesystem::path& path : {script.parent_path() / name, std::filesystem::path(name)}) {
      std::error_code ignored;
      if (std::filesystem::is_regular_file(path, ignored) && std::filesystem::file_size(path, ignored) <= most)
        return read_text(path);
    }
    return std::nullopt;
  }

  static bool is_shell(const ShellWord& word) { return is_one_of(program_of(word.text), {"bash", "sh"}); }

  /// How many words stand before what runs the file at `i`, where anything does.
  static std::optional<std::size_t> starts(const WordList& words, std::size_t i) {
    const std::string front = program_of(words.front().text);
    if (i == 0 || front == "sbatch") return 0;
    std::size_t shell = i;
    while (shell > 0 && words[shell - 1].text.starts_with('-')) --shell;
    if (shell > 0 && is_shell(words[shell - 1])) return shell - 1;
    return front == "srun" || front == "mpirun" ? std::optional(i) : std::nullopt;
  }

  // A program, unless it is a shell that is given another script.
  Status program(WordList words, const Given& given) {
    const std::string front = program_of(words.front().text);
    const bool writes = front == "cat" && words.size() == 1 && given.document && !given.file.empty();
    if (writes && shell_.expansion.unsure.empty() && (!given.adds || given.before))
      files_[given.file] = given.before.value_or("") + *given.document;
    if (given.document && front == "sbatch") return child(*given.document, words, 0, given, false);
    for (std::size_t i = 0; i < words.size(); ++i) {
      // What starts a shell stays in front: srun … bash -c "…"
      if (const auto file = files_.find(file_name(words[i].text)); file != files_.end())
        if (const std::optional<std::size_t> in_front = starts(words, i))
          return child(std::string(file->second), words, *in_front, given, i + 1 < words.size());
      if (!is_shell(words[i])) continue;
      std::size_t next = i + 1;
      while (next < words.size() && words[next].text.starts_with('-')) ++next;
      if (next < words.size() && next > i + 1 && words[next - 1].text.ends_with('c'))
        return child(words[next].text, words, i, given, next + 1 < words.size());
      if (given.document && next == words.size()) return child(*given.document, words, i, given, false);
    }
    if (!is_one_of(front, {"chmod", "cat", "echo", "ls"}))
      for (const ShellWord& word : words) forget_files(word.text);
    const Status said = front == "echo" || front == "printf" ? Status::Success
                        : is_one_of(front, {"grep", "command", "which", "type", "hash", "diff", "pgrep", "!"})
                            ? Status::Unknown
                            : Status::Presumed;
    record(std::move(words), given);
    return said;
  }

  // Programs that are given a file may write it.
  void forget_files(const std::string& text) {
    std::erase_if(files_, [&](const auto& file) { return text.find(file.first) != std::string::npos; });
  }

  // A shell of its own behind the first `in_front` words, which has what is exported.
  Status child(const std::string& text, const WordList& words, std::size_t in_front, const Given& given,
               bool arguments) {
    const Place place = words.front().place;
    shared_->spend_bytes(shell_.expansion.variables.size() * sizeof(ShellValue), place);
    Shell outer = shell_;
    std::erase_if(shell_.expansion.variables, [&](const auto& its) {
      return !shell_.exported.contains(its.first) && !shell_.expansion.fixed.contains(its.first);
    });
    shell_.functions.clear(), shell_.expansion.odd.clear();
    shell_.exits_on_failure = shell_.exports_all = false;
    shell_.expansion.arguments_doubt = arguments ? fmt::format("line {} gives them", place.line) : std::string();
    for (const auto& [name, value] : given.own) {
      shell_.exported.insert(name);
      if (!shell_.expansion.fixed.contains(name)) shell_.expansion.variables[name] = value;
    }
    if (program_of(words.front().text) == "sbatch") {  // what it is told itself goes before the script's lines
      std::string reported;
      for (std::size_t i = 1; i < words.size(); ++i)
        if (words[i].text.starts_with('-'))
          reported += fmt::format("#SBATCH {} {}\n", words[i].text, i + 1 < words.size() ? words[i + 1].text : "");
      set_by_slurm(reported + text + '\n' + reported, place);
    }
    const std::size_t first = script_.commands.size();
    const Status last = run_text(text, place);
    for (std::size_t i = first; i < script_.commands.size() && in_front > 0; ++i) {
      WordList& its = script_.commands[i].words;
      its.insert(its.begin(), words.begin(), words.begin() + static_cast<std::ptrdiff_t>(in_front));
      for (std::size_t w = 0; w < in_front; ++w) its[w] = shell_.expansion.resolved_scenario(its[w]);
    }
    for (const auto& [name, word] : *environment())
      if (word.unknown.empty() && shell_.exported.contains(name) && !outer.exported.contains(name))
        within_[name] = word.text;
    shell_ = std::move(outer);
    return last == Status::Failure ? Status::Failure : Status::Presumed;
  }

  void set_by_slurm(std::string_view text, std::optional<Place> within = {}) {
    for (const auto& [name, value] : slurm_variables(text, shared_->file, within)) {
      if (!shell_.expansion.fixed.contains(name)) shell_.expansion.variables[name] = {{{value, {}}}};
      shell_.exported.insert(name);
    }
  }

  // ---- what comes of it

  void record(WordList words, const Given& given) {
    for (ShellWord& word : words) word = shell_.expansion.resolved_scenario(std::move(word));
    std::shared_ptr<const ShellEnvironment> its = environment();
    if (!given.own.empty() || program_of(words.front().text).starts_with("mpi")) {
      ShellEnvironment more = *its;
      for (const auto& [name, value] : given.own) more[name] = shown(name, value);
      for (std::size_t i = 0; i + 1 < words.size(); ++i)  // mpirun -x NAME=VALUE
        if (const std::string& text = words[i + 1].text; words[i].text == "-x" && text.find('=') != std::string::npos)
          more[text.substr(0, text.find('='))] = {text.substr(text.find('=') + 1), words[i + 1].place,
                                                  words[i + 1].unknown};
      its = std::make_shared<const ShellEnvironment>(std::move(more));
    }
    std::set<std::string> presumed = presumed_;
    presumed.insert(shared_->presumed.begin(), shared_->presumed.end());
    script_.commands.push_back({std::move(words), std::move(its), std::move(presumed)});
  }

  [[nodiscard]] ShellWord shown(const std::string& name, const ShellValue& value) const {
    if (!value.doubt.empty()) return {"?", {}, fmt::format("${} ({})", name, value.doubt)};
    return value.words.empty() ? ShellWord{} : shell_.expansion.resolved_scenario(value.words.front());
  }

  // The same one where nothing has changed since.
  [[nodiscard]] std::shared_ptr<const ShellEnvironment> environment() {
    ShellEnvironment made;
    for (const std::string& name : shell_.exported)
      if (const auto found = shell_.expansion.variables.find(name); found != shell_.expansion.variables.end()) {
        made[name] = shown(name, found->second);
        shared_->spend_bytes(made[name].text.size() + sizeof(ShellWord), {});
      }
    if (environment_ && std::ranges::equal(*environment_, made, [](const auto& a, const auto& b) {
          return a.first == b.first && a.second.text == b.second.text && a.second.unknown == b.second.unknown;
        }))
      return environment_;
    environment_ = std::make_shared<const ShellEnvironment>(std::move(made));
    return environment_;
  }

  std::shared_ptr<ShellShared> shared_;
  Shell shell_;
  FailingExits exits_ = FailingExits::Followed;
  int conditions_ = 0;                                       // within which a failure ends nothing
  int functions_ = 0;                                        // that are being run
  bool returned_ = false;                                    // from the innermost of them
  std::set<std::string> entered_;                            // functions
  std::map<std::string, std::optional<ShellValue>> locals_;  // of the innermost, and what they hide
  std::map<std::string, std::string> files_;                 // that cat wrote
  std::set<std::string> presumed_;                           // variables that say which commands come (ShellValue)
  std::map<std::string, std::string> within_;                // exported by shells within
  std::shared_ptr<const ShellEnvironment> environment_;
  ShellScript script_;
};

}  // namespace

ShellScript read_shell(std::string_view text, const std::string& file, const std::map<std::string, std::string>& given,
                       FailingExits exits) {
  return ShellReader(std::make_shared<ShellShared>(ShellShared{.file = file}), given, exits).read(text);
}

}  // namespace tidemark::scenarios
