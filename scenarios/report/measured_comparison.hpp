#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

/// What a real run left behind, and how near a prediction has to come to it.
struct Measurement {
  std::string file;                    ///< a memory snapshot or a training log
  std::vector<Rank> ranks;             ///< in order; none: rank 0 of a snapshot, all that a log has
  std::optional<std::int64_t> device;  ///< of a snapshot
  double tolerance = 0.02;             ///< as a share of what was measured
};

struct MeasuredComparison {
  bool agrees = false;
  std::string text;
  std::string json;  ///< empty where the job deadlocks: nothing was compared
};

/// Lays a prediction beside a real run's snapshot or log. Throws InputError, in the words of `compare`.
[[nodiscard]] MeasuredComparison compare_with(const Scenario& scenario, const Measurement& measurement,
                                              const Progress& progress);

}  // namespace tidemark::scenarios
