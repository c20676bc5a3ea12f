#pragma once

#include <cstdint>

#include "sim/estimate.hpp"
#include "topology/cluster.hpp"

// Device memory that NCCL takes for one communicator on one rank. Formulas from NCCL 2.28.9's sources (init.cc,
// channel.cc, transport/p2p.cc, transport/net.cc, transport/nvls.cc); numbers of channels are what its topology search
// usually finds, so they come with bounds. Not yet checked on a machine with several GPUs.

namespace tidemark {

/// How the ranks of one group lie on nodes, seen from one of them, and what they do.
struct CommunicatorUse {
  std::int32_t ranks = 1;
  std::int32_t local = 1;  ///< of them on this rank's node, itself included
  std::int32_t nodes = 1;
  bool reduces = false;           ///< all-reduce or broadcast: ring or tree, or NVLS
  bool shards = false;            ///< all-gather or reduce-scatter: ring, NVLS, or PAT with one rank a node
  std::int32_t local_peers = 0;   ///< of point-to-point messages, on this node; each one is sent to and received from
  std::int32_t remote_peers = 0;  ///< the same on other nodes

  auto operator<=>(const CommunicatorUse&) const = default;
};

/// Low: only the algorithm that every communicator connects. High: all that the use could pick.
[[nodiscard]] Estimate communicator_memory(const Device& device, const Node& node, const CommunicatorUse& use);

/// NCCL's kernels, loaded once per process at the first communicator.
[[nodiscard]] Estimate nccl_kernel_memory(const Device& device);

}  // namespace tidemark
