#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "scenarios/namespace.hpp"
#include "sim/base/units.hpp"

// What readers of training logs share.

namespace tidemark::scenarios {

/// Without terminals' colours, which torchtitan prints: ESC [ … m.
[[nodiscard]] std::string without_colours(std::string_view text);

/// A blank or a tab.
[[nodiscard]] constexpr bool is_blank(char c) { return c == ' ' || c == '\t'; }

/// A line, and how far it was read.
class LineReader {
 public:
  explicit LineReader(std::string_view text, std::size_t at = 0) : text_(text), at_(at) {}

  [[nodiscard]] std::size_t column() const { return at_ + 1; }

  bool skip(std::string_view word) {
    std::size_t at = at_;
    while (at < text_.size() && is_blank(text_[at])) ++at;
    if (!text_.substr(at).starts_with(word)) return false;
    at_ = at + word.size();
    return true;
  }

  template <class T>
  std::optional<T> number() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    T value{};
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{}) return std::nullopt;
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

 private:
  std::string_view text_;
  std::size_t at_;
};

/// The number behind a word, and behind ':', '=' or blanks that follow it.
[[nodiscard]] std::optional<double> number_behind(std::string_view line, std::string_view word, std::size_t from = 0);

/// The rank that a line names: "[rank3]", "[Rank 3]", torchrun's "[default3]", "rank=3".
[[nodiscard]] std::optional<Rank> named_rank(std::string_view line);

}  // namespace tidemark::scenarios
