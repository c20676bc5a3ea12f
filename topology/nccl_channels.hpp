#pragma once

#include "topology/cluster.hpp"

// How many channels NCCL opens. Its topology search lays rings of a fixed speed until links are full, and takes the
// speed that moves most (graph/search.cc); each ring becomes two channels or more (graph/connect.cc); messages get a
// power of two of them (graph/paths.cc). Followed here for nodes whose devices are alike.

namespace tidemark::topology {

enum class Bound : std::uint8_t { Low, Central, High };

/// Of a communicator. What was measured comes first; one node behind NVSwitch gives what logs of eight A100 and H100
/// show (24); elsewhere the bounds are half and twice what the search should find.
[[nodiscard]] NcclChannels nccl_channels(const Cluster& cluster, const NcclSettings& settings,
                                         const CommunicatorUse& use, Bound bound = Bound::Central);

/// Whether NCCL sets NVLink SHARP up for the communicator.
[[nodiscard]] bool has_nvls(const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use);

/// Whether all ranks of the communicator that share a node reach each other by NVLink.
[[nodiscard]] bool joined_by_nvlink(const Node& node, const CommunicatorUse& use);

}  // namespace tidemark::topology
