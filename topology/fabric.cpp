#include "topology/fabric.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "sim/base/ensure.hpp"
#include "topology/detail/walk.hpp"
#include "topology/nccl_channels.hpp"

namespace tidemark::topology {
namespace {

std::size_t index(LinkType type) { return static_cast<std::size_t>(type); }

/// The i-th of n even parts; the parts sum to the whole.
template <class Unit>
Quantity<Unit> even_part(Quantity<Unit> whole, std::int64_t i, std::int64_t n) {
  __extension__ using Wide = __int128;
  const auto upto = [&](std::int64_t parts) { return static_cast<std::int64_t>(Wide{whole.count()} * parts / n); };
  return Quantity<Unit>{upto(i + 1) - upto(i)};
}

class Builder {
 public:
  Builder(const Cluster& cluster, std::int32_t devices, const FabricOptions& options)
      : cluster_(cluster), efficiency_(cluster.device.efficiency.communication) {
    fabric_.node = cluster.node;
    fabric_.shape = cluster.fabric;
    fabric_.compute_capability = cluster.device.compute_capability;
    fabric_.calibration = cluster.calibration;
    fabric_.devices = devices;
    fabric_.nodes = (devices + cluster.node.devices - 1) / cluster.node.devices;
    fabric_.nic_slots = std::min(cluster.node.nics, cluster.node.devices);
    fabric_.spines = options.spines;
    fabric_.pxn = options.pxn;
    fabric_.algorithms = options.algorithms;
    fabric_.protocols = options.protocols;
    fabric_.node.gpu_direct_rdma = cluster.node.gpu_direct_rdma && options.gpu_direct;
    const std::int32_t local = cluster.node.devices;
    const CommunicatorUse one_node{.ranks = std::max(local, 2), .local = local, .nodes = 1},
        several{.ranks = 2 * local, .local = local, .nodes = 2};
    NcclSettings limited;
    limited.channels = options.channels;
    fabric_.channels = {nccl_channels(cluster, limited, one_node), nccl_channels(cluster, limited, several)};
    fabric_.unlimited = {nccl_channels(cluster, {}, one_node), nccl_channels(cluster, {}, several)};
    fabric_.per_net_peer = options.channels.channels_per_net_peer;
    fabric_.leaves = 1;
    if (cluster.fabric.kind == FabricKind::LeafSpine) {
      const std::int32_t blocks = (fabric_.nodes + cluster.fabric.nodes_per_leaf - 1) / cluster.fabric.nodes_per_leaf;
      fabric_.leaves = blocks * (cluster.fabric.rail_optimised ? fabric_.nic_slots : 1);
    }
  }

  Fabric build() && {
    const std::int32_t devices = fabric_.nodes * cluster_.node.devices;
    fabric_.links.reserve(static_cast<std::size_t>(devices) * 7);  // mostly enough
    // Type by type in the order of LinkType; `first` is where each begins.
    begin(LinkType::NvLinkUp);
    if (cluster_.node.link == NodeLink::NvSwitch) nvswitch_links(devices);
    begin(LinkType::NvLinkPair);
    if (cluster_.node.link == NodeLink::NvLink) pair_links(devices);
    begin(LinkType::HostUp);
    host_links(devices);
    begin(LinkType::NicUp);
    if (fabric_.nodes > 1) network_links();
    fabric_.first[link_types] = static_cast<std::int32_t>(fabric_.links.size());
    return std::move(fabric_);
  }

 private:
  void begin(LinkType type) {
    const auto next = static_cast<std::int32_t>(fabric_.links.size());
    for (std::size_t t = index(type); t < link_types; ++t) fabric_.first[t] = next;
  }

  void add(LinkType type, std::int32_t at, std::int32_t peer, Bandwidth peak, Duration latency) {
    if (peak != peak_) {
      peak_ = peak;
      usable_ = std::max(scaled(peak, efficiency_), Bandwidth{1});
    }
    fabric_.links.push_back({type, at, peer, usable_, latency});
  }

  void nvswitch_links(std::int32_t devices) {
    const Duration down = cluster_.node.latency / 2;
    for (std::int32_t d = 0; d < devices; ++d)
      add(LinkType::NvLinkUp, d, 0, cluster_.node.bandwidth, cluster_.node.latency - down);
    begin(LinkType::NvLinkDown);
    for (std::int32_t d = 0; d < devices; ++d) add(LinkType::NvLinkDown, d, 0, cluster_.node.bandwidth, down);
  }

  // A device's NVLinks are shared out evenly over the others of its group.
  void pair_links(std::int32_t devices) {
    const std::int32_t group = cluster_.node.nvlink_group;
    for (std::int32_t d = 0; d < devices; ++d) {
      const std::int32_t leader = d - d % group;
      for (std::int32_t peer = leader; peer < leader + group; ++peer)
        if (peer != d) add(LinkType::NvLinkPair, d, peer, cluster_.node.bandwidth / (group - 1), cluster_.node.latency);
    }
  }

  void host_links(std::int32_t devices) {
    const Host& host = cluster_.host;
    for (std::int32_t d = 0; d < devices; ++d) add(LinkType::HostUp, d, 0, host.bandwidth, host.latency);
    begin(LinkType::HostDown);
    for (std::int32_t d = 0; d < devices; ++d) add(LinkType::HostDown, d, 0, host.bandwidth, host.latency);
    begin(LinkType::HostBridge);
    for (std::int32_t n = 0; n < fabric_.nodes; ++n) add(LinkType::HostBridge, n, 0, host.bridge_bandwidth, Duration{});
  }

  /// What the NICs that count as one bring together.
  [[nodiscard]] Bandwidth nic_peak(std::int32_t slot) const {
    const std::int32_t slots = fabric_.nic_slots;
    const std::int32_t nics = (slot + 1) * cluster_.node.nics / slots - slot * cluster_.node.nics / slots;
    return cluster_.node.nic_bandwidth * nics;
  }

  void network_links() {
    const std::int32_t slots = fabric_.nic_slots;
    const Duration hop = cluster_.fabric.latency;
    for (std::int32_t n = 0; n < fabric_.nodes * slots; ++n) add(LinkType::NicUp, n, 0, nic_peak(n % slots), hop);
    begin(LinkType::NicDown);
    for (std::int32_t n = 0; n < fabric_.nodes * slots; ++n) add(LinkType::NicDown, n, 0, nic_peak(n % slots), hop);
    if (cluster_.fabric.kind == FabricKind::Single) return begin(LinkType::LeafUp);
    for (const LinkType type : {LinkType::LeafUp, LinkType::LeafDown}) {
      begin(type);
      for (std::int32_t leaf = 0; leaf < fabric_.leaves; ++leaf)
        for (std::int32_t s = 0; s < fabric_.spines; ++s)
          add(type, leaf, s, even_part(uplink(leaf), s, fabric_.spines), hop);
    }
  }

  // A leaf is bought with its uplinks, whether or not the job fills it.
  [[nodiscard]] Bandwidth uplink(std::int32_t leaf) const {
    const FabricShape& shape = cluster_.fabric;
    const Bandwidth of_node =
        shape.rail_optimised ? nic_peak(leaf % fabric_.nic_slots) : cluster_.node.nic_bandwidth * cluster_.node.nics;
    return divided(of_node * shape.nodes_per_leaf, shape.oversubscription);
  }

  const Cluster& cluster_;
  Ratio efficiency_;
  Bandwidth peak_, usable_{1};  // of the link before
  Fabric fabric_;
};

}  // namespace

FabricOptions fabric_options(const NcclSettings& nccl) {
  NcclAlgorithms algorithms = nccl.algorithms;
  algorithms.nvls = algorithms.nvls && nccl.nvls;
  algorithms.nvls_tree = algorithms.nvls_tree && nccl.nvls;
  return {.pxn = pxn_of(nccl),
          .peers = nccl.peer_access != PeerAccess::Nowhere,
          .gpu_direct = nccl.gpu_direct,
          .algorithms = algorithms,
          .protocols = nccl.protocols,
          .channels = nccl.channels};
}

Fabric build_fabric(const Cluster& cluster, std::int32_t devices, const FabricOptions& options) {
  ensure(devices >= 1 && options.spines >= 1, "a fabric has devices and spines");
  if (cluster.node.link != NodeLink::Pcie && (!options.peers || cluster.nccl.peer_access == PeerAccess::Nowhere)) {
    Cluster by_host = cluster;
    by_host.node.link = NodeLink::Pcie;
    return Builder(by_host, devices, options).build();
  }
  return Builder(cluster, devices, options).build();
}

std::string link_name(const Fabric& fabric, LinkId id) {
  const Link& link = fabric[id];
  const auto device = [&](std::string_view what) {
    return fmt::format("node{}.gpu{}.{}", fabric.node_of(link.at), fabric.local_of(link.at), what);
  };
  const auto nic = [&](std::string_view way) {
    return fmt::format("node{}.nic{}.{}", link.at / fabric.nic_slots, link.at % fabric.nic_slots, way);
  };
  const auto leaf = [&](std::string_view way) {
    if (fabric.spines == 1) return fmt::format("leaf{}.{}", link.at, way);
    return fmt::format("leaf{}.spine{}.{}", link.at, link.peer, way);
  };
  switch (link.type) {
    case LinkType::NvLinkUp:
      return device("nvlink_up");
    case LinkType::NvLinkDown:
      return device("nvlink_down");
    case LinkType::NvLinkPair:
      return device(fmt::format("nvlink_to_gpu{}", fabric.local_of(link.peer)));
    case LinkType::HostUp:
      return device("host_up");
    case LinkType::HostDown:
      return device("host_down");
    case LinkType::HostBridge:
      return fmt::format("node{}.host_bridge", link.at);
    case LinkType::NicUp:
      return nic("up");
    case LinkType::NicDown:
      return nic("down");
    case LinkType::LeafUp:
      return leaf("up");
    case LinkType::LeafDown:
      return leaf("down");
  }
  return "?";
}

std::vector<Bandwidth> capacities(const Fabric& fabric) {
  std::vector<Bandwidth> all;
  all.reserve(fabric.links.size());
  for (const Link& link : fabric.links) all.push_back(link.capacity);
  return all;
}

std::array<std::int32_t, link_types> link_id_strides(const Fabric& fabric, std::int32_t nodes) {
  const std::int32_t devices = nodes * fabric.node.devices;
  const std::int32_t nics = nodes * fabric.nic_slots;
  const std::int32_t leaves_of_block = fabric.shape.rail_optimised ? fabric.nic_slots : 1;
  const std::int32_t leaves = nodes / fabric.shape.nodes_per_leaf * leaves_of_block * fabric.spines;
  std::array<std::int32_t, link_types> by_type{};
  const auto set = [&](LinkType type, std::int32_t shift) { by_type[index(type)] = shift; };
  for (const LinkType type : {LinkType::NvLinkUp, LinkType::NvLinkDown, LinkType::HostUp, LinkType::HostDown})
    set(type, devices);
  set(LinkType::NvLinkPair, devices * (fabric.node.nvlink_group - 1));
  set(LinkType::HostBridge, nodes);
  for (const LinkType type : {LinkType::NicUp, LinkType::NicDown}) set(type, nics);
  for (const LinkType type : {LinkType::LeafUp, LinkType::LeafDown}) set(type, leaves);
  return by_type;
}

Route route(const Fabric& fabric, std::int32_t from, std::int32_t to) {
  Route found;
  route(fabric, from, from, to, found);
  return found;
}

void route(const Fabric& fabric, std::int32_t from, std::int32_t exit, std::int32_t to, Route& found) {
  const auto there = [&](std::int32_t device) { return device >= 0 && device < fabric.devices; };
  ensure(there(from) && there(exit) && there(to), "a route joins devices of the fabric");
  found.shares.clear();
  found.latency =
      walk(fabric, from, exit, to, [&](LinkId link, std::int32_t spine) {
        found.shares.push_back(spine < 0 ? LinkShare{link} : LinkShare{link, spine, spine + 1, fabric.spines});
      }).latency;
}

std::vector<LinkLoad> loads(const Route& route, Bytes bytes) {
  __extension__ using Wide = __int128;
  std::vector<LinkLoad> all;
  for (const LinkShare& share : route.shares) {
    const auto upto = [&](std::int64_t parts) {
      return Bytes{static_cast<std::int64_t>(Wide{bytes.count()} * parts / share.of)};
    };
    const Bytes part = upto(share.last) - upto(share.first);
    if (part > Bytes{}) all.push_back({share.link, part});
  }
  return all;
}

std::vector<LinkUse> link_uses(const Fabric& fabric, std::span<const TransferCost> transfers) {
  std::map<LinkId, Bytes> sums;
  for (const TransferCost& transfer : transfers)
    for (const LinkLoad& load : transfer.loads) sums[load.link] += load.bytes * load.sharers;
  std::vector<LinkUse> uses;
  uses.reserve(sums.size());
  for (const auto& [link, bytes] : sums) uses.push_back({link, bytes, bytes / fabric[link].capacity});
  std::stable_sort(uses.begin(), uses.end(), [](const LinkUse& a, const LinkUse& b) { return a.busy > b.busy; });
  return uses;
}

}  // namespace tidemark::topology
