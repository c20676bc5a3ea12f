#include "topology/nccl_channels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>

namespace tidemark::topology {
namespace {

// Everything in GB/s, as NCCL counts it: graph/topo.h and graph/search.cc of 2.28.9.
constexpr std::array intra_80{40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0};
constexpr std::array inter_80{48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0,
                              7.0,  6.0,  5.0,  4.0,  3.0,  2.4,  1.2,  0.24, 0.12};
constexpr std::array intra_90{60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0};
constexpr std::array inter_90{48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5,
                              15.0, 12.0, 6.0,  3.0,  2.4,  1.2,  0.24, 0.12};
constexpr std::array intra_100{90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0};
constexpr std::array inter_100{96.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0,
                               17.5, 15.0, 12.0, 6.0,  3.0,  2.4,  1.2,  0.24, 0.12};

std::span<const double> speeds(std::int32_t compute_capability, bool several_nodes) {
  if (compute_capability >= 100) return several_nodes ? std::span<const double>(inter_100) : intra_100;
  if (compute_capability >= 90) return several_nodes ? std::span<const double>(inter_90) : intra_90;
  return several_nodes ? std::span<const double>(inter_80) : intra_80;
}

double in_gb(Bandwidth bandwidth) { return static_cast<double>(bandwidth.count()) / 1e9; }

// One NVLink: what it moves in one direction, and what NCCL reckons with.
struct LinkFigures {
  double physical = 25.0;
  double counted = 20.0;
};
LinkFigures nvlink(std::int32_t compute_capability) {
  if (compute_capability >= 100) return {50.0, 40.1};
  if (compute_capability >= 90) return {25.0, 20.6};
  if (compute_capability == 86) return {14.0625, 12.0};
  return {25.0, 20.0};
}

std::int32_t links(const Cluster& cluster) {
  return std::max(1, static_cast<std::int32_t>(std::lround(in_gb(cluster.node.bandwidth) /
                                                           nvlink(cluster.device.compute_capability).physical)));
}

// A PCIe slot: 12 for every 16 lanes of generation 3 (15.75 GB/s), and twice that for each one after it.
double pcie(const Host& host) {
  double counted = 12.0;
  for (double physical = 31.0; physical <= in_gb(host.bandwidth) && counted < 96; physical *= 2) counted *= 2;
  return counted;
}

std::int32_t largest_count(const NcclSettings& settings) { return settings.release >= 225 ? 64 : 32; }

// Rings of one speed: as many as links hold.
struct Rings {
  std::int32_t count = 1;
  double speed = 0;
};

// The speed at which `most` rings at most move the most bytes, of what a device's links hold. The search keeps the
// first in a tie, and tries no speed below half of one that it has a solution for.
Rings search(std::span<const double> tried, double fastest, double links, std::int32_t most) {
  Rings best;
  for (const double speed : tried) {
    if (speed > fastest && speed != tried.back()) continue;
    const auto count = std::clamp(static_cast<std::int32_t>(links / speed), 1, most);
    if (best.speed > 0 && speed / best.speed <= 0.49) break;
    if (count * speed > best.count * best.speed) best = {count, speed};
  }
  return best;
}

Rings rings_of_one_node(const Cluster& cluster, const CommunicatorUse& use) {
  const std::int32_t capability = cluster.device.compute_capability;
  const double host = pcie(cluster.host);
  const double total = joined_by_nvlink(cluster.node, use) ? links(cluster) * nvlink(capability).counted : host;
  const std::int32_t most = joined_by_nvlink(cluster.node, use) ? 32 : 1;  // a node's bridge is one path
  return search(speeds(capability, false), total, total, most);
}

// Rings enter and leave nodes by NICs, each device by its nearest one.
Rings rings_of_several_nodes(const Cluster& cluster, const CommunicatorUse& use) {
  const Node& node = cluster.node;
  const std::int32_t capability = cluster.device.compute_capability;
  const double nic = std::min(in_gb(node.nic_bandwidth), pcie(cluster.host));
  const std::int32_t nics = std::max(1, std::min(use.local, use.local * node.nics / std::max(1, node.devices)));
  const double inside = use.local == 1                ? nic
                        : joined_by_nvlink(node, use) ? links(cluster) * nvlink(capability).counted
                                                      : pcie(cluster.host);
  return search(speeds(capability, true), nic, inside, nics);
}

// ncclTopoDupChannels, then ncclTopoPostset.
std::int32_t channels_of(Rings rings, std::int32_t capability, bool several_nodes) {
  if (rings.speed >= 25.0 && !(capability > 80 && rings.speed < 50.0 && rings.count > 4)) {
    rings.count *= 2;
    rings.speed /= 2;
  }
  std::int32_t channels = 2 * rings.count;
  if (capability >= 90 && several_nodes && rings.speed > 45.0 && channels < 16) channels *= 2;
  return channels;
}

std::int32_t nvls_channels(std::int32_t capability, const NcclSettings& settings, bool several_nodes) {
  std::int32_t channels = 16;
  if (settings.release >= 225 && capability >= 100) channels = settings.release >= 227 && !several_nodes ? 24 : 32;
  channels = settings.channels.nvls_channels.value_or(channels);
  return std::max(settings.channels.min_ctas.value_or(1),
                  std::min(settings.channels.max_ctas.value_or(channels), channels));
}

std::int32_t power_of_two(std::int32_t at_least) {
  return static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(std::max(1, at_least))));
}

std::int32_t within(std::int32_t channels, std::optional<std::int32_t> least, std::optional<std::int32_t> most,
                    std::int32_t limit) {
  channels = std::min({channels, most.value_or(channels), limit});
  return std::min(std::max(channels, least.value_or(1)), limit);
}

// The fewest channels that any two ranks of the communicator would use between them.
std::int32_t channels_per_peer(const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use,
                               std::int32_t p2p) {
  std::int32_t fewest = p2p;
  if (use.local > 1) fewest = std::min(fewest, joined_by_nvlink(cluster.node, use) ? 2 * links(cluster) : 2);
  if (use.nodes == 1) return fewest;
  if (settings.channels.channels_per_net_peer) return std::min(fewest, *settings.channels.channels_per_net_peer);
  // Two, one where there are very many peers (ncclTopoGetNchannels).
  const bool many = std::int64_t{2} * use.ranks > std::int64_t{4} * p2p;
  return std::min(fewest, many ? 1 : 2);
}

std::optional<NcclChannels> measured(const NcclProfile& profile, const CommunicatorUse& use) {
  if (use.nodes == 1) return profile.one_node;
  return use.local == 1 ? profile.one_rank_a_node : profile.several_nodes;
}

std::int32_t found(const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use, Bound bound) {
  // A lone rank's rings cost no link anything: the search stops at half the limit.
  if (use.ranks == 1) return bound == Bound::Low ? largest_count(settings) / 2 : largest_count(settings);
  const bool several_nodes = use.nodes > 1;
  const std::int32_t capability = cluster.device.compute_capability;
  const Rings rings = several_nodes ? rings_of_several_nodes(cluster, use) : rings_of_one_node(cluster, use);
  const std::int32_t channels = channels_of(rings, capability, several_nodes);
  const bool switched = !several_nodes && cluster.node.link == NodeLink::NvSwitch;
  // "24 coll channels" of eight H100 and A100; "16 coll channels, 16 collnet channels, 16 nvls channels, 16 p2p
  // channels, 2 p2p channels per peer" of two nodes of eight H100, by EFA (p5.48xlarge) and by InfiniBand with a NIC
  // for each.
  const Node& node = cluster.node;
  const bool whole_nodes = several_nodes && node.link == NodeLink::NvSwitch && capability == 90 && node.devices == 8 &&
                           use.local == 8 && channels == 16;
  const bool seen_in_logs = (switched && (capability == 80 || capability == 90)) || whole_nodes;
  if (seen_in_logs || bound == Bound::Central) return channels;
  if (bound == Bound::Low) return std::max(2, channels / 2);
  return switched ? channels : 2 * channels;  // a switch's links are full
}

}  // namespace

bool joined_by_nvlink(const Node& node, const CommunicatorUse& use) {
  switch (node.link) {
    case NodeLink::NvSwitch:
      return true;
    case NodeLink::NvLink:
      return use.local <= node.nvlink_group;
    case NodeLink::Pcie:
      return false;
  }
  return false;
}

bool has_nvls(const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use) {
  return settings.nvls && settings.release >= 217 && cluster.node.link == NodeLink::NvSwitch &&
         cluster.device.compute_capability >= 90 && use.local >= 2;
}

NcclChannels nccl_channels(const Cluster& cluster, const NcclSettings& settings, const CommunicatorUse& use,
                           Bound bound) {
  const std::int32_t limit = largest_count(settings);
  NcclChannels channels;
  const std::optional<NcclChannels> given = measured(cluster.nccl, use);
  std::int32_t collective = given ? given->collective : found(cluster, settings, use, bound);
  collective = within(collective, settings.channels.min_channels, settings.channels.max_channels, limit);
  channels.collective = within(collective, settings.channels.min_ctas, settings.channels.max_ctas, limit);

  const std::int32_t p2p = given ? given->p2p
                                 : within(channels.collective, settings.channels.min_p2p_channels,
                                          settings.channels.max_p2p_channels, limit);
  channels.p2p = std::min(power_of_two(p2p), limit);
  const std::int32_t per_peer = given ? given->per_peer : channels_per_peer(cluster, settings, use, p2p);
  channels.per_peer = std::min(power_of_two(per_peer), channels.p2p);
  if (has_nvls(cluster, settings, use))
    channels.nvls = given && given->nvls > 0 && !settings.channels.nvls_channels
                        ? given->nvls
                        : nvls_channels(cluster.device.compute_capability, settings, use.nodes > 1);
  return channels;
}

}  // namespace tidemark::topology
