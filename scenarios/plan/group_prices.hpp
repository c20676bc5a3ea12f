#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "parallel/layout.hpp"
#include "scenarios/namespace.hpp"
#include "sim/program.hpp"
#include "sim/time.hpp"
#include "sim/workload.hpp"
#include "topology/collective.hpp"
#include "topology/fabric.hpp"

namespace tidemark::scenarios {

/// A duration between bounds.
struct DurationBounds {
  Duration low, high;
};

/// Between which bounds the collectives and messages of a job's groups take, wherever a group lies and whatever else
/// uses its links. Low: alone on the fabric, at the best place of all groups. High: at the worst place, every link
/// shared with all that its ranks can have under way at once. From any thread.
class GroupPrices {
 public:
  GroupPrices(const Cluster& cluster, const Fabric& fabric, const std::vector<Communicator>& communicators,
              std::int32_t world_size, std::int32_t streams);

  [[nodiscard]] DurationBounds collective(CommSlot comm, CollectiveKind kind, Bytes size) const;
  /// To the rank one place on, or back, in the communicator's group.
  [[nodiscard]] DurationBounds message(CommSlot comm, Bytes size) const;
  /// Where the groups of a communicator lie: equal for prices that are equal.
  [[nodiscard]] const std::vector<std::vector<std::int32_t>>& places(CommSlot comm) const {
    return slots_[comm.index()].groups;
  }

 private:
  struct Slot {
    std::vector<std::vector<std::int32_t>> groups;  ///< devices, one group of each place
    mutable std::map<CollectiveKind, std::vector<std::vector<CollectivePlan>>> plans;  ///< by group
  };
  const Fabric& fabric_;
  std::vector<Slot> slots_;
  std::int64_t sharers_;  ///< of a link that a rank's own traffic alone could fill
  mutable std::mutex mutex_;
};

}  // namespace tidemark::scenarios
