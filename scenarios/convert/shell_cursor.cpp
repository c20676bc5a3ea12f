#include "scenarios/convert/shell_cursor.hpp"

#include <fmt/format.h>

#include "scenarios/io/input_error.hpp"

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
    return at_ == 0 || std::string_view(" \t\n;(").find(text_[at_ - 1]) != std::string_view::npos;
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
  std::string inside;
  while (peek() != closing) {
    if (over()) fail(place, fmt::format("{} is not closed", closing));
    inside += next();
  }
  next();
  return inside;
}

std::string ShellCursor::bracketed(char opening, char closing, std::string_view opened_as, Place place) {
  std::string inside;
  for (int open = 1;;) {
    if (over()) fail(place, fmt::format("{} is not closed", opened_as));
    const char c = next();
    if (c == opening) ++open;
    if (c == closing && --open == 0) return inside;
    inside += c;
  }
}

void ShellCursor::fail(Place place, std::string what) const {
  throw InputError(Problem{.file = file_,
                           .line = place.line,
                           .column = place.column,
                           .message = std::move(what),
                           .hint = "give the command alone, as it would be typed"});
}

}  // namespace tidemark::scenarios
