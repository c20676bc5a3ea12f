#pragma once

#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

/// Between which times a step lies if kernels and collectives are as far off as the cluster's file says they may be,
/// all of them the same way. Waiting for other ranks is made of their kernels and collectives.
struct StepRange {
  Duration low, high;
};
[[nodiscard]] StepRange step_range(const StepPrediction& step, const Efficiency& efficiency);

}  // namespace tidemark::scenarios
