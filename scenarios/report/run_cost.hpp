#pragma once

#include <optional>
#include <string>

#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

/// A figure, and the ends that the range of a step's time gives it.
struct Between {
  double value = 0, low = 0, high = 0;
};

/// The whole training: as many steps as its length says, each as long as the simulated one. Nothing else is in it:
/// neither evaluation, checkpoints and restarts, nor devices that stand idle.
struct RunCost {
  double tokens = 0, steps = 0;
  Between seconds, gpu_days;
  std::optional<Between> dollars;  ///< nothing without a price
};
/// Nothing where the scenario does not say how long it is, or where it deadlocks.
[[nodiscard]] std::optional<RunCost> run_cost(const Prediction& prediction);

/// What a billion tokens cost, in US dollars; nothing without a price.
[[nodiscard]] std::optional<Between> dollars_per_billion_tokens(const Prediction& prediction);

/// The line of an answer that tells of them; empty where there is nothing to tell.
[[nodiscard]] std::string run_cost_text(const Prediction& prediction);

/// "1.41 M": three digits, and the thousand that they count.
[[nodiscard]] std::string rounded_amount(double amount);

}  // namespace tidemark::scenarios
