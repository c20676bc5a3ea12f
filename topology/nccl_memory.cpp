#include "topology/nccl_memory.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace tidemark {
namespace {

using namespace literals;

// Every device allocation is rounded up to the 2 MiB granularity of the driver's virtual memory API.
constexpr Bytes local_send = 2_MiB;      // counters
constexpr Bytes local_receive = 10_MiB;  // 4 KiB + LL 512 KiB + LL128 4800 KiB + Simple 4 MiB
constexpr Bytes net_side = 10_MiB;       // LL128 + Simple, with GPUDirect RDMA
constexpr Bytes network_chunk = 128_KiB;
constexpr std::int64_t slots = 16;  // of a shared network pool, per channel

// Channels of a communicator: for collectives, NVLink SHARP and point-to-point.
struct Channels {
  std::int32_t collective = 0;
  std::int32_t nvls = 0;
  std::int32_t p2p = 0;
  std::int32_t per_peer = 0;  ///< of p2p, to one local peer
};

enum class Bound : std::uint8_t { Low, Central, High };

Channels channels(const Device& device, const Node& node, const CommunicatorUse& use, Bound bound) {
  const bool nvls = node.link == NodeLink::NvSwitch && device.compute_capability >= 90 && use.local >= 2 &&
                    (use.reduces || use.shards);
  const auto pick = [&](std::int32_t low, std::int32_t central, std::int32_t high) {
    return bound == Bound::Low ? low : bound == Bound::Central ? central : high;
  };
  Channels c;
  if (use.nodes == 1) {
    switch (node.link) {
      case NodeLink::NvSwitch:
        c = {24, nvls ? (device.compute_capability >= 100 ? 24 : 16) : 0, 32, 32};
        break;
      case NodeLink::NvLink:
        c = {pick(2, 4, 12), 0, pick(2, 4, 16), pick(2, 4, 16)};
        break;
      case NodeLink::Pcie:
        c = {pick(2, 2, 4), 0, pick(2, 2, 4), 2};
        break;
    }
  } else if (use.local == 1) {
    const std::int32_t found = pick(2, 4, 16);
    c = {found, 0, found, 2};
  } else {
    c = {pick(8, 16, 16), nvls ? (device.compute_capability >= 100 ? 32 : 16) : 0, pick(16, 32, 32), 2};
  }
  return c;
}

Bytes fixed_part(const Channels& c) { return 6_MiB * std::max(c.collective, c.p2p) + 2_MiB * c.nvls + 4_MiB; }

Bytes ring(const Node& node, const CommunicatorUse& use, const Channels& c) {
  const Bytes net = node.gpu_direct_rdma ? net_side : Bytes{0};  // in pinned host memory otherwise
  if (use.nodes == 1) return (local_send + local_receive) * c.collective;
  if (use.local == 1) return 2 * net * c.collective;
  // On its share of the channels a rank leaves the node (local receive, network send) or enters it (the reverse).
  const std::int64_t share = (c.collective + use.local - 1) / use.local;
  return (local_send + local_receive) * (c.collective - 2 * share) + (local_receive + net) * share +
         (net + local_send) * share;
}

Bytes tree_beyond_ring(const Node& node, const CommunicatorUse& use, const Channels& c) {
  if (use.ranks == 2) return Bytes{0};  // the ring's connections serve
  if (use.nodes > 1 && use.local == 1) return (node.gpu_direct_rdma ? 2 * net_side : Bytes{0}) * (2 * c.collective);
  return (local_send + local_receive) * c.collective;
}

Bytes pat_beyond_ring(const Node& node, const CommunicatorUse& use, const Channels& c) {
  if (use.local != 1 || !node.gpu_direct_rdma || use.ranks <= 2) return Bytes{0};
  const auto n = static_cast<std::uint32_t>(use.ranks);
  const std::int64_t levels = std::bit_width(n - 1);
  return 2 * net_side * c.collective * (2 * levels - (std::has_single_bit(n) ? 1 : 0)) - 2 * net_side * c.collective;
}

Bytes nvls(const CommunicatorUse& use, const Channels& c) {
  return c.nvls == 0 ? Bytes{0} : 2_MiB * c.nvls * use.local + 2_MiB;
}

Bytes point_to_point(const Node& node, const CommunicatorUse& use, const Channels& c) {
  Bytes sum = (local_send + local_receive) * (use.local_peers * c.per_peer);
  if (use.remote_peers > 0 && node.gpu_direct_rdma) sum += 2 * slots * c.p2p * network_chunk;
  return sum;
}

Bytes total(const Device& device, const Node& node, const CommunicatorUse& use, Bound bound) {
  const Channels c = channels(device, node, use, bound);
  Bytes sum = fixed_part(c) + point_to_point(node, use, c);
  if (!use.reduces && !use.shards) return sum;
  sum += ring(node, use, c);
  if (bound == Bound::Low) return sum;
  // Large all-gathers and reduce-scatters go through the switch where they can; small all-reduces go up a tree.
  if (use.shards || bound == Bound::High) sum += nvls(use, c);
  if (use.reduces || bound == Bound::High) sum += tree_beyond_ring(node, use, c);
  if (use.shards && bound == Bound::High) sum += pat_beyond_ring(node, use, c);
  return sum;
}

}  // namespace

Estimate communicator_memory(const Device& device, const Node& node, const CommunicatorUse& use) {
  const Channels c = channels(device, node, use, Bound::Central);
  return {total(device, node, use, Bound::Central), total(device, node, use, Bound::Low),
          total(device, node, use, Bound::High),
          fmt::format("NCCL 2.28 sources; {} ranks on {} node{}, {} channels assumed; unverified on hardware",
                      use.ranks, use.nodes, use.nodes == 1 ? "" : "s", c.collective)};
}

Estimate nccl_kernel_memory(const Device& device) {
  // Sizes of libnccl 2.28.9's device code by architecture, CUDA 13; how much of it a driver loads is not known.
  const Bytes code = device.compute_capability >= 120   ? 114_MiB
                     : device.compute_capability >= 100 ? 129_MiB
                     : device.compute_capability >= 90  ? 101_MiB
                                                        : 48_MiB;
  return {code / 2, code / 5, code, "size of the kernels in libnccl 2.28.9 for this architecture (upper end)"};
}

}  // namespace tidemark
