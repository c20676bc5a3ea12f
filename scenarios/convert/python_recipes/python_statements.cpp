#include "scenarios/convert/python_recipes/python_statements.hpp"

#include <array>
#include <cctype>

#include "scenarios/convert/draft.hpp"

namespace tidemark::scenarios {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// Goes over a text and knows what is in quotes, in a comment, and how many brackets are open.
class PythonText {
 public:
  explicit PythonText(std::string_view text) : text_(text) {}

  std::vector<PythonLine> lines() {
    while (at_ < text_.size()) step();
    finish();
    return std::move(lines_);
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '"' || c == '\'') return take_quoted(c);
    if (c == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      return;
    }
    if (c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
      at_ += 2, ++line_;
      return;
    }
    if (c == '\n') {
      ++at_, ++line_;
      if (open_ > 0)
        current_ += ' ';
      else
        finish();
      return;
    }
    if (c == '(' || c == '[' || c == '{') ++open_;
    if ((c == ')' || c == ']' || c == '}') && open_ > 0) --open_;
    if (current_.empty() && trimmed(std::string_view(&c, 1)).empty()) {
      ++indent_, ++at_;
      return;
    }
    add(c);
    ++at_;
  }

  void add(char c) {
    if (current_.empty()) begin_ = {line_, indent_ + 1};
    current_ += c;
  }

  void take_quoted(char quote) {
    const std::string thrice(3, quote);
    const bool triple = text_.substr(at_, 3) == thrice;
    const std::string end = triple ? thrice : std::string(1, quote);
    const std::size_t from = at_;
    at_ += end.size();
    while (at_ < text_.size() && text_.substr(at_, end.size()) != end) {
      if (!triple && text_[at_] == '\n') break;
      at_ += text_[at_] == '\\' && at_ + 1 < text_.size() ? 2U : 1U;
    }
    at_ = std::min(at_ + end.size(), text_.size());
    for (const char c : text_.substr(from, at_ - from)) {
      if (c == '\n') ++line_;
      add(c == '\n' ? ' ' : c);
    }
  }

  void finish() {
    if (const std::string_view text = trimmed(current_); !text.empty())
      lines_.push_back({indent_, std::string(text), begin_});
    current_.clear();
    indent_ = 0;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1, indent_ = 0, open_ = 0;
  std::string current_;
  Place begin_;
  std::vector<PythonLine> lines_;
};

bool is_path(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) == 0 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") ==
             std::string_view::npos;
}

}  // namespace

std::vector<std::string> between_commas_of(std::string_view text) {
  std::vector<std::string> parts;
  std::string part;
  int open = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '(' || c == '[' || c == '{') {
      ++open;
    } else if (c == ')' || c == ']' || c == '}') {
      --open;
    } else if (c == ',' && open == 0) {
      parts.emplace_back(trimmed(part));
      part.clear();
      continue;
    }
    part += c;
  }
  if (!trimmed(part).empty()) parts.emplace_back(trimmed(part));
  return parts;
}

std::vector<PythonImport> imports_in(const PythonLine& line) {
  std::vector<PythonImport> made;
  const std::string& text = line.text;
  const bool from = text.starts_with("from ");
  const std::size_t middle = from ? text.find(" import ") : 0;
  if ((!from && !text.starts_with("import ")) || middle == std::string::npos) return made;
  constexpr std::size_t word = 8, start = 5;  // " import ", "from "
  const std::string module = from ? std::string(trimmed(text.substr(start, middle - start))) : std::string();
  std::string names = text.substr(from ? middle + word : word - 1);
  std::erase_if(names, [](char c) { return c == '(' || c == ')'; });
  for (const std::string& part : between_commas_of(names)) {
    const std::size_t as = part.find(" as ");
    const std::string name(trimmed(std::string_view(part).substr(0, as)));
    const std::string other =
        as == std::string::npos ? name : std::string(trimmed(std::string_view(part).substr(as + 4)));
    if (name.empty()) continue;
    made.push_back(from ? PythonImport{module, name, other, line.place} : PythonImport{name, {}, other, line.place});
  }
  return made;
}

PythonFile parse_python(std::string_view text) {
  PythonFile file;
  bool in_class = false;
  const auto behind = [](const std::string& its, std::size_t from) {
    const std::size_t open = its.find('(', from);
    if (open == std::string::npos) return std::string();
    int depth = 0;
    std::size_t end = open;
    for (; end < its.size(); ++end) {
      depth += its[end] == '(' ? 1 : its[end] == ')' ? -1 : 0;
      if (depth == 0) break;
    }
    return its.substr(open + 1, end - open - 1);
  };
  std::string unix_lines(text);
  std::erase(unix_lines, '\r');
  for (PythonLine& line : PythonText(unix_lines).lines()) {
    const bool is_function = line.indent == 0 && line.text.starts_with("def ");
    const bool is_class = line.indent == 0 && line.text.starts_with("class ");
    if (is_function) {
      const std::string name = line.text.substr(4, line.text.find('(') - 4);
      file.functions.push_back({name, line.place, {}, behind(line.text, 0)});
      in_class = false;
    } else if (is_class) {
      constexpr std::size_t word = 6;
      const std::string name = line.text.substr(word, line.text.find_first_of("(:") - word);
      file.classes.push_back({name, behind(line.text, 0), {}});
      in_class = true;
    } else if (line.indent > 0 && in_class) {
      file.classes.back().lines.push_back(std::move(line));
    } else if (line.indent > 0 && !file.functions.empty()) {
      file.functions.back().lines.push_back(std::move(line));
    } else if (line.indent == 0) {
      file.top.push_back(std::move(line));
    }
  }
  return file;
}

std::optional<PythonAssignment> assignment_in(const PythonLine& line) {
  const std::size_t sign = line.text.find('=');
  if (sign == std::string::npos || sign + 1 >= line.text.size() || line.text[sign + 1] == '=') return std::nullopt;
  std::string_view target = trimmed(std::string_view(line.text).substr(0, sign));
  if (const std::size_t type = target.find(':'); type != std::string_view::npos)
    target = trimmed(target.substr(0, type));
  if (!is_path(target)) return std::nullopt;
  return PythonAssignment{std::string(target), std::string(trimmed(std::string_view(line.text).substr(sign + 1)))};
}

std::optional<PythonCall> call_in(std::string_view text) {
  const std::size_t open = text.find('(');
  if (open == std::string_view::npos || !text.ends_with(')') || !is_path(trimmed(text.substr(0, open))))
    return std::nullopt;
  // "f(a).g()" is a call of what f gives: its first one is told.
  int depth = 0;
  std::size_t end = open;
  for (; end < text.size(); ++end) {
    depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
    if (depth == 0) break;
  }
  return PythonCall{std::string(trimmed(text.substr(0, open))),
                    between_commas_of(text.substr(open + 1, end - open - 1))};
}

namespace {

std::optional<decltype(TomlValue::value)> literal_within(std::string_view text, Place place, int lists) {
  using Value = decltype(TomlValue::value);
  constexpr int most_lists = 8;  // in each other
  text = trimmed(text);
  if (text.empty() || lists > most_lists) return std::nullopt;
  if (text == "True" || text == "False") return Value(text == "True");
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> types{std::pair{"torch.float32", "fp32"},
                                                                               {"torch.bfloat16", "bf16"},
                                                                               {"torch.float16", "fp16"},
                                                                               {"torch.float", "fp32"}};
  for (const auto& [theirs, ours] : types)
    if (text == theirs) return Value(std::string(ours));
  const char first = text.front();
  if ((first == '"' || first == '\'') && text.size() > 1 && text.find(first, 1) == text.size() - 1)
    return Value(std::string(text.substr(1, text.size() - 2)));
  if (first == '[' && text.back() == ']') {
    std::vector<TomlValue> list;
    for (const std::string& part : between_commas_of(text.substr(1, text.size() - 2))) {
      std::optional<Value> one = literal_within(part, place, lists + 1);
      if (!one) return std::nullopt;
      list.push_back({std::move(*one), place});
    }
    return Value(std::move(list));
  }
  std::string number;
  for (const char c : text)
    if (c != '_') number += c;
  Content value = typed(number);
  if (std::holds_alternative<std::string>(value)) return std::nullopt;
  return value;
}

}  // namespace

std::optional<decltype(TomlValue::value)> literal_in(std::string_view text, Place place) {
  return literal_within(text, place, 0);
}

}  // namespace tidemark::scenarios
