#pragma once

#include <string>

namespace tidemark::scenarios {

/// As a POSIX shell takes it for one word: in single quotes where it is not plain.
[[nodiscard]] std::string shell_quoted(const std::string& word);

}  // namespace tidemark::scenarios
