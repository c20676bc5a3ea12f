#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/namespace.hpp"

namespace tidemark::parallel::compile {

/// An edge that cannot be cut.
inline constexpr std::int64_t uncuttable = std::int64_t{1} << 60;

struct CapacityEdge {
  std::size_t from = 0, to = 0;
  std::int64_t capacity = uncuttable;
};

/// Of vertices 0 … vertices - 1, those on the sink's side of the cheapest cut; of several such cuts, the one nearest to
/// the sink.
[[nodiscard]] std::vector<bool> sink_side(std::size_t vertices, const std::vector<CapacityEdge>& edges,
                                          std::size_t source, std::size_t sink);

}  // namespace tidemark::parallel::compile
