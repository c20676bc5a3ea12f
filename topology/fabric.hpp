#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/clock/transfer.hpp"
#include "topology/cluster.hpp"

// The network of a cluster as directed links, and the way from device to device over them.
//
//   inside a node   device -> NVSwitch -> device, device -> device over a bridge, or through the host:
//                   device -> root complex -> (host bridge) -> root complex -> device
//   between nodes   device -> (host bridge, without GPUDirect RDMA) -> NIC -> leaf -> spine -> leaf -> NIC -> ...
//   device; what a communicator's members send each other may go to a device beside the sender first (exit_of)
//
// Every capacity is the data sheet's times the device's communication efficiency. The spines are one link up and one
// down per leaf by default: traffic spreads evenly over equal-cost paths, so that one link of their summed capacity
// takes the same time, and a route has a handful of links. Spines do not block; a third tier is not told apart from
// them.

namespace tidemark::topology {

enum class LinkType : std::uint8_t {
  NvLinkUp,    ///< device to the node's NVSwitch
  NvLinkDown,  ///< and back
  NvLinkPair,  ///< device to a device of its bridged group
  HostUp,      ///< device to its host's root complex
  HostDown,    ///< and back
  HostBridge,  ///< through the host, both ways together
  NicUp,       ///< NIC to leaf; NICs that serve one device count as one
  NicDown,
  LeafUp,  ///< leaf to spine
  LeafDown,
};
inline constexpr std::size_t link_types = 10;

struct Link {
  LinkType type = LinkType::NvLinkUp;
  std::int32_t at = 0;    ///< device, node (HostBridge), NIC or leaf, counted over the whole fabric
  std::int32_t peer = 0;  ///< device (NvLinkPair) or spine (LeafUp, LeafDown)
  Bandwidth capacity;
  Duration latency;
  bool operator==(const Link&) const = default;
};

struct FabricOptions {
  /// Spine switches that are laid out one by one; 1 stands for all of them together.
  std::int32_t spines = 1;
  Pxn pxn = Pxn::Always;
  bool peers = true;            ///< devices of a node reach each other: else what they exchange goes by their host
  bool gpu_direct = true;       ///< where the cluster has it: else what leaves a node goes through its host's memory
  NcclAlgorithms algorithms{};  ///< that collectives may take
  NcclProtocols protocols{};
  NcclChannelLimits channels{};
  bool operator==(const FabricOptions&) const = default;
};
/// What NCCL's settings leave of a fabric.
[[nodiscard]] FabricOptions fabric_options(const NcclSettings& nccl);

/// Device d is the d mod node.devices-th of node d / node.devices: ranks fill nodes in order. Links are laid out whole
/// nodes at a time, type by type, so that a link's id follows from where it is.
struct Fabric {
  Node node;
  FabricShape shape;
  std::int32_t compute_capability = 0;
  std::int32_t devices = 0;
  std::int32_t nodes = 0;
  std::int32_t nic_slots = 0;  ///< NICs of a node, those of one device counted as one
  std::int32_t leaves = 0;
  std::int32_t spines = 0;
  Pxn pxn = Pxn::Always;
  NcclAlgorithms algorithms{};
  NcclProtocols protocols{};
  std::array<NcclChannels, 2> channels{};      ///< that NCCL opens for all of one node, and of several
  std::array<NcclChannels, 2> unlimited{};     ///< where no variable says how many
  std::optional<std::int32_t> per_net_peer{};  ///< channels of messages to another node, where one does
  SharedCalibration calibration;
  std::vector<Link> links;                           ///< by LinkId
  std::array<std::int32_t, link_types + 1> first{};  ///< of each type, in `links`

  [[nodiscard]] const Link& operator[](LinkId link) const { return links[link.index()]; }
  [[nodiscard]] std::int32_t node_of(std::int32_t device) const { return device / node.devices; }
  [[nodiscard]] std::int32_t local_of(std::int32_t device) const { return device % node.devices; }
  /// Devices of one node.
  [[nodiscard]] bool joined_by_nvlink(std::int32_t device, std::int32_t other) const {
    if (node.link == NodeLink::NvLink) return device / node.nvlink_group == other / node.nvlink_group;
    return node.link == NodeLink::NvSwitch;
  }
  /// The NIC that the device uses.
  [[nodiscard]] std::int32_t nic_of(std::int32_t device) const {
    return node_of(device) * nic_slots + local_of(device) * nic_slots / node.devices;
  }
  [[nodiscard]] std::int32_t leaf_of_nic(std::int32_t nic) const {
    if (shape.kind == FabricKind::Single) return 0;
    const std::int32_t at = nic / nic_slots;
    const std::int32_t block = at / shape.nodes_per_leaf;
    return shape.rail_optimised ? block * nic_slots + nic - at * nic_slots : block;
  }
};

/// `devices` >= 1.
[[nodiscard]] Fabric build_fabric(const Cluster& cluster, std::int32_t devices, const FabricOptions& options = {});

/// "node3.gpu5.nvlink_up", "node0.host_bridge", "node3.nic5.up", "leaf2.spine0.down": devices and NICs are counted in
/// their node.
[[nodiscard]] std::string link_name(const Fabric& fabric, LinkId link);

/// By LinkId.
[[nodiscard]] std::vector<Bandwidth> capacities(const Fabric& fabric);

/// By type: how far on the likes of links lie, so many nodes on. Those of leaves: whole leaves on only.
[[nodiscard]] std::array<std::int32_t, link_types> link_id_strides(const Fabric& fabric, std::int32_t nodes);

/// A link of a route and the part of the traffic that takes it: parts [first, last) of `of`.
struct LinkShare {
  LinkId link;
  std::int64_t first = 0;
  std::int64_t last = 1;
  std::int64_t of = 1;
  bool operator==(const LinkShare&) const = default;
};

/// The equal-cost shortest paths from a device to another one, traffic spread evenly over them.
struct Route {
  std::vector<LinkShare> shares;
  Duration latency;
  bool operator==(const Route&) const = default;
};

/// From a device to itself: nothing. O(1): a dozen links at most, and two per spine that is laid out.
[[nodiscard]] Route route(const Fabric& fabric, std::int32_t from, std::int32_t to);
/// The same out of the node by the NIC of `exit`, a device that `from` reaches over NVLink, into a route whose memory
/// is used again.
void route(const Fabric& fabric, std::int32_t from, std::int32_t exit, std::int32_t to, Route& found);

/// The device by whose NIC NCCL lets a message leave the node of `from`: of those in the communicator, which
/// `is_member(device)`. It is `from` itself inside a node, and where it may not be another one. Receivers take their
/// own NIC. By src/graph/search.cc, ncclTopoGetNetDev, and src/graph/topo.cc, ncclTopoGetLocalGpu (2.28.9; since 2.12).
template <class IsMember>
[[nodiscard]] std::int32_t exit_of(const Fabric& fabric, std::int32_t from, std::int32_t to, IsMember&& is_member) {
  const std::int32_t node = fabric.node_of(from);
  if (node == fabric.node_of(to) || fabric.pxn == Pxn::Never || !fabric.node.gpu_direct_rdma) return from;
  const std::int32_t like = node * fabric.node.devices + fabric.local_of(to), nic = fabric.nic_of(like);
  if (!is_member(like) || (fabric.pxn == Pxn::OverOtherNics && nic == fabric.nic_of(from))) return from;
  std::int32_t first = like;
  for (std::int32_t d = like - 1; d >= 0 && fabric.nic_of(d) == nic; --d)
    if (is_member(d)) first = d;
  return fabric.joined_by_nvlink(from, first) ? first : from;
}

/// Whether a device is one of some, for exit_of: in O(1).
class MemberSet {
 public:
  MemberSet(const Fabric& fabric, std::span<const std::int32_t> members)
      : among_(static_cast<std::size_t>(fabric.devices), false) {
    for (const std::int32_t device : members) among_[static_cast<std::size_t>(device)] = true;
  }
  [[nodiscard]] bool operator()(std::int32_t device) const {
    const auto d = static_cast<std::size_t>(device);
    return d < among_.size() && among_[d];
  }

 private:
  std::vector<bool> among_;
};

/// What `bytes` on a route put on each link; parallel links sum to `bytes` exactly.
[[nodiscard]] std::vector<LinkLoad> loads(const Route& route, Bytes bytes);

/// Everything that some transfers put on one link, and how long it keeps that link busy.
struct LinkUse {
  LinkId link;
  Bytes bytes;
  Duration busy;
  bool operator==(const LinkUse&) const = default;
};

/// Per-link load, the busiest first.
[[nodiscard]] std::vector<LinkUse> link_uses(const Fabric& fabric, std::span<const TransferCost> transfers);

}  // namespace tidemark::topology
