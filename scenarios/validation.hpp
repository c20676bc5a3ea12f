#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "kernels/execute/executor.hpp"
#include "kernels/execute/mutation.hpp"
#include "kernels/execute/world.hpp"
#include "scenarios/scenario.hpp"
#include "sim/time.hpp"

// A scenario run for real on the ranks of a world, and laid beside its prediction.

namespace tidemark {

struct ValidateOptions {
  PageScale scale;
  Mutation mutation = Mutation::None;  ///< something wrong on purpose
};

/// Prediction and measurement of one rank.
struct RankAgreement {
  Rank rank;
  MemoryPoints predicted, measured;
  std::vector<Duration> predicted_steps, measured_steps;  ///< construction first
  Findings findings;                                      ///< payloads that were wrong
  std::string host;                                       ///< the machine's name

  /// The largest difference of resident bytes over all phases and samples.
  [[nodiscard]] Bytes difference() const;
  /// What differences are judged against: the measured peak, but no less than what a process's own noise allows for.
  [[nodiscard]] Bytes yardstick() const;
  /// Resident bytes agree within the tolerance, allocated bytes to the byte, every payload was right.
  [[nodiscard]] bool agrees() const;
};

/// Of the measured peak: how far resident bytes may be off.
inline constexpr double resident_tolerance = 0.005;
/// Below this peak a tolerance would be finer than what a process and its MPI library take on the side.
inline constexpr Bytes least_yardstick{256 << 20};

/// The answer of `validate`.
struct Validation {
  Scenario scenario;
  ValidateOptions options;
  std::vector<RankAgreement> ranks;
  bool oversubscribed = false;  ///< more ranks than cores: times mean little

  [[nodiscard]] bool agrees() const;
};

/// Runs the scenario on the world's ranks, whose number is the scenario's. The whole answer at rank 0, this rank's part
/// elsewhere. Throws InputError, on all ranks alike, where the world cannot hold the job; RunFailure where the run
/// ended early.
[[nodiscard]] Validation validate(const Scenario& scenario, World& world, const ValidateOptions& options);

}  // namespace tidemark
