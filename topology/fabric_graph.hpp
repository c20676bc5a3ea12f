#pragma once

#include <cstdint>
#include <span>

#include "topology/fabric.hpp"

// The fabric as a plain graph, for questions that have no answer in its regular layout, and to check the ones that do.

namespace tidemark::topology {

/// The most that `from` can send to `to` at once, by max-flow; a device sends and receives, it does not forward.
[[nodiscard]] Bandwidth max_flow(const Fabric& fabric, std::span<const std::int32_t> from,
                                 std::span<const std::int32_t> to);

/// What the lower half of the devices can send to the upper half at once; 0 with one device.
[[nodiscard]] Bandwidth bisection_bandwidth(const Fabric& fabric);

/// The equal-cost paths of the fewest links from a device to another one, by breadth-first search: what `route` says,
/// found without knowing how the fabric is laid out. Where a link is on several paths, its share has their number.
[[nodiscard]] Route searched_route(const Fabric& fabric, std::int32_t from, std::int32_t to);

}  // namespace tidemark::topology
