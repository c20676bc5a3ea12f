#include "scenarios/convert/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/shell_cursor.hpp"
#include "scenarios/convert/shell_expansion.hpp"
#include "scenarios/convert/slurm_variables.hpp"

namespace tidemark::scenarios {
namespace {

using Words = std::vector<ShellWord>;

std::optional<std::int64_t> whole(const std::string& text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && at == end ? std::optional(value) : std::nullopt;
}

// What stands between two words of a test.
std::optional<bool> compared(const std::string& a, const std::string& sign, const std::string& b) {
  if (sign == "=" || sign == "==") return a == b;
  if (sign == "!=") return a != b;
  const std::optional<std::int64_t> x = whole(a), y = whole(b);
  if (!x || !y) return std::nullopt;
  if (sign == "-eq") return *x == *y;
  if (sign == "-ne") return *x != *y;
  if (sign == "-gt") return *x > *y;
  if (sign == "-ge") return *x >= *y;
  if (sign == "-lt") return *x < *y;
  if (sign == "-le") return *x <= *y;
  return std::nullopt;
}

// What [ … ] and [[ … ]] say; nothing where only running it would tell.
std::optional<bool> tested(const Words& words) {
  if (words.size() < 3 || (words[0].text != "[" && words[0].text != "[[")) return std::nullopt;
  std::vector<std::string> inside;
  for (const ShellWord& word : words) {
    if (!ShellExpansion::is_known(word.text) || !word.unknown.empty()) return std::nullopt;
    inside.push_back(word.text);
  }
  inside.erase(inside.begin());
  inside.pop_back();
  const bool negated = inside.front() == "!";
  if (negated) inside.erase(inside.begin());
  std::optional<bool> said;
  if (inside.size() == 1) said = !inside[0].empty();
  if (inside.size() == 2 && inside[0] == "-z") said = inside[1].empty();
  if (inside.size() == 2 && inside[0] == "-n") said = !inside[1].empty();
  if (inside.size() == 3) said = compared(inside[0], inside[1], inside[2]);
  return said ? std::optional(*said != negated) : std::nullopt;
}

std::string program_of(const ShellWord& word) { return word.text.substr(word.text.rfind('/') + 1); }

bool declares(std::string_view word) {
  return word == "export" || word == "declare" || word == "local" || word == "readonly" || word == "typeset";
}

// Statement by statement.
class Reader {
 public:
  /// Assignments to `fixed` change nothing.
  Reader(std::string_view text, const std::string& file, ShellExpansion expansion, std::set<std::string> fixed)
      : text_(text, file), expansion_(std::move(expansion)), fixed_(std::move(fixed)) {
    for (const auto& [name, value] : slurm_variables(text))
      expansion_.variables.try_emplace(name, ShellValue{{{value, {}}}});
  }

  ShellScript read() {
    while (!text_.over()) statement();
    for (const auto& [name, value] : expansion_.variables)
      if (!value.array && !value.words.empty() && ShellExpansion::is_known(value.words.front().text))
        script_.variables[name] = value.words.front().text;
    for (const std::string& name : exported_)
      if (const auto found = script_.variables.find(name); found != script_.variables.end())
        script_.exported[name] = found->second;
    return std::move(script_);
  }

 private:
  // An `if`, in one of whose branches it stands.
  struct Branch {
    bool taken = true;     // what is read now
    bool settled = false;  // one of its branches was taken
  };
  // A statement as far as it is read.
  struct Statement {
    Place place;
    Words words;
    std::vector<std::string> assigned;  // NAME=VALUE command: of its environment
    bool declares = false, exports = false;
  };
  enum class Then : std::uint8_t { GoOn, End };

  [[nodiscard]] bool runs() const {
    return std::ranges::all_of(branches_, [](const Branch& b) { return b.taken; });
  }
  bool take(char c) {
    if (text_.peek() != c) return false;
    text_.next();
    return true;
  }

  // ---- statements

  void statement() {
    text_.skip();
    if (text_.over()) return;
    if (std::string_view("\n;&|").find(text_.peek()) != std::string_view::npos) {
      text_.next();
      return;
    }
    Statement its;
    its.place = text_.here();
    while (!text_.over() && part_of(its) == Then::GoOn) text_.skip();
    if (its.words.empty() || !runs()) return;
    exported_.insert(exported_.end(), its.assigned.begin(), its.assigned.end());
    called(std::move(its.words));
  }

  Then part_of(Statement& its) {
    const char c = text_.peek();
    if (c == '\n' || c == ';' || c == '|') return Then::End;
    if (c == '&') {
      if (text_.peek(1) != '>') return Then::End;
      text_.next(), text_.next();
      return redirected();
    }
    if (c == '(' || c == ')') return bracket(its);
    if (c == '<' || c == '>') return redirection();
    if ((its.words.empty() || its.declares) && assignment() > 0) {
      its.assigned.push_back(assign(its.exports));
      return Then::GoOn;
    }
    return word(its);
  }

  Then word(Statement& its) {
    const std::size_t begin = text_.at();
    const ShellFields fields = expansion_.word(text_);
    const std::string raw(text_.since(begin));
    // 2>&1: the number is no word.
    const bool redirects = text_.peek() == '>' || text_.peek() == '<';
    if (redirects && !raw.empty() && std::ranges::all_of(raw, [](unsigned char d) { return std::isdigit(d) != 0; }))
      return Then::GoOn;
    if (its.words.empty() && keyword(raw, its.place)) return Then::End;
    if (its.words.empty() && declares(raw)) {
      its.declares = true;
      its.exports = raw == "export";
    } else if (its.declares) {
      if (its.exports && !raw.starts_with('-') && runs()) exported_.push_back(raw);
    } else {
      its.words.insert(its.words.end(), fields.words.begin(), fields.words.end());
    }
    return Then::GoOn;
  }

  Then bracket(Statement& its) {
    const bool opens = text_.next() == '(';
    if (opens && its.words.size() == 1 && take(')')) {
      its.words.clear();
      function(its.place);
      return Then::End;
    }
    if (opens && its.words.empty() && take('(')) {  // ((i++)) and its like
      (void)text_.bracketed('(', ')', "(", its.place);
      take(')');
    }
    return Then::GoOn;
  }

  Then redirection() {
    if (text_.next() == '<' && take('<')) {
      if (take('<')) return redirected();
      heredoc();
      return Then::End;
    }
    while (take('>') || take('&') || take('|')) {
    }
    return redirected();
  }
  Then redirected() {
    text_.skip();
    (void)expansion_.word(text_);
    return Then::GoOn;
  }

  // Which ends the line, and so the command.
  void heredoc() {
    const bool without_tabs = take('-');
    text_.skip();
    std::string end;
    while (!text_.ends_word())
      if (const char c = text_.next(); c != '\'' && c != '"' && c != '\\') end += c;
    (void)line();
    while (!text_.over()) {
      std::string its = line();
      if (without_tabs) its.erase(0, std::min(its.find_first_not_of('\t'), its.size()));
      if (its == end) return;
    }
  }
  std::string line() {
    std::string its;
    while (!text_.over() && text_.peek() != '\n') its += text_.next();
    take('\n');
    return its;
  }

  // ---- assignments

  // The length of NAME= or NAME+=.
  [[nodiscard]] std::size_t assignment() const {
    const std::string_view ahead = text_.rest();
    if (ahead.empty() || !begins_name(ahead.front())) return 0;
    std::size_t end = 0;
    while (end < ahead.size() && is_of_name(ahead[end])) ++end;
    if (end < ahead.size() && ahead[end] == '+') ++end;
    return end < ahead.size() && ahead[end] == '=' ? end + 1 : 0;
  }

  /// Whose value it is.
  std::string assign(bool exports) {
    const std::size_t length = assignment();
    std::string name(text_.rest().substr(0, length - 1));
    const bool adds = name.ends_with('+');
    if (adds) name.pop_back();
    for (std::size_t i = 0; i < length; ++i) text_.next();
    ShellValue value = text_.peek() == '(' ? array() : ShellValue{{joined()}};
    if (!runs() || fixed_.contains(name)) return name;
    if (exports) exported_.push_back(name);
    ShellValue& known = expansion_.variables[name];
    if (!adds || known.words.empty()) {
      known = std::move(value);
    } else if (value.array || known.array) {
      known.array = true;
      known.words.insert(known.words.end(), value.words.begin(), value.words.end());
    } else {
      known.words.front().text += value.words.front().text;
    }
    return name;
  }

  ShellValue array() {
    const Place place = text_.here();
    text_.next();  // (
    ShellValue value{.words = {}, .array = true};
    for (;;) {
      text_.skip();
      while (take('\n')) text_.skip();
      if (text_.over()) text_.fail(place, "( is not closed");
      if (take(')')) return value;
      const ShellFields fields = expansion_.word(text_);
      const bool nothing = fields.words.empty() && !fields.quoted;
      if (nothing && !text_.over() && text_.peek() != ')' &&
          std::isspace(static_cast<unsigned char>(text_.peek())) == 0)
        text_.next();
      value.words.insert(value.words.end(), fields.words.begin(), fields.words.end());
    }
  }

  ShellWord joined() {
    const Place place = text_.here();
    const ShellFields fields = expansion_.word(text_, true);
    ShellWord word{.text = {}, .place = place};
    for (std::size_t i = 0; i < fields.words.size(); ++i) word.text += (i > 0 ? " " : "") + fields.words[i].text;
    return word;
  }

  // ---- what has a body

  // A word that opens or ends a branch or a loop.
  bool keyword(const std::string& word, Place place) {
    if (word == "if") {
      branches_.push_back({});
      condition(place);
    } else if (word == "elif" || word == "else" || word == "fi") {
      if (branches_.empty()) text_.fail(place, fmt::format("{} without an if", word));
      next_branch(word, place);
    } else if (word == "for" || word == "while" || word == "until" || word == "select") {
      find_word("do");
      skip_block("do", "done", place, fmt::format("a loop ({})", word));
    } else if (word == "case") {
      skip_block("case", "esac", place, "a case");
    } else if (word == "function") {
      while (!text_.over() && text_.peek() != '{') text_.next();
      take('{');
      skip_block("{", "}", place, "a function");
    } else {
      return word == "then";
    }
    return true;
  }

  void next_branch(const std::string& word, Place place) {
    Branch& branch = branches_.back();
    if (word == "fi") {
      branches_.pop_back();
    } else if (word == "else") {
      branch.taken = !branch.settled;
    } else if (branch.settled) {
      branch.taken = false;
      (void)simple();
    } else {
      branch.taken = true;
      condition(place);
    }
  }

  void function(Place place) {
    text_.skip();
    while (take('\n')) text_.skip();
    take('{');
    skip_block("{", "}", place, "a function");
  }

  /// As it is written; at what is no word over it.
  std::string_view raw_word() {
    text_.skip();
    const std::size_t begin = text_.at();
    (void)expansion_.word(text_);
    const std::string_view raw = text_.since(begin);
    if (raw.empty() && !text_.over()) text_.next();
    return raw;
  }
  void find_word(std::string_view wanted) {
    while (!text_.over())
      if (raw_word() == wanted) return;
  }
  void skip_block(std::string_view opening, std::string_view closing, Place place, std::string_view what) {
    for (int open = 1; !text_.over();) {
      const std::string_view raw = raw_word();
      if (raw == opening) ++open;
      if (raw != closing || --open > 0) continue;
      if (runs()) script_.skips.emplace_back(std::string(what), place);
      return;
    }
    text_.fail(place, fmt::format("{} does not end", what));
  }

  // The words of a condition, to its end.
  Words simple() {
    Words words;
    while (!text_.over()) {
      text_.skip();
      const char c = text_.peek();
      if (c == '\n' || c == ';' || c == '\0') break;
      if (std::string_view("&|()<>").find(c) != std::string_view::npos) {
        words.push_back({std::string(1, text_.next()), text_.here(), "a condition of several parts"});
        continue;
      }
      const ShellFields fields = expansion_.word(text_);
      words.insert(words.end(), fields.words.begin(), fields.words.end());
    }
    return words;
  }

  void condition(Place place) {
    const std::optional<bool> said = tested(simple());
    Branch& branch = branches_.back();
    branch.taken = true;  // so far: whether it is come to is for those around it to say
    if (!said && runs()) script_.skips.emplace_back("an if whose condition only running it would tell", place);
    branch.taken = said.value_or(false);
    branch.settled |= branch.taken;
  }

  // ---- commands

  void called(Words words) {
    if (program_of(words.front()) == "eval") {
      std::string text;
      for (std::size_t i = 1; i < words.size(); ++i) text += (i > 1 ? " " : "") + words[i].text;
      return run_within(text, words, 0);
    }
    for (std::size_t i = 0; i + 2 < words.size(); ++i) {
      const std::string program = program_of(words[i]), &option = words[i + 1].text;
      if ((program == "bash" || program == "sh") && option.starts_with('-') && option.ends_with('c'))
        return run_within(words[i + 2].text, words, i);  // what starts it stays in front: srun … bash -c "…"
    }
    for (ShellWord& word : words) word = expansion_.settled(std::move(word));
    script_.commands.push_back(std::move(words));
  }

  // A shell in a shell, behind the first `in_front` words.
  void run_within(const std::string& text, const Words& words, std::size_t in_front) {
    ShellExpansion inner = expansion_;
    inner.enter(text_, words.front().place);
    for (const Words& its : Reader(text, text_.file(), std::move(inner), fixed_).read().commands) {
      Words command;
      for (std::size_t w = 0; w < in_front; ++w) command.push_back(expansion_.settled(words[w]));
      for (const ShellWord& word : its) command.push_back({word.text, words.front().place, word.unknown});
      script_.commands.push_back(std::move(command));
    }
  }

  ShellCursor text_;
  ShellExpansion expansion_;
  std::set<std::string> fixed_;
  std::vector<Branch> branches_;
  std::vector<std::string> exported_;
  ShellScript script_;
};

}  // namespace

ShellScript read_shell(std::string_view text, const std::string& file,
                       const std::map<std::string, std::string>& given) {
  ShellExpansion expansion;
  std::set<std::string> fixed;
  for (const auto& [name, value] : given) {
    expansion.variables[name] = {{{value, {}}}};
    fixed.insert(name);
  }
  return Reader(text, file, std::move(expansion), std::move(fixed)).read();
}

}  // namespace tidemark::scenarios
