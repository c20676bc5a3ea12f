#pragma once

#include <cstdint>

#include "sim/base/estimate.hpp"
#include "topology/cluster.hpp"
#include "topology/nccl_channels.hpp"

// Device memory that NCCL takes for one communicator on one rank. Formulas from NCCL's sources (2.28.9: init.cc,
// channel.cc, transport/p2p.cc, transport/net.cc, transport/nvls.cc, transport/generic.cc; differences back to 2.18).
// tests/topology/nccl_memory_test.cpp holds them to figures that others published. docs/device.md explains them.

namespace tidemark::topology {

/// Where a rank stands in its node's chain of a tree. Middle has two neighbours there, an end one.
enum class ChainPlace : std::uint8_t { Middle, SendingEnd, ReceivingEnd };

/// What a communicator has connected so far. Connections with the same peer, channel and direction serve all of them.
struct Connected {
  bool ring = false;
  bool tree = false;
  bool pat = false;
  bool nvls = false;
  bool nvls_tree = false;
  bool network_pool = false;         ///< the pool for messages to other nodes is made with the communicator
  std::int32_t tree_neighbours = 2;  ///< nodes next to this one in NCCL's double tree: one or three, two on average
  ChainPlace chain = ChainPlace::Middle;

  bool operator==(const Connected&) const = default;
};

/// What a communicator takes of a device, by what for.
struct CommunicatorParts {
  Bytes fixed;         ///< its structures, of every communicator
  Bytes ring;          ///< buffers of connections
  Bytes tree;          ///< … beyond the ring's
  Bytes pat;           ///< … beyond the ring's
  Bytes nvls;          ///< buffers that the switch reads and writes
  Bytes nvls_tree;     ///< connections between nodes
  Bytes messages;      ///< connections for messages inside the node
  Bytes network_pool;  ///< shared by all messages to other nodes

  [[nodiscard]] Bytes total() const { return fixed + ring + tree + pat + nvls + nvls_tree + messages + network_pool; }
  bool operator==(const CommunicatorParts&) const = default;
};

[[nodiscard]] CommunicatorParts communicator_parts(const Cluster& cluster, const NcclSettings& settings,
                                                   const CommunicatorUse& use, const NcclChannels& channels,
                                                   const Connected& connected);

/// Low: only the algorithm that every communicator connects, over the fewest channels. High: all that the use could
/// pick, over the most. What was measured of the cluster counts instead, where the settings are NCCL's own.
[[nodiscard]] Estimate communicator_memory(const Cluster& cluster, const NcclSettings& settings,
                                           const CommunicatorUse& use);

/// The same of the host's memory: what kernels and the network read there, pinned, and what ranks of a node share where
/// they do not reach each other's devices. Lists of proxies, which are in /dev/shm, are left out.
[[nodiscard]] Estimate communicator_host_memory(const Cluster& cluster, const NcclSettings& settings,
                                                const CommunicatorUse& use);

/// NCCL's kernels, loaded once per process at the first communicator.
[[nodiscard]] Estimate nccl_kernel_memory(const Cluster& cluster);

}  // namespace tidemark::topology
