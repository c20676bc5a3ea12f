#include "topology/nccl_tuning.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "sim/base/ensure.hpp"

namespace tidemark::topology {
namespace {

using namespace literals;
__extension__ using Wide = __int128;

constexpr Bandwidth GBps(double rate) { return Bandwidth{static_cast<std::int64_t>(rate * 1e9)}; }

// ---- src/graph/tuning.cc of 2.28.9

enum class Generation : std::uint8_t { Volta, Ampere, Hopper, Blackwell };

constexpr Generation generation(std::int32_t compute_capability) {
  if (compute_capability >= 100) return Generation::Blackwell;
  if (compute_capability >= 90) return Generation::Hopper;
  return compute_capability >= 80 ? Generation::Ampere : Generation::Volta;
}

// By generation, for one node, two and more.
using Limits = std::array<std::array<double, 3>, 4>;
constexpr Limits ring_ll128{{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}}};
constexpr Limits tree_ll128{{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr Limits tree_simple{{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr Limits nvls_tree{{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {57.7, 57.7, 45.5}, {96, 96, 43.8}}};

Bandwidth of(const Limits& limits, std::int32_t compute_capability, std::int32_t nodes) {
  return GBps(limits[static_cast<std::size_t>(generation(compute_capability))]
                    [static_cast<std::size_t>(std::min(nodes, 3) - 1)]);
}

// hwLatencies, by link, algorithm and protocol. Those of LL in rings are little more than the wire, which the cluster's
// file has; the others are told by what they take besides that.
constexpr std::array<std::array<std::array<Duration, protocols>, 2>, 3> hardware{{
    {{{600_ns, 1'900_ns, 3'400_ns}, {600_ns, 1'250_ns, 4'000_ns}}},      // NVLink: ring, tree
    {{{1'000_ns, 2'500_ns, 5'700_ns}, {1'000_ns, 1'900_ns, 4'000_ns}}},  // PCIe
    {{{2'700_ns, 4'000_ns, 14'000_ns}, {5'000_ns, 8'500_ns, 14'000_ns}}},
}};
// baseLatencies: ring, tree.
constexpr std::array<std::array<Duration, protocols>, 2> base{
    {{6'600_ns, 14'000_ns, 8'400_ns}, {6'800_ns, 14'000_ns, 8'400_ns}}};

constexpr std::size_t index(auto name) { return static_cast<std::size_t>(name); }

// treeCorrectionFactor, in tenths, by powers of two from 64 B on.
constexpr std::array<std::array<std::int64_t, 24>, protocols> tree_tenths{{
    {10, 10, 10, 10, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10},
    {10, 10, 10, 10, 10, 9, 8, 8, 8, 7, 6, 6, 6, 6, 6, 6, 8, 9, 9, 9, 9, 10, 10, 10},
    {9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 6, 5, 5, 5, 5, 6, 7, 8, 7, 7, 8, 9, 9, 9},
}};

std::int64_t tenths(Protocol protocol, Bytes size) {
  const auto quanta = static_cast<std::uint64_t>(size.count() / 64);
  if (quanta == 0) return 10;
  const auto power = static_cast<std::size_t>(std::bit_width(quanta)) - 1;
  return power < 23 ? tree_tenths[index(protocol)][power] : 10;
}

// ---- measured with nccl-tests (scripts/fit_collectives): tests/golden/kernels/ has the rows, those that were fitted
// on too

// What a channel of NVLS takes to hand a chunk of each member over, and how fast it moves them.
struct NvlsChannel {
  Duration overhead;
  Bandwidth rate;
};
constexpr NvlsChannel nvls_channel(std::int32_t compute_capability) {
  return compute_capability >= 100 ? NvlsChannel{10'500_ns, GBps(26.5)} : NvlsChannel{7'100_ns, GBps(21.1)};
}
// Scatter, reduce and broadcast, gather: the first loop ends two later than it begins.
constexpr std::int32_t nvls_stages = 3;

// Of a lone message, so much goes before the receiver begins.
constexpr Bytes message_slice = 128_KiB;

Duration share(Duration time, std::int64_t parts, std::int64_t of) {
  return Duration{static_cast<std::int64_t>((Wide{time.count()} * parts + of - 1) / of)};
}

}  // namespace

Duration step_software(StepOf algorithm, StepLink link, Protocol protocol, Duration ring_simple_nvlink) {
  if (algorithm == StepOf::Ring && link == StepLink::NvLink && protocol == Protocol::Simple) return ring_simple_nvlink;
  const auto& of_link = hardware[index(link)];
  return of_link[index(algorithm)][index(protocol)] - of_link[index(StepOf::Ring)][index(Protocol::Ll)];
}

Duration base_latency(StepOf algorithm, Protocol protocol, Duration simple) {
  const auto& its = base[index(algorithm)];
  return std::max(simple + its[index(protocol)] - its[index(Protocol::Simple)], Duration{});
}

Bandwidth nvls_rate(std::int32_t compute_capability) { return nvls_channel(compute_capability).rate; }

std::int64_t nvls_percent(std::int32_t compute_capability) { return compute_capability >= 100 ? 83 : 89; }
std::int64_t estimated_nvls_percent(std::int32_t compute_capability) { return compute_capability >= 100 ? 74 : 85; }

// llMaxBws; of several nodes those with Intel's processors.
Bandwidth ll_limit(std::int32_t compute_capability, std::int32_t nodes) {
  constexpr std::array one_node{39.0, 87.7, 141.0, 282.0};
  if (nodes == 1) return GBps(one_node[index(generation(compute_capability))]);
  return GBps(nodes == 2 ? 39.0 : 20.4);
}
Bandwidth ring_ll128_limit(std::int32_t compute_capability, std::int32_t nodes) {
  return of(ring_ll128, compute_capability, nodes);
}
Bandwidth tree_ll128_limit(std::int32_t compute_capability, std::int32_t nodes) {
  return of(tree_ll128, compute_capability, nodes);
}
Bandwidth tree_limit(std::int32_t compute_capability, std::int32_t nodes) {
  return of(tree_simple, compute_capability, nodes);
}
Bandwidth nvls_tree_limit(std::int32_t compute_capability, std::int32_t nodes) {
  return of(nvls_tree, compute_capability, nodes);
}

// Sends on eight A100, and on eight B200. On Hopper none was found whose links are not
// slower; Blackwell's.
Bandwidth channel_rate(std::int32_t compute_capability) { return compute_capability >= 90 ? GBps(21.3) : GBps(14.0); }

Duration took(const ProtocolTime& way, Bytes size, Duration wire) {
  Duration moving = share(wire, way.wire, 1000);
  if (way.limit > Bandwidth{}) moving = std::max(moving, size / way.limit);
  return way.latency + (way.sags ? share(moving, 10, tenths(way.protocol, size)) : moving);
}

const ProtocolTime& chosen(const std::vector<ProtocolTime>& ways, Bytes size, Duration wire) {
  ensure(!ways.empty(), "a ring or tree runs by some protocol");
  return *std::min_element(ways.begin(), ways.end(), [&](const ProtocolTime& a, const ProtocolTime& b) {
    return took(a, size, wire) < took(b, size, wire);
  });
}

// src/enqueue.cc, calcCollChunking.
NvlsChunks nvls_chunks(const NvlsTime& way, Bytes size) {
  const std::int64_t at_once = std::int64_t{way.channels} * way.members;
  Bytes chunk = way.largest_chunk;
  const auto at_most = [&](Bytes smaller, std::int64_t loops) {
    if (chunk > smaller && size < loops * at_once * chunk) chunk = smaller;
  };
  if (way.nodes == 1) {
    at_most(64_KiB, 64);
    at_most(32_KiB, 8);
    at_most(16_KiB, 2);
  } else {
    at_most(64_KiB, 4);
    at_most(32_KiB, 1);
  }
  return {chunk, at_once * chunk};
}

Duration took(const NvlsTime& way, Bytes size, Duration wire_of_loop) {
  const NvlsChunks chunks = nvls_chunks(way, size);
  const std::int64_t at_once = std::int64_t{way.channels} * way.members;
  const Bytes part = std::min(chunks.chunk, Bytes{(size.count() + at_once - 1) / at_once});
  const NvlsChannel channel = nvls_channel(way.compute_capability);
  const Duration by_channel = channel.overhead + part * way.members / channel.rate;
  const Duration loop = std::max(by_channel, wire_of_loop);
  // Between nodes each of two trees carries half of a loop over a hop.
  const Duration filling =
      (nvls_stages - 1) * (way.nodes == 1 ? loop : by_channel) + way.hops * (wire_of_loop / std::int64_t{2});
  return way.start + filling + (size <= chunks.loop ? loop : share(loop, size.count(), chunks.loop.count()));
}

Duration estimated(const NvlsTime& way, Bytes size, Duration wire) {
  Duration moving = way.estimated_rate > Bandwidth{} ? std::max(size / way.estimated_rate, wire) : wire;
  if (way.nodes > 1 && generation(way.compute_capability) == Generation::Blackwell)
    moving = share(moving, 10, tenths(Protocol::Simple, size));
  return way.estimated_start + moving;
}

MessageChannels message_channels(const NcclChannels& channels, std::int32_t ranks, bool several_nodes, bool by_nvlink,
                                 std::int32_t compute_capability, std::optional<std::int32_t> per_net_peer) {
  MessageChannels found{ranks,
                        std::max(channels.p2p, 1),
                        std::max(channels.per_peer, 1),
                        several_nodes,
                        several_nodes || !by_nvlink ? 128_KiB : 512_KiB,
                        channel_rate(compute_capability)};
  // Two, or one where there are very many peers (graph/paths.cc).
  if (several_nodes && !per_net_peer) found.per_peer = std::min(found.per_peer, 2 * ranks > 4 * found.all ? 1 : 2);
  return found;
}

std::int32_t MessageChannels::of(Bytes message) const {
  std::int32_t fewest = per_peer;
  while (fewest > 1 && std::int64_t{fewest} * ranks > all) fewest /= 2;
  const Bytes least = several_nodes ? chunk / 2 : chunk / 8;
  const Bytes most = several_nodes ? chunk : chunk * 32;
  const auto pieces = [&](std::int64_t of) { return Bytes{(message.count() + of - 1) / of}; };
  auto count = static_cast<std::int32_t>(std::clamp<std::int64_t>(pieces(least.count()).count(), 1, fewest));
  while (pieces(count) > most && count <= per_peer / 2) count *= 2;
  return count;
}

Duration MessageChannels::busy(Bytes message) const { return message / (channel * of(message)); }

Duration besides_links(const DirectTime& way, Bytes largest, Bytes most, Duration wire) {
  if (largest <= Bytes{}) return way.latency;
  const MessageChannels& channels = way.channels;
  const std::int32_t each = channels.of(largest);
  const Bytes piece{(largest.count() + each - 1) / each};
  // More messages than channels: those take turns.
  const std::int64_t turns =
      std::max<std::int64_t>((std::int64_t{each} * (channels.ranks - 1) + channels.all - 1) / channels.all, 1);
  const Duration first = turns * (std::min(piece, channels.chunk) / channels.channel);
  const Duration busy = std::max(channels.busy(largest), most / (channels.channel * channels.all));
  return way.latency + first + excess(busy, wire);
}

Duration message_besides_links(const MessageChannels& channels, Bytes message, Duration wire) {
  if (message <= Bytes{}) return {};
  const Bytes piece{(message.count() + channels.of(message) - 1) / channels.of(message)};
  return std::min(piece, message_slice) / channels.channel + excess(channels.busy(message), wire);
}

}  // namespace tidemark::topology
