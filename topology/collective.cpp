#include "topology/collective.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "sim/base/ensure.hpp"
#include "topology/detail/walk.hpp"

namespace tidemark::topology {
namespace {

using namespace literals;
__extension__ using Wide = __int128;

// What software takes per step: NCCL's own figures (src/graph/tuning.cc, hwLatencies, 2.30) for a ring with the Simple
// protocol, 3.4, 5.7 and 14 us over NVLink, PCIe and the network, less those with LL, 0.6, 1.0 and 2.7 us, which are
// little more than the wire and stand in the cluster files, as do NVLink's 2.8 us where they were measured. NCCL's LL
// protocols for small messages are not told apart.
constexpr Duration pcie_step = 4'700_ns;
constexpr Duration network_step = 11'300_ns;
// The same table gives 25 us for a pass through the switch, whatever it does.
constexpr Duration nvls_pass = 24'400_ns;

// Per cent of what rings reach on NVLink that in-switch operations reach (tuning.cc, nvlsEfficiency: Hopper,
// Blackwell).
constexpr std::int64_t nvls_percent(std::int32_t compute_capability) { return compute_capability >= 100 ? 74 : 85; }

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

Duration step_latency(const Fabric& fabric, const Passage& way) {
  return way.latency + (way.leaves_node ? network_step : way.by_host ? pcie_step : fabric.node.collective_step);
}

/// Adds up what messages put on links, and the slowest steps inside nodes and between them.
class Tally {
 public:
  explicit Tally(const Fabric& fabric)
      : fabric_(fabric), parts_(fabric.links.size(), 0), few_(fabric.links.size() / 32) {}

  /// A message of `parts`; parts are counted per spine, so that spreading over spines leaves whole numbers.
  void message(std::int32_t from, std::int32_t to, std::int64_t parts) {
    const std::int64_t whole = parts * fabric_.spines;
    const Passage way =
        walk(fabric_, from, to, [&](LinkId link, std::int32_t spine) { add(link, spine < 0 ? whole : parts); });
    Duration& slowest = way.leaves_node ? remote_ : local_;
    slowest = std::max(slowest, step_latency(fabric_, way));
  }

  void on_link(LinkId link, std::int64_t parts) { add(link, parts * fabric_.spines); }

  /// Of the collective as a whole.
  [[nodiscard]] Duration start() const { return fabric_.node.collective_start; }
  [[nodiscard]] Duration local() const { return local_; }
  [[nodiscard]] Duration remote() const { return remote_; }

  /// Of all so far; then it begins anew.
  CollectivePlan plan(Algorithm algorithm, std::int64_t of, Duration latency) {
    CollectivePlan made{algorithm, latency, of * fabric_.spines, {}};
    made.links.reserve(count_);
    if (count_ <= few_) {  // sorting takes less than looking at all links
      std::sort(touched_.begin(), touched_.end());
      for (const LinkId link : touched_) made.links.push_back({link, std::exchange(parts_[link.index()], 0)});
    } else {
      for (std::size_t l = 0; l < parts_.size(); ++l)
        if (parts_[l] != 0) made.links.push_back({LinkId{static_cast<std::int32_t>(l)}, std::exchange(parts_[l], 0)});
    }
    count_ = 0;
    touched_.clear();
    local_ = remote_ = {};
    return made;
  }

 private:
  void add(LinkId link, std::int64_t parts) {
    std::int64_t& sum = parts_[link.index()];
    if (sum == 0 && count_++ < few_) touched_.push_back(link);
    sum += parts;
  }

  const Fabric& fabric_;
  std::vector<std::int64_t> parts_;
  std::size_t few_, count_ = 0;
  std::vector<LinkId> touched_;  // the first few of `count_`
  Duration local_, remote_;
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

CollectivePlan ring(Tally& tally, const Placement& placement, CollectiveKind kind) {
  const std::int64_t n = placement.members;
  const bool broadcast = kind == CollectiveKind::Broadcast;
  const std::int64_t rounds = kind == CollectiveKind::AllReduce ? 2 : 1;
  const std::int32_t rings = placement.count() == 1 || placement.local == 0 ? 1 : placement.local;
  const std::int32_t root = placement.nodes.front().front();
  along_rings(placement, rings, [&](std::int32_t from, std::int32_t to, std::int64_t times) {
    if (broadcast && to == root) return;  // it has what would come round
    tally.message(from, to, times * (broadcast ? n : rounds * (n - 1)));
  });
  return tally.plan(Algorithm::Ring, n * rings, tally.start() + ring_latency(placement, tally, rounds));
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
    return tally.plan(Algorithm::Tree, 2, tally.start() + 2 * one_way);
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
  const Duration one_way = chain * tally.local() + std::int64_t{tree_depth(placement.count())} * tally.remote();
  return tally.plan(Algorithm::Tree, std::int64_t{2} * channels, tally.start() + 2 * one_way);
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
  return tally.plan(Algorithm::Hierarchical, l * m, tally.start() + latency);
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
  Duration latency = tally.start() + fabric.node.latency + nvls_pass;
  if (placement.count() > 1) {
    for (std::int32_t c = 0; c < placement.local; ++c) double_tree(tally, heads_of(placement, c), percent);
    latency += std::int64_t{2} * tree_depth(placement.count()) * tally.remote();
  }
  return tally.plan(Algorithm::Nvls, 2 * l * percent, latency);
}

CollectivePlan direct(Tally& tally, const Placement& placement) {
  Members all;
  for (const Members& node : placement.nodes) all.insert(all.end(), node.begin(), node.end());
  for (const std::int32_t from : all)
    for (const std::int32_t to : all)
      if (from != to) tally.message(from, to, 1);
  return tally.plan(Algorithm::Direct, placement.members, tally.start() + std::max(tally.local(), tally.remote()));
}

bool has_nvls(const Fabric& fabric, const Placement& placement, CollectiveKind kind) {
  constexpr std::int32_t hopper = 90;
  if (fabric.node.link != NodeLink::NvSwitch || fabric.compute_capability < hopper || placement.local < 2) return false;
  return kind == CollectiveKind::AllReduce || placement.count() == 1;
}

/// NCCL picks among these by itself.
bool of_nccl(Algorithm algorithm, bool several_nodes) {
  return algorithm != Algorithm::Hierarchical && (algorithm != Algorithm::Tree || several_nodes);
}

bool crosses_nodes(const Fabric& fabric, const CollectivePlan& plan) {
  const auto from = [&](LinkType type) { return LinkId{fabric.first[static_cast<std::size_t>(type)]}; };
  const auto nic = std::lower_bound(plan.links.begin(), plan.links.end(), from(LinkType::NicUp),
                                    [](const CollectivePlan::Part& part, LinkId link) { return part.link < link; });
  return nic != plan.links.end() && nic->link < from(LinkType::NicDown);
}

/// S x factor crosses each link of a ring.
std::pair<std::int64_t, std::int64_t> ring_factor(CollectiveKind kind, std::int64_t n) {
  switch (kind) {
    case CollectiveKind::AllReduce:
      return {2 * (n - 1), n};
    case CollectiveKind::AllGather:
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::AllToAll:
      return {n - 1, n};
    case CollectiveKind::Broadcast:
      return {1, 1};
  }
  return {1, 1};
}

Bytes share_of(Bytes size, std::int64_t parts, std::int64_t of) {
  return Bytes{static_cast<std::int64_t>((Wide{size.count()} * parts + of - 1) / of)};
}

/// Those plans that are `wanted(algorithm, several_nodes)`; the first is always there.
template <class Wanted>
std::vector<CollectivePlan> plans_of(const Fabric& fabric, std::span<const std::int32_t> devices, CollectiveKind kind,
                                     Wanted&& wanted) {
  ensure(!devices.empty(), "a group has members");
  if (devices.size() == 1) return {CollectivePlan{}};
  const Placement placement = place(fabric, devices);
  const bool several_nodes = placement.count() > 1;
  Tally tally(fabric);
  if (kind == CollectiveKind::AllToAll) return {direct(tally, placement)};
  std::vector<CollectivePlan> plans{ring(tally, placement, kind)};
  if (kind == CollectiveKind::Broadcast) return plans;
  if (kind == CollectiveKind::AllReduce && wanted(Algorithm::Tree, several_nodes))
    plans.push_back(tree(tally, placement));
  if (several_nodes && placement.local > 1 && wanted(Algorithm::Hierarchical, several_nodes))
    plans.push_back(hierarchical(tally, placement, kind));
  if (has_nvls(fabric, placement, kind) && wanted(Algorithm::Nvls, several_nodes))
    plans.push_back(nvls(tally, fabric, placement, kind));
  return plans;
}

TransferPrice alpha_beta(const Fabric& fabric, std::span<const std::int32_t> devices, CollectiveKind kind, Bytes size) {
  const std::size_t n = devices.size();
  Duration latency;
  Bandwidth slowest{std::numeric_limits<std::int64_t>::max()};
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t next = devices[(i + 1) % n];
    latency = std::max(latency, step_latency(fabric, devices[i], next));
    for (const LinkShare& share : route(fabric, devices[i], next).shares)
      slowest = std::min(slowest, fabric[share.link].capacity * share.of);
  }
  const auto [parts, of] = ring_factor(kind, static_cast<std::int64_t>(n));
  return {latency + share_of(size, parts, of) / slowest, {}};
}

}  // namespace

Duration step_latency(const Fabric& fabric, std::int32_t from, std::int32_t to) {
  return step_latency(fabric, walk(fabric, from, to, [](LinkId, std::int32_t) {}));
}

std::vector<CollectivePlan> collective_plans(const Fabric& fabric, std::span<const std::int32_t> devices,
                                             CollectiveKind kind) {
  return plans_of(fabric, devices, kind, [](Algorithm, bool) { return true; });
}

std::vector<CollectivePlan> eligible_plans(const Fabric& fabric, std::span<const std::int32_t> devices,
                                           CollectiveKind kind, const CollectiveOptions& options) {
  return plans_of(fabric, devices, kind, [&](Algorithm algorithm, bool several_nodes) {
    return options.algorithm == algorithm || of_nccl(algorithm, several_nodes);
  });
}

TransferPrice price_of(const CollectivePlan& plan, Bytes size) {
  TransferPrice price{plan.latency, {}};
  if (size <= Bytes{}) return price;
  price.loads.reserve(plan.links.size());
  for (const CollectivePlan::Part& part : plan.links)
    price.loads.push_back({part.link, share_of(size, part.parts, plan.of)});
  return price;
}

Duration alone(const Fabric& fabric, const CollectivePlan& plan, Bytes size) {
  if (size <= Bytes{}) return plan.latency;
  Duration longest;
  std::int64_t parts = 0;
  Bandwidth capacity;
  for (const CollectivePlan::Part& part : plan.links) {
    if (part.parts == parts && fabric[part.link].capacity == capacity) continue;  // as before: most are
    parts = part.parts;
    capacity = fabric[part.link].capacity;
    longest = std::max(longest, share_of(size, parts, plan.of) / capacity);
  }
  return plan.latency + longest;
}

std::size_t best_plan(const Fabric& fabric, std::span<const CollectivePlan> plans, Bytes size,
                      const CollectiveOptions& options) {
  ensure(!plans.empty(), "a collective has a plan");
  for (std::size_t p = 0; options.algorithm && p < plans.size(); ++p)
    if (plans[p].algorithm == *options.algorithm) return p;
  const bool several_nodes = crosses_nodes(fabric, plans.front());
  std::size_t best = 0;
  Duration shortest = alone(fabric, plans.front(), size);
  for (std::size_t p = 1; p < plans.size(); ++p) {
    if (!of_nccl(plans[p].algorithm, several_nodes)) continue;
    const Duration took = alone(fabric, plans[p], size);
    if (took >= shortest) continue;
    shortest = took;
    best = p;
  }
  return best;
}

TransferPrice price_of(const Fabric& fabric, std::span<const CollectivePlan> plans, Bytes size,
                       const CollectiveOptions& options) {
  return price_of(plans[best_plan(fabric, plans, size, options)], size);
}

TransferPrice collective_price(const Fabric& fabric, std::span<const std::int32_t> devices, CollectiveKind kind,
                               Bytes size, const CollectiveOptions& options) {
  if (devices.size() <= 1) return {};
  if (options.model == PriceModel::AlphaBeta) return alpha_beta(fabric, devices, kind, size);
  return price_of(fabric, eligible_plans(fabric, devices, kind, options), size, options);
}

namespace {

/// All at once.
class Together {
 public:
  void add(const TransferPrice& price) {
    latency_ = std::max(latency_, price.latency);
    for (const LinkLoad& load : price.loads) bytes_[load.link] += load.bytes;
  }
  [[nodiscard]] TransferPrice price() const {
    TransferPrice all{latency_, {}};
    for (const auto& [link, bytes] : bytes_) all.loads.push_back({link, bytes});
    return all;
  }

 private:
  Duration latency_;
  std::map<LinkId, Bytes> bytes_;
};

/// Nothing shares links: the transfer takes as long as it does alone.
TransferPrice unshared(const TransferPrice& routed, const Fabric& fabric) { return {alone(routed, fabric), {}}; }

}  // namespace

TransferPrice uneven_price(const Fabric& fabric, std::span<const std::int32_t> devices, CollectiveKind kind,
                           std::span<const MatrixRow* const> rows, PriceModel model) {
  const std::size_t n = devices.size();
  ensure(rows.size() == n, "every member of a group has a row");
  if (n == 1) return {};
  Together all;
  for (std::size_t i = 0; i < n; ++i) {
    if (kind == CollectiveKind::AllToAll) {
      for (std::size_t j = 0; j < n; ++j)
        if (const Bytes bytes = rows[i]->sends[j]; bytes > Bytes{} && i != j)
          all.add(message_price(fabric, devices[i], devices[j], bytes));
      continue;
    }
    const Bytes part = kind == CollectiveKind::AllGather ? rows[i]->sends.front() : rows[i]->receives.front();
    if (part == Bytes{}) continue;
    // A reduction comes round the ring to member i from the one after it, and loads the links that one's broadcast
    // does.
    std::vector<std::int32_t> ring(devices.begin(), devices.end());
    const std::size_t root = kind == CollectiveKind::AllGather ? i : (i + 1) % n;
    std::rotate(ring.begin(), ring.begin() + static_cast<std::ptrdiff_t>(root), ring.end());
    all.add(price_of(collective_plans(fabric, ring, CollectiveKind::Broadcast).front(), part));
  }
  TransferPrice price = all.price();
  if (kind == CollectiveKind::AllToAll) price.latency += fabric.node.collective_start;  // broadcasts have theirs
  return model == PriceModel::Routed ? price : unshared(price, fabric);
}

TransferPrice copy_price(const Fabric& fabric, std::int32_t device, MemorySpace from, MemorySpace to, Bytes bytes,
                         PriceModel model) {
  ensure((from == MemorySpace::Device) != (to == MemorySpace::Device), "a copy has one end on the device");
  const auto link = [&](LinkType type, std::int32_t at) {
    return LinkId{fabric.first[static_cast<std::size_t>(type)] + at};
  };
  const LinkId own = link(from == MemorySpace::Device ? LinkType::HostUp : LinkType::HostDown, device);
  const TransferPrice routed{fabric[own].latency,
                             {{own, bytes}, {link(LinkType::HostBridge, fabric.node_of(device)), bytes}}};
  return model == PriceModel::Routed ? routed : unshared(routed, fabric);
}

TransferPrice message_price(const Fabric& fabric, std::int32_t from, std::int32_t to, Bytes bytes, PriceModel model) {
  if (from == to) return {};
  if (model == PriceModel::Routed) return {step_latency(fabric, from, to), loads(route(fabric, from, to), bytes)};
  return unshared(message_price(fabric, from, to, bytes), fabric);
}

Duration alone(const TransferPrice& price, std::span<const Bandwidth> links) {
  Duration longest;
  for (const LinkLoad& load : price.loads)
    longest = std::max(longest, load.bytes * load.sharers / links[load.link.index()]);
  return price.latency + longest;
}

Duration alone(const TransferPrice& price, const Fabric& fabric) {
  Duration longest;
  for (const LinkLoad& load : price.loads)
    longest = std::max(longest, load.bytes * load.sharers / fabric[load.link].capacity);
  return price.latency + longest;
}

}  // namespace tidemark::topology
