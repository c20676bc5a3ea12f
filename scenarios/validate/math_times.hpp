#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/base/time.hpp"

namespace tidemark::scenarios {

/// Of a step: the longest of all ranks, and of that what kernels take, in the mean over ranks; the rest goes to
/// transfers, and to waiting for other ranks.
struct MathStep {
  Duration step, kernels;
};

/// What training with real numbers takes, beside what the cluster's file of this machine says it should.
struct MathTimes {
  std::string cluster;  ///< whose times; empty: none were asked for
  std::string source;   ///< of these
  std::int64_t repeats = 0;
  std::vector<MathStep> predicted, measured;  ///< by step, construction first

  [[nodiscard]] bool there() const { return !predicted.empty() && predicted.size() == measured.size(); }
};

}  // namespace tidemark::scenarios
