#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "scenarios/io/problems.hpp"

namespace tidemark::scenarios {

/// Where in a shell script one reads.
class ShellCursor {
 public:
  ShellCursor(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {}

  [[nodiscard]] bool over() const { return at_ >= text_.size(); }
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] Place here() const { return {line_, static_cast<int>(at_ - line_begin_) + 1}; }
  [[nodiscard]] const std::string& file() const { return file_; }
  /// '\0' behind the end.
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  /// What is still to be read.
  [[nodiscard]] std::string_view rest() const { return std::string_view(text_).substr(at_); }
  [[nodiscard]] std::string_view all() const { return text_; }
  /// What has been read since it stood there.
  [[nodiscard]] std::string_view since(std::size_t begin) const {
    return std::string_view(text_).substr(begin, at_ - begin);
  }
  /// Whether a word ends here.
  [[nodiscard]] bool ends_word() const {
    return over() || std::string_view(" \t\r\n;&|()<>").find(peek()) != std::string_view::npos;
  }

  char next();
  /// Over white space, continued lines and comments, to what comes next on the line.
  void skip();
  /// Up to the character that closes what was opened at `place`, and over it.
  std::string until(char closing, Place place);
  /// The same where brackets nest; the first is open already.
  std::string bracketed(char opening, char closing, std::string_view opened_as, Place place);

  /// Throws InputError.
  [[noreturn]] void fail(Place place, std::string what) const;

 private:
  std::string text_, file_;
  std::size_t at_ = 0, line_begin_ = 0;
  int line_ = 1;
};

}  // namespace tidemark::scenarios
