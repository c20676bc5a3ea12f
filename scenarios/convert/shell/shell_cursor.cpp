#include "scenarios/convert/shell/shell_cursor.hpp"

#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {

char ShellCursor::next() {
  const char c = text_[at_++];
  if (c == '\n') {
    ++line_;
    line_begin_ = at_;
  }
  return c;
}

void ShellCursor::skip() {
  const auto begins_word = [&] {
    return at_ == 0 || std::string_view(" \t\n;(&|)").find(text_[at_ - 1]) != std::string_view::npos;
  };
  for (;;) {
    const char c = peek();
    if (c == ' ' || c == '\t' || c == '\r')
      next();
    else if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n')))
      next(), next();
    else if (c == '#' && begins_word())
      while (!over() && peek() != '\n') next();
    else
      return;
  }
}

std::string ShellCursor::until(char closing, Place place) {
  const std::size_t begin = at_;
  pass(closing, place);
  return std::string(text_.substr(begin, at_ - begin - 1));
}

void ShellCursor::pass(char closing, Place place) {
  while (peek() != closing || over()) {
    if (over()) fail(place, fmt::format("{} is not closed", closing));
    next();
  }
  next();
}

// Over what is opened by a character, if this one does.
bool ShellCursor::nested(bool quoted) {
  constexpr int deepest = 32;
  const Place place = here();
  const char c = peek();
  if (depth_ > deepest) fail(place, "is nested too deep");
  ++depth_;
  const bool opened = opens(c, quoted, place);
  --depth_;
  return opened;
}

bool ShellCursor::opens(char c, bool quoted, Place place) {
  if (c == '\\') {
    next();
    if (!over()) next();
  } else if (c == '\'' && !quoted) {
    next();
    pass('\'', place);
  } else if (c == '"') {
    next();
    double_quoted(place);
  } else if (c == '`') {
    next();
    (void)backquoted(place);
  } else if (c == '$' && peek(1) == '(') {
    next(), next();
    (void)parenthesised("(", place);
  } else if (c == '$' && peek(1) == '{') {
    next(), next();
    (void)braced(quoted, place);
  } else if (c == '$' && peek(1) == '[') {
    pass(']', place);
  } else if (c == '$' && peek(1) == '\'' && !quoted) {
    next(), next();
    for (; peek() != '\'' || over(); next()) {
      if (over()) fail(place, "' is not closed");
      if (peek() == '\\' && rest().size() > 1) next();
    }
    next();
  } else {
    return false;
  }
  return true;
}

std::string ShellCursor::backquoted(Place place) {
  const std::size_t begin = at_;
  for (; peek() != '`' || over(); next()) {
    if (over()) fail(place, "` is not closed");
    if (peek() == '\\' && rest().size() > 1) next();
  }
  next();
  return std::string(text_.substr(begin, at_ - begin - 1));
}

void ShellCursor::double_quoted(Place place) {
  while (peek() != '"' || over()) {
    if (over()) fail(place, "\" is not closed");
    if (!nested(true)) next();
  }
  next();
}

void ShellCursor::word() {
  while (!over()) {
    const bool substitutes = (peek() == '<' || peek() == '>') && peek(1) == '(';
    if (substitutes) {
      const Place place = here();
      next(), next();
      (void)parenthesised("(", place);
      continue;
    }
    if (ends_word()) return;
    if (!nested(false)) next();
  }
}

std::string ShellCursor::parenthesised(std::string_view opened_as, Place place) {
  const std::size_t begin = at_;
  for (int open = 1;;) {
    if (over()) fail(place, fmt::format("{} is not closed", opened_as));
    if (peek() == '#' && at_ > begin && std::string_view(" \t\n;").find(text_[at_ - 1]) != std::string_view::npos) {
      while (!over() && peek() != '\n') next();
      continue;
    }
    if (nested(false)) continue;
    const char c = next();
    if (c == '(') ++open;
    if (c == ')' && --open == 0) return std::string(text_.substr(begin, at_ - begin - 1));
  }
}

std::string ShellCursor::braced(bool quoted, Place place) {
  const std::size_t begin = at_;
  for (;;) {
    if (over()) fail(place, "${ is not closed");
    if (nested(quoted)) continue;
    if (next() == '}') return std::string(text_.substr(begin, at_ - begin - 1));
  }
}

void ShellCursor::fail(Place place, std::string what) const {
  throw InputError(Problem{.file = source_->file,
                           .line = place.line,
                           .column = place.column,
                           .message = std::move(what),
                           .hint = "give the command alone, as it would be typed"});
}

}  // namespace tidemark::scenarios
