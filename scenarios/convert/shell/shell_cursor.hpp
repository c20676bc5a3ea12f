#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "scenarios/formats/problems.hpp"

namespace tidemark::scenarios {

/// Text of a shell script: a file, or what `eval` or `bash -c` is given.
struct ShellSource {
  std::string text, file;
  std::optional<Place> within = {};  ///< of the command that is given it; nothing of a file
};

/// A part of a source.
struct ShellSpan {
  std::size_t begin = 0, end = 0;
  int line = 1;
  std::size_t line_begin = 0;
};

/// Where in a shell script one reads.
class ShellCursor {
 public:
  explicit ShellCursor(const ShellSource& source) : ShellCursor(source, {0, source.text.size()}) {}
  ShellCursor(const ShellSource& source, const ShellSpan& part)
      : source_(&source),
        text_(std::string_view(source.text).substr(0, part.end)),
        at_(part.begin),
        line_begin_(part.line_begin),
        line_(part.line) {}

  [[nodiscard]] bool over() const { return at_ >= text_.size(); }
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] Place here() const {
    return source_->within.value_or(Place{line_, static_cast<int>(at_ - line_begin_) + 1});
  }
  [[nodiscard]] const ShellSource& source() const { return *source_; }
  /// '\0' behind the end.
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  /// What is still to be read.
  [[nodiscard]] std::string_view rest() const { return text_.substr(at_); }
  /// What has been read since it stood there.
  [[nodiscard]] std::string_view since(std::size_t begin) const { return text_.substr(begin, at_ - begin); }
  /// Begins here; it ends where `ended` is called.
  [[nodiscard]] ShellSpan begun() const { return {at_, at_, line_, line_begin_}; }
  [[nodiscard]] ShellSpan ended(ShellSpan begun) const {
    begun.end = at_;
    return begun;
  }
  /// Whether a word ends here.
  [[nodiscard]] bool ends_word() const {
    return over() || std::string_view(" \t\r\n;&|()<>").find(peek()) != std::string_view::npos;
  }

  char next();
  /// Over white space, continued lines and comments, to what comes next on the line.
  void skip();
  /// Over a word, whatever quotes and expansions it has.
  void word();
  /// Up to the character that closes what was opened at `place`, and over it.
  std::string until(char closing, Place place);
  /// What stands between $( or (( and the ) that closes it, the first being read.
  std::string parenthesised(std::string_view opened_as, Place place);
  /// What stands between ${ and }, the first being read. `quoted`: between double quotes.
  std::string braced(bool quoted, Place place);
  /// What stands between ` and `, the first being read.
  std::string backquoted(Place place);
  /// Over what stands between double quotes, the first being read.
  void double_quoted(Place place);

  /// Throws InputError.
  [[noreturn]] void fail(Place place, std::string what) const;

 private:
  bool nested(bool quoted);
  bool opens(char c, bool quoted, Place place);
  void pass(char closing, Place place);

  const ShellSource* source_;
  std::string_view text_;
  std::size_t at_ = 0, line_begin_ = 0;
  int line_ = 1, depth_ = 0;
};

}  // namespace tidemark::scenarios
