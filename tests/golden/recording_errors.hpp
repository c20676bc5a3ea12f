#pragma once

#include <optional>
#include <vector>

#include "tests/golden/fake_recordings.hpp"

// How far what we say of a recorded training is off.

namespace tidemark::tests::golden {

/// Each the farthest of all steps, as a share of the step's recorded peak.
struct RecordingErrors {
  double peak = 0;              ///< of all live tensors at the peak
  double kind = 0;              ///< of one kind of them
  std::optional<double> after;  ///< after the optimizer step, where that was recorded
};

/// `predicted` and `recorded` have as many steps.
[[nodiscard]] RecordingErrors recording_errors(const Scenario& scenario, const std::vector<StepPeak>& predicted,
                                               const std::vector<StepPeak>& recorded);

/// The step whose highest allocated is farthest off, as a share of what was recorded.
[[nodiscard]] double worst_of_steps(const PlainRun& predicted, const PlainRun& recorded);

/// Predicted over recorded, less one.
[[nodiscard]] double share(Bytes predicted, Bytes recorded);

/// The gradient of a weight that two modules share is one once both have come; a program says so from the first on.
[[nodiscard]] StepPeak with_shared_gradient(StepPeak peak, const Scenario& scenario);

}  // namespace tidemark::tests::golden
