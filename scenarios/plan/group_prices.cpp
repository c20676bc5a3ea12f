#include "scenarios/plan/group_prices.hpp"

#include <algorithm>
#include <limits>
#include <set>

namespace tidemark::scenarios {
namespace {

// Groups that lie alike, whole periods of nodes apart, cost alike.
std::vector<std::vector<std::int32_t>> distinct_groups(const Communicator& communicator, const Fabric& fabric,
                                                       std::int32_t world_size) {
  const std::int32_t period = fabric.shape.kind == FabricKind::LeafSpine ? fabric.shape.nodes_per_leaf : 1;
  std::set<std::vector<std::int32_t>> seen;
  std::vector<std::vector<std::int32_t>> groups;
  for (Rank rank{0}; rank.value < world_size; ++rank.value) {
    if (!is_member(communicator, rank) || group_leader(communicator, rank) != rank) continue;
    std::vector<std::int32_t> devices, place;
    for (const Rank member : group_members(communicator, rank)) devices.push_back(member.value);
    const bool inside =
        fabric.node_of(devices.front()) == fabric.node_of(*std::max_element(devices.begin(), devices.end()));
    const std::int32_t node = fabric.node_of(devices.front());
    const std::int32_t base = (inside ? node : node / period * period) * fabric.node.devices;
    place.reserve(devices.size());
    for (const std::int32_t device : devices) place.push_back(device - base);
    if (seen.insert(std::move(place)).second) groups.push_back(std::move(devices));
  }
  return groups;
}

Duration shared_by(Duration alone, Duration latency, std::int64_t sharers) {
  return latency + (alone - latency) * sharers + Duration{sharers};
}

}  // namespace

GroupPrices::GroupPrices(const Cluster& cluster, const Fabric& fabric, const std::vector<Communicator>& communicators,
                         std::int32_t world_size, std::int32_t streams)
    : fabric_(fabric) {
  for (const Communicator& communicator : communicators) {
    slots_.emplace_back();
    slots_.back().groups = distinct_groups(communicator, fabric, world_size);
  }
  // What a rank has under way at once, times the ranks that share its way out of the node, times how much thinner the
  // fabric is above.
  const bool switched = cluster.node.link == NodeLink::NvSwitch;
  const std::int64_t per_exit =
      switched ? (cluster.node.devices + std::max(cluster.node.nics, 1) - 1) / std::max(cluster.node.nics, 1)
               : cluster.node.devices;
  const std::int64_t thinner = (cluster.fabric.oversubscription.count() + one.count() - 1) / one.count();
  sharers_ = streams * std::max<std::int64_t>(per_exit, 1) * std::max<std::int64_t>(thinner, 1);
}

DurationBounds GroupPrices::collective(CommSlot comm, CollectiveKind kind, Bytes size) const {
  const Slot& slot = slots_[comm.index()];
  const std::lock_guard lock(mutex_);
  const auto [entry, added] = slot.plans.try_emplace(kind);
  if (added)
    for (const std::vector<std::int32_t>& devices : slot.groups)
      entry->second.push_back(eligible_plans(fabric_, devices, kind));
  DurationBounds bounds{Duration{std::numeric_limits<std::int64_t>::max()}, {}};
  for (const std::vector<CollectivePlan>& plans : entry->second) {
    const CollectivePlan& plan = plans[best_plan(fabric_, plans, size)];
    const Duration its = alone(fabric_, plan, size);
    bounds.low = std::min(bounds.low, its - Duration{1});
    bounds.high = std::max(bounds.high, shared_by(its, plan.latency, sharers_));
  }
  return bounds;
}

DurationBounds GroupPrices::message(CommSlot comm, Bytes size) const {
  DurationBounds bounds{Duration{std::numeric_limits<std::int64_t>::max()}, {}};
  for (const std::vector<std::int32_t>& devices : slots_[comm.index()].groups) {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const std::int32_t here = devices[i], there = devices[(i + 1) % devices.size()];
      for (const auto& [from, to] : {std::pair(here, there), std::pair(there, here)}) {
        const TransferPrice price = message_price(fabric_, from, to, size);
        const Duration its = alone(price, fabric_);
        bounds.low = std::min(bounds.low, its - Duration{1});
        bounds.high = std::max(bounds.high, shared_by(its, price.latency, sharers_));
      }
    }
  }
  return bounds;
}

}  // namespace tidemark::scenarios
