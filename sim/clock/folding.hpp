#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/clock/symmetry.hpp"
#include "sim/clock/transfer.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::sim {

/// Ranks that cannot be told apart: the same program at the same prices, and groups, peers and links that are alike,
/// however far one looks. One of them stands for all.
struct RankClass {
  Rank first;                        ///< the lowest
  std::int32_t size = 0;             ///< how many ranks it stands for
  std::int32_t program = 0;          ///< index into Workload::programs
  std::int32_t costs = 0;            ///< index into the price list
  std::vector<std::int32_t> groups;  ///< by CommSlot, index into Folding::groups; -1 where the program does not use it
};

/// The classes of ranks that meet in one communicator; groups of equal make-up are one.
struct GroupClass {
  CommSlot slot;
  std::vector<std::int32_t> classes;  ///< members, each class once
  bool operator==(const GroupClass&) const = default;
};

/// A workload seen through classes of ranks.
struct Folding {
  std::vector<RankClass> classes;
  std::vector<std::int32_t> class_of_rank;
  std::vector<GroupClass> groups;

  [[nodiscard]] const RankClass& of(Rank rank) const {
    return classes[static_cast<std::size_t>(class_of_rank[rank.index()])];
  }
};

/// Who loads which links: a collective of one group, a message or a copy of one rank, whatever its sizes. With a
/// symmetry, one flow and one link of each orbit, as `orbit` says how many there are.
struct Traffic {
  struct Link {
    Bandwidth capacity;
    std::int32_t orbit = 1;
  };
  struct Load {
    LinkId link;
    std::int64_t weight = 1;  ///< bytes are in proportion to it
  };
  struct Flow {
    CommSlot comm;           ///< none: a copy between the rank's device and its host
    std::int32_t step = 0;   ///< of a message; of a copy, 0 from the device and 1 to it
    Rank rank;               ///< the sender, or the lowest of the group
    std::int32_t way = 0;    ///< 0: a message; else of a collective, which takes other links in another way
    std::uint64_t cost = 0;  ///< equal where latencies are, and what weights are relative to
    std::size_t first = 0;   ///< its run of `loads`
    std::size_t count = 0;
    std::int32_t orbit = 1;
  };
  std::vector<Flow> flows;  ///< by communicator, step, rank, way
  std::vector<Load> loads;
  std::vector<Link> links;           ///< by LinkId; of the fabric, where there is no symmetry
  std::optional<Symmetry> symmetry;  ///< of the ranks

  [[nodiscard]] std::span<const Load> operator[](const Flow& flow) const {
    return std::span(loads).subspan(flow.first, flow.count);
  }
};

/// What cannot be told apart, by class in order of the lowest member.
struct Likeness {
  std::vector<std::int32_t> ranks, flows, links;
};

/// The coarsest partition, finer than `ranks`, which may not tell apart what the traffic's symmetry exchanges, in which
/// what is alike meets alike: ranks their groups, peers and flows, flows their members and links, links their
/// capacities and flows. Everything in one class then happens at one time, and each of its links carries equally many
/// flows of every class: its first member tells all. (An equitable partition, found by colour refinement; colours are
/// 64-bit hashes.)
[[nodiscard]] Likeness likeness(const Workload& workload, const Traffic& traffic,
                                const std::vector<std::int32_t>& ranks);

/// The coarsest partition of ranks that programs, prices (`cost_of_rank`), groups, peers and the links they share
/// respect. Without `traffic` it does not look at links, and what they cost may differ within a class: coarser, and
/// exact only where all ranks of a class share links alike.
[[nodiscard]] Folding fold(const Workload& workload, const std::vector<std::int32_t>& cost_of_rank,
                           const Traffic& traffic = {});

/// Every rank a class of its own.
[[nodiscard]] Folding unfolded(const Workload& workload, const std::vector<std::int32_t>& cost_of_rank);

}  // namespace tidemark::sim
