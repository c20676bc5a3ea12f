#pragma once

#include <cstddef>
#include <string>

#include "scenarios/cli/namespace.hpp"

namespace tidemark::cli {

/// Where a standard stream goes, as far as what is printed there depends on it.
struct Terminal {
  bool is_one = false;
  bool colours = false;     ///< on terminals only, and not where NO_COLOR is set
  std::size_t columns = 0;  ///< what COLUMNS says, or the terminal; 0 where neither does
};
[[nodiscard]] Terminal terminal(int descriptor);

/// On a terminal: lines that fit, the answer itself and headings set off. Anywhere else, as it is.
[[nodiscard]] std::string answer_on(const Terminal& terminal, const std::string& text);
/// The same of what is wrong.
[[nodiscard]] std::string complaint_on(const Terminal& terminal, const std::string& text);

}  // namespace tidemark::cli
