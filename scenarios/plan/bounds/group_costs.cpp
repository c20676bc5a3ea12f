#include "scenarios/plan/bounds/group_costs.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

namespace tidemark::scenarios {
namespace {

Duration shared_by(Duration alone, Duration latency, std::int64_t sharers) {
  return latency + (alone - latency) * sharers + Duration{sharers};
}

}  // namespace

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

bool forwards(const Communicator& communicator, const Fabric& fabric, std::int32_t world_size) {
  if (communicator.messages != MessageRoute::Group) return false;
  for (const std::vector<std::int32_t>& devices : distinct_groups(communicator, fabric, world_size))
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const std::int32_t here = devices[i], there = devices[(i + 1) % devices.size()];
      if (message_way(fabric, devices, here, there).exit != here) return true;
      if (message_way(fabric, devices, there, here).exit != there) return true;
    }
  return false;
}

std::int64_t link_sharers(const Fabric& fabric, std::int32_t streams) {
  const Node& node = fabric.node;
  const std::int64_t per_exit = node.link == NodeLink::NvSwitch
                                    ? (node.devices + std::max(node.nics, 1) - 1) / std::max(node.nics, 1)
                                    : node.devices;
  const std::int64_t thinner = (fabric.shape.oversubscription.count() + one.count() - 1) / one.count();
  return streams * std::max<std::int64_t>(per_exit, 1) * std::max<std::int64_t>(thinner, 1);
}

GroupCosts::GroupCosts(GroupPlaces places) : places_(std::move(places)), known_(std::make_unique<Known>()) {}

// Plans stay where they are once they are known.
const GroupCosts::Plans& GroupCosts::plans_of(CollectiveKind kind) const {
  const std::lock_guard lock(known_->mutex);
  const auto [entry, added] = known_->plans.try_emplace(kind);
  if (added)
    for (const std::vector<std::int32_t>& devices : places_.groups)
      entry->second.push_back(eligible_plans(*places_.fabric, devices, kind));
  return entry->second;
}

std::vector<GroupCosts::Lone> GroupCosts::lone_times(CollectiveKind kind, Bytes size) const {
  const Fabric& fabric = *places_.fabric;
  const Plans& all = plans_of(kind);
  std::vector<Lone> times;
  for (std::size_t group = 0; group < all.size(); ++group) {
    const CollectivePlan& plan = all[group][best_plan(all[group], size)];
    const Duration its = topology::alone(fabric, plan, size);
    if (const std::optional<TimeByPoints> measured = measured_of(kind, places_.groups[group], size)) {
      const TransferCost cost = stretched(cost_of(plan, size), its, measured->time);
      times.push_back({topology::alone(cost, fabric), cost.latency});
    } else {
      times.push_back({its, besides_links(plan, size)});
    }
  }
  return times;
}

DurationBounds GroupCosts::collective(CollectiveKind kind, Bytes size) const {
  DurationBounds bounds{Duration{std::numeric_limits<std::int64_t>::max()}, {}};
  for (const auto& [its, latency] : lone_times(kind, size)) {
    bounds.low = std::min(bounds.low, its - Duration{1});
    bounds.high = std::max(bounds.high, shared_by(its, latency, places_.sharers));
  }
  return bounds;
}

std::optional<Duration> GroupCosts::alone(CollectiveKind kind, Bytes size) const {
  const std::vector<Lone> times = lone_times(kind, size);
  const bool same = std::ranges::all_of(times, [&](const Lone& its) { return its.time == times.front().time; });
  return same && !times.empty() ? std::optional(times.front().time) : std::nullopt;
}

std::optional<TimeByPoints> GroupCosts::measured_of(CollectiveKind kind, const std::vector<std::int32_t>& devices,
                                                    Bytes size) const {
  const Fabric& fabric = *places_.fabric;
  if (!fabric.calibration.there()) return std::nullopt;
  std::set<std::int32_t> nodes;
  for (const std::int32_t device : devices) nodes.insert(fabric.node_of(device));
  return measured_time(*fabric.calibration.get(), kind, static_cast<std::int32_t>(devices.size()),
                       static_cast<std::int32_t>(nodes.size()), size);
}

DurationBounds GroupCosts::message(Bytes size) const {
  const Fabric& fabric = *places_.fabric;
  DurationBounds bounds{Duration{std::numeric_limits<std::int64_t>::max()}, {}};
  for (const std::vector<std::int32_t>& devices : places_.groups) {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const std::int32_t here = devices[i], there = devices[(i + 1) % devices.size()];
      for (const auto& [from, to] : {std::pair(here, there), std::pair(there, here)}) {
        std::optional<MessageWay> way;  // of pairs each its own
        if (places_.messages == MessageRoute::Group) way = message_way(fabric, devices, from, to);
        if (places_.messages == MessageRoute::CopyEngines) way = MessageWay{{}, from};
        TransferCost cost = message_cost(fabric, from, to, size, CollectiveCostModel::Routed, way);
        if (fabric.calibration.there() && from != to) {
          const bool between = fabric.node_of(from) != fabric.node_of(to);
          const auto measured = measured_message(*fabric.calibration.get(), between, size);
          const Duration modelled = topology::alone(cost, fabric);
          if (measured) cost = stretched(std::move(cost), modelled, measured->time);
        }
        const Duration its = topology::alone(cost, fabric);
        bounds.low = std::min(bounds.low, its - Duration{1});
        bounds.high = std::max(bounds.high, shared_by(its, cost.latency, places_.sharers));
      }
    }
  }
  return bounds;
}

}  // namespace tidemark::scenarios
