#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.hpp"

namespace tidemark::sim {

/// Ranks that can change places: an orbit is where one rank can be moved to without changing programs, prices, groups,
/// peers, or what is put on links. A group meets either one rank of an orbit, or all of it.
struct Symmetry {
  std::vector<Rank> ranks;                  ///< the lowest of each orbit, in order
  std::vector<std::int32_t> sizes;          ///< by orbit
  std::vector<std::int32_t> orbit_of_rank;  ///< by rank, index into `ranks`
  std::vector<bool> spanned;                ///< by CommSlot: its groups hold whole orbits

  [[nodiscard]] std::int32_t orbit(Rank rank) const { return orbit_of_rank[rank.index()]; }
};

/// Nobody can change places.
[[nodiscard]] inline Symmetry no_symmetry(std::int32_t world_size, std::size_t slots) {
  Symmetry none{{}, std::vector<std::int32_t>(static_cast<std::size_t>(world_size), 1), {}, std::vector<bool>(slots)};
  for (std::int32_t r = 0; r < world_size; ++r) {
    none.ranks.push_back({r});
    none.orbit_of_rank.push_back(r);
  }
  return none;
}

}  // namespace tidemark::sim
