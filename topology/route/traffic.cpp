#include "topology/route/traffic.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::topology {
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
std::int32_t way_of(MatrixId matrix) { return 1 + 5 * algorithms + matrix.value; }

}  // namespace

Router::Router(Fabric fabric, const Workload& workload, const CollectiveOptions& options)
    : workload_(workload), options_(options), fabric_(std::move(fabric)) {
  options_.closes_broadcasts = true;
  for (const Program& program : workload.programs) {
    std::vector<Use>& uses = uses_.emplace_back(workload.communicators.size());
    std::array<bool, 2>& copies = copies_.emplace_back();
    std::vector<MemorySpace> spaces(static_cast<std::size_t>(program.buffers));
    for (const Op& op : program.ops)
      std::visit(Overloaded{
                     [&](const Alloc& o) { spaces[o.buffer.index()] = o.space; },
                     [&](const Collective& o) {
                       Use& use = uses[o.comm.index()];
                       if (o.row.valid())
                         use.uneven.try_emplace(program[o.row].matrix, o.kind, o.row);
                       else
                         use.calls.emplace(o.kind, o.size);
                     },
                     [&](const Exchange& o) {
                       Use& use = uses[o.comm.index()];
                       use.messages = true;
                       for (const Transfer& t : program[o.transfers])
                         if (t.direction == Direction::Send) use.sends.insert(t.step);
                     },
                     [&](const Memcpy& o) {
                       const MemorySpace from = spaces[o.from.buffer.index()], to = spaces[o.to.buffer.index()];
                       if (from == MemorySpace::Device || to == MemorySpace::Device)
                         copies[to == MemorySpace::Device ? 1 : 0] = true;
                     },
                     // load no links
                     Ignored<Free, CrossStreamUse, Launch, Record, Wait, Sync, CreateDriver, CreateCommunicator, Bind,
                             Unbind, Mark>{},
                 },
                 op);
  }
  const std::vector<Communicator>& all = workload.communicators;
  for (const Communicator& communicator : all)
    same_axes_.push_back(static_cast<std::int32_t>(
        std::find_if(all.begin(), all.end(), [&](const Communicator& c) { return c.axes == communicator.axes; }) -
        all.begin()));
}

Router::Router(const Workload& workload, Fabric fabric, const CollectiveOptions& options)
    : Router(std::move(fabric), workload, options) {
  for (const Link& link : fabric_.links) traffic_.links.push_back({link.capacity});
  add_flows();
}

Router::Router(const Workload& workload, Fabric fabric, const std::vector<std::int32_t>& kinds,
               const CollectiveOptions& options)
    : Router(std::move(fabric), workload, options) {
  // Which ranks can change places is known of equal parts of groups and of messages.
  const bool regular = std::ranges::all_of(copies_, [](const auto& copies) { return !copies[0] && !copies[1]; }) &&
                       std::ranges::all_of(uses_, [](const std::vector<Use>& uses) {
                         return std::ranges::all_of(uses, [](const Use& use) { return use.uneven.empty(); });
                       });
  if (regular)
    find_symmetry(kinds);
  else
    for (const Link& link : fabric_.links) traffic_.links.push_back({link.capacity});
  add_flows();
}

// Of the axes that groups have, that one along which the fewest ranks have to stand for all.
void Router::find_symmetry(const std::vector<std::int32_t>& kinds) {
  std::vector<bool> messages(workload_.communicators.size(), false);  // by slot
  for (const std::vector<Use>& uses : uses_)
    for (std::size_t slot = 0; slot < uses.size(); ++slot) messages[slot] = messages[slot] || uses[slot].messages;
  std::vector<GroupAxis> axes;
  std::optional<ReplicaOrbits> best;
  for (const Communicator& communicator : workload_.communicators) {
    for (const GroupAxis& axis : communicator.axes) {
      if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
      axes.push_back(axis);
      std::optional<ReplicaOrbits> orbits = ReplicaOrbits::along(axis, workload_, fabric_, messages);
      if (!orbits) continue;
      orbits->refine(workload_.program_of_rank);
      orbits->refine(kinds);
      refine(*orbits);
      Symmetry symmetry = orbits->symmetry();
      if (traffic_.symmetry && traffic_.symmetry->ranks.size() <= symmetry.ranks.size()) continue;
      traffic_.symmetry = std::move(symmetry);
      best = std::move(orbits);
    }
  }
  if (best) return keep_firsts(*best);
  for (const Link& link : fabric_.links) traffic_.links.push_back({link.capacity});
}

// By what collectives of groups that reach over all replicas put on them. Such a group begins in the first replica;
// groups that lie alike some periods apart tell nothing new.
void Router::refine(ReplicaOrbits& orbits) {
  std::set<std::tuple<const Shape*, CollectiveKind, std::size_t, std::int32_t>> reported;
  for (std::size_t slot = 0; slot < workload_.communicators.size(); ++slot) {
    const CommSlot comm{static_cast<std::int32_t>(slot)};
    if (!orbits.spanned(comm)) continue;
    for (const Rank rank : orbits.first_ranks()) {
      const Communicator& communicator = workload_.communicators[slot];
      if (!is_member(communicator, rank) || group_leader(communicator, rank) != rank) continue;
      for (const Call& call : use(comm, rank).calls) {
        Shape& shape = shape_of(comm, rank);
        const std::size_t plan = choice(shape, comm, call).plan;
        const std::int32_t nodes = (place_of(comm, rank).node - shape.node) % orbits.period();
        if (reported.insert({&shape, call.first, plan, nodes}).second)
          orbits.refine(shape.plans.at(call.first)[plan], nodes);
      }
    }
  }
}

void Router::keep_firsts(const ReplicaOrbits& orbits) {
  const std::vector<std::int32_t> sizes = orbits.link_orbits();
  kept_.assign(sizes.size(), -1);
  for (std::size_t l = 0; l < sizes.size(); ++l) {
    if (sizes[l] == 0) continue;
    kept_[l] = static_cast<std::int32_t>(traffic_.links.size());
    traffic_.links.push_back({fabric_.links[l].capacity, sizes[l]});
  }
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
  if (options_.model == CollectiveCostModel::AlphaBeta) {
    shape.plans[kind] = {CollectivePlan{}};
    entry->second.latency =
        collective_cost(fabric_, devices_of(communicator, shape.leader), kind, size, options_).latency;
    return entry->second;
  }
  std::vector<CollectivePlan>& plans = shape.plans[kind];
  if (plans.empty()) plans = eligible_plans(fabric_, devices_of(communicator, shape.leader), kind, options_);
  const std::size_t best = best_plan(plans, size, options_);
  entry->second = {best, besides_links(plans[best], size)};
  return entry->second;
}

Router::Way Router::collective(CommSlot comm, Rank leader, CollectiveKind kind, Bytes size) {
  Shape& shape = shape_of(comm, leader);
  const Shape::Choice& chosen = choice(shape, comm, {kind, size});
  const CollectivePlan& plan = shape.plans.at(kind)[chosen.plan];
  return {way_of(kind, plan.algorithm), plan.algorithm, chosen.latency, plan.of};
}

Router::Uneven Router::uneven(CommSlot comm, Rank leader, CollectiveKind kind, MatrixId matrix) const {
  const Communicator& communicator = workload_.communicators[comm.index()];
  std::vector<const MatrixRow*> rows;
  for (const Rank member : group_members(communicator, leader))
    rows.push_back(&workload_.program(member)[use(comm, member).uneven.at(matrix).second]);
  return {way_of(matrix), uneven_cost(fabric_, devices_of(communicator, leader), kind, rows, options_.model)};
}

void Router::add_flow(Traffic::Flow flow, const TransferCost& cost) {
  flow.cost = with(flow.cost, cost.latency.count());
  flow.first = traffic_.loads.size();
  for (const LinkLoad& load : cost.loads) add_load(load.link, load.bytes.count());
  flow.count = traffic_.loads.size() - flow.first;
  traffic_.flows.push_back(flow);
}

// One a direction, whatever the sizes.
void Router::add_copies() {
  const std::array<std::pair<MemorySpace, MemorySpace>, 2> ways{
      {{MemorySpace::Device, MemorySpace::Pinned}, {MemorySpace::Pinned, MemorySpace::Device}}};
  for (std::size_t way = 0; way < ways.size(); ++way)
    for (Rank rank{0}; rank.value < workload_.world_size(); ++rank.value)
      if (copies_[static_cast<std::size_t>(workload_.program_of_rank[rank.index()])][way])
        add_flow({.comm = {}, .step = static_cast<std::int32_t>(way), .rank = rank},
                 copy_cost(fabric_, rank.value, ways[way].first, ways[way].second, Bytes{1}, options_.model));
}

void Router::add_flows() {
  add_copies();
  const auto add_all = [&](CommSlot comm, std::int32_t step) {
    if (traffic_.symmetry)
      for (const Rank rank : traffic_.symmetry->ranks) add_flows(comm, step, rank);
    else
      for (Rank rank{0}; rank.value < workload_.world_size(); ++rank.value) add_flows(comm, step, rank);
  };
  for (CommSlot comm{0}; comm.index() < workload_.communicators.size(); ++comm.value) {
    std::set<std::int32_t> steps{0};  // collectives have none
    for (const std::vector<Use>& uses : uses_)
      steps.insert(uses[comm.index()].sends.begin(), uses[comm.index()].sends.end());
    for (const std::int32_t step : steps) add_all(comm, step);
  }
}

void Router::add_flows(CommSlot comm, std::int32_t step, Rank rank) {
  const Use& its = use(comm, rank);
  const Communicator& communicator = workload_.communicators[comm.index()];
  if (!is_member(communicator, rank)) return;
  if (its.sends.contains(step)) add_message(comm, step, rank);
  if (step == 0 && !its.calls.empty() && group_leader(communicator, rank) == rank)
    add_collectives(comm, rank, its.calls);
  if (step == 0 && group_leader(communicator, rank) == rank)
    for (const auto& [matrix, call] : its.uneven) {
      const Uneven found = uneven(comm, rank, call.first, matrix);
      add_flow({.comm = comm, .rank = rank, .way = found.way}, found.cost);
    }
}

void Router::add_message(CommSlot comm, std::int32_t step, Rank sender) {
  const Rank peer = group_neighbour(workload_.communicators[comm.index()], sender, step);
  Traffic::Flow flow{comm, step, sender, 0, 0, traffic_.loads.size(), 0, orbit_size(sender)};
  const MessageWay way = message_way(fabric_, workload_.communicators[comm.index()], sender, peer);
  route(fabric_, sender.value, way.exit, peer.value, route_);
  flow.cost = with(static_cast<std::uint64_t>(route_.latency.count()),
                   fabric_.node_of(sender.value) == fabric_.node_of(peer.value));
  flow.cost = with(flow.cost, way.channels ? (way.channels->several_nodes ? 1 : 0) : 2);
  if (!route_.shares.empty())
    flow.cost = with(flow.cost, static_cast<std::int64_t>(fabric_[route_.shares[0].link].type));
  if (options_.model == CollectiveCostModel::Routed)
    for (const LinkShare& share : route_.shares) add_load(share.link, share.last - share.first);
  flow.count = traffic_.loads.size() - flow.first;
  traffic_.flows.push_back(flow);
}

void Router::add_collectives(CommSlot comm, Rank leader, const std::set<Call>& calls) {
  Shape& shape = shape_of(comm, leader);
  std::map<std::int32_t, Traffic::Flow> flows;  // by way
  const auto shift = link_id_strides(fabric_, place_of(comm, leader).node - shape.node);
  const bool spanned = traffic_.symmetry && traffic_.symmetry->spanned[comm.index()];
  for (const Call& call : calls) {
    const Shape::Choice& chosen = choice(shape, comm, call);
    const CollectivePlan& plan = shape.plans.at(call.first)[chosen.plan];
    const auto [entry, added] = flows.try_emplace(way_of(call.first, plan.algorithm));
    Traffic::Flow& flow = entry->second;
    if (added) {
      flow = {comm,
              0,
              leader,
              entry->first,
              static_cast<std::uint64_t>(plan.of),
              traffic_.loads.size(),
              0,
              spanned ? 1 : orbit_size(leader)};
      std::size_t type = 0;  // parts are in the order of links
      for (const CollectivePlan::Part& part : plan.links) {
        while (part.link.value >= fabric_.first[type + 1]) ++type;
        add_load(LinkId{part.link.value + shift[type]}, part.parts);
      }
      flow.count = traffic_.loads.size() - flow.first;
    }
    flow.cost = with(with(flow.cost, call.second.count()), chosen.latency.count());
  }
  for (const auto& [way, flow] : flows) traffic_.flows.push_back(flow);
}

void Router::add_load(LinkId link, std::int64_t weight) {
  if (!kept_.empty()) link.value = kept_[link.index()];
  if (link.valid()) traffic_.loads.push_back({link, weight});
}

std::int32_t Router::orbit_size(Rank rank) const {
  return traffic_.symmetry ? traffic_.symmetry->sizes[static_cast<std::size_t>(traffic_.symmetry->orbit(rank))] : 1;
}

}  // namespace tidemark::topology
