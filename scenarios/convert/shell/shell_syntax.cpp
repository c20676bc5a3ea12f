#include "scenarios/convert/shell/shell_syntax.hpp"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

namespace tidemark::scenarios {
namespace {

using WordsOf = std::initializer_list<std::string_view>;

bool opens_loop(std::string_view word) { return is_one_of(word, {"for", "while", "until", "select"}); }
bool closes(std::string_view word) {
  return is_one_of(word, {"then", "elif", "else", "fi", "do", "done", "esac", "}"});
}

// The length of NAME=, NAME+= or NAME[…]=, up to and with the sign.
std::size_t assignment_ahead(std::string_view ahead) {
  if (ahead.empty() || !begins_name(ahead.front())) return 0;
  std::size_t end = 0;
  while (end < ahead.size() && is_of_name(ahead[end])) ++end;
  if (end < ahead.size() && ahead[end] == '[') {
    end = ahead.find_first_of("]\n", end);
    if (end == std::string_view::npos || ahead[end] != ']') return 0;
    ++end;
  }
  if (end < ahead.size() && ahead[end] == '+') ++end;
  return end < ahead.size() && ahead[end] == '=' ? end + 1 : 0;
}

class ShellParser {
 public:
  explicit ShellParser(const ShellSource& source) : source_(source), text_(source) {}

  ShellNodePtr whole() {
    ShellNodePtr all = list({});
    if (!text_.over()) unexpected();
    return all;
  }

 private:
  using Made = std::shared_ptr<ShellNode>;

  Made begin(ShellNode::Kind kind) {
    auto made = std::make_shared<ShellNode>();
    made->kind = kind;
    made->source = &source_;
    made->span = text_.begun();
    return made;
  }
  ShellNodePtr ended(Made made) {
    made->span = text_.ended(made->span);
    return made;
  }

  [[noreturn]] void unexpected() {
    const Place place = text_.here();
    std::string found(word_ahead());
    if (found.empty() && !text_.over()) found = text_.peek() == '\n' ? "a line's end" : std::string(1, text_.peek());
    text_.fail(place, text_.over() ? "a command is missing" : fmt::format("{} stands where no command can", found));
  }

  // ---- lines and words

  [[nodiscard]] std::string_view word_ahead() const {
    ShellCursor ahead = text_;
    const std::size_t begin = ahead.at();
    ahead.word();
    return ahead.since(begin);
  }
  ShellSpan word() {
    const ShellSpan span = text_.begun();
    text_.word();
    return text_.ended(span);
  }
  bool take(std::string_view ahead) {
    if (!text_.rest().starts_with(ahead)) return false;
    for (std::size_t i = 0; i < ahead.size(); ++i) text_.next();
    return true;
  }
  bool take_word(std::string_view wanted) {
    text_.skip();
    return word_ahead() == wanted && take(wanted);
  }
  void newline() {
    text_.next();
    for (const std::shared_ptr<ShellRedirection>& its : std::exchange(documents_, {})) read_document(*its);
  }
  void skip_lines() {
    for (text_.skip(); text_.peek() == '\n'; text_.skip()) newline();
  }

  void read_document(ShellRedirection& its) {
    std::string end;
    for (const char c : source_.text.substr(its.target.begin, its.target.end - its.target.begin))
      if (c == '\'' || c == '"' || c == '\\')
        its.quoted = true;
      else
        end += c;
    its.document = text_.begun();
    while (!text_.over()) {
      its.document = text_.ended(its.document);
      std::string_view line = text_.rest().substr(0, text_.rest().find('\n'));
      for (std::size_t i = 0; i <= line.size() && !text_.over(); ++i) text_.next();
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (its.without_tabs) line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
      if (line == end) return;
    }
    its.document = text_.ended(its.document);
  }

  // ---- lists

  ShellNodePtr list(WordsOf stops) {
    const Made made = begin(ShellNode::Kind::List);
    for (;;) {
      skip_lines();
      if (text_.over() || text_.peek() == ')' || text_.rest().starts_with(";;") || text_.rest().starts_with(";&") ||
          is_one_of(word_ahead(), stops))
        return ended(made);
      made->parts.push_back(and_or());
      text_.skip();
      made->signs += text_.peek() == '&' ? '&' : ';';
      if (text_.peek() == '&' || (text_.peek() == ';' && text_.peek(1) != ';' && text_.peek(1) != '&'))
        text_.next();
      else if (!text_.over() && text_.peek() != '\n' && text_.peek() != ')' && text_.peek() != ';')
        unexpected();
    }
  }
  // One that a shell wants a command in.
  ShellNodePtr body(WordsOf stops) {
    ShellNodePtr made = list(stops);
    if (made->parts.empty()) unexpected();
    return made;
  }

  ShellNodePtr and_or() {
    ShellNodePtr first = pipeline();
    text_.skip();
    Made made;
    while (text_.rest().starts_with("&&") || text_.rest().starts_with("||")) {
      if (!made) {
        made = begin(ShellNode::Kind::AndOr);
        made->span = first->span;
        made->parts.push_back(std::move(first));
      }
      made->signs += text_.peek();
      text_.next(), text_.next();
      skip_lines();
      made->parts.push_back(pipeline());
      text_.skip();
    }
    return made ? ended(made) : first;
  }

  ShellNodePtr pipeline() {
    const Made made = begin(ShellNode::Kind::Pipeline);
    if (take_word("time")) (void)take_word("-p");
    while (take_word("!")) made->inverted = !made->inverted;
    for (;;) {
      text_.skip();
      made->parts.push_back(command());
      text_.skip();
      if (text_.peek() != '|' || text_.peek(1) == '|') break;
      text_.next();
      take("&");
      skip_lines();
    }
    return made->parts.size() == 1 && !made->inverted ? made->parts.front() : ended(made);
  }

  // ---- commands

  ShellNodePtr command() {
    if (++depth_ > deepest) text_.fail(text_.here(), "is nested too deep");
    ShellNodePtr made = any_command();
    --depth_;
    return made;
  }

  ShellNodePtr any_command() {
    const std::string word(word_ahead());
    if (text_.peek() == '(') return bracket();
    if (word == "{") return group();
    if (word == "if") return conditional();
    if (opens_loop(word)) return loop();
    if (word == "case") return cases();
    if (word == "[[") return test();
    if (word == "function") return function();
    if (word == "coproc") {
      const Made made = begin(ShellNode::Kind::Coprocess);
      take("coproc"), text_.skip();
      made->parts.push_back(command());
      return ended(made);
    }
    if (closes(word)) unexpected();
    return simple();
  }

  ShellNodePtr compound(const Made& made) {
    for (;;) {
      text_.skip();
      std::string digits;
      for (std::size_t i = 0; std::isdigit(static_cast<unsigned char>(text_.peek(i))) != 0; ++i)
        digits += text_.peek(i);
      const char sign = text_.peek(digits.size());
      if (sign != '<' && sign != '>' && !text_.rest().starts_with("&>")) return ended(made);
      take(digits);
      redirection(*made);
    }
  }

  ShellNodePtr bracket() {
    const Place place = text_.here();
    if (text_.peek(1) == '(') {
      const ShellCursor before = text_;
      const Made made = begin(ShellNode::Kind::Arithmetic);
      text_.next(), text_.next();
      ShellSpan inside = text_.begun();
      (void)text_.parenthesised("(", place);
      inside = text_.ended(inside);
      --inside.end;
      if (text_.peek() == ')') {
        text_.next();
        made->words.push_back(inside);
        return compound(made);
      }
      text_ = before;  // a shell in a shell
    }
    const Made made = begin(ShellNode::Kind::Subshell);
    text_.next();
    made->parts.push_back(body({}));
    if (text_.peek() != ')') text_.fail(place, "( is not closed");
    text_.next();
    return compound(made);
  }

  ShellNodePtr group() {
    const Made made = begin(ShellNode::Kind::Group);
    take("{");
    made->parts.push_back(body({"}"}));
    close("}", *made, "a group");
    return compound(made);
  }

  void close(std::string_view word, const ShellNode& of, std::string_view what) {
    skip_lines();
    if (!take_word(word)) {
      if (text_.over()) text_.fail(of.place(), fmt::format("{} does not end", what));
      unexpected();
    }
  }

  ShellNodePtr conditional() {
    const Made made = begin(ShellNode::Kind::If);
    take("if");
    do {
      made->parts.push_back(body({"then"}));
      close("then", *made, "an if");
      made->parts.push_back(body({"elif", "else", "fi"}));
    } while (take_word("elif"));
    if (take_word("else")) made->parts.push_back(body({"fi"}));
    close("fi", *made, "an if");
    return compound(made);
  }

  ShellNodePtr loop() {
    const Made made = begin(ShellNode::Kind::Loop);
    made->name = word_ahead();
    take(made->name);
    text_.skip();
    if (made->name == "while" || made->name == "until") {
      made->parts.push_back(body({"do"}));
    } else if (text_.rest().starts_with("((")) {
      const Place place = text_.here();
      take("((");
      ShellSpan inside = text_.begun();
      (void)text_.parenthesised("(", place);
      inside = text_.ended(inside);
      --inside.end;
      made->words.push_back(inside);
      if (!take(")")) text_.fail(place, "(( is not closed");
    } else {
      made->variable = word_ahead();
      take(made->variable);
      skip_lines();
      if (take_word("in"))
        for (text_.skip(); !text_.over() && text_.peek() != ';' && text_.peek() != '\n'; text_.skip())
          list_word(made->words);
    }
    text_.skip();
    take(";");
    skip_lines();
    const std::string what = fmt::format("a loop ({})", made->name);
    if (take_word("{")) {
      made->parts.push_back(body({"}"}));
      close("}", *made, what);
    } else {
      close("do", *made, what);
      made->parts.push_back(loop_body(*made, what));
      close("done", *made, what);
    }
    return compound(made);
  }
  ShellNodePtr loop_body(const ShellNode& of, const std::string& what) {
    ShellNodePtr made = list({"done"});
    if (made->parts.empty() && text_.over()) text_.fail(of.place(), fmt::format("{} does not end", what));
    if (made->parts.empty()) unexpected();
    return made;
  }
  void list_word(std::vector<ShellSpan>& words) {
    words.push_back(word());
    if (words.back().begin == words.back().end) unexpected();
  }

  ShellNodePtr cases() {
    const Made made = begin(ShellNode::Kind::Case);
    take("case");
    text_.skip();
    list_word(made->words);
    skip_lines();
    close("in", *made, "a case");
    for (;;) {
      skip_lines();
      if (text_.over()) text_.fail(made->place(), "a case does not end");
      if (take_word("esac")) break;
      take("(");
      for (text_.skip(); text_.peek() != ')'; text_.skip()) {
        if (text_.over()) text_.fail(made->place(), "a case does not end");
        if (take("|")) continue;
        list_word(made->words);
        made->signs += 'p';
      }
      text_.next();
      made->parts.push_back(list({"esac"}));
      skip_lines();
      made->signs += take(";;&") ? '+' : !take(";;") && take(";&") ? '&' : ';';
    }
    return compound(made);
  }

  ShellNodePtr function() {
    const Made made = begin(ShellNode::Kind::Function);
    take("function");
    text_.skip();
    made->name = word_ahead();
    take(made->name);
    text_.skip();
    if (take("(")) {
      text_.skip();
      if (!take(")")) unexpected();
    }
    return function_body(made);
  }
  ShellNodePtr function_body(const Made& made) {
    skip_lines();
    made->parts.push_back(command());
    return ended(made);
  }

  ShellNodePtr test() {
    const Made made = begin(ShellNode::Kind::Test);
    take("[[");
    for (;;) {
      skip_lines();
      if (text_.over()) text_.fail(made->place(), "[[ is not closed");
      if (take_word("]]")) return compound(made);
      const ShellSpan span = text_.begun();
      const bool is_operator = text_.ends_word();
      made->signs += is_operator ? text_.peek() : ' ';
      if (is_operator)
        text_.next();
      else
        text_.word();
      made->words.push_back(text_.ended(span));
    }
  }

  // ---- simple ones

  ShellNodePtr simple() {
    const Made made = begin(ShellNode::Kind::Simple);
    bool declares = false;
    for (;; text_.skip()) {
      const char c = text_.peek();
      const bool substitutes = (c == '<' || c == '>') && text_.peek(1) == '(';
      if (text_.over() || c == '\n' || c == ';' || c == '|' || c == ')') break;
      if (c == '&' && text_.peek(1) != '>') break;
      if (c == '(') {
        if (made->words.size() != 1 || !made->assignments.empty()) unexpected();
        made->name = made->text(made->words.front());
        made->words.clear();
        text_.next(), text_.skip();
        if (!take(")")) unexpected();
        made->kind = ShellNode::Kind::Function;
        return function_body(made);
      }
      if (!substitutes && (c == '<' || c == '>' || c == '&')) {
        redirection(*made);
        continue;
      }
      if (made->words.empty() || declares)
        if (const std::size_t length = assignment_ahead(text_.rest()); length > 0) {
          made->assignments.push_back(assignment(length));
          continue;
        }
      const ShellSpan its = word();
      const std::string_view raw = made->text(its);
      const bool redirects = text_.peek() == '<' || text_.peek() == '>';
      if (redirects && std::ranges::all_of(raw, [](unsigned char d) { return std::isdigit(d) != 0; })) continue;
      made->words.push_back(its);
      if (made->words.size() == 1) declares = is_declaration(raw) && made->assignments.empty();
    }
    if (made->words.empty() && made->assignments.empty() && made->redirections.empty()) unexpected();
    return ended(made);
  }

  void redirection(ShellNode& of) {
    auto made = std::make_shared<ShellRedirection>();
    for (const std::string_view sign : {"&>>", "<<<", "<<-", "&>", "<<", "<>", "<&", ">>", ">&", ">|", "<", ">"})
      if (take(sign)) {
        made->sign = sign;
        break;
      }
    text_.skip();
    made->target = word();
    if (made->target.begin == made->target.end) unexpected();
    if (made->sign == "<<-") made->sign = "<<", made->without_tabs = true;
    if (made->sign == "<<") documents_.push_back(made);
    of.redirections.push_back(std::move(made));
  }

  ShellAssignment assignment(std::size_t length) {
    ShellAssignment made;
    std::string_view name = text_.rest().substr(0, length - 1);
    if (name.ends_with('+')) made.adds = true, name.remove_suffix(1);
    made.element = name.ends_with(']');
    made.name = name.substr(0, name.find('['));
    for (std::size_t i = 0; i < length; ++i) text_.next();
    if (text_.peek() != '(') {
      made.value = word();
      return made;
    }
    const Place opened = text_.here();
    made.array = true;
    text_.next();
    for (;;) {
      skip_lines();
      if (text_.over()) text_.fail(opened, "( is not closed");
      if (take(")")) return made;
      const char c = text_.peek();
      if (c == '&' || c == ';' || c == '|' || c == '(') unexpected();
      if ((c == '<' || c == '>') && text_.peek(1) != '(') unexpected();
      made.elements.push_back(word());
    }
  }

  static constexpr int deepest = 64;
  const ShellSource& source_;
  ShellCursor text_;
  std::vector<std::shared_ptr<ShellRedirection>> documents_;  // whose lines begin behind this one
  int depth_ = 0;
};

}  // namespace

Place ShellNode::place() const { return ShellCursor(*source, span).here(); }
std::string_view ShellNode::text(const ShellSpan& part) const {
  return std::string_view(source->text).substr(part.begin, part.end - part.begin);
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}
bool is_name(std::string_view text) {
  return !text.empty() && begins_name(text.front()) && std::ranges::all_of(text, is_of_name);
}
bool is_declaration(std::string_view word) {
  return is_one_of(word, {"export", "declare", "local", "readonly", "typeset"});
}
bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

ShellNodePtr parse_shell(const ShellSource& source) { return ShellParser(source).whole(); }

}  // namespace tidemark::scenarios
