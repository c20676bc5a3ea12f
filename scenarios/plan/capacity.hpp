#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/plan/plan.hpp"
#include "scenarios/plan/space/space.hpp"

namespace tidemark::scenarios {

/// A question of how far something goes: the largest value of one axis at which anything in the space fits, for each
/// value of another axis, if there is one. What the other axes offer is searched for the best.
struct Study {
  Space space;
  std::size_t grows = 0;          ///< axis; its values in the order in which they grow
  std::optional<std::size_t> by;  ///< axis
  /// By value of the axis that grows: the headroom that candidates have with it. Empty: what they say themselves.
  std::vector<std::optional<TomlValue>> headroom = {};
};

/// From a scenario with [space] and a table [capacity]: `largest` names the axis that grows, `by` the other one. Throws
/// InputError.
[[nodiscard]] Study read_study(const std::filesystem::path& path, const std::filesystem::path& data_root);
[[nodiscard]] Study study_of(TomlTable document, const std::filesystem::path& file, const ScenarioFolders& folders);

/// One point of a frontier.
struct Limit {
  std::size_t by = 0;                  ///< value of that axis
  std::optional<std::size_t> largest;  ///< value of the axis that grows; nothing: not even the smallest fits
  std::optional<Found> best;           ///< at that value; candidate of the study's space
  std::optional<Miss> next;            ///< what lacks the least at the next larger value
  std::string refused;                 ///< where all values give jobs that cannot be: why most of them cannot
};

[[nodiscard]] std::vector<Limit> limits(const Study& study, const PlanProgress& progress = {});

}  // namespace tidemark::scenarios
