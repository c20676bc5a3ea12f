#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// The candidate that `word` was probably meant to be, by edit distance; empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// The names that `word` was probably meant to be, in their order, where case, dashes and dots may be others and a name
/// may be given in part: those that are the word but for that, or else those of which one begins with the other, or has
/// the other in it, or those nearest by edit distance, or those that begin with the word's first letters ("gpt" of
/// "gpt5"). Empty when none is near.
std::vector<std::string> near_names(std::string_view word, const std::vector<std::string>& names);

/// "1", "1 or 2", "1, 2, 4 or 8".
std::string one_of(const std::vector<std::string>& alternatives);

/// `text` with control characters escaped: safe to print.
std::string printable(std::string_view text);

/// `text` between double quotes, control characters escaped and overlong text cut: safe to print.
std::string in_quotes(std::string_view text);

}  // namespace tidemark::scenarios
