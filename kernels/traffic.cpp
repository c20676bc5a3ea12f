#include "kernels/traffic.hpp"

#include <algorithm>

#include "sim/ensure.hpp"

namespace tidemark {
namespace {

std::vector<std::int32_t> devices_of(const Communicator& communicator, Rank member) {
  std::vector<std::int32_t> devices;
  for (const Rank rank : group_members(communicator, member)) devices.push_back(rank.value);
  return devices;
}

// FNV-1a over whole numbers.
std::uint64_t with(std::uint64_t hash, std::int64_t part) {
  return (hash ^ static_cast<std::uint64_t>(part)) * 0x100000001b3;
}

constexpr std::int32_t algorithms = 5;

std::int32_t way_of(CollectiveKind kind, Algorithm algorithm) {
  return 1 + static_cast<std::int32_t>(kind) * algorithms + static_cast<std::int32_t>(algorithm);
}

}  // namespace

Router::Router(const Workload& workload, const Cluster& cluster, const CollectiveOptions& options)
    : workload_(workload), options_(options), fabric_(build_fabric(cluster, workload.world_size())) {
  for (const Program& program : workload.programs) {
    std::vector<Use>& uses = uses_.emplace_back(workload.communicators.size());
    for (const Op& op : program.ops) {
      if (const auto* o = std::get_if<Collective>(&op)) uses[o->comm.index()].calls.emplace(o->kind, o->size);
      if (const auto* o = std::get_if<Exchange>(&op))
        for (const Transfer& t : program[o->transfers])
          if (t.direction == Direction::Send) uses[o->comm.index()].sends.insert(t.step);
    }
  }
  const std::vector<Communicator>& all = workload.communicators;
  for (const Communicator& communicator : all)
    same_axes_.push_back(static_cast<std::int32_t>(
        std::find_if(all.begin(), all.end(), [&](const Communicator& c) { return c.axes == communicator.axes; }) -
        all.begin()));
  traffic_.links = capacities(fabric_);
  for (std::size_t slot = 0; slot < all.size(); ++slot) add_flows({static_cast<std::int32_t>(slot)});
}

// A group inside a node lies like those at its place in other nodes; one that leaves it, like those that begin at its
// place of another leaf.
Router::Place Router::place_of(CommSlot comm, Rank leader) const {
  std::int32_t extent = 0;
  for (const GroupAxis& axis : workload_.communicators[comm.index()].axes)
    extent += (axis.size - 1) * axis.step * axis.stride;
  const bool inside = fabric_.local_of(leader.value) + extent < fabric_.node.devices;
  const bool leaves = fabric_.shape.kind == FabricKind::LeafSpine;
  const std::int32_t period = inside || !leaves ? 1 : fabric_.shape.nodes_per_leaf;
  const std::int32_t node = fabric_.node_of(leader.value) / period * period;
  return {node, leader.value - node * fabric_.node.devices};
}

Router::Shape& Router::shape_of(CommSlot comm, Rank leader) {
  const Place place = place_of(comm, leader);
  const auto [entry, added] = shapes_.try_emplace({same_axes_[comm.index()], place.offset});
  if (added) entry->second = {leader, place.node, {}, {}};
  return entry->second;
}

const Router::Shape::Choice& Router::choice(Shape& shape, CommSlot comm, const Call& call) {
  const auto [entry, added] = shape.choices.try_emplace(call);
  if (!added) return entry->second;
  const CollectiveKind kind = call.first;
  const Bytes size = call.second;
  const Communicator& communicator = workload_.communicators[comm.index()];
  if (options_.model == PriceModel::AlphaBeta) {
    shape.plans[kind] = {CollectivePlan{}};
    entry->second.latency =
        collective_price(fabric_, devices_of(communicator, shape.leader), kind, size, options_).latency;
    return entry->second;
  }
  std::vector<CollectivePlan>& plans = shape.plans[kind];
  if (plans.empty()) plans = collective_plans(fabric_, devices_of(communicator, shape.leader), kind);
  const TransferPrice best = price_of(fabric_, plans, size, options_);
  const auto taken = std::find_if(plans.begin(), plans.end(),
                                  [&](const CollectivePlan& plan) { return price_of(plan, size) == best; });
  ensure(taken != plans.end(), "the price of a collective is that of one of its plans");
  entry->second = {static_cast<std::size_t>(taken - plans.begin()), taken->latency};
  return entry->second;
}

// How far links of each type lie from their likes so many nodes before.
std::array<std::int32_t, link_types> Router::shifts(std::int32_t nodes) const {
  const std::int32_t devices = nodes * fabric_.node.devices;
  const std::int32_t nics = nodes * fabric_.nic_slots;
  const std::int32_t leaves_of_block = fabric_.shape.rail_optimised ? fabric_.nic_slots : 1;
  const std::int32_t leaves = nodes / fabric_.shape.nodes_per_leaf * leaves_of_block * fabric_.spines;
  std::array<std::int32_t, link_types> by_type{};
  const auto set = [&](LinkType type, std::int32_t shift) { by_type[static_cast<std::size_t>(type)] = shift; };
  for (const LinkType type : {LinkType::NvLinkUp, LinkType::NvLinkDown, LinkType::HostUp, LinkType::HostDown})
    set(type, devices);
  set(LinkType::NvLinkPair, devices * (fabric_.node.nvlink_group - 1));
  set(LinkType::HostBridge, nodes);
  for (const LinkType type : {LinkType::NicUp, LinkType::NicDown}) set(type, nics);
  for (const LinkType type : {LinkType::LeafUp, LinkType::LeafDown}) set(type, leaves);
  return by_type;
}

Router::Way Router::collective(CommSlot comm, Rank leader, CollectiveKind kind, Bytes size) {
  Shape& shape = shape_of(comm, leader);
  const Shape::Choice& chosen = choice(shape, comm, {kind, size});
  const CollectivePlan& plan = shape.plans.at(kind)[chosen.plan];
  return {way_of(kind, plan.algorithm), plan.algorithm, chosen.latency, plan.of};
}

void Router::add_flows(CommSlot comm) {
  const Communicator& communicator = workload_.communicators[comm.index()];
  const auto use = [&](Rank rank) -> const Use& {
    return uses_[static_cast<std::size_t>(workload_.program_of_rank[rank.index()])][comm.index()];
  };
  std::set<std::int32_t> steps{0};  // collectives have none
  for (const std::vector<Use>& uses : uses_)
    steps.insert(uses[comm.index()].sends.begin(), uses[comm.index()].sends.end());
  for (const std::int32_t step : steps) {
    for (Rank rank{0}; rank.value < workload_.world_size(); ++rank.value) {
      const Use& its = use(rank);
      if (!is_member(communicator, rank)) continue;
      if (its.sends.contains(step)) add_message(comm, step, rank);
      if (step == 0 && !its.calls.empty() && group_leader(communicator, rank) == rank)
        add_collectives(comm, rank, its.calls);
    }
  }
}

void Router::add_message(CommSlot comm, std::int32_t step, Rank sender) {
  const Rank peer = group_neighbour(workload_.communicators[comm.index()], sender, step);
  Traffic::Flow flow{comm, step, sender, 0, 0, traffic_.loads.size(), 0};
  route(fabric_, sender.value, peer.value, route_);
  flow.cost = with(static_cast<std::uint64_t>(route_.latency.count()),
                   fabric_.node_of(sender.value) == fabric_.node_of(peer.value));
  if (!route_.shares.empty())
    flow.cost = with(flow.cost, static_cast<std::int64_t>(fabric_[route_.shares[0].link].type));
  if (options_.model == PriceModel::Routed)
    for (const LinkShare& share : route_.shares) traffic_.loads.push_back({share.link, share.last - share.first});
  flow.count = traffic_.loads.size() - flow.first;
  traffic_.flows.push_back(flow);
}

void Router::add_collectives(CommSlot comm, Rank leader, const std::set<Call>& calls) {
  Shape& shape = shape_of(comm, leader);
  std::map<std::int32_t, Traffic::Flow> flows;  // by way
  const auto shift = shifts(place_of(comm, leader).node - shape.node);
  for (const Call& call : calls) {
    const Shape::Choice& chosen = choice(shape, comm, call);
    const CollectivePlan& plan = shape.plans.at(call.first)[chosen.plan];
    const auto [entry, added] = flows.try_emplace(way_of(call.first, plan.algorithm));
    Traffic::Flow& flow = entry->second;
    if (added) {
      flow = {
          comm, 0, leader, entry->first, static_cast<std::uint64_t>(plan.of), traffic_.loads.size(), plan.links.size()};
      for (const CollectivePlan::Part& part : plan.links)
        traffic_.loads.push_back(
            {LinkId{part.link.value + shift[static_cast<std::size_t>(fabric_[part.link].type)]}, part.parts});
    }
    flow.cost = with(with(flow.cost, call.second.count()), chosen.latency.count());
  }
  for (const auto& [way, flow] : flows) traffic_.flows.push_back(flow);
}

}  // namespace tidemark
