#include "topology/collective.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "sim/base/ensure.hpp"
#include "topology/detail/walk.hpp"

namespace tidemark::topology {
namespace {

using namespace literals;
__extension__ using Wide = __int128;

// Of what rings reach between nodes, a tree of in-switch operations takes less of a NIC for each byte: all-reduces
// among two nodes of B200 (tests/golden/kernels/b200_nccl_tests.toml).
constexpr std::int64_t nvls_network_percent = 78;
// What NCCL reckons for a pass through the switch, whatever it does, and for a hop of its tree between nodes, besides
// the wire (src/graph/tuning.cc, 2.28.9: 25 and 20.9 us).
constexpr Duration nvls_pass = 24'400_ns;
constexpr Duration nvls_hop = 18'200_ns;
// The plateau of long rings (ncclTopoGetAlgoTime), in tenths.
constexpr std::int64_t ring_plateau = 14;
// PAT (the same): once, per rank, and of a step of a logarithm.
constexpr Duration pat_base = 8'000_ns, pat_rank = 2'800_ns;

using Members = std::vector<std::int32_t>;

/// The members node by node, nodes in the order of their first member.
struct Placement {
  std::vector<Members> nodes;
  std::int32_t members = 0;
  std::int32_t local = 0;  ///< on each node; 0 where nodes differ

  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(nodes.size()); }
};

Placement place(const Fabric& fabric, std::span<const std::int32_t> devices) {
  Placement placement;
  placement.members = static_cast<std::int32_t>(devices.size());
  std::vector<std::int32_t> index(static_cast<std::size_t>(fabric.nodes), -1);
  for (const std::int32_t device : devices) {
    std::int32_t& at = index[static_cast<std::size_t>(fabric.node_of(device))];
    if (at < 0) {
      at = placement.count();
      placement.nodes.emplace_back();
    }
    placement.nodes[static_cast<std::size_t>(at)].push_back(device);
  }
  const std::size_t first = placement.nodes.front().size();
  const bool even = std::all_of(placement.nodes.begin(), placement.nodes.end(),
                                [&](const Members& node) { return node.size() == first; });
  placement.local = even ? static_cast<std::int32_t>(first) : 0;
  return placement;
}

StepLink link_of(const Passage& way) {
  return way.leaves_node ? StepLink::Network : way.by_host ? StepLink::Pcie : StepLink::NvLink;
}

/// Adds up what messages put on links, and the slowest steps inside nodes and between them.
class Tally {
 public:
  explicit Tally(const Fabric& fabric)
      : fabric_(fabric), parts_(fabric.links.size(), 0), few_(fabric.links.size() / 32) {}

  /// A message of `parts`; parts are counted per spine, so that spreading over spines leaves whole numbers.
  void message(std::int32_t from, std::int32_t to, std::int64_t parts) { message(from, from, to, parts); }
  /// The same out of the node by the NIC of `exit`.
  void message(std::int32_t from, std::int32_t exit, std::int32_t to, std::int64_t parts) {
    const std::int64_t whole = parts * fabric_.spines;
    const Passage way =
        walk(fabric_, from, exit, to, [&](LinkId link, std::int32_t spine) { add(link, spine < 0 ? whole : parts); });
    Step& slowest = way.leaves_node ? remote_ : local_;
    const Step step{way.latency, link_of(way)};
    if (time(step, Protocol::Simple) > time(slowest, Protocol::Simple)) slowest = step;
  }

  void on_link(LinkId link, std::int64_t parts) { add(link, parts * fabric_.spines); }

  /// Of the collective as a whole, by Simple.
  [[nodiscard]] Duration start() const { return fabric_.node.collective_start; }
  /// The slowest step inside nodes, and between them.
  [[nodiscard]] Duration local(Protocol protocol = Protocol::Simple, StepOf algorithm = StepOf::Ring) const {
    return time(local_, protocol, algorithm);
  }
  [[nodiscard]] Duration remote(Protocol protocol = Protocol::Simple, StepOf algorithm = StepOf::Ring) const {
    return time(remote_, protocol, algorithm);
  }
  [[nodiscard]] Duration wire_between_nodes() const { return remote_.wire; }
  [[nodiscard]] bool by_host() const { return local_.link == StepLink::Pcie; }
  [[nodiscard]] const Fabric& fabric() const { return fabric_; }

  /// Of all so far; then it begins anew.
  CollectivePlan plan(Algorithm algorithm, std::int64_t of, NcclTime time, bool of_nccl = true) {
    CollectivePlan made{algorithm, of_nccl, std::move(time), of * fabric_.spines, {}, {}};
    made.links.reserve(count_);
    if (count_ <= few_) {  // sorting takes less than looking at all links
      std::sort(touched_.begin(), touched_.end());
      for (const LinkId link : touched_) made.links.push_back({link, std::exchange(parts_[link.index()], 0)});
    } else {
      for (std::size_t l = 0; l < parts_.size(); ++l)
        if (parts_[l] != 0) made.links.push_back({LinkId{static_cast<std::int32_t>(l)}, std::exchange(parts_[l], 0)});
    }
    for (const CollectivePlan::Part& part : made.links) {
      const Bandwidth capacity = fabric_[part.link].capacity;
      if (Wide{part.parts} * made.slowest.capacity.count() > Wide{made.slowest.parts} * capacity.count())
        made.slowest = {part.parts, capacity};
    }
    count_ = 0;
    touched_.clear();
    local_ = remote_ = {};
    return made;
  }

 private:
  struct Step {
    Duration wire;
    std::optional<StepLink> link;
  };
  [[nodiscard]] Duration time(const Step& step, Protocol protocol, StepOf algorithm = StepOf::Ring) const {
    if (!step.link) return {};
    return step.wire + step_software(algorithm, *step.link, protocol, fabric_.node.collective_step);
  }

  void add(LinkId link, std::int64_t parts) {
    std::int64_t& sum = parts_[link.index()];
    if (sum == 0 && count_++ < few_) touched_.push_back(link);
    sum += parts;
  }

  const Fabric& fabric_;
  std::vector<std::int64_t> parts_;
  std::size_t few_, count_ = 0;
  std::vector<LinkId> touched_;  // the first few of `count_`
  Step local_, remote_;
};

/// What a ring through the nodes, or one for every member of a node, hands on inside a node: from each member to the
/// next one, so often. Together the rings miss each step once; a single one ends before it comes round.
template <class HandOn>
void along_members(const Members& node, std::int32_t rings, HandOn&& hand_on) {
  const std::size_t size = node.size();
  const std::size_t steps = rings == 1 ? size - 1 : size;
  const std::int64_t times = rings == 1 ? 1 : static_cast<std::int64_t>(size) - 1;
  for (std::size_t k = 0; k < steps; ++k) hand_on(node[k], node[(k + 1) % size], times);
}

/// All that rings hand on. The c-th enters the first node at its c-th member; odd nodes are walked backwards, so that
/// it enters a node at the place where it left the one before.
template <class HandOn>
void along_rings(const Placement& placement, std::int32_t rings, HandOn&& hand_on) {
  const auto end = [&](std::int32_t node, std::int32_t c, bool enters) {
    const Members& members = placement.nodes[static_cast<std::size_t>(node)];
    return members[(static_cast<std::size_t>(c) + (enters == (node % 2 == 0) ? 0 : members.size() - 1)) %
                   members.size()];
  };
  for (std::int32_t i = 0; i < placement.count(); ++i) {
    along_members(placement.nodes[static_cast<std::size_t>(i)], rings,
                  [&](std::int32_t from, std::int32_t to, std::int64_t times) {
                    if (i % 2 != 0) std::swap(from, to);
                    hand_on(from, to, times);
                  });
    for (std::int32_t c = 0; c < rings; ++c) hand_on(end(i, c, false), end((i + 1) % placement.count(), c, true), 1);
  }
}

/// Steps of a ring: what goes all the way round takes n - 1, of which m - 1 between nodes.
Duration ring_latency(const Placement& placement, const Tally& tally, std::int64_t rounds) {
  const std::int64_t remote = placement.count() - 1;
  const std::int64_t local = placement.members - 1 - remote;
  return rounds * (local * tally.local() + remote * tally.remote());
}

std::int32_t log2i(std::int32_t n) {
  return static_cast<std::int32_t>(std::bit_width(static_cast<std::uint32_t>(n))) - 1;
}

/// Of a group of that placement NCCL opens so many channels; its search finds half of them, which limits go by.
std::int64_t searched_channels(const Fabric& fabric, const Placement& placement) {
  return std::max(fabric.unlimited[placement.count() > 1 ? 1 : 0].collective / 2, 1);
}

/// Where variables leave fewer channels than that, no more than those move: `its` limit is of all.
void keep_to_channels(ProtocolTime& its, const Fabric& fabric, const Placement& placement, Bandwidth of_a_channel) {
  const std::size_t several = placement.count() > 1 ? 1 : 0;
  const std::int64_t opened = std::max(fabric.channels[several].collective, 1),
                     usual = fabric.unlimited[several].collective;
  if (opened >= usual) return;
  if (its.limit > Bandwidth{}) its.limit = its.limit * opened / usual;
  const Bandwidth most = of_a_channel * opened;
  its.limit = its.limit > Bandwidth{} ? std::min(its.limit, most) : most;
}

/// Those that rings and trees may run by; Simple where none is left.
std::vector<Protocol> protocols_of(const Tally& tally) {
  const NcclProtocols& may = tally.fabric().protocols;
  std::vector<Protocol> found;
  if (may.ll) found.push_back(Protocol::Ll);
  if (may.ll128.value_or(!tally.by_host())) found.push_back(Protocol::Ll128);
  if (may.simple || found.empty()) found.push_back(Protocol::Simple);
  return found;
}

/// By NCCL's own model of rings (src/graph/tuning.cc).
std::vector<ProtocolTime> ring_times(const Tally& tally, const Placement& placement, std::int64_t rounds) {
  const Fabric& fabric = tally.fabric();
  const std::int32_t nodes = placement.count();
  const std::int64_t n = placement.members;
  const std::int64_t remote_steps = nodes - 1;
  const std::int64_t local_steps = n - 1 - remote_steps;
  const StepOf between = nodes == n ? StepOf::Tree : StepOf::Ring;  // nothing else hides its latency
  const std::int64_t channels = searched_channels(fabric, placement);
  const auto payload = [&](Bandwidth limit) { return limit * n / (rounds * (n - 1)); };
  const bool has_pat = nodes == n && nodes > 1 && rounds == 1 && fabric.algorithms.pat && fabric.protocols.simple;
  std::vector<ProtocolTime> times;
  for (const Protocol protocol : protocols_of(tally)) {
    if (has_pat && !fabric.algorithms.ring) break;
    Duration local = tally.local(protocol);
    // The host posts every step of the network.
    if (nodes > 1 && local_steps > 0) local = std::max(local, protocol == Protocol::Simple ? 3'000_ns : 1'000_ns);
    ProtocolTime its{protocol, base_latency(StepOf::Ring, protocol, tally.start()) +
                                   rounds * (local_steps * local + remote_steps * tally.remote(protocol, between))};
    if (protocol == Protocol::Ll) its.wire = 2000, its.limit = payload(ll_limit(fabric.compute_capability, nodes));
    if (protocol == Protocol::Ll128)
      its.wire = 1087, its.limit = payload(channels * ring_ll128_limit(fabric.compute_capability, nodes));
    if (protocol == Protocol::Simple && nodes > 1 && rounds == 2) its.latency = its.latency * ring_plateau / 10;
    keep_to_channels(its, fabric, placement, payload(channel_rate(fabric.compute_capability)));
    times.push_back(its);
  }
  if (has_pat)
    times.push_back({Protocol::Simple,
                     pat_base + log2i(nodes) * (tally.remote(Protocol::Simple, StepOf::Tree) * 10 / 35) + n * pat_rank,
                     1333});
  return times;
}

CollectivePlan ring(Tally& tally, const Placement& placement, CollectiveKind kind, bool closes = false) {
  const std::int64_t n = placement.members;
  const bool broadcast = kind == CollectiveKind::Broadcast, ends = broadcast && !(closes && placement.count() == 1);
  const std::int64_t rounds = kind == CollectiveKind::AllReduce ? 2 : 1;
  const std::int32_t rings = placement.count() == 1 || placement.local == 0 ? 1 : placement.local;
  const std::int32_t root = placement.nodes.front().front();
  along_rings(placement, rings, [&](std::int32_t from, std::int32_t to, std::int64_t times) {
    if (ends && to == root) return;  // it has what would come round
    tally.message(from, to, times * (broadcast ? n : rounds * (n - 1)));
  });
  if (broadcast) return tally.plan(Algorithm::Ring, n * rings, tally.start() + ring_latency(placement, tally, rounds));
  return tally.plan(Algorithm::Ring, n * rings, ring_times(tally, placement, rounds));
}

/// The parent of place i in NCCL's binary tree over n places, -1 for the root (src/graph/trees.cc, ncclGetBtree):
/// leaves are the odd places.
std::int32_t tree_parent(std::int32_t i, std::int32_t n) {
  if (i == 0) return -1;
  const std::int32_t bit = i & -i;
  const std::int32_t up = (i ^ bit) | (bit << 1);
  return up < n ? up : i ^ bit;
}

/// The parent in one of the two trees; the second is the first mirrored (n even) or shifted by one (n odd), so that
/// leaves of one are inner places of the other.
std::int32_t tree_parent(std::int32_t tree, std::int32_t i, std::int32_t n) {
  if (tree == 0) return tree_parent(i, n);
  const bool mirrored = n % 2 == 0;
  const std::int32_t up = tree_parent(mirrored ? n - 1 - i : (i - 1 + n) % n, n);
  if (up < 0) return -1;
  return mirrored ? n - 1 - up : (up + 1) % n;
}

std::int32_t tree_depth(std::int32_t n) {
  std::int32_t deepest = 0;
  for (std::int32_t i = 0; i < n; ++i) {
    std::int32_t depth = 0;
    for (std::int32_t up = tree_parent(i, n); up >= 0; up = tree_parent(up, n)) ++depth;
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

/// Both trees over `heads`, up and down, `parts` on every edge.
void double_tree(Tally& tally, const Members& heads, std::int64_t parts) {
  const auto n = static_cast<std::int32_t>(heads.size());
  for (std::int32_t tree = 0; tree < 2; ++tree) {
    for (std::int32_t i = 0; i < n; ++i) {
      const std::int32_t up = tree_parent(tree, i, n);
      if (up < 0) continue;
      tally.message(heads[static_cast<std::size_t>(i)], heads[static_cast<std::size_t>(up)], parts);
      tally.message(heads[static_cast<std::size_t>(up)], heads[static_cast<std::size_t>(i)], parts);
    }
  }
}

/// The c-th member of each node.
Members heads_of(const Placement& placement, std::int32_t c) {
  Members heads;
  for (const Members& node : placement.nodes) heads.push_back(node[static_cast<std::size_t>(c) % node.size()]);
  return heads;
}

CollectivePlan tree(Tally& tally, const Placement& placement) {
  if (placement.count() == 1) {
    double_tree(tally, placement.nodes.front(), 1);
    const Duration one_way = std::int64_t{tree_depth(placement.members)} * tally.local();
    return tally.plan(Algorithm::Tree, 2, tally.start() + 2 * one_way, false);
  }
  // Every member heads its node's chain once, with a share of the data.
  const std::int32_t channels = std::max(placement.local, 1);
  for (std::int32_t c = 0; c < channels; ++c) double_tree(tally, heads_of(placement, c), 1);
  std::int64_t chain = 0;
  for (const Members& node : placement.nodes) {
    chain = std::max(chain, static_cast<std::int64_t>(node.size()) - 1);
    along_members(node, channels, [&](std::int32_t near, std::int32_t far, std::int64_t times) {
      tally.message(far, near, 2 * times);  // both trees
      tally.message(near, far, 2 * times);
    });
  }
  const std::int32_t nodes = placement.count();
  const std::int64_t searched = searched_channels(tally.fabric(), placement);
  const std::int32_t capability = tally.fabric().compute_capability;
  std::vector<ProtocolTime> times;
  for (const Protocol protocol : protocols_of(tally)) {
    const Duration one_way =
        chain * tally.local(protocol, StepOf::Tree) + std::int64_t{log2i(nodes)} * tally.remote(protocol, StepOf::Tree);
    ProtocolTime its{protocol, base_latency(StepOf::Tree, protocol, tally.start()) + 2 * one_way};
    its.sags = true;
    its.wire = protocol == Protocol::Ll ? 4130 : protocol == Protocol::Ll128 ? 1159 : 1087;
    its.limit = protocol == Protocol::Ll      ? ll_limit(capability, nodes) / 2
                : protocol == Protocol::Ll128 ? searched * tree_ll128_limit(capability, nodes) / 2
                                              : searched * tree_limit(capability, nodes) / 2;
    keep_to_channels(its, tally.fabric(), placement, channel_rate(capability) / 2);
    times.push_back(its);
  }
  return tally.plan(Algorithm::Tree, std::int64_t{2} * channels, std::move(times));
}

/// Parts are of S / (l m).
CollectivePlan hierarchical(Tally& tally, const Placement& placement, CollectiveKind kind) {
  const std::int64_t rounds = kind == CollectiveKind::AllReduce ? 2 : 1;
  const std::int64_t l = placement.local;
  const std::int64_t m = placement.count();
  for (const Members& node : placement.nodes)
    for (std::size_t i = 0; i < node.size(); ++i)
      tally.message(node[i], node[(i + 1) % node.size()], rounds * (l - 1) * m);
  for (std::int32_t c = 0; c < placement.local; ++c) {
    const Members heads = heads_of(placement, c);
    for (std::size_t i = 0; i < heads.size(); ++i)
      tally.message(heads[i], heads[(i + 1) % heads.size()], rounds * (m - 1));
  }
  const Duration latency = rounds * ((l - 1) * tally.local() + (m - 1) * tally.remote());
  return tally.plan(Algorithm::Hierarchical, l * m, tally.start() + latency, false);
}

/// Parts are of S / (2 l percent): in-switch traffic counts as more bytes for its lower efficiency.
CollectivePlan nvls(Tally& tally, const Fabric& fabric, const Placement& placement, CollectiveKind kind) {
  const std::int64_t l = placement.local;
  const std::int64_t percent = nvls_percent(fabric.compute_capability);
  // What a member sends up and gets down, in l-ths of S: pieces that the switch reads from it or writes to it.
  const std::int64_t up = kind == CollectiveKind::AllReduce ? l + 1 : kind == CollectiveKind::ReduceScatter ? l : 1;
  const std::int64_t down = kind == CollectiveKind::AllReduce ? l + 1 : kind == CollectiveKind::ReduceScatter ? 1 : l;
  for (const Members& node : placement.nodes) {
    for (std::size_t i = 0; i < node.size(); ++i) {
      const Route way = route(fabric, node[i], node[(i + 1) % node.size()]);
      tally.on_link(way.shares.front().link, 2 * 100 * up);
      tally.on_link(way.shares.back().link, 2 * 100 * down);
    }
  }
  const Duration pass = fabric.node.latency + nvls_pass;
  const std::int32_t nodes = placement.count();
  const std::size_t several = nodes > 1 ? 1 : 0;
  const std::int32_t channels = std::max(fabric.channels[several].nvls, 1);
  if (kind != CollectiveKind::AllReduce) {
    ProtocolTime time{Protocol::Simple, tally.start() + pass};
    if (channels < fabric.unlimited[several].nvls) time.limit = nvls_rate(fabric.compute_capability) * channels;
    return tally.plan(Algorithm::Nvls, 2 * l * percent, std::vector{time}, nodes == 1);
  }
  const std::int64_t n = placement.members;
  NvlsTime time{.compute_capability = fabric.compute_capability,
                .members = placement.local,
                .channels = channels,
                .hops = 2 * log2i(nodes),
                .nodes = nodes,
                .start = tally.start(),
                .estimated_start = pass};
  if (nodes == 1) {
    time.estimated_rate = fabric.links[static_cast<std::size_t>(fabric.first[0])].capacity *
                          estimated_nvls_percent(fabric.compute_capability) / 100;
  } else {
    for (std::int32_t c = 0; c < placement.local; ++c)
      double_tree(tally, heads_of(placement, c), percent * nvls_network_percent / 100);
    if (nodes >= 4) time.largest_chunk = 64_KiB;
    const Duration hops = time.hops * (tally.wire_between_nodes() + nvls_hop);
    time.start += hops, time.estimated_start += hops;
    time.estimated_rate = l * nvls_tree_limit(fabric.compute_capability, nodes) * n / (2 * (n - 1));
  }
  return tally.plan(Algorithm::Nvls, 2 * l * percent, time);
}

CollectivePlan direct(Tally& tally, const Placement& placement) {
  Members all;
  for (const Members& node : placement.nodes) all.insert(all.end(), node.begin(), node.end());
  const MemberSet members(tally.fabric(), all);
  for (const std::int32_t from : all)
    for (const std::int32_t to : all)
      if (from != to) tally.message(from, exit_of(tally.fabric(), from, to, members), to, 1);
  DirectTime time{message_channels(tally.fabric(), all), tally.start() + std::max(tally.local(), tally.remote())};
  return tally.plan(Algorithm::Direct, placement.members, time);
}

bool has_nvls(const Fabric& fabric, const Placement& placement, CollectiveKind kind) {
  constexpr std::int32_t hopper = 90;
  if (fabric.node.link != NodeLink::NvSwitch || fabric.compute_capability < hopper || placement.local < 2) return false;
  const bool several_nodes = placement.count() > 1;
  if (!fabric.protocols.simple || !(several_nodes ? fabric.algorithms.nvls_tree : fabric.algorithms.nvls)) return false;
  return kind == CollectiveKind::AllReduce || !several_nodes;
}

/// NCCL picks among these by itself.
bool of_nccl(Algorithm algorithm, bool several_nodes) {
  return algorithm != Algorithm::Hierarchical && (algorithm != Algorithm::Tree || several_nodes);
}

/// Those plans that are `wanted(algorithm, several_nodes)` and that NCCL may take; a ring where nothing else is left.
template <class Wanted>
std::vector<CollectivePlan> plans_of(const Fabric& fabric, std::span<const std::int32_t> devices, CollectiveKind kind,
                                     Wanted&& wanted, bool closes_broadcasts = false) {
  ensure(!devices.empty(), "a group has members");
  if (devices.size() == 1) return {CollectivePlan{}};
  const Placement placement = place(fabric, devices);
  const bool several_nodes = placement.count() > 1;
  Tally tally(fabric);
  if (kind == CollectiveKind::AllToAll) return {direct(tally, placement)};
  if (kind == CollectiveKind::Broadcast) return {ring(tally, placement, kind, closes_broadcasts)};
  const bool has_ring = fabric.algorithms.ring;
  const bool has_tree = kind == CollectiveKind::AllReduce && fabric.algorithms.tree &&
                        (wanted(Algorithm::Tree, several_nodes) || !has_ring);
  const bool switches = has_nvls(fabric, placement, kind) && wanted(Algorithm::Nvls, several_nodes);
  std::vector<CollectivePlan> plans;
  if (has_ring || !(has_tree || switches)) plans.push_back(ring(tally, placement, kind));
  if (has_tree) plans.push_back(tree(tally, placement));
  if (several_nodes && placement.local > 1 && wanted(Algorithm::Hierarchical, several_nodes))
    plans.push_back(hierarchical(tally, placement, kind));
  if (switches) plans.push_back(nvls(tally, fabric, placement, kind));
  return plans;
}

}  // namespace

Duration step_latency(const Fabric& fabric, std::int32_t from, std::int32_t exit, std::int32_t to) {
  const Passage way = walk(fabric, from, exit, to, [](LinkId, std::int32_t) {});
  return way.latency + step_software(StepOf::Ring, link_of(way), Protocol::Simple, fabric.node.collective_step);
}

MessageChannels message_channels(const Fabric& fabric, std::span<const std::int32_t> devices) {
  const std::int32_t node = fabric.node_of(devices.front());
  const bool several_nodes =
      std::any_of(devices.begin(), devices.end(), [&](std::int32_t d) { return fabric.node_of(d) != node; });
  return message_channels(fabric.channels[several_nodes ? 1 : 0], static_cast<std::int32_t>(devices.size()),
                          several_nodes, fabric.node.link != NodeLink::Pcie, fabric.compute_capability,
                          fabric.per_net_peer);
}

MessageWay message_way(const Fabric& fabric, std::span<const std::int32_t> devices, std::int32_t from,
                       std::int32_t to) {
  const auto is_member = [&](std::int32_t device) {
    return std::find(devices.begin(), devices.end(), device) != devices.end();
  };
  return {message_channels(fabric, devices), exit_of(fabric, from, to, is_member)};
}

MessageWay message_way(const Fabric& fabric, const Communicator& communicator, Rank from, Rank to) {
  std::vector<std::int32_t> devices;
  if (communicator.messages == MessageRoute::CopyEngines) return {{}, from.value};
  if (communicator.messages == MessageRoute::Pairs)
    devices = {from.value, to.value};
  else
    for (const Rank member : group_members(communicator, from)) devices.push_back(member.value);
  return message_way(fabric, devices, from.value, to.value);
}

std::vector<CollectivePlan> collective_plans(const Fabric& fabric, std::span<const std::int32_t> devices,
                                             CollectiveKind kind) {
  return plans_of(fabric, devices, kind, [](Algorithm, bool) { return true; });
}

std::vector<CollectivePlan> eligible_plans(const Fabric& fabric, std::span<const std::int32_t> devices,
                                           CollectiveKind kind, const CollectiveOptions& options) {
  return plans_of(
      fabric, devices, kind,
      [&](Algorithm algorithm, bool several_nodes) {
        return options.algorithm == algorithm || of_nccl(algorithm, several_nodes);
      },
      options.closes_broadcasts && fabric.node.link != NodeLink::Pcie);
}

}  // namespace tidemark::topology
