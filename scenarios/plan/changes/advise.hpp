#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/plan/plan.hpp"
#include "scenarios/plan/space/space.hpp"

namespace tidemark::scenarios {

struct AdviseOptions {
  /// At once. Nothing: no more than it takes until some that train the same are enough, and three.
  std::optional<std::size_t> most_changes;
  std::optional<Bytes> free;  ///< how much less the fullest device is to hold; nothing: it is to fit
};

/// A smallest set of changes that does it: without any one of them, it does not.
struct Remedy {
  std::vector<std::string> changes;  ///< "train.micro_batch: 4 -> 1"
  bool changes_training = false;     ///< what is trained: shorter sequences, fewer bits
  Found found;
  bool operator==(const Remedy&) const = default;
};

/// A set of changes that devices have room for, and hosts have not.
struct TooMuchForHosts {
  std::vector<std::string> changes;
  Bytes lacks;  ///< of the fullest host
  bool operator==(const TooMuchForHosts&) const = default;
};

struct Advice {
  Space space;  ///< the scenario, and what may be changed; its first values are the scenario's own
  Figures now;
  Bytes required;                ///< what the fullest device must have, as it is
  bool fits = false;             ///< as it is, and nothing more was asked for
  Bytes lacks;                   ///< of the fullest device, as it is; negative: to spare
  Bytes host_lacks;              ///< the fullest host; nothing where it has enough, or it is not known what it has
  std::vector<Remedy> remedies;  ///< those that train the same first; the fewest changes, then the fastest
  std::vector<TooMuchForHosts> for_hosts;  ///< that are none because of hosts, where these are not too full already
  std::int64_t tried = 0;                  ///< sets of changes
  std::size_t not_tried = 0;  ///< so many changes at once and more, where fewer are enough; 0: what was asked was tried
};

/// Tries every set of changes of one axis, then of two that are no supersets of what did it, and so on.
[[nodiscard]] Advice advise(TomlTable document, const std::filesystem::path& file, const ScenarioFolders& folders,
                            const AdviseOptions& options, const PlanProgress& progress = {});

}  // namespace tidemark::scenarios
