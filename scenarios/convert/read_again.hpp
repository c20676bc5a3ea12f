#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "scenarios/convert/convert.hpp"

namespace tidemark::scenarios {

/// What is said beside a file when it is read again: as a scenario names them.
struct Beside {
  std::string model, cluster;
  std::filesystem::path data_root;
};

/// What of a scenario is another when `text`, which says it in a dialect, is read again, one remark for each key: so
/// nothing can be left out without anybody saying so.
[[nodiscard]] std::vector<Remark> differences(const Scenario& scenario, Dialect dialect, const std::string& text,
                                              const Beside& beside);

}  // namespace tidemark::scenarios
