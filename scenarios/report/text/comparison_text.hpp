#pragma once

#include <string>

#include "scenarios/recordings/logs/log_comparison.hpp"
#include "scenarios/recordings/snapshot_comparison.hpp"

namespace tidemark::scenarios {

/// What was compared with what.
struct ComparisonSubject {
  std::string scenario;
  std::string file;      ///< of the measurement
  double tolerance = 0;  ///< share of what was measured
  std::string job = {};  ///< the scenario as JSON
};

/// One screen: whether they agree, then by how much, when and because of what.
[[nodiscard]] std::string comparison_text(const SnapshotComparison& comparison, const ComparisonSubject& subject,
                                          Rank rank);
[[nodiscard]] std::string comparison_text(const LogComparison& comparison, const ComparisonSubject& subject);

/// All of it: schema "tidemark.comparison/1", docs/snapshots.md.
[[nodiscard]] std::string comparison_json(const SnapshotComparison& comparison, const ComparisonSubject& subject,
                                          Rank rank);
[[nodiscard]] std::string comparison_json(const LogComparison& comparison, const ComparisonSubject& subject);

}  // namespace tidemark::scenarios
