#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/base/time.hpp"
#include "sim/program/program.hpp"
#include "sim/program/workload.hpp"
#include "topology/collective.hpp"
#include "topology/fabric.hpp"

namespace tidemark::scenarios {

/// A duration between bounds.
struct DurationBounds {
  Duration low, high;
};

/// Where the groups of a communicator lie, and who else can be on their links: all that their prices depend on.
struct GroupPlaces {
  std::shared_ptr<const Fabric> fabric;
  std::vector<std::vector<std::int32_t>> groups;  ///< devices, one group of each place
  std::int64_t sharers = 1;                       ///< of a link that a rank's own traffic alone could fill
  MessageRoute messages = MessageRoute::Group;    ///< between members
  bool operator==(const GroupPlaces&) const = default;
};
/// Groups that lie alike, whole periods of nodes apart, cost alike: one of each.
[[nodiscard]] std::vector<std::vector<std::int32_t>> distinct_groups(const Communicator& communicator,
                                                                     const Fabric& fabric, std::int32_t world_size);
/// Whether a message to the next rank of a group, or back, goes out by another device's NIC.
[[nodiscard]] bool forwards(const Communicator& communicator, const Fabric& fabric, std::int32_t world_size);
/// What a rank with so many streams has under way at once, times the ranks that share its way out of the node, times
/// how much thinner the fabric is above.
[[nodiscard]] std::int64_t link_sharers(const Fabric& fabric, std::int32_t streams);

/// Between which bounds the collectives and messages of a communicator's groups take, wherever a group lies and
/// whatever else uses its links. Low: alone on the fabric, at the best place of all groups. High: at the worst place,
/// every link shared with all that its ranks can have under way at once. From any thread.
class GroupCosts {
 public:
  explicit GroupCosts(GroupPlaces places);

  [[nodiscard]] DurationBounds collective(CollectiveKind kind, Bytes size) const;
  /// What it takes alone on the fabric; nothing where that depends on the group's place.
  [[nodiscard]] std::optional<Duration> alone(CollectiveKind kind, Bytes size) const;
  /// To the rank one place on, or back, in the communicator's group.
  [[nodiscard]] DurationBounds message(Bytes size) const;

 private:
  using Plans = std::vector<std::vector<CollectivePlan>>;  // by group
  struct Known {
    std::mutex mutex;
    std::map<CollectiveKind, Plans> plans;
  };
  [[nodiscard]] const Plans& plans_of(CollectiveKind kind) const;
  struct Lone {
    Duration time, latency;
  };
  [[nodiscard]] std::vector<Lone> lone_times(CollectiveKind kind, Bytes size) const;  // by group
  [[nodiscard]] std::optional<TimeByPoints> measured_of(CollectiveKind kind, const std::vector<std::int32_t>& devices,
                                                        Bytes size) const;

  GroupPlaces places_;
  std::unique_ptr<Known> known_;
};

}  // namespace tidemark::scenarios
