#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/estimate.hpp"
#include "sim/base/units.hpp"
#include "topology/namespace.hpp"

// What NCCL's memory depends on besides the hardware: its release and its environment variables, and what was measured
// of it on one machine. Defaults are those of NCCL 2.28.9 (init.cc, transport/net.cc, transport/nvls.cc).

namespace tidemark::topology {

/// Over what devices of one node reach each other's memory directly: NCCL_P2P_LEVEL and NCCL_P2P_DISABLE. Elsewhere
/// data goes through host memory.
enum class PeerAccess : std::uint8_t { Everywhere, NvLink, Nowhere };

/// When a message to another node goes over NVLink first, to a device of its node at the place that the receiver has in
/// its own, and out by that one's NIC (PXN): NCCL_PXN_DISABLE, NCCL_P2P_PXN_LEVEL. From less to more.
enum class Pxn : std::uint8_t {
  Never,
  OverOtherNics,  ///< not where sender and forwarder have one NIC
  Always,         ///< by the first of the devices that have it, so that what goes to one place goes together
};

/// Which algorithms collectives may take: NCCL_ALGO, NCCL_PAT_ENABLE.
struct NcclAlgorithms {
  bool ring = true;
  bool tree = true;
  bool nvls = true;
  bool nvls_tree = true;
  bool pat = true;

  bool operator==(const NcclAlgorithms&) const = default;
};

/// Which protocols they may take: NCCL_PROTO.
struct NcclProtocols {
  bool ll = true;
  std::optional<bool> ll128{};  ///< unset: unless data goes through the host's memory
  bool simple = true;

  bool operator==(const NcclProtocols&) const = default;
};

/// How many channels collectives and messages get; an unset one leaves it to NCCL.
struct NcclChannelLimits {
  std::optional<std::int32_t> min_channels{}, max_channels{};  ///< NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS
  std::optional<std::int32_t> min_ctas{}, max_ctas{};          ///< the same, and NVLS: NCCL_MIN_CTAS, NCCL_MAX_CTAS
  std::optional<std::int32_t> min_p2p_channels{},
      max_p2p_channels{};                               ///< NCCL_MIN_P2P_NCHANNELS, NCCL_MAX_P2P_NCHANNELS
  std::optional<std::int32_t> channels_per_net_peer{};  ///< NCCL_NCHANNELS_PER_NET_PEER
  std::optional<std::int32_t> nvls_channels{};          ///< NCCL_NVLS_NCHANNELS

  bool operator==(const NcclChannelLimits&) const = default;
};

/// A release and what its environment variables say; an unset optional leaves it to NCCL.
struct NcclSettings {
  std::int32_t release = 228;  ///< major x 100 + minor

  Bytes ll_buffer{512 << 10};      ///< NCCL_LL_BUFFSIZE: 8 lines x 512 threads x 8 steps x 16 B
  Bytes ll128_buffer{4800 << 10};  ///< NCCL_LL128_BUFFSIZE: 120 words x 640 threads x 8 steps x 8 B
  Bytes simple_buffer{4 << 20};    ///< NCCL_BUFFSIZE
  Bytes nvls_chunk{128 << 10};     ///< NCCL_NVLS_CHUNKSIZE, since 2.19; a buffer is eight of them
  Bytes p2p_net_chunk{128 << 10};  ///< NCCL_P2P_NET_CHUNKSIZE: communicators of several nodes
  Bytes p2p_nvl_chunk{512 << 10};  ///< NCCL_P2P_NVL_CHUNKSIZE: of one node, all by NVLink
  Bytes p2p_pci_chunk{128 << 10};  ///< NCCL_P2P_PCI_CHUNKSIZE: of one node, otherwise

  NcclChannelLimits channels{};
  NcclAlgorithms algorithms{};
  NcclProtocols protocols{};
  bool nvls = true;  ///< NCCL_NVLS_ENABLE: NVLink SHARP, where there is a switch that can
  PeerAccess peer_access = PeerAccess::Everywhere;
  bool shared_memory = true;        ///< NCCL_SHM_DISABLE: ranks of a node without peer access meet in host memory
  std::optional<bool> peer_read{};  ///< NCCL_P2P_READ_ENABLE: receivers fetch; unset: compute capability 8.0 by NVLink
  bool gpu_direct = true;           ///< NCCL_NET_GDR_LEVEL, NCCL_IB_DISABLE, NCCL_NET: the network reaches devices
  bool gpu_direct_send = true;      ///< NCCL_NET_GDR_READ
  std::optional<bool> virtual_memory{};  ///< NCCL_CUMEM_ENABLE: by the driver's virtual memory API; unset: since 2.19
  bool connect_at_use = true;            ///< NCCL_RUNTIME_CONNECT: an algorithm connects when it first runs, since 2.22
  bool sockets = false;                  ///< NCCL_IB_DISABLE, NCCL_NET: TCP between nodes; no gpu_direct then
  Pxn pxn = Pxn::Always;

  bool operator==(const NcclSettings&) const = default;
};

/// PXN wants memory of devices beside the sender that NVLink and the network reach.
[[nodiscard]] inline Pxn pxn_of(const NcclSettings& settings) {
  return settings.peer_access == PeerAccess::Nowhere || !settings.gpu_direct ? Pxn::Never : settings.pxn;
}

/// Numbers of channels as NCCL prints them with NCCL_DEBUG=INFO: "24 coll channels, 24 collnet channels, 16 nvls
/// channels, 32 p2p channels, 32 p2p channels per peer".
struct NcclChannels {
  std::int32_t collective = 0;
  std::int32_t nvls = 0;
  std::int32_t p2p = 0;
  std::int32_t per_peer = 0;  ///< of p2p, to one peer

  bool operator==(const NcclChannels&) const = default;
};

/// As norms, losses and barriers are, and counts of experts' tokens.
inline constexpr Bytes little{32 << 10};

/// How the ranks of one group lie on nodes, seen from one of them, and what they do.
struct CommunicatorUse {
  std::int32_t ranks = 1;
  std::int32_t local = 1;  ///< of them on this rank's node, itself included
  std::int32_t nodes = 1;
  bool reduces = false;           ///< all-reduce or broadcast: ring or tree, or NVLS
  bool shards = false;            ///< all-gather or reduce-scatter: ring, NVLS, or PAT with one rank a node
  std::int32_t local_peers = 0;   ///< of point-to-point messages, on this node; each one is sent to and received from
  std::int32_t remote_peers = 0;  ///< the same on other nodes
  std::int32_t senders = 0;  ///< on this node: those that write to others by this rank's NIC, of their own or by PXN
  /// Messages go through communicators of two ranks, one for every peer and order of calls, instead of the group's own:
  /// so many of them.
  std::int32_t pairs = 0;
  bool reduces_little = false;  ///< no all-reduce or broadcast of more than `little`

  auto operator<=>(const CommunicatorUse&) const = default;
};

/// What was measured of NCCL on one machine, instead of what formulas give: the table [nccl] of a cluster file.
struct NcclProfile {
  /// Of a communicator that was measured on that machine with default settings.
  struct Communicator {
    CommunicatorUse use;
    Estimate memory;
    bool operator==(const Communicator&) const = default;
  };

  PeerAccess peer_access = PeerAccess::Everywhere;  ///< what drivers allow
  std::optional<NcclChannels> one_node{}, several_nodes{}, one_rank_a_node{};
  std::string channels_source{};
  std::optional<Estimate> kernels{};
  std::vector<Communicator> communicators{};

  bool operator==(const NcclProfile&) const = default;
};

}  // namespace tidemark::topology
