#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/predict/prediction.hpp"
#include "scenarios/recordings/logs/logged_steps.hpp"
#include "scenarios/recordings/logs/training_log.hpp"
#include "scenarios/recordings/snapshot_comparison.hpp"

namespace tidemark::scenarios {

/// A rank's peaks beside those that a training log has of it.
struct RankPeaks {
  LoggedPeak logged;
  std::optional<BytePair> allocated;  ///< where the log says it
  std::optional<BytePair> reserved;   ///< the same
  std::optional<BytePair> device = {};
  /// Of a message that memory ran out: whether and where it does in the prediction.
  std::string predicted_end = {};
  bool ends_alike = true;  ///< both of them run out of memory, or neither does

  /// The larger of its errors, without sign.
  [[nodiscard]] double error() const;
  friend bool operator==(const RankPeaks&, const RankPeaks&) = default;
};

/// How long a step takes beside how long the run's took.
struct StepBeside {
  Duration predicted, low, high;
  MeasuredStep measured;

  /// Whether the measurement lies in the predicted range, or outside by no more than a share of its end.
  [[nodiscard]] bool within(double tolerance) const;
  friend bool operator==(const StepBeside&, const StepBeside&) = default;
};

struct LogComparison {
  std::vector<RankPeaks> ranks;    ///< in order
  std::optional<StepBeside> step;  ///< where the log says steps' times

  /// Every rank ends as measured.
  [[nodiscard]] bool ends_alike() const;
  /// And its errors are no larger than this, and its steps took as long as predicted.
  [[nodiscard]] bool agrees(double tolerance) const;
};

/// Allocated is compared over the steps that the log's line is after, as far as they were simulated: later ones repeat
/// the last. Of a message that memory ran out, where it does in the prediction too, the devices are compared as they
/// were then: what the job would go on to hold is no measurement. Throws InputError, which names `file`, where a rank
/// is not in the job, or ran
/// out of memory on a device of another size.
[[nodiscard]] LogComparison compare_log(const Prediction& prediction, const std::vector<LoggedPeak>& logged,
                                        const std::string& file = {});

}  // namespace tidemark::scenarios
