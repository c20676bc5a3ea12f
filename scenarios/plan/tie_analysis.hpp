#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/base/time.hpp"

// Whether one layout is really faster than another one: steps are made of the same kernels and transfers, and what is
// wrong about one of these is wrong in both.

namespace tidemark::scenarios {

/// What a step is made of, by cause: how long, and how far off that may be, as a share.
struct StepPart {
  Duration time;
  double error = 0;
  bool operator==(const StepPart&) const = default;
};
using StepParts = std::map<std::string, StepPart>;  ///< "matmul", "all_reduce of tensor"

/// Two steps, and what their order rests on.
struct TieAnalysis {
  std::int64_t candidate = 0;  ///< held against the best
  Duration apart;              ///< its step is so much longer
  Duration error;              ///< and what both do not have alike may be off by so much
  std::string settles;         ///< the cause of most of that error; empty: there is none
  Duration of_that;            ///< its part
  [[nodiscard]] bool open() const { return apart <= error; }
  bool operator==(const TieAnalysis&) const = default;
};
/// Causes are right or wrong each for itself; of one cause both steps are off by the same share.
[[nodiscard]] TieAnalysis tie_analysis(std::int64_t candidate, Duration apart, const StepParts& best,
                                       const StepParts& other);

}  // namespace tidemark::scenarios
