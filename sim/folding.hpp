#pragma once

#include <cstdint>
#include <vector>

#include "sim/workload.hpp"

namespace tidemark {

/// Ranks that cannot be told apart: the same program at the same prices, and groups and peers that are alike, however
/// far one looks. One of them stands for all.
struct RankClass {
  Rank first;                        ///< the lowest
  std::int32_t size = 0;             ///< how many ranks it stands for
  std::int32_t program = 0;          ///< index into Workload::programs
  std::int32_t prices = 0;           ///< index into the price list
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

/// The coarsest partition of ranks that programs, prices (`price_of_rank`), groups and peers respect, refined until it
/// is stable.
[[nodiscard]] Folding fold(const Workload& workload, const std::vector<std::int32_t>& price_of_rank);

/// Every rank a class of its own.
[[nodiscard]] Folding unfolded(const Workload& workload, const std::vector<std::int32_t>& price_of_rank);

}  // namespace tidemark
