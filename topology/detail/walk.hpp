#pragma once

#include <cstdint>

#include "topology/fabric.hpp"

namespace tidemark::topology {

/// What a route is apart from its links.
struct Passage {
  Duration latency;
  bool leaves_node = false;
  bool by_host = false;  ///< not by NVLink all the way
};

/// The links of a route in order, out of the node by the NIC of `exit`: `take(link, spine)`, where `spine` says which
/// one carries its part of the traffic, or is -1: all of it takes this link. `route` for callers that have no use for a
/// list.
template <class Take>
Passage walk(const Fabric& fabric, std::int32_t from, std::int32_t exit, std::int32_t to, Take&& take) {
  Passage passage;
  if (from == to) return passage;
  const auto first = [&](LinkType type) { return fabric.first[static_cast<std::size_t>(type)]; };
  const auto pass = [&](LinkType type) {  // links of a type have one latency
    passage.latency += fabric.links[static_cast<std::size_t>(first(type))].latency;
  };
  const auto over = [&](LinkType type, std::int32_t place) {
    take(LinkId{first(type) + place}, -1);
    pass(type);
  };
  const auto over_spines = [&](LinkType type, std::int32_t leaf) {
    for (std::int32_t s = 0; s < fabric.spines; ++s) take(LinkId{first(type) + leaf * fabric.spines + s}, s);
    pass(type);
  };
  const std::int32_t from_node = fabric.node_of(from);
  const std::int32_t to_node = fabric.node_of(to);
  passage.leaves_node = from_node != to_node;
  const auto over_nvlink = [&](std::int32_t next) {
    if (fabric.node.link == NodeLink::NvSwitch) {
      over(LinkType::NvLinkUp, from);
      over(LinkType::NvLinkDown, next);
    } else {
      const std::int32_t group = fabric.node.nvlink_group;
      over(LinkType::NvLinkPair, from * (group - 1) + next % group - (next % group > from % group ? 1 : 0));
    }
  };
  if (from_node == to_node && fabric.joined_by_nvlink(from, to)) {
    over_nvlink(to);
    return passage;
  }
  if (exit != from) over_nvlink(exit);
  passage.by_host = true;
  over(LinkType::HostUp, exit);
  if (from_node == to_node) {
    over(LinkType::HostBridge, from_node);
  } else {
    const std::int32_t from_nic = fabric.nic_of(exit);
    const std::int32_t to_nic = fabric.nic_of(to);
    if (!fabric.node.gpu_direct_rdma) over(LinkType::HostBridge, from_node);
    over(LinkType::NicUp, from_nic);
    const std::int32_t from_leaf = fabric.leaf_of_nic(from_nic);
    const std::int32_t to_leaf = fabric.leaf_of_nic(to_nic);
    if (from_leaf != to_leaf) {
      over_spines(LinkType::LeafUp, from_leaf);
      over_spines(LinkType::LeafDown, to_leaf);
    }
    over(LinkType::NicDown, to_nic);
    if (!fabric.node.gpu_direct_rdma) over(LinkType::HostBridge, to_node);
  }
  over(LinkType::HostDown, to);
  return passage;
}

}  // namespace tidemark::topology
