#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/topology/test_clusters.hpp"
#include "topology/collective.hpp"

/// What tests of collectives compute by hand.
namespace tidemark::tests::collective_figures {

using namespace literals;
__extension__ using Wide = __int128;

// What NCCL takes per step, over the latency of the route (collective.cpp).
inline constexpr Duration nvlink_step = 600_ns + 2'800_ns;
inline constexpr Duration pcie_step = 1'000_ns + 4'700_ns;
inline constexpr Duration network_step = 2'700_ns + 11'300_ns;
inline constexpr Duration spine_step = network_step + 1'700_ns;
inline constexpr Duration nvls_pass = 25'000_ns;
// A channel's rate with messages, how much of a lone one goes before its receiver begins, and a chunk on one node.
inline constexpr Bandwidth channel{21'300'000'000};
inline const Duration slice = 128_KiB / channel;
inline const Duration chunk = 512_KiB / channel;

/// With the channels that NCCL opens on eight H100.
inline Cluster of_32_channels() {
  Cluster cluster = hgx();
  cluster.nccl.one_node = NcclChannels{24, 16, 32, 32};
  return cluster;
}

inline std::vector<std::int32_t> devices(std::int32_t count, std::int32_t stride = 1, std::int32_t first = 0) {
  std::vector<std::int32_t> all;
  for (std::int32_t i = 0; i < count; ++i) all.push_back(first + i * stride);
  return all;
}

/// parts / of x size / rate, bytes and time rounded up as a link's are.
inline Duration share_time(Bytes size, std::int64_t parts, std::int64_t of, Bandwidth rate) {
  return Bytes{static_cast<std::int64_t>((Wide{size.count()} * parts + of - 1) / of)} / rate;
}

inline Duration time_of(const Fabric& fabric, const std::vector<std::int32_t>& group, CollectiveKind kind, Bytes size,
                        std::optional<Algorithm> algorithm = std::nullopt) {
  return alone(collective_cost(fabric, group, kind, size, {.algorithm = algorithm}), fabric);
}

inline std::string slowest_link(const Fabric& fabric, const TransferCost& cost) {
  return link_name(fabric, link_uses(fabric, std::vector{cost}).front().link);
}

inline Bytes on(const Fabric& fabric, const TransferCost& cost, std::string_view link) {
  for (const LinkLoad& load : cost.loads)
    if (link_name(fabric, load.link) == link) return load.bytes;
  return Bytes{};
}

inline constexpr Bytes size = 1_GiB + 7_B;  // no multiple of anything

}  // namespace tidemark::tests::collective_figures
