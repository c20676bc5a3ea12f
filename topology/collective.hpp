#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/clock/transfer.hpp"
#include "sim/program/program.hpp"
#include "sim/program/workload.hpp"
#include "topology/fabric.hpp"
#include "topology/nccl_tuning.hpp"

// What a collective costs: an algorithm says who sends how much to whom, the fabric which links that takes. n members
// on m nodes, l on each; S is the larger side on one rank.
//
//   ring          every member hands on pieces to the next. As many rings as members of a node, each with 1/l of the
//                 data and leaving nodes at another member, so that every NIC is used, as NCCL lays them out; one ring
//                 where nodes have unequal numbers. All-reduce 2(n-1)/n S over each member's link, all-gather and
//                 reduce-scatter (n-1)/n S, broadcast S
//   tree          NCCL's double binary tree between nodes, a chain of the members inside each; on one node the double
//                 tree of its members, which NCCL does not have. All-reduce only: 2 S at the busiest member
//   hierarchical  rings inside nodes, and one between nodes for every place in a node, both busy at once: all-reduce
//                 2(l-1)/l S inside and 2(m-1)/m S/l between
//   NVLS          the NVSwitch reduces and multicasts: all-reduce (n+1)/n S on each member's link, all-gather and
//                 reduce-scatter S; between nodes a double binary tree for every place in a node (all-reduce only)
//   direct        all-to-all: every member sends S/n to every other one at once, (n-1)/n S in all, as messages go
//
// Uneven ones are made of others, as PyTorch asks NCCL for them: an all-to-all of messages, all at once; an all-gather
// of a broadcast by each member, a reduce-scatter of a reduction to each, round the ring, all of them together.
//
// What comes on top, and which protocol and algorithm run, is NCCL's: topology/nccl_tuning.hpp.

namespace tidemark::topology {

enum class Algorithm : std::uint8_t { Ring, Tree, Hierarchical, Nvls, Direct };

enum class CollectiveCostModel : std::uint8_t {
  Routed,     ///< bytes on every link, which concurrent transfers share
  AlphaBeta,  ///< one latency, and bytes over the link that takes longest with them, as if alone; shares nothing
};

struct CollectiveOptions {
  /// The default is the one that NCCL reckons to be the shortest, alone on the fabric, of those it has: ring, tree
  /// between nodes, NVLS, direct; the first in a tie. One that cannot run the collective gives way to the default.
  std::optional<Algorithm> algorithm;
  CollectiveCostModel model = CollectiveCostModel::Routed;
  /// A broadcast among the NVLinks of a node counts on those back to its root, too, where nothing goes: no slower
  /// alone, and all members stay alike, so that one stands for all (`fold`) where they also send each other messages.
  bool closes_broadcasts = false;
};

/// One way to run a collective in a group: what each byte of it puts on links. For many sizes of one collective.
struct CollectivePlan {
  struct Part {
    LinkId link;
    std::int64_t parts = 0;
    bool operator==(const Part&) const = default;
  };
  struct Slowest {
    std::int64_t parts = 0;
    Bandwidth capacity{1};
    bool operator==(const Slowest&) const = default;
  };
  Algorithm algorithm = Algorithm::Ring;
  bool of_nccl = true;           ///< NCCL picks it by itself
  NcclTime time = {};            ///< what is not the links'
  std::int64_t of = 1;           ///< a link carries parts / of x S
  std::vector<Part> links = {};  ///< by link, each once
  Slowest slowest = {};          ///< of the links
  bool operator==(const CollectivePlan&) const = default;
};

/// Every way to run the collective among `devices`, which are in group order and the first of which is a broadcast's
/// root; in the order of Algorithm. Never empty.
[[nodiscard]] std::vector<CollectivePlan> collective_plans(const Fabric& fabric, std::span<const std::int32_t> devices,
                                                           CollectiveKind kind);

/// Of those, the ones among which the options choose.
[[nodiscard]] std::vector<CollectivePlan> eligible_plans(const Fabric& fabric, std::span<const std::int32_t> devices,
                                                         CollectiveKind kind, const CollectiveOptions& options = {});

/// What one plan takes for that size besides its slowest link's time: the latency of its price.
[[nodiscard]] Duration besides_links(const CollectivePlan& plan, Bytes size);

/// Of one plan, bytes rounded up.
[[nodiscard]] TransferCost cost_of(const CollectivePlan& plan, Bytes size);

/// The place of one of `plans`, by the options' rule; their model is not looked at.
[[nodiscard]] std::size_t best_plan(std::span<const CollectivePlan> plans, Bytes size,
                                    const CollectiveOptions& options = {});
/// Of that one.
[[nodiscard]] TransferCost cost_of(std::span<const CollectivePlan> plans, Bytes size,
                                   const CollectiveOptions& options = {});

[[nodiscard]] TransferCost collective_cost(const Fabric& fabric, std::span<const std::int32_t> devices,
                                           CollectiveKind kind, Bytes size, const CollectiveOptions& options = {});

/// Of an uneven collective as a whole: `rows` by place in the group.
[[nodiscard]] TransferCost uneven_cost(const Fabric& fabric, std::span<const std::int32_t> devices, CollectiveKind kind,
                                       std::span<const MatrixRow* const> rows,
                                       CollectiveCostModel model = CollectiveCostModel::Routed);

/// One copy between a device and its host's memory.
[[nodiscard]] TransferCost copy_cost(const Fabric& fabric, std::int32_t device, MemorySpace from, MemorySpace to,
                                     Bytes bytes, CollectiveCostModel model = CollectiveCostModel::Routed);

/// How messages from a device to another one go in their communicator.
struct MessageWay {
  std::optional<MessageChannels> channels;  ///< of NCCL; none: copy engines move it
  std::int32_t exit = 0;                    ///< the device by whose NIC they leave the node (exit_of)
};
/// In a communicator of these devices.
[[nodiscard]] MessageWay message_way(const Fabric& fabric, std::span<const std::int32_t> devices, std::int32_t from,
                                     std::int32_t to);
/// Between two ranks of a group; rank r runs on device r.
[[nodiscard]] MessageWay message_way(const Fabric& fabric, const Communicator& communicator, Rank from, Rank to);

/// One message from a device to another one; by default their communicator is of them alone.
[[nodiscard]] TransferCost message_cost(const Fabric& fabric, std::int32_t from, std::int32_t to, Bytes bytes,
                                        CollectiveCostModel model = CollectiveCostModel::Routed,
                                        const std::optional<MessageWay>& way = {});

/// Of a communicator of these devices.
[[nodiscard]] MessageChannels message_channels(const Fabric& fabric, std::span<const std::int32_t> devices);

/// How long the transfer takes with the links to itself: latency, then its slowest link. `links` by LinkId.
[[nodiscard]] Duration alone(const TransferCost& cost, std::span<const Bandwidth> links);
[[nodiscard]] Duration alone(const TransferCost& cost, const Fabric& fabric);
/// The same of what a plan takes for that size.
[[nodiscard]] Duration alone(const Fabric& fabric, const CollectivePlan& plan, Bytes size);

/// What one step from a device to another one takes before any byte: the route's latency, out of the node by the NIC of
/// `exit`, and the software's.
[[nodiscard]] Duration step_latency(const Fabric& fabric, std::int32_t from, std::int32_t exit, std::int32_t to);

}  // namespace tidemark::topology
