#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/base/units.hpp"
#include "topology/namespace.hpp"
#include "topology/nccl_settings.hpp"

// How NCCL's kernels move data: what each of its protocols takes besides what links do, how it cuts a collective into
// chunks, and how many channels it gives a message. Constants are those of the library (2.28.9) or were measured of its
// kernels with nccl-tests; nccl_tuning.cpp says which.

namespace tidemark::topology {

/// LL sends flags with every 4 bytes, LL128 with every 120, Simple after every chunk: from short and slow to long and
/// fast.
enum class Protocol : std::uint8_t { Ll, Ll128, Simple };
inline constexpr std::size_t protocols = 3;

/// What runs a step.
enum class StepLink : std::uint8_t { NvLink, Pcie, Network };
enum class StepOf : std::uint8_t { Ring, Tree };

/// By how much \p time is longer than \p than; zero where it is not.
[[nodiscard]] constexpr Duration excess(Duration time, Duration than) { return time > than ? time - than : Duration{}; }

/// Of a step by that protocol: what its software takes besides the wire. Of Ring and Simple over NVLink the node says
/// it.
[[nodiscard]] Duration step_software(StepOf algorithm, StepLink link, Protocol protocol, Duration ring_simple_nvlink);
/// What a collective takes once with that protocol where `simple` is what it takes with Simple.
[[nodiscard]] Duration base_latency(StepOf algorithm, Protocol protocol, Duration simple);

/// One way to run a ring or a tree: latency, and the payload at the rate of the slowest link or of the channels.
struct ProtocolTime {
  Protocol protocol = Protocol::Simple;
  Duration latency = {};
  std::int64_t wire = 1000;  ///< per mille of what links take for the payload
  Bandwidth limit = {};      ///< of the payload by all channels; 0: links are slower
  bool sags = false;         ///< NCCL's correction for trees of middling size
  bool operator==(const ProtocolTime&) const = default;
};

/// An all-reduce in the switch: each channel moves a chunk for every member at a time, in stages that overlap.
struct NvlsTime {
  std::int32_t compute_capability = 90;
  std::int32_t members = 8;  ///< on a node
  std::int32_t channels = 16;
  std::int32_t hops = 0;  ///< of the tree between nodes, up and down
  std::int32_t nodes = 1;
  Bytes largest_chunk{128 << 10};
  Duration start = {};            ///< once, and the hops
  Duration estimated_start = {};  ///< the same as NCCL reckons
  Bandwidth estimated_rate = {};  ///< of the payload, as NCCL reckons; 0: as links have it
  bool operator==(const NvlsTime&) const = default;
};

/// How NCCL stripes messages of one communicator over channels.
struct MessageChannels {
  std::int32_t ranks = 2;
  std::int32_t all = 32, per_peer = 32;
  bool several_nodes = false;
  Bytes chunk{512 << 10};
  Bandwidth channel;  ///< what one of them moves

  /// Of one message (enqueue.cc, addP2pToPlan).
  [[nodiscard]] std::int32_t of(Bytes message) const;
  /// The time that channels take at least for a message that has so many of them.
  [[nodiscard]] Duration busy(Bytes message) const;
  bool operator==(const MessageChannels&) const = default;
};

/// Of a communicator of so many ranks, `channels` as NCCL opens them.
[[nodiscard]] MessageChannels message_channels(const NcclChannels& channels, std::int32_t ranks, bool several_nodes,
                                               bool by_nvlink, std::int32_t compute_capability,
                                               std::optional<std::int32_t> per_net_peer = {});

/// Messages from each member to every other one, all at once.
struct DirectTime {
  MessageChannels channels;
  Duration latency;
  bool operator==(const DirectTime&) const = default;
};

/// What is not a link's time: fixed, or by size.
using NcclTime = std::variant<Duration, std::vector<ProtocolTime>, NvlsTime, DirectTime>;

/// Which protocol NCCL takes for such a payload, whose slowest link takes `wire`.
[[nodiscard]] const ProtocolTime& chosen(const std::vector<ProtocolTime>& ways, Bytes size, Duration wire);
/// From the call to the end, with links to itself.
[[nodiscard]] Duration took(const ProtocolTime& way, Bytes size, Duration wire);

/// Of a chunk and of all, `wire` by size.
struct NvlsChunks {
  Bytes chunk;  ///< of one channel for one member
  Bytes loop;   ///< of all of both
};
[[nodiscard]] NvlsChunks nvls_chunks(const NvlsTime& way, Bytes size);
/// `wire_of_loop`: what links take for one loop, or for all where that is less.
[[nodiscard]] Duration took(const NvlsTime& way, Bytes size, Duration wire_of_loop);
[[nodiscard]] Duration estimated(const NvlsTime& way, Bytes size, Duration wire);

/// What an all-to-all takes besides its links: `largest` is the largest message, `most` what a member sends in all.
[[nodiscard]] Duration besides_links(const DirectTime& way, Bytes largest, Bytes most, Duration wire);
/// The same of one message.
[[nodiscard]] Duration message_besides_links(const MessageChannels& channels, Bytes message, Duration wire);

// ---- constants that plans are made of

/// What a channel moves at most, of messages; taken for steps of rings and trees too where variables leave few of them.
[[nodiscard]] Bandwidth channel_rate(std::int32_t compute_capability);
/// What a channel of NVLS moves at most of a collective's bytes, with all members.
[[nodiscard]] Bandwidth nvls_rate(std::int32_t compute_capability);
/// Per cent of a member's link that the switch's operations reach.
[[nodiscard]] std::int64_t nvls_percent(std::int32_t compute_capability);
/// The same as NCCL reckons.
[[nodiscard]] std::int64_t estimated_nvls_percent(std::int32_t compute_capability);
/// Of a payload that goes by LL in rings, whatever the links.
[[nodiscard]] Bandwidth ll_limit(std::int32_t compute_capability, std::int32_t nodes);
/// Of one channel.
[[nodiscard]] Bandwidth ring_ll128_limit(std::int32_t compute_capability, std::int32_t nodes);
[[nodiscard]] Bandwidth tree_ll128_limit(std::int32_t compute_capability, std::int32_t nodes);
[[nodiscard]] Bandwidth tree_limit(std::int32_t compute_capability, std::int32_t nodes);
[[nodiscard]] Bandwidth nvls_tree_limit(std::int32_t compute_capability, std::int32_t nodes);

}  // namespace tidemark::topology
