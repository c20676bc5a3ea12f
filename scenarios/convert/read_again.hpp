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

/// What its runtime does where [runtime.switches] says nothing: in the scenario's precision, with on hosts what is
/// there.
[[nodiscard]] RuntimeChoice usual_runtime(const Scenario& scenario);

/// What of a scenario is another when `text`, which says it in a dialect, is read again, one remark for each key: so
/// nothing can be left out without anybody saying so. Of another framework, switches that both leave as they are by
/// default are no difference.
[[nodiscard]] std::vector<Remark> differences(const Scenario& scenario, Dialect dialect, const std::string& text,
                                              const Beside& beside);

}  // namespace tidemark::scenarios
