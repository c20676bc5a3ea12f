#include "topology/nccl_memory.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace tidemark::topology {
namespace {

using namespace literals;

// The driver's virtual memory API gives whole pieces of this; cudaMalloc carves smaller requests out of one.
constexpr Bytes granularity = 2_MiB;
constexpr Bytes counters = 4_KiB;          // struct ncclSendMem, and struct ncclRecvMem
constexpr Bytes peer_structure{608};       // struct ncclDevChannelPeer: 4 x struct ncclConnInfo of 152 B
constexpr std::int64_t shared_steps = 16;  // NCCL_SHARED_STEPS: slots of the pool, per channel
constexpr std::int64_t steps = 8;          // NCCL_STEPS: chunks of a buffer

// What a connection takes there: buffers lie on one side or the other.
enum class Side : std::uint8_t { Device, Host };

bool virtual_memory(const NcclSettings& s) { return s.virtual_memory.value_or(s.release >= 219); }
bool connects_at_use(const NcclSettings& s) { return s.release >= 222 && virtual_memory(s) && s.connect_at_use; }
bool are_defaults(const NcclSettings& s) { return s == NcclSettings{.release = s.release}; }

Bytes whole(Bytes size) { return round_up(size, granularity); }

// One connection to a rank of the same node: what its two ends take. Nothing on devices where data goes through host
// memory.
struct LocalConnection {
  Bytes sender, receiver;
};

bool reaches_peers(const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use) {
  const PeerAccess access = std::max(cluster.nccl.peer_access, settings.peer_access);
  switch (access) {
    case PeerAccess::Everywhere:
      return true;
    case PeerAccess::NvLink:
      return joined_by_nvlink(cluster.node, use);
    case PeerAccess::Nowhere:
      return false;
  }
  return true;
}

// One connection to a rank of another node. Nothing on devices where the network does not reach them.
struct NetworkConnection {
  Bytes send, receive;
  [[nodiscard]] Bytes both() const { return send + receive; }
};

Bytes all_buffers(const NcclSettings& s) { return s.ll_buffer + s.ll128_buffer + s.simple_buffer; }

NetworkConnection network_connection(const Cluster& cluster, const NcclSettings& s, Side side) {
  const bool reaches = cluster.node.gpu_direct_rdma && s.gpu_direct, sends = reaches && s.gpu_direct_send;
  if (side == Side::Host) {
    const Bytes both = 2 * counters;
    return {both + (sends ? s.ll_buffer : all_buffers(s)), both + (reaches ? Bytes{} : all_buffers(s))};
  }
  return {sends ? whole(s.ll128_buffer + s.simple_buffer) : Bytes{},  // LL stays on the host
          reaches ? whole(all_buffers(s)) : Bytes{}};
}

LocalConnection local_connection(const Cluster& cluster, const NcclSettings& s, const CommunicatorUse& use, Side side) {
  if (!reaches_peers(cluster, s, use)) {
    if (s.shared_memory)  // the receiver's side (NCCL_SHM_LOCALITY)
      return side == Side::Host ? LocalConnection{counters, counters + all_buffers(s)} : LocalConnection{};
    const NetworkConnection net = network_connection(cluster, s, side);
    return {net.send, net.receive};
  }
  if (side == Side::Host) return {};
  const bool ampere = cluster.device.compute_capability == 80 && joined_by_nvlink(cluster.node, use);
  if (s.peer_read.value_or(ampere))
    return {whole(counters + s.simple_buffer), whole(counters + s.ll_buffer + s.ll128_buffer)};
  return {whole(counters), whole(counters + all_buffers(s))};
}

// The list of work that kernels read, and a profiler's two counters of 1 KiB on each of 64 channels (init.cc,
// devCommSetup).
Bytes fixed_part_on_host() { return 1_MiB + 2 * 64 * 1_KiB; }

// Every rank has a structure on every channel, which is small until there are thousands of ranks.
Bytes fixed_part(const NcclSettings& settings, const CommunicatorUse& use, const NcclChannels& channels) {
  const std::int64_t peers = use.ranks + 1 + use.local;
  const Bytes structures = use.ranks * peer_structure, table = peers * 8_B, ring_order = use.ranks * 4_B;
  const std::int64_t opened = std::max({channels.collective, channels.p2p, channels.nvls});
  const Bytes of_nvls = use.local * peer_structure;
  if (!virtual_memory(settings))
    return whole((structures + table + ring_order) * opened + of_nvls * channels.nvls + 2 * counters);
  const Bytes of_channel = whole(structures) + whole(table) + whole(ring_order);
  const Bytes credits = channels.nvls > 0 ? granularity : Bytes{};
  return of_channel * opened + whole(of_nvls) * channels.nvls + credits + 2 * granularity;
}

// On its share of the channels a rank leaves the node or enters it.
std::int64_t share_of(std::int64_t channels, const CommunicatorUse& use) {
  return (channels + use.local - 1) / use.local;
}

Bytes ring(const CommunicatorUse& use, const NcclChannels& c, LocalConnection local, NetworkConnection net) {
  if (use.ranks == 1) return {};
  if (use.nodes == 1) return (local.sender + local.receiver) * c.collective;
  if (use.local == 1) return net.both() * c.collective;
  const std::int64_t share = std::min<std::int64_t>(share_of(c.collective, use), c.collective / 2);
  return (local.sender + local.receiver) * (c.collective - 2 * share) + (local.receiver + net.send) * share +
         (net.receive + local.sender) * share;
}

Bytes chain(LocalConnection local, ChainPlace place) {
  switch (place) {
    case ChainPlace::Middle:
      return local.sender + local.receiver;
    case ChainPlace::SendingEnd:
      return local.sender;
    case ChainPlace::ReceivingEnd:
      return local.receiver;
  }
  return {};
}

// Trees send to the ring's neighbours in the other direction too, and to other nodes in both.
Bytes tree(const CommunicatorUse& use, const NcclChannels& c, const Connected& connected, LocalConnection local,
           NetworkConnection net) {
  if (use.ranks <= 2) return {};  // the ring's connections serve
  const Bytes inside = use.local > 1 ? chain(local, connected.chain) * c.collective : Bytes{};
  const std::int64_t neighbours = use.nodes == 1 ? 0 : std::min(connected.tree_neighbours, use.nodes - 1);
  return inside + net.both() * neighbours * share_of(c.collective, use);
}

// Peers at distances of powers of two, both ways (transport/generic.cc, ncclTransportPatConnect).
Bytes pat(const CommunicatorUse& use, const NcclChannels& c, NetworkConnection net) {
  if (use.local != 1 || use.ranks <= 2) return {};
  const auto n = static_cast<std::uint32_t>(use.ranks);
  const std::int64_t levels = std::bit_width(n - 1);
  const std::int64_t peers = 2 * levels - (std::has_single_bit(n) ? 1 : 0);
  return net.both() * c.collective * (peers - 1);
}

Bytes nvls(const NcclSettings& settings, const CommunicatorUse& use, const NcclChannels& c) {
  if (c.nvls == 0) return {};
  const Bytes buffer = settings.release >= 219 ? settings.nvls_chunk * steps : settings.simple_buffer + 64_B;
  return whole(buffer * 2 * c.nvls * use.local);
}

Bytes messages(const CommunicatorUse& use, const NcclChannels& c, LocalConnection local) {
  return (local.sender + local.receiver) * (std::int64_t{use.local_peers} * c.per_peer);
}

Bytes pool(const Cluster& cluster, const NcclSettings& s, const CommunicatorUse& use, const NcclChannels& c) {
  Bytes chunk = use.nodes > 1                         ? s.p2p_net_chunk
                : joined_by_nvlink(cluster.node, use) ? s.p2p_nvl_chunk
                                                      : s.p2p_pci_chunk;
  chunk = std::min(chunk, s.simple_buffer / steps);
  return whole(chunk * shared_steps * c.p2p);
}

// Both directions, once there are messages. A rank that sends by another one's NIC has its sending pool there; those
// are made on the device at once, one of every rank of the node, where everything connects with the communicator
// (init.cc, ncclTopoGetPxnRanks).
Bytes network_pool(const Cluster& cluster, const NcclSettings& s, const CommunicatorUse& use, const NcclChannels& c,
                   const Connected& connected) {
  const bool reaches = cluster.node.gpu_direct_rdma && s.gpu_direct;
  const bool forwards = reaches && use.nodes > 1 && pxn_of(s) != Pxn::Never && joined_by_nvlink(cluster.node, use);
  const std::int32_t at_once = !connected.network_pool ? 0 : forwards ? use.local : 1;
  const std::int32_t sends = reaches && s.gpu_direct_send ? use.senders : 0;
  const std::int32_t receives = reaches && use.remote_peers > 0 ? 1 : 0;
  return pool(cluster, s, use, c) * (std::max(at_once, sends) + receives);
}

// What of it the network cannot have on the device.
Bytes network_pool_on_host(const Cluster& cluster, const NcclSettings& s, const CommunicatorUse& use,
                           const NcclChannels& c) {
  if (use.remote_peers == 0) return {};
  const bool reaches = cluster.node.gpu_direct_rdma && s.gpu_direct;
  const Bytes size = pool(cluster, s, use, c);
  return (reaches && s.gpu_direct_send ? Bytes{} : size) + (reaches ? Bytes{} : size);
}

Connected connected(const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use, Bound bound) {
  const NcclAlgorithms& may = settings.algorithms;
  const bool switches = has_nvls(cluster, settings, use);
  const bool has_pat = settings.release >= 223 && use.local == 1 && use.nodes > 1;
  Connected all;
  all.tree_neighbours = bound == Bound::High ? 3 : 2;
  if (!connects_at_use(settings)) {
    // ncclCommInit connects what it can, whatever is asked for later.
    all = {.ring = true,
           .tree = true,
           .pat = has_pat,
           .nvls = switches,
           .nvls_tree = switches && use.nodes > 1,
           .network_pool = true,
           .tree_neighbours = all.tree_neighbours};
    if (bound == Bound::Low) all.chain = ChainPlace::SendingEnd;
    return all;
  }
  if (!use.reduces && !use.shards) return all;
  // NCCL falls back to rings where a collective has none of the algorithms that are left.
  all.ring = may.ring || (use.shards && !(may.nvls && switches) && !(may.pat && has_pat)) || !may.tree;
  if (bound == Bound::Low) {
    all.tree = !all.ring && may.tree;
    all.nvls = !all.ring && !all.tree && may.nvls && switches;
    return all;
  }
  // Large all-gathers and reduce-scatters go through the switch where they can; small all-reduces go up a tree.
  // graph/tuning.cc: trees run nothing but all-reduces. On several nodes the switches work together only by SHARP or,
  // for all-reduces, by a tree that takes 25 us before its first hop, where LL's tree takes 7: little goes by that one.
  const bool several_nodes = use.nodes > 1;
  all.tree = may.tree && use.reduces;
  all.pat = may.pat && has_pat && use.shards && bound == Bound::High;
  all.nvls_tree = may.nvls_tree && switches && several_nodes && use.reduces && bound == Bound::High &&
                  !(use.reduces_little && settings.protocols.ll && (may.tree || may.ring));
  all.nvls = several_nodes ? all.nvls_tree : may.nvls && switches && (use.shards || bound == Bound::High);
  return all;
}

CommunicatorParts parts_on(Side side, const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use,
                           const NcclChannels& channels, const Connected& connected) {
  const LocalConnection local = local_connection(cluster, settings, use, side);
  const NetworkConnection net = network_connection(cluster, settings, side);
  CommunicatorParts parts;
  parts.fixed = side == Side::Host ? fixed_part_on_host() : fixed_part(settings, use, channels);
  if (connected.ring) parts.ring = ring(use, channels, local, net);
  if (connected.tree) parts.tree = tree(use, channels, connected, local, net);
  if (connected.pat) parts.pat = pat(use, channels, net);
  if (connected.nvls && side == Side::Device) parts.nvls = nvls(settings, use, channels);
  if (connected.nvls_tree)
    parts.nvls_tree = net.both() * std::min(connected.tree_neighbours, use.nodes - 1) * channels.nvls;
  parts.messages = messages(use, channels, local);
  parts.network_pool = side == Side::Host ? network_pool_on_host(cluster, settings, use, channels)
                                          : network_pool(cluster, settings, use, channels, connected);
  return parts;
}

Bytes total(Side side, const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use, Bound bound) {
  return parts_on(side, cluster, settings, use, nccl_channels(cluster, settings, use, bound),
                  connected(cluster, settings, use, bound))
      .total();
}

Estimate operator+(const Estimate& a, const Estimate& b) {
  return {a.bytes + b.bytes, a.low + b.low, a.high + b.high, a.source};
}
Estimate times(const Estimate& a, std::int64_t n) { return {a.bytes * n, a.low * n, a.high * n, a.source}; }

std::string source_of(const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use) {
  const NcclChannels c = nccl_channels(cluster, settings, use);
  return fmt::format(
      "NCCL {}.{} sources; {} rank{} on {} node{}, {}: {} for collectives, {} NVLS, {} for messages, {} a peer{}",
      settings.release / 100, settings.release % 100, use.ranks, use.ranks == 1 ? "" : "s", use.nodes,
      use.nodes == 1 ? "" : "s",
      cluster.nccl.channels_source.empty() ? "channels as its search should find them"
                                           : "channels by " + cluster.nccl.channels_source,
      c.collective, c.nvls, c.p2p, c.per_peer, connects_at_use(settings) ? "" : "; everything connects at once");
}

Estimate memory_on(Side side, const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use);

// Communicators of two ranks each, instead of the group's own.
Estimate pairs_memory(Side side, const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use) {
  const CommunicatorUse near{.ranks = 2, .local = 2, .nodes = 1, .local_peers = 1};
  const CommunicatorUse far{.ranks = 2, .local = 1, .nodes = 2, .remote_peers = 1, .senders = 1};
  Estimate sum = times(memory_on(side, cluster, settings, near), use.local_peers) +
                 times(memory_on(side, cluster, settings, far), use.remote_peers);
  // Where several go to one peer, each has structures of its own and its part of the messages.
  CommunicatorUse only_structures = use.local_peers > 0 ? near : far;
  only_structures.local_peers = only_structures.remote_peers = only_structures.senders = 0;
  sum = sum + times(memory_on(side, cluster, settings, only_structures),
                    std::max(0, use.pairs - use.local_peers - use.remote_peers));
  sum.source = fmt::format("{} communicators of two ranks; {}", use.pairs,
                           source_of(cluster, settings, use.local_peers > 0 ? near : far));
  return sum;
}

// A cluster's file does not say by whose NIC ranks sent, nor how much they reduced.
bool measured_as(const NcclProfile::Communicator& measured, CommunicatorUse use) {
  use.senders = measured.use.senders;
  use.reduces_little = measured.use.reduces_little;
  return measured.use == use;
}

Estimate memory_on(Side side, const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use) {
  if (side == Side::Device && are_defaults(settings))
    for (const NcclProfile::Communicator& measured : cluster.nccl.communicators)
      if (measured_as(measured, use)) return measured.memory;
  if (use.pairs > 0) {
    Estimate sum = pairs_memory(side, cluster, settings, use);
    if (!use.reduces && !use.shards) return sum;
    CommunicatorUse own = use;
    own.pairs = own.local_peers = own.remote_peers = own.senders = 0;
    sum = memory_on(side, cluster, settings, own) + sum;
    return sum;
  }
  return {total(side, cluster, settings, use, Bound::Central), total(side, cluster, settings, use, Bound::Low),
          total(side, cluster, settings, use, Bound::High), source_of(cluster, settings, use)};
}

}  // namespace

CommunicatorParts communicator_parts(const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use,
                                     const NcclChannels& channels, const Connected& connected) {
  return parts_on(Side::Device, cluster, settings, use, channels, connected);
}

Estimate communicator_memory(const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use) {
  return memory_on(Side::Device, cluster, settings, use);
}

Estimate communicator_host_memory(const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use) {
  return memory_on(Side::Host, cluster, settings, use);
}

Estimate nccl_kernel_memory(const Cluster& cluster) {
  if (cluster.nccl.kernels) return *cluster.nccl.kernels;
  // Sizes of libnccl 2.28.9's device code by architecture, CUDA 13; how much of it a driver loads is not known.
  const std::int32_t capability = cluster.device.compute_capability;
  const Bytes code = capability >= 120 ? 114_MiB : capability >= 100 ? 129_MiB : capability >= 90 ? 101_MiB : 48_MiB;
  return {code / 2, code / 5, code, "size of the kernels in libnccl 2.28.9 for this architecture (upper end)"};
}

}  // namespace tidemark::topology
