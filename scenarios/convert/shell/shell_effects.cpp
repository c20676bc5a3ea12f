#include "scenarios/convert/shell/shell_effects.hpp"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string_view>

#include "scenarios/convert/shell/launch_line.hpp"
#include "scenarios/convert/shell/shell_expansion.hpp"

namespace tidemark::scenarios {
namespace {

class EffectsWalk {
 public:
  EffectsWalk(const ShellFunctions& functions,
              const std::function<std::optional<std::string>(const ShellNode&, const ShellSpan&)>& text_of)
      : functions_(functions), text_of_(text_of) {}

  void node(const ShellNode& its) {
    if (its.kind == ShellNode::Kind::Function) {
      its_.defines[its.name].push_back(its.parts.front());
      return;  // it does what it does where it is called
    }
    for (const ShellSpan& word : its.words) expansions(its.text(word));
    for (const ShellAssignment& one : its.assignments) {
      expansions(its.text(one.value));
      for (const ShellSpan& element : one.elements) expansions(its.text(element));
    }
    for (const auto& redirection : its.redirections) {
      expansions(its.text(redirection->target));
      if (!redirection->quoted) expansions(its.text(redirection->document));
    }
    if (its.kind == ShellNode::Kind::Simple) simple(its);
    if (its.kind == ShellNode::Kind::Arithmetic || (its.kind == ShellNode::Kind::Loop && its.variable.empty()))
      for (const ShellSpan& word : its.words) add(assigned_by_arithmetic(its.text(word)));
    if (its.kind == ShellNode::Kind::Loop && !its.variable.empty()) name_or_all(its.variable);
    if (its.kind == ShellNode::Kind::Loop && its.name == "select") its_.names.emplace("REPLY");
    if (its.kind == ShellNode::Kind::Coprocess) its_.all = true;
    if (its.kind == ShellNode::Kind::Subshell) {  // what it assigns is its own
      EffectsWalk within(functions_, text_of_);
      for (const ShellNodePtr& part : its.parts) within.node(*part);
      its_.trains |= within.its_.trains;
      return;
    }
    for (const ShellNodePtr& part : its.parts) node(*part);
  }

  ShellEffects its_;

 private:
  void add(const std::set<std::string>& names) { its_.names.insert(names.begin(), names.end()); }
  void name_or_all(std::string_view text) {
    if (is_name(text))
      its_.names.emplace(text);
    else
      its_.all = true;
  }

  // ${NAME:=…}, $((NAME++)) and their like, which assign while a word is read.
  void expansions(std::string_view word) {
    for (std::size_t at = word.find('$'); at != std::string_view::npos; at = word.find('$', at + 1)) {
      const std::string_view behind = word.substr(at + 1);
      if (behind.starts_with("((") || behind.starts_with('[') || behind.starts_with("{")) {
        const std::string_view inside = behind.substr(0, behind.find(behind.front() == '(' ? "))" : "]"));
        if (!behind.starts_with('{') || inside.find('[') != std::string_view::npos) add(assigned_by_arithmetic(inside));
      }
      if (!behind.starts_with('{')) continue;
      std::size_t end = 1;
      while (end < behind.size() && is_of_name(behind[end])) ++end;
      const std::string_view rest = behind.substr(end);
      if (rest.starts_with(":=") || rest.starts_with('=')) its_.names.emplace(behind.substr(1, end - 1));
    }
  }

  void simple(const ShellNode& its) {
    std::size_t first = 0;
    std::optional<std::string> command;
    for (; first < its.words.size(); ++first) {
      command = text_of_(its, its.words[first]);
      if (!command || !is_one_of(*command, {"command", "builtin", "exec"})) break;
      while (first + 1 < its.words.size() && its.text(its.words[first + 1]).starts_with('-')) ++first;
    }
    const bool declares = command && is_declaration(*command);
    if (first >= its.words.size() || declares)
      for (const ShellAssignment& one : its.assignments) its_.names.insert(one.name);
    if (first >= its.words.size()) return;
    for (const ShellSpan& word : its.words)
      if (const std::optional<std::string> text = text_of_(its, word)) its_.trains |= may_train(*text);
    if (!command) {
      // It may be `eval`; what only tests something elsewhere prints nothing that would be called.
      const std::string_view raw = its.text(its.words[first]);
      its_.all |= !(raw.starts_with("$(ssh ") && raw.find("\"test -") != std::string_view::npos);
      return;
    }
    const auto each_argument = [&](const auto& take) {
      for (std::size_t i = first + 1; i < its.words.size(); ++i) take(text_of_(its, its.words[i]).value_or("?"));
    };
    if (is_one_of(*command, {"eval", "source", ".", "trap", "shopt", "enable", "alias"})) {
      its_.all = true;
    } else if (is_one_of(*command, {"set", "shift"})) {
      its_.arguments = true;
    } else if (declares || is_one_of(*command, {"unset", "read", "mapfile", "readarray", "getopts"})) {
      if (*command == "read" || *command == "mapfile" || *command == "readarray")
        its_.names.insert({"REPLY", "MAPFILE"});
      if (*command == "getopts") its_.names.insert({"OPTARG", "OPTIND"}), its_.arguments = true;
      each_argument([&](const std::string& text) {
        const bool flag = text.starts_with('-') || text.starts_with('+');
        const bool plain = *command == "read" || *command == "mapfile" || *command == "readarray" ||
                           *command == "getopts";  // values of flags are among them
        if (!flag && (!plain || is_name(text) || text == "?")) name_or_all(text.substr(0, text.find_first_of("=+[")));
        if (flag && declares && text.find('n') != std::string::npos) its_.all = true;
      });
    } else if (*command == "printf") {
      for (std::size_t i = first + 1; i + 1 < its.words.size(); ++i)
        if (its.text(its.words[i]).starts_with("-v")) name_or_all(text_of_(its, its.words[i + 1]).value_or("?"));
    } else if (*command == "let") {
      each_argument([&](const std::string& text) {
        if (text == "?") its_.all = true;
        add(assigned_by_arithmetic(text));
      });
    } else if (*command == "wait") {
      each_argument([&](const std::string& text) {
        if (is_name(text)) its_.names.insert(text);
      });
    } else if (const auto body = functions_.find(*command);
               body != functions_.end() && entered_.insert(*command).second) {
      for (const ShellNodePtr& one : body->second) node(*one);
    } else if (const auto inner = its_.defines.find(*command);
               inner != its_.defines.end() && entered_.insert(*command + "()").second) {
      for (const ShellNodePtr& one : std::vector<ShellNodePtr>(inner->second)) node(*one);
    }
  }

  const ShellFunctions& functions_;
  const std::function<std::optional<std::string>(const ShellNode&, const ShellSpan&)>& text_of_;
  std::set<std::string> entered_;
};

}  // namespace

ShellEffects effects_of(const ShellNode& node, const ShellFunctions& functions,
                        const std::function<std::optional<std::string>(const ShellNode&, const ShellSpan&)>& text_of) {
  EffectsWalk walk(functions, text_of);
  walk.node(node);
  return walk.its_;
}

}  // namespace tidemark::scenarios
