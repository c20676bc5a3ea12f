#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark::scenarios {

/// What the shell's `read` assigns to one name.
struct ShellRead {
  std::string name;
  std::vector<std::string> values;
  bool array = false;
};

/// `read` with its arguments ("read", "-r", "A", "B"), of that input; `separators` is IFS where the command says it.
/// Nothing where options or what stands there would make it another reading.
[[nodiscard]] std::optional<std::vector<ShellRead>> read_by(const std::vector<std::string>& words,
                                                            std::string_view input,
                                                            const std::optional<std::string>& separators);

}  // namespace tidemark::scenarios
