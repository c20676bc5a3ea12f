#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"
#include "topology/collective.hpp"
#include "topology/nccl_tuning.hpp"

namespace tidemark::topology {
namespace {

__extension__ using Wide = __int128;

Bytes share_of(Bytes size, std::int64_t parts, std::int64_t of) {
  return Bytes{static_cast<std::int64_t>((Wide{size.count()} * parts + of - 1) / of)};
}

// What the slowest link takes for a payload.
Duration wire(const CollectivePlan& plan, Bytes size) {
  if (plan.slowest.parts == 0 || size <= Bytes{}) return {};
  return share_of(size, plan.slowest.parts, plan.of) / plan.slowest.capacity;
}

/// As NCCL reckons, to choose by.
Duration estimated(const CollectivePlan& plan, Bytes size) {
  const Duration links = wire(plan, size);
  return std::visit(
      Overloaded{
          [&](const Duration& fixed) { return fixed + links; },
          [&](const std::vector<ProtocolTime>& ways) { return took(chosen(ways, size, links), size, links); },
          [&](const NvlsTime& way) { return estimated(way, size, links); },
          [&](const DirectTime& way) { return way.latency + links; },
      },
      plan.time);
}

/// Nothing shares links: the transfer takes as long as it does alone.
TransferCost unshared(const TransferCost& routed, const Fabric& fabric) { return {alone(routed, fabric), {}}; }

}  // namespace

Duration besides_links(const CollectivePlan& plan, Bytes size) {
  const Duration links = wire(plan, size);
  return std::visit(Overloaded{
                        [&](const Duration& fixed) { return fixed; },
                        [&](const std::vector<ProtocolTime>& ways) {
                          return excess(took(chosen(ways, size, links), size, links), links);
                        },
                        [&](const NvlsTime& way) {
                          const Bytes loop = std::min(nvls_chunks(way, size).loop, size);
                          return excess(took(way, size, wire(plan, loop)), links);
                        },
                        [&](const DirectTime& way) {
                          const std::int64_t n = way.channels.ranks;
                          const Bytes each = share_of(size, 1, n);
                          return besides_links(way, each, each * (n - 1), links);
                        },
                    },
                    plan.time);
}

TransferCost cost_of(const CollectivePlan& plan, Bytes size) {
  TransferCost cost{besides_links(plan, size), {}};
  if (size <= Bytes{}) return cost;
  cost.loads.reserve(plan.links.size());
  for (const CollectivePlan::Part& part : plan.links)
    cost.loads.push_back({part.link, share_of(size, part.parts, plan.of)});
  return cost;
}

Duration alone(const Fabric& fabric, const CollectivePlan& plan, Bytes size) {
  const Duration besides = besides_links(plan, size);
  if (size <= Bytes{}) return besides;
  Duration longest;
  std::int64_t parts = 0;
  Bandwidth capacity;
  for (const CollectivePlan::Part& part : plan.links) {
    if (part.parts == parts && fabric[part.link].capacity == capacity) continue;  // as before: most are
    parts = part.parts;
    capacity = fabric[part.link].capacity;
    longest = std::max(longest, share_of(size, parts, plan.of) / capacity);
  }
  return besides + longest;
}

std::size_t best_plan(std::span<const CollectivePlan> plans, Bytes size, const CollectiveOptions& options) {
  ensure(!plans.empty(), "a collective has a plan");
  for (std::size_t p = 0; options.algorithm && p < plans.size(); ++p)
    if (plans[p].algorithm == *options.algorithm) return p;
  std::size_t best = 0;
  Duration shortest = estimated(plans.front(), size);
  for (std::size_t p = 1; p < plans.size(); ++p) {
    if (!plans[p].of_nccl) continue;
    const Duration its = estimated(plans[p], size);
    if (its >= shortest) continue;
    shortest = its;
    best = p;
  }
  return best;
}

TransferCost cost_of(std::span<const CollectivePlan> plans, Bytes size, const CollectiveOptions& options) {
  return cost_of(plans[best_plan(plans, size, options)], size);
}

TransferCost collective_cost(const Fabric& fabric, std::span<const std::int32_t> devices, CollectiveKind kind,
                             Bytes size, const CollectiveOptions& options) {
  if (devices.size() <= 1) return {};
  const TransferCost routed = cost_of(eligible_plans(fabric, devices, kind, options), size, options);
  return options.model == CollectiveCostModel::Routed ? routed : unshared(routed, fabric);
}

namespace {

/// All at once.
class Together {
 public:
  void add(const TransferCost& cost) {
    latency_ = std::max(latency_, cost.latency);
    for (const LinkLoad& load : cost.loads) bytes_[load.link] += load.bytes;
  }
  [[nodiscard]] TransferCost cost() const {
    TransferCost all{latency_, {}};
    for (const auto& [link, bytes] : bytes_) all.loads.push_back({link, bytes});
    return all;
  }

 private:
  Duration latency_;
  std::map<LinkId, Bytes> bytes_;
};

}  // namespace

TransferCost uneven_cost(const Fabric& fabric, std::span<const std::int32_t> devices, CollectiveKind kind,
                         std::span<const MatrixRow* const> rows, CollectiveCostModel model) {
  const std::size_t n = devices.size();
  ensure(rows.size() == n, "every member of a group has a row");
  if (n == 1) return {};
  Together all;
  Bytes largest, most;
  const MemberSet members(fabric, devices);
  Route way;
  for (std::size_t i = 0; i < n; ++i) {
    if (kind == CollectiveKind::AllToAll) {
      Bytes sent;
      for (std::size_t j = 0; j < n; ++j) {
        const Bytes bytes = rows[i]->sends[j];
        if (bytes <= Bytes{} || i == j) continue;
        sent += bytes;
        largest = std::max(largest, bytes);
        const std::int32_t from = devices[i], to = devices[j], exit = exit_of(fabric, from, to, members);
        route(fabric, from, exit, to, way);
        all.add({step_latency(fabric, from, exit, to), loads(way, bytes)});
      }
      most = std::max(most, sent);
      continue;
    }
    const Bytes part = kind == CollectiveKind::AllGather ? rows[i]->sends.front() : rows[i]->receives.front();
    if (part == Bytes{}) continue;
    // A reduction comes round the ring to member i from the one after it, and loads the links that one's broadcast
    // does.
    std::vector<std::int32_t> ring(devices.begin(), devices.end());
    const std::size_t root = kind == CollectiveKind::AllGather ? i : (i + 1) % n;
    std::rotate(ring.begin(), ring.begin() + static_cast<std::ptrdiff_t>(root), ring.end());
    all.add(cost_of(collective_plans(fabric, ring, CollectiveKind::Broadcast).front(), part));
  }
  TransferCost cost = all.cost();
  if (kind == CollectiveKind::AllToAll) {  // broadcasts have theirs
    const Duration wire = alone(cost, fabric) - cost.latency;
    const DirectTime time{message_channels(fabric, devices), cost.latency + fabric.node.collective_start};
    cost.latency = besides_links(time, largest, most, wire);
  }
  return model == CollectiveCostModel::Routed ? cost : unshared(cost, fabric);
}

TransferCost copy_cost(const Fabric& fabric, std::int32_t device, MemorySpace from, MemorySpace to, Bytes bytes,
                       CollectiveCostModel model) {
  ensure((from == MemorySpace::Device) != (to == MemorySpace::Device), "a copy has one end on the device");
  const auto link = [&](LinkType type, std::int32_t at) {
    return LinkId{fabric.first[static_cast<std::size_t>(type)] + at};
  };
  const LinkId own = link(from == MemorySpace::Device ? LinkType::HostUp : LinkType::HostDown, device);
  const TransferCost routed{fabric[own].latency,
                            {{own, bytes}, {link(LinkType::HostBridge, fabric.node_of(device)), bytes}}};
  return model == CollectiveCostModel::Routed ? routed : unshared(routed, fabric);
}

TransferCost message_cost(const Fabric& fabric, std::int32_t from, std::int32_t to, Bytes bytes,
                          CollectiveCostModel model, const std::optional<MessageWay>& way) {
  if (from == to) return {};
  if (model != CollectiveCostModel::Routed)
    return unshared(message_cost(fabric, from, to, bytes, CollectiveCostModel::Routed, way), fabric);
  const std::array both{from, to};
  const auto [channels, exit] = way.value_or(message_way(fabric, both, from, to));
  Route links;
  route(fabric, from, exit, to, links);
  TransferCost cost{step_latency(fabric, from, exit, to), loads(links, bytes)};
  if (!channels) return cost;
  cost.latency += fabric.node.collective_start;
  cost.latency += message_besides_links(*channels, bytes, alone(cost, fabric) - cost.latency);
  return cost;
}

Duration alone(const TransferCost& cost, std::span<const Bandwidth> links) {
  Duration longest;
  for (const LinkLoad& load : cost.loads)
    longest = std::max(longest, load.bytes * load.sharers / links[load.link.index()]);
  return cost.latency + longest;
}

Duration alone(const TransferCost& cost, const Fabric& fabric) {
  Duration longest;
  for (const LinkLoad& load : cost.loads)
    longest = std::max(longest, load.bytes * load.sharers / fabric[load.link].capacity);
  return cost.latency + longest;
}

}  // namespace tidemark::topology
