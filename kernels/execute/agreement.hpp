#pragma once

#include <string>
#include <vector>

#include "kernels/execute/backend.hpp"
#include "kernels/execute/memory_points.hpp"
#include "sim/base/time.hpp"

namespace tidemark::execute {

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
  [[nodiscard]] Bytes reference_benchmark() const;
  /// Resident bytes agree within the tolerance, allocated bytes to the byte, every payload was right.
  [[nodiscard]] bool agrees() const;
};

/// Of the measured peak: how far resident bytes may be off.
inline constexpr double resident_tolerance = 0.005;
/// Below this peak a tolerance would be finer than what a process and its MPI library take on the side.
inline constexpr Bytes least_reference_benchmark{256 << 20};

/// One rank's record on its way to another process; the inverse of each other.
[[nodiscard]] std::string text(const RankAgreement& rank);
[[nodiscard]] RankAgreement parse_agreement(const std::string& text);

}  // namespace tidemark::execute
