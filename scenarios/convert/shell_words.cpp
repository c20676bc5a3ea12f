#include "scenarios/convert/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/shell_conditions.hpp"
#include "scenarios/convert/shell_cursor.hpp"
#include "scenarios/convert/shell_expansion.hpp"
#include "scenarios/convert/slurm_variables.hpp"

namespace tidemark::scenarios {
namespace {

using WordList = std::vector<ShellWord>;

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
    script_.exported.insert(within_.begin(), within_.end());
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
    WordList words;
    std::vector<std::string> assigned;  // NAME=VALUE command: of its environment
    bool declares = false, exports = false;
    std::optional<std::string> document;  // <<, as the command finds it
    std::string file;                     // >
  };
  // Lines behind a command that it reads.
  struct Document {
    std::string text;
    std::size_t ends = 0;  // where it goes on behind them
  };
  // What stands before && or ||.
  struct Joint {
    bool and_then = false;
    ShellAnswer said;
  };
  enum class Then : std::uint8_t { GoOn, End };

  [[nodiscard]] bool is_taken() const {
    return std::ranges::all_of(branches_, [](const Branch& b) { return b.taken; });
  }
  [[nodiscard]] bool runs() const { return !passed_over_ && is_taken(); }
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
      if (text_.next() == '\n') pass_documents();
      return;
    }
    Statement its;
    its.place = text_.here();
    const std::optional<Joint> joint = std::exchange(joint_, std::nullopt);
    passed_over_ = joint && joint->said != ShellAnswer(joint->and_then);
    if (joint && !joint->said && is_taken())
      script_.skips.emplace_back("what stands behind a condition that only running it would tell", its.place);
    while (!text_.over() && part_of(its) == Then::GoOn) text_.skip();
    const ShellAnswer said = passed_over_ ? joint->said : answer_of_command(its.words);
    if (!its.words.empty() && runs()) {
      exported_.insert(exported_.end(), its.assigned.begin(), its.assigned.end());
      called(std::move(its));
    }
    passed_over_ = false;
    const char next = text_.peek();
    if ((next == '&' || next == '|') && text_.peek(1) == next) joint_ = {next == '&', said};
  }

  Then part_of(Statement& its) {
    const char c = text_.peek();
    if (!its.words.empty() && its.words.front().text == "[[" && its.words.back().text != "]]" && is_operator(c)) {
      its.words.push_back(operator_word());
      return Then::GoOn;
    }
    if (c == '\n' || c == ';' || c == '|') return Then::End;
    if (c == '&') {
      if (text_.peek(1) != '>') return Then::End;
      text_.next(), text_.next();
      return redirected();
    }
    if (c == '(' || c == ')') return bracket(its);
    if (c == '<' || c == '>') return redirection(its);
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
    if (its.words.empty() && passed_over_ && raw == "{") {
      skip_block("{", "}", its.place, "a group");
      return Then::GoOn;
    }
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
    if (opens && its.words.empty() && passed_over_) {
      (void)text_.bracketed('(', ')', "(", its.place);
    } else if (opens && its.words.empty() && take('(')) {  // ((i++)) and its like
      (void)text_.bracketed('(', ')', "(", its.place);
      take(')');
    }
    return Then::GoOn;
  }

  Then redirection(Statement& its) {
    if (text_.next() == '<' && take('<')) {
      if (take('<')) return redirected();
      documents_.push_back(document());
      its.document = documents_.back().text;
      return Then::GoOn;
    }
    while (take('>') || take('&') || take('|')) {
    }
    text_.skip();
    const ShellFields fields = expansion_.word(text_);
    if (!fields.words.empty()) its.file = fields.words.front().text;
    return Then::GoOn;
  }
  Then redirected() {
    text_.skip();
    (void)expansion_.word(text_);
    return Then::GoOn;
  }

  /// What begins behind this line, and behind other documents of it.
  Document document() {
    Document its;
    const bool without_tabs = take('-');
    text_.skip();
    std::string end;
    bool quoted = false;
    while (!text_.ends_word()) {
      const char c = text_.next();
      if (c == '\'' || c == '"' || c == '\\')
        quoted = true;
      else
        end += c;
    }
    std::size_t at = text_.at();
    const std::string_view all = text_.all();
    const auto line = [&] {
      const std::size_t stop = std::min(all.find('\n', at), all.size());
      const std::string_view found = all.substr(at, stop - at);
      at = std::min(stop + 1, all.size());
      return found;
    };
    while (line().ends_with('\\')) {
    }
    if (!documents_.empty()) at = documents_.back().ends;
    while (at < all.size()) {
      std::string_view found = line();
      if (without_tabs) found.remove_prefix(std::min(found.find_first_not_of('\t'), found.size()));
      if (found == end) break;
      its.text.append(found) += '\n';
    }
    its.ends = at;
    // What the shell around it takes away before the one within reads it.
    for (std::size_t i = 0; !quoted && i + 1 < its.text.size(); ++i)
      if (its.text[i] == '\\' && std::string_view("$`\\").find(its.text[i + 1]) != std::string_view::npos)
        its.text.erase(i, 1);
    return its;
  }
  void pass_documents() {
    if (documents_.empty()) return;
    while (text_.at() < documents_.back().ends) text_.next();
    documents_.clear();
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

  static bool is_operator(char c) { return c != '\0' && std::string_view("&|()<>").find(c) != std::string_view::npos; }
  /// As ShellAnswer's conditions have it.
  ShellWord operator_word() {
    const Place place = text_.here();
    return {std::string(1, text_.next()), place, "an operator"};
  }

  // The words of a condition, to its end.
  WordList simple() {
    WordList words;
    while (!text_.over()) {
      text_.skip();
      const char c = text_.peek();
      if (c == '\n' || c == ';' || c == '\0') break;
      if (is_operator(c)) {
        words.push_back(operator_word());
        continue;
      }
      const ShellFields fields = expansion_.word(text_);
      words.insert(words.end(), fields.words.begin(), fields.words.end());
    }
    return words;
  }

  void condition(Place place) {
    const ShellAnswer said = answer_of(simple());
    Branch& branch = branches_.back();
    branch.taken = true;  // so far: whether it is come to is for those around it to say
    if (!said && runs()) script_.skips.emplace_back("an if whose condition only running it would tell", place);
    branch.taken = said.value_or(false) && !passed_over_;
    branch.settled |= branch.taken || passed_over_;
  }

  // ---- commands

  void called(Statement its) {
    WordList& words = its.words;
    const std::string front = program_of(words.front());
    if (front == "eval") {
      std::string text;
      for (std::size_t i = 1; i < words.size(); ++i) text += (i > 1 ? " " : "") + words[i].text;
      return run_within(text, words, 0);
    }
    if (its.document && front == "cat" && !its.file.empty()) files_[its.file] = *its.document;
    if (its.document && front == "sbatch") return run_within(*its.document, words, 0);
    for (std::size_t i = 0; i < words.size(); ++i) {
      // What starts a shell stays in front: srun … bash -c "…"
      if (const auto file = files_.find(words[i].text); file != files_.end())
        if (const std::optional<std::size_t> in_front = starts(words, i))
          return run_within(std::string(file->second), words, *in_front);
      if (!is_shell(words[i])) continue;
      std::size_t next = i + 1;
      while (next < words.size() && words[next].text.starts_with('-')) ++next;
      if (next < words.size() && next > i + 1 && words[next - 1].text.ends_with('c'))
        return run_within(words[next].text, words, i);
      if (its.document && next == words.size()) return run_within(*its.document, words, i);
    }
    for (ShellWord& word : words) word = expansion_.settled(std::move(word));
    script_.commands.push_back(std::move(words));
  }

  static bool is_shell(const ShellWord& word) { return program_of(word) == "bash" || program_of(word) == "sh"; }

  /// How many words stand before what runs the file at `i`, where anything does.
  static std::optional<std::size_t> starts(const WordList& words, std::size_t i) {
    const std::string front = program_of(words.front());
    if (i == 0 || front == "sbatch" || front == "source" || front == ".") return 0;
    std::size_t shell = i;
    while (shell > 0 && words[shell - 1].text.starts_with('-')) --shell;
    if (shell > 0 && is_shell(words[shell - 1])) return shell - 1;
    return front == "srun" || front == "mpirun" ? std::optional(i) : std::nullopt;
  }

  // A shell in a shell, behind the first `in_front` words.
  void run_within(const std::string& text, const WordList& words, std::size_t in_front) {
    const Place place = words.front().place;
    ShellExpansion inner = expansion_;
    inner.enter(text_, place);
    ShellScript within = Reader(text, text_.file(), std::move(inner), fixed_).read();
    for (const WordList& its : within.commands) {
      WordList command;
      for (std::size_t w = 0; w < in_front; ++w) command.push_back(expansion_.settled(words[w]));
      for (const ShellWord& word : its) command.push_back({word.text, place, word.unknown});
      script_.commands.push_back(std::move(command));
    }
    for (const auto& [what, its] : within.skips) script_.skips.emplace_back(what, place);
    within_.insert(within.exported.begin(), within.exported.end());
  }

  ShellCursor text_;
  ShellExpansion expansion_;
  std::set<std::string> fixed_;
  std::vector<Branch> branches_;
  std::optional<Joint> joint_;
  bool passed_over_ = false;                  // the statement, by what stands before its && or ||
  std::vector<Document> documents_;           // of this line
  std::map<std::string, std::string> files_;  // that cat wrote
  std::vector<std::string> exported_;
  std::map<std::string, std::string> within_;  // exported by shells within
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
