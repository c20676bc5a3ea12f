#include "scenarios/convert/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/shell_arithmetic.hpp"
#include "scenarios/io/input_error.hpp"

namespace tidemark::scenarios {
namespace {

constexpr int deepest = 32;  // of scripts in scripts, and of brackets

// What is not known stands in a text as its number between these two.
constexpr char mark_begins = '\x01', mark_ends = '\x02';
bool is_known(const std::string& text) { return text.find(mark_begins) == std::string::npos; }

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool goes_on(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// A variable: one text, or several where it is an array.
struct Value {
  std::vector<ShellWord> words;
  bool array = false;
};

/// A word while it is read: the fields that unquoted expansions split it into.
struct Piece {
  std::vector<ShellWord> fields;
  bool open = false;     ///< the last field goes on
  bool assigns = false;  ///< NAME=… at its beginning
  std::string raw;       ///< as it was written
  bool quoted = false;
};

enum class Kind { Word, End, Open, Close };  // End: of a command
struct Token {
  Kind kind{};
  Piece piece;
  Place place;
};

class Reader {
 public:
  Reader(std::string_view text, std::string file, std::map<std::string, Value> variables,
         std::shared_ptr<std::vector<std::string>> unknowns, int depth)
      : text_(text),
        file_(std::move(file)),
        variables_(std::move(variables)),
        unknowns_(std::move(unknowns)),
        depth_(depth) {}

  ShellScript read() {
    read_slurm();
    while (at_ < text_.size()) statement();
    for (const auto& [name, value] : variables_)
      if (!value.array && !value.words.empty() && is_known(value.words.front().text))
        script_.variables[name] = value.words.front().text;
    for (const std::string& name : exported_)
      if (const auto found = script_.variables.find(name); found != script_.variables.end())
        script_.exported[name] = found->second;
    return std::move(script_);
  }

 private:
  [[noreturn]] void fail(Place place, std::string what) const {
    throw InputError(Problem{.file = file_,
                             .line = place.line,
                             .column = place.column,
                             .message = std::move(what),
                             .hint = "give the command alone, as it would be typed"});
  }
  [[nodiscard]] Place here() const { return {line_, static_cast<int>(at_ - line_begin_) + 1}; }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  char next() {
    const char c = text_[at_++];
    if (c == '\n') {
      ++line_;
      line_begin_ = at_;
    }
    return c;
  }
  [[nodiscard]] bool runs() const {
    return std::ranges::all_of(branches_, [](const Branch& b) { return b.taken; });
  }

  // sbatch(1): what the lines at the head ask for, a job finds in its environment.
  void read_slurm() {
    const auto set = [&](std::string_view name, const std::string& value) {
      variables_.try_emplace(std::string(name), Value{{{value, {}}}});
    };
    std::optional<std::int64_t> nodes, tasks, per_node;
    std::size_t begin = 0;
    while (begin < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      std::string line(text_.substr(begin, end - begin));
      begin = end + 1;
      if (!line.starts_with("#SBATCH")) continue;
      std::ranges::replace(line, '=', ' ');
      std::vector<std::string> words;
      for (std::size_t at = 7; at < line.size();) {
        const std::size_t from = line.find_first_not_of(" \t\r", at);
        if (from == std::string::npos) break;
        at = std::min(line.find_first_of(" \t\r", from), line.size());
        words.push_back(line.substr(from, at - from));
      }
      if (words.size() < 2) continue;
      std::string number = words[1].substr(words[1].rfind(':') + 1);
      std::int64_t count = 0;
      if (std::from_chars(number.data(), number.data() + number.size(), count).ec != std::errc{}) continue;
      const std::string& option = words[0];
      if (option == "--nodes" || option == "-N") nodes = count;
      if (option == "--ntasks" || option == "-n") tasks = count;
      if (option == "--ntasks-per-node") per_node = count;
      if (option == "--gpus-per-node" || option == "--gres")
        set("SLURM_GPUS_PER_NODE", number), set("SLURM_GPUS_ON_NODE", number);
    }
    if (!tasks && nodes && per_node) tasks = *nodes * *per_node;
    if (nodes)
      for (const char* name : {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}) set(name, std::to_string(*nodes));
    if (per_node) set("SLURM_NTASKS_PER_NODE", std::to_string(*per_node));
    if (tasks)
      for (const char* name : {"SLURM_NTASKS", "SLURM_NPROCS"}) set(name, std::to_string(*tasks));
  }

  // ---- words

  static void glue(Piece& piece, std::string_view text, Place place) {
    if (!piece.open) piece.fields.push_back({{}, place}), piece.open = true;
    piece.fields.back().text += text;
  }
  void glue_unknown(Piece& piece, const std::string& what, Place place) {
    glue(piece, fmt::format("{}{}{}", mark_begins, unknowns_->size(), mark_ends), place);
    unknowns_->push_back(what);
  }
  // Marks to what they stand for.
  [[nodiscard]] ShellWord settled(ShellWord word) const {
    for (std::size_t at = word.text.find(mark_begins); at != std::string::npos; at = word.text.find(mark_begins)) {
      const std::size_t end = word.text.find(mark_ends, at);
      std::size_t number = 0;
      std::from_chars(word.text.data() + at + 1, word.text.data() + std::min(end, word.text.size()), number);
      if (number < unknowns_->size()) word.unknown += (word.unknown.empty() ? "" : " ") + unknowns_->at(number);
      word.text.replace(at, end == std::string::npos ? end : end + 1 - at, "?");
    }
    return word;
  }
  // What an expansion gives: whole between quotes, cut at spaces elsewhere.
  static void put(Piece& piece, const Value& value, bool quoted, bool each, Place place) {
    for (std::size_t i = 0; i < value.words.size(); ++i) {
      const ShellWord& word = value.words[i];
      if (i > 0 && each) piece.open = false;
      if (i > 0 && !each) glue(piece, " ", place);
      if (quoted) {
        glue(piece, word.text, word.place.line > 0 && each ? word.place : place);
        continue;
      }
      std::size_t at = 0;
      while (at < word.text.size()) {
        const std::size_t from = word.text.find_first_not_of(" \t\n\r", at);
        if (from != at) piece.open = false;
        if (from == std::string::npos) break;
        at = std::min(word.text.find_first_of(" \t\n\r", from), word.text.size());
        glue(piece, std::string_view(word.text).substr(from, at - from), place);
      }
    }
  }

  // From behind "${" on; the name and what follows up to the bracket.
  std::string braced(Place place) {
    std::string inside;
    for (int open = 1;;) {
      if (at_ >= text_.size()) fail(place, "${ is not closed");
      const char c = next();
      if (c == '{') ++open;
      if (c == '}' && --open == 0) return inside;
      inside += c;
    }
  }
  std::string bracketed(char opening, char closing, Place place) {
    std::string inside;
    for (int open = 1;;) {
      if (at_ >= text_.size()) fail(place, fmt::format("{} is not closed", opening));
      const char c = next();
      if (c == opening) ++open;
      if (c == closing && --open == 0) return inside;
      inside += c;
    }
  }

  [[nodiscard]] const Value* value_of(const std::string& name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? nullptr : &found->second;
  }

  // The words of a text such as the default in ${N:-…}.
  Value expanded(const std::string& text) {
    if (depth_ >= deepest) fail(here(), "is nested too deep");
    Reader inner(text, file_, variables_, unknowns_, depth_ + 1);
    Piece piece;
    while (inner.at_ < text.size()) inner.part(piece, true);
    if (piece.fields.empty()) piece.fields.push_back({});
    return {std::move(piece.fields)};
  }

  void expand(Piece& piece, bool quoted) {
    const Place place = here();
    next();  // $
    const char c = peek();
    if (c == '(' && peek(1) == '(') {
      next(), next();
      const std::string inside = bracketed('(', ')', place);
      if (peek() != ')') fail(place, "$(( is not closed");
      next();
      const auto number = arithmetic(inside, [&](const std::string& name) -> std::optional<std::string> {
        const Value* value = value_of(name);
        if (value == nullptr || value->words.empty() || !is_known(value->words.front().text)) return std::nullopt;
        return value->words.front().text;
      });
      return number ? glue(piece, std::to_string(*number), place) : glue_unknown(piece, "$((" + inside + "))", place);
    }
    if (c == '(') {
      next();
      return glue_unknown(piece, "$(" + bracketed('(', ')', place) + ")", place);
    }
    if (c == '{') {
      next();
      return parameter(piece, braced(place), quoted, place);
    }
    if (starts_name(c)) {
      std::string name;
      while (goes_on(peek())) name += next();
      return parameter(piece, name, quoted, place);
    }
    if (c == '@' || c == '*') {
      next();  // the script's own arguments: none are given
      return;
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '#' || c == '?' || c == '$' || c == '!')
      return parameter(piece, std::string(1, next()), quoted, place);
    glue(piece, "$", place);
  }

  void parameter(Piece& piece, const std::string& inside, bool quoted, Place place) {
    std::size_t end = 0;
    const bool counts = inside.starts_with('#') && inside.size() > 1;
    if (counts) end = 1;
    const std::size_t begin = end;
    if (end < inside.size() && !goes_on(inside[end])) ++end;  // $? and its like
    while (end < inside.size() && goes_on(inside[end])) ++end;
    const std::string name = inside.substr(begin, end - begin);
    std::string rest = inside.substr(end);
    bool all = false, each = false;
    if (rest.starts_with("[@]") || rest.starts_with("[*]")) {
      all = true;
      each = rest[1] == '@' || !quoted;
      rest.erase(0, 3);
    }
    if (inside == "#") return glue(piece, "0", place);  // how many arguments the script has
    const Value* value = value_of(name);
    if (counts && value != nullptr) return glue(piece, std::to_string(value->words.size()), place);
    const bool missing = value == nullptr || (!all && value->words.empty());
    const bool empty = missing || (value->words.size() == 1 && value->words[0].text.empty());
    for (const std::string_view sign : {":-", "-", ":=", "="})
      if (rest.starts_with(sign)) {
        const bool falls_back = sign.starts_with(':') ? empty : missing;
        if (!falls_back) return put(piece, *value, quoted, each, place);
        const Value other = expanded(rest.substr(sign.size()));
        if (sign.ends_with('=')) variables_[name] = other;
        return put(piece, other, quoted, true, place);
      }
    if (rest.starts_with(":+") || rest.starts_with("+")) {
      if (!empty) put(piece, expanded(rest.substr(rest.find('+') + 1)), quoted, true, place);
      return;
    }
    if (rest.starts_with('[') && rest.ends_with(']') && value != nullptr) {
      const auto index = arithmetic(rest.substr(1, rest.size() - 2), [](const std::string&) { return std::nullopt; });
      if (index && *index >= 0 && *index < static_cast<std::int64_t>(value->words.size()))
        return put(piece, {{value->words[static_cast<std::size_t>(*index)]}}, quoted, true, place);
    }
    if (!rest.empty() && !rest.starts_with(":?") && !rest.starts_with('?'))
      return glue_unknown(piece, "${" + inside + "}", place);
    if (value == nullptr) return glue_unknown(piece, "$" + name, place);
    if (!all && value->array) return put(piece, {{value->words.front()}}, quoted, true, place);
    put(piece, *value, quoted, each, place);
  }

  // One part of a word. `bare`: spaces are a part, too.
  void part(Piece& piece, bool bare) {
    const Place place = here();
    const char c = peek();
    if (c == '\\') {
      next();
      if (at_ >= text_.size()) return;
      const char escaped = next();
      if (escaped != '\n') glue(piece, std::string(1, escaped), place);
    } else if (c == '\'') {
      next();
      glue(piece, "", place);
      while (peek() != '\'') {
        if (at_ >= text_.size()) fail(place, "' is not closed");
        glue(piece, std::string(1, next()), place);
      }
      next();
      piece.quoted = true;
    } else if (c == '"') {
      next();
      const std::size_t fields = piece.fields.size();
      const bool open = piece.open;
      bool array = false;
      while (peek() != '"') {
        if (at_ >= text_.size()) fail(place, "\" is not closed");
        if (peek() == '\\' && at_ + 1 < text_.size()) {
          next();
          const char escaped = next();
          if (escaped == '\n') continue;
          glue(piece,
               std::string_view("\"\\$`").find(escaped) != std::string_view::npos ? std::string(1, escaped)
                                                                                  : std::string("\\") + escaped,
               place);
        } else if (peek() == '$') {
          array |= std::string_view(text_).substr(at_, 48).find("[@]") != std::string_view::npos || peek(1) == '@';
          expand(piece, true);
        } else if (peek() == '`') {
          next();
          glue_unknown(piece, "`" + until('`', place) + "`", place);
        } else {
          glue(piece, std::string(1, next()), place);
        }
      }
      next();
      piece.quoted = true;
      // "" is a word, and "${EMPTY[@]}" is none.
      if (piece.fields.size() == fields && piece.open == open && !array) glue(piece, "", place);
    } else if (c == '$') {
      expand(piece, bare);
    } else if (c == '`') {
      next();
      glue_unknown(piece, "`" + until('`', place) + "`", place);
    } else {
      glue(piece, std::string(1, next()), place);
    }
  }
  std::string until(char closing, Place place) {
    std::string inside;
    while (peek() != closing) {
      if (at_ >= text_.size()) fail(place, fmt::format("{} is not closed", closing));
      inside += next();
    }
    next();
    return inside;
  }

  // To the next word or end of a command; comments go.
  void skip() {
    for (;;) {
      const char c = peek();
      if (c == ' ' || c == '\t' || c == '\r')
        next();
      else if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n')))
        next(), next();
      else if (c == '#' && (at_ == 0 || std::string_view(" \t\n;(").find(text_[at_ - 1]) != std::string_view::npos))
        while (at_ < text_.size() && peek() != '\n') next();
      else
        return;
    }
  }

  static bool ends_word(char c) { return std::string_view(" \t\r\n;&|()<>").find(c) != std::string_view::npos; }

  // NAME=, NAME+=; its length.
  [[nodiscard]] std::size_t assignment() const {
    std::size_t end = at_;
    if (end >= text_.size() || !starts_name(text_[end])) return 0;
    while (end < text_.size() && goes_on(text_[end])) ++end;
    if (end < text_.size() && text_[end] == '+') ++end;
    return end < text_.size() && text_[end] == '=' ? end + 1 - at_ : 0;
  }

  void assign(bool exports, bool whole) {
    const std::size_t length = assignment();
    std::string name(text_.substr(at_, length - 1));
    const bool adds = name.ends_with('+');
    if (adds) name.pop_back();
    for (std::size_t i = 0; i < length; ++i) next();
    Value value;
    if (peek() == '(') {
      const Place place = here();
      next();
      value.array = true;
      for (;;) {
        skip();
        while (peek() == '\n') next(), skip();
        if (at_ >= text_.size()) fail(place, "( is not closed");
        if (peek() == ')') break;
        Piece piece;
        while (at_ < text_.size() && !ends_word(peek())) part(piece, false);
        if (at_ < text_.size() && peek() != ')' && piece.fields.empty() &&
            !std::isspace(static_cast<unsigned char>(peek())) && !piece.quoted)
          next();
        value.words.insert(value.words.end(), piece.fields.begin(), piece.fields.end());
      }
      next();
    } else {
      Piece piece;
      piece.open = false;
      glue(piece, "", here());
      while (at_ < text_.size() && !ends_word(peek())) part(piece, true);
      ShellWord joined = piece.fields.front();
      for (std::size_t i = 1; i < piece.fields.size(); ++i) joined.text += ' ' + piece.fields[i].text;
      value.words.push_back(std::move(joined));
    }
    if (!runs()) return;
    if (const auto outside = outside_.find(name); outside != outside_.end()) return;
    if (exports || !whole) exported_.push_back(name);
    Value& known = variables_[name];
    if (!adds) {
      known = std::move(value);
    } else if (value.array || known.array) {
      known.array = true;
      known.words.insert(known.words.end(), value.words.begin(), value.words.end());
    } else if (known.words.empty()) {
      known = std::move(value);
    } else {
      known.words.front().text += value.words.front().text;
    }
  }

  // ---- statements

  struct Branch {
    bool taken = true;     ///< what is read now
    bool settled = false;  ///< one of its branches was taken
  };

  void skip_block(std::string_view opening, std::string_view closing, Place place, std::string_view what) {
    int open = 1;
    while (at_ < text_.size()) {
      skip();
      Piece piece;
      const std::size_t begin = at_;
      while (at_ < text_.size() && !ends_word(peek())) part(piece, false);
      const std::string_view raw = std::string_view(text_).substr(begin, at_ - begin);
      if (raw == opening) ++open;
      if (raw == closing && --open == 0) {
        if (runs()) script_.skips.emplace_back(std::string(what), place);
        return;
      }
      if (at_ < text_.size() && raw.empty()) next();
    }
    fail(place, fmt::format("{} does not end", what));
  }

  void heredoc() {
    std::string end;
    bool tabs = false;
    if (peek() == '-') tabs = true, next();
    skip();
    while (at_ < text_.size() && !ends_word(peek())) {
      const char c = next();
      if (c != '\'' && c != '"' && c != '\\') end += c;
    }
    while (at_ < text_.size() && next() != '\n') {
    }
    while (at_ < text_.size()) {
      std::string line;
      while (at_ < text_.size() && peek() != '\n') line += next();
      if (at_ < text_.size()) next();
      if (tabs)
        line.erase(0, line.find_first_not_of('\t') == std::string::npos ? line.size() : line.find_first_not_of('\t'));
      if (line == end) return;
    }
  }

  // What [ … ] and [[ … ]] say; nothing where only running it would tell.
  static std::optional<bool> test(const std::vector<ShellWord>& words) {
    if (words.size() < 3 || (words[0].text != "[" && words[0].text != "[[")) return std::nullopt;
    for (const ShellWord& word : words)
      if (!is_known(word.text) || !word.unknown.empty()) return std::nullopt;
    std::vector<std::string> inside;
    for (std::size_t i = 1; i + 1 < words.size(); ++i) inside.push_back(words[i].text);
    bool negated = false;
    if (!inside.empty() && inside.front() == "!") negated = true, inside.erase(inside.begin());
    const auto said = [&](bool yes) { return std::optional(yes != negated); };
    if (inside.size() == 1) return said(!inside[0].empty());
    if (inside.size() == 2 && inside[0] == "-z") return said(inside[1].empty());
    if (inside.size() == 2 && inside[0] == "-n") return said(!inside[1].empty());
    if (inside.size() != 3) return std::nullopt;
    const std::string &a = inside[0], &sign = inside[1], &b = inside[2];
    if (sign == "=" || sign == "==") return said(a == b);
    if (sign == "!=") return said(a != b);
    const Content_t x = whole(a), y = whole(b);
    if (!x || !y) return std::nullopt;
    if (sign == "-eq") return said(*x == *y);
    if (sign == "-ne") return said(*x != *y);
    if (sign == "-gt") return said(*x > *y);
    if (sign == "-ge") return said(*x >= *y);
    if (sign == "-lt") return said(*x < *y);
    if (sign == "-le") return said(*x <= *y);
    return std::nullopt;
  }
  using Content_t = std::optional<std::int64_t>;
  static Content_t whole(const std::string& text) {
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    return error == std::errc{} && at == end ? Content_t(value) : std::nullopt;
  }

  void statement() {
    skip();
    if (at_ >= text_.size()) return;
    if (std::string_view("\n;&|").find(peek()) != std::string_view::npos) {
      next();
      return;
    }
    const Place place = here();
    std::vector<ShellWord> words;
    std::string first;
    bool exports = false;
    while (at_ < text_.size()) {
      skip();
      const char c = peek();
      if (c == '\0' || c == '\n' || c == ';' || c == '|') break;
      if (c == '&') {
        if (peek(1) == '>') {
          next(), next();
          redirected();
          continue;
        }
        break;
      }
      if (c == '(' || c == ')') {
        next();
        if (c == '(' && words.size() == 1 && peek() == ')') return function(place);
        if (c == ')') continue;
        if (!words.empty()) continue;
        if (peek() == '(') {  // ((i++)) and its like
          next();
          (void)bracketed('(', ')', place);
          if (peek() == ')') next();
        }
        continue;
      }
      if (c == '<' || c == '>') {
        next();
        if (c == '<' && peek() == '<') {
          next();
          if (peek() != '<') {
            heredoc();
            break;  // which ends the line, and so the command
          }
          next();
          redirected();
          continue;
        }
        while (peek() == '>' || peek() == '&' || peek() == '|') next();
        redirected();
        continue;
      }
      if ((words.empty() || exports) && assignment() > 0) {
        const std::size_t before = at_;
        assign(exports, true);
        if (before == at_) next();
        // NAME=VALUE command: of its environment.
        assigned_.push_back(std::string(text_.substr(before, text_.find_first_of("+=", before) - before)));
        continue;
      }
      Piece piece;
      const std::size_t begin = at_;
      while (at_ < text_.size() && !ends_word(peek())) part(piece, false);
      const std::string raw(text_.substr(begin, at_ - begin));
      if (words.empty() && !exports && first.empty()) first = raw;
      // 2>&1: the number is no word.
      if ((peek() == '>' || peek() == '<') && !raw.empty() &&
          std::ranges::all_of(raw, [](unsigned char d) { return std::isdigit(d) != 0; }))
        continue;
      if (words.empty() && keyword(raw, place)) {
        assigned_.clear();
        return;
      }
      if (words.empty() &&
          (raw == "export" || raw == "declare" || raw == "local" || raw == "readonly" || raw == "typeset")) {
        exports = true;
        exporting_ = raw == "export";
        continue;
      }
      if (exports) {
        if (exporting_ && !raw.starts_with('-') && runs()) exported_.push_back(raw);
        continue;
      }
      words.insert(words.end(), piece.fields.begin(), piece.fields.end());
    }
    if (!words.empty() && runs()) {
      for (const std::string& name : assigned_) exported_.push_back(name);
      called(std::move(words));
    }
    assigned_.clear();
  }

  void redirected() {
    skip();
    Piece piece;
    while (at_ < text_.size() && !ends_word(peek())) part(piece, false);
  }

  void function(Place place) {
    next();  // )
    skip();
    while (peek() == '\n') next(), skip();
    if (peek() == '{') next();
    skip_block("{", "}", place, "a function");
  }

  // A word that opens or ends a branch or a loop.
  bool keyword(const std::string& word, Place place) {
    if (word == "if") {
      branches_.push_back({});
      condition(place);
      return true;
    }
    if (word == "elif" || word == "else" || word == "fi") {
      if (branches_.empty()) fail(place, fmt::format("{} without an if", word));
      Branch& branch = branches_.back();
      if (word == "fi") {
        branches_.pop_back();
      } else if (word == "else") {
        branch.taken = !branch.settled;
      } else if (branch.settled) {
        branch.taken = false;
        std::vector<ShellWord> unread;
        simple(unread);
      } else {
        branch.taken = true;
        condition(place);
      }
      return true;
    }
    if (word == "then") return true;
    if (word == "for" || word == "while" || word == "until" || word == "select") {
      (void)text_;
      find_word("do");
      skip_block("do", "done", place, fmt::format("a loop ({})", word));
      return true;
    }
    if (word == "case") {
      skip_block("case", "esac", place, "a case");
      return true;
    }
    if (word == "function") {
      while (at_ < text_.size() && peek() != '{') next();
      if (at_ < text_.size()) next();
      skip_block("{", "}", place, "a function");
      return true;
    }
    return false;
  }

  void find_word(std::string_view wanted) {
    while (at_ < text_.size()) {
      skip();
      Piece piece;
      const std::size_t begin = at_;
      while (at_ < text_.size() && !ends_word(peek())) part(piece, false);
      if (std::string_view(text_).substr(begin, at_ - begin) == wanted) return;
      if (at_ == begin && at_ < text_.size()) next();
    }
  }

  void simple(std::vector<ShellWord>& words) {
    while (at_ < text_.size()) {
      skip();
      const char c = peek();
      if (c == '\n' || c == ';' || c == '\0') return;
      if (std::string_view("&|()<>").find(c) != std::string_view::npos) {
        words.push_back({std::string(1, next()), here(), "a condition of several parts"});
        continue;
      }
      Piece piece;
      while (at_ < text_.size() && !ends_word(peek())) part(piece, false);
      words.insert(words.end(), piece.fields.begin(), piece.fields.end());
    }
  }

  void condition(Place place) {
    std::vector<ShellWord> words;
    simple(words);
    Branch& branch = branches_.back();
    const std::optional<bool> said = test(words);
    branch.taken = said.value_or(false);
    branch.settled |= branch.taken;
    const bool outer = std::all_of(branches_.begin(), branches_.end() - 1, [](const Branch& b) { return b.taken; });
    if (!said && outer) script_.skips.emplace_back("an if whose condition only running it would tell", place);
  }

  // A shell in a shell: bash -c "…", eval …
  void called(std::vector<ShellWord> words) {
    const auto inner = [&](const std::string& text) {
      if (depth_ >= deepest) fail(words.front().place, "is nested too deep");
      Reader reader(text, file_, variables_, unknowns_, depth_ + 1);
      const ShellScript script = reader.read();
      for (std::vector<ShellWord> command : script.commands) {
        for (ShellWord& word : command) word.place = words.front().place;
        script_.commands.push_back(std::move(command));
      }
    };
    const auto name = [](const ShellWord& word) { return word.text.substr(word.text.rfind('/') + 1); };
    if (name(words.front()) == "eval") {
      std::string text;
      for (std::size_t i = 1; i < words.size(); ++i) text += (i > 1 ? " " : "") + words[i].text;
      return inner(text);
    }
    for (std::size_t i = 0; i + 2 < words.size(); ++i)
      if ((name(words[i]) == "bash" || name(words[i]) == "sh") && words[i + 1].text.starts_with('-') &&
          words[i + 1].text.ends_with('c')) {
        const std::size_t before = script_.commands.size();
        inner(words[i + 2].text);
        // What starts it stays in front: srun … bash -c "…".
        for (std::size_t c = before; c < script_.commands.size(); ++c)
          for (std::size_t w = 0; w < i; ++w)
            script_.commands[c].insert(script_.commands[c].begin() + static_cast<std::ptrdiff_t>(w), settled(words[w]));
        return;
      }
    for (ShellWord& word : words) word = settled(std::move(word));
    script_.commands.push_back(std::move(words));
  }

 public:
  std::map<std::string, Value> outside_;

 private:
  std::string text_;
  std::string file_;
  std::map<std::string, Value> variables_;
  std::shared_ptr<std::vector<std::string>> unknowns_;
  int depth_;
  std::size_t at_ = 0, line_begin_ = 0;
  int line_ = 1;
  std::vector<Branch> branches_;
  std::vector<std::string> exported_, assigned_;
  bool exporting_ = false;
  ShellScript script_;
};

}  // namespace

ShellScript read_shell(std::string_view text, const std::string& file,
                       const std::map<std::string, std::string>& given) {
  std::map<std::string, Value> variables;
  for (const auto& [name, value] : given) variables[name] = {{{value, {}}}};
  Reader reader(text, file, variables, std::make_shared<std::vector<std::string>>(), 0);
  reader.outside_ = variables;
  return reader.read();
}

}  // namespace tidemark::scenarios
