#include "topology/deep_ep_memory.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "sim/base/ensure.hpp"
#include "sim/base/units.hpp"

namespace tidemark::topology {

using namespace literals;

namespace {

// DeepEP 1.2.1 deep_ep/buffer.py get_dispatch_config and get_combine_config: tokens that a channel takes at once, by
// NVLink and over the network. Sizes of messages leave the buffer's size as it is.
struct Chunks {
  std::int32_t ranks;
  std::int64_t nvlink, network;
};
constexpr std::array<Chunks, 10> all_chunks{{{2, 256, 128},
                                             {4, 256, 128},
                                             {8, 256, 128},
                                             {16, 288, 128},
                                             {24, 288, 128},
                                             {32, 288, 128},
                                             {64, 288, 128},
                                             {128, 560, 128},
                                             {144, 720, 128},
                                             {160, 720, 128}}};
// csrc/config.hpp Config: what is received at once over the network is rounded up to whole messages. Those of
// dispatching, and of combining, by group.
constexpr std::array<std::pair<std::int64_t, std::int64_t>, 10> network_messages{
    {{6, 6}, {6, 6}, {6, 6}, {20, 12}, {32, 8}, {32, 8}, {28, 20}, {32, 12}, {12, 8}, {12, 8}}};

constexpr std::int64_t peers = 8;  // csrc/kernels/configs.cuh NUM_MAX_NVL_PEERS
// What a token brings besides its hidden state, at most: its source, expert numbers, weights and scales (config.hpp).
constexpr std::int64_t source = 8, choices = 128 * 8, weights = 128 * 4, scales = 128 * 4;

Bytes whole(Bytes size, Bytes unit) { return Bytes{(size.count() + unit.count() - 1) / unit.count() * unit.count()}; }

}  // namespace

std::span<const std::int32_t> deep_ep_groups() {
  static constexpr auto groups = [] {
    std::array<std::int32_t, all_chunks.size()> ranks{};
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = all_chunks[i].ranks;
    return ranks;
  }();
  return groups;
}

// Megatron-LM core/transformer/moe/fused_a2a.py get_buffer, by Config's get_nvl_buffer_size_hint and
// get_rdma_buffer_size_hint; csrc/deep_ep.cpp Buffer::Buffer and Buffer::sync.
Estimate deep_ep_memory(const DeepEpUse& use) {
  const auto at =
      static_cast<std::size_t>(std::ranges::find(all_chunks, use.ranks, &Chunks::ranks) - all_chunks.begin());
  ensure(at < all_chunks.size(), "DeepEP has a configuration for the group");
  const Chunks& chunks = all_chunks[at];
  const std::int64_t nodes = std::max<std::int64_t>(use.ranks / peers, 1),
                     local = std::min<std::int64_t>(use.ranks, peers), channels = use.processors / 2;
  const std::int64_t slots = channels * local * chunks.nvlink;
  const Bytes buffer = whole(
      Bytes{channels * local * (2 * nodes + 3) * 4 + slots * (use.hidden_bytes + source + choices + weights + scales)},
      128_B);
  // Signals of the barrier, and lists of peers' buffers and signals, come behind it; the workspace is one for itself.
  const Bytes of_node = whole(buffer + Bytes{peers * (4 + 8 + 8)}, 2_MiB) + 32_MiB;
  if (use.ranks <= peers)
    return {of_node, of_node, of_node,
            fmt::format("DeepEP 1.2.1: a buffer of {:.1f} MiB for NVLink, and its workspace",
                        static_cast<double>(buffer.count()) / 0x1p20)};
  const auto [dispatched, combined] = network_messages[at];
  const auto received = [&](std::int64_t message) { return (chunks.network + message - 1) / message * message; };
  const std::int64_t each = std::max(received(dispatched), received(combined)), rows = channels * nodes * each;
  const Bytes network = whole(Bytes{channels * nodes * (peers * 2 + 2) * 2 * 4 +
                                    2 * rows * (use.hidden_bytes + source + choices + weights + scales + 16)},
                              128_B);
  // NVSHMEM's heap grows by NVSHMEM_CUMEM_GRANULARITY, which buffer.py sets to 512 MiB; what NVSHMEM keeps in it for
  // itself may need another piece.
  const Bytes heap = whole(network, 512_MiB);
  return {
      of_node + heap, of_node + network, of_node + heap + 512_MiB,
      fmt::format("DeepEP 1.2.1: a buffer of {:.1f} MiB for NVLink, one of {:.1f} MiB in NVSHMEM's heap, which grows "
                  "by 512 MiB, and its workspace (what NVSHMEM takes besides is unverified)",
                  static_cast<double>(buffer.count()) / 0x1p20, static_cast<double>(network.count()) / 0x1p20)};
}

}  // namespace tidemark::topology
