#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "scenarios/cli/namespace.hpp"

namespace tidemark::cli {

struct CompareArguments {
  std::string scenario;
  std::string measured;  ///< a memory snapshot or a training log
  std::optional<std::string> ranks;
  std::optional<std::int64_t> device;  ///< of the snapshot
  double tolerance = 2;                ///< percent
  std::string json;
};

/// Lays a prediction beside a real run's snapshot or log. True where they agree. Throws InputError.
[[nodiscard]] bool run_compare(const CompareArguments& arguments);

}  // namespace tidemark::cli
