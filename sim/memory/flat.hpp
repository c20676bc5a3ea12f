#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/program/program.hpp"

namespace tidemark::sim {

/// What a run of ops does to the number of live bytes: where it ends, and the highest point on the way, both from
/// where it began. Effects compose, so the peak of a repeated block needs no second look.
struct Effect {
  Bytes net;
  Bytes highest;  ///< >= 0
  bool operator==(const Effect&) const = default;
};
[[nodiscard]] constexpr Effect then(const Effect& first, const Effect& second) {
  return {first.net + second.net, std::max(first.highest, first.net + second.highest)};
}

/// The change of live bytes on the device at each op, requests rounded to the allocator's 512 bytes: a program without
/// its allocator. Its peak is a lower bound of what the allocator hands out, because blocks are never smaller than
/// their requests.
[[nodiscard]] std::vector<std::int64_t> flat_changes(const Program& program);

/// Net change and highest point of a run of changes.
[[nodiscard]] Effect effect_of(std::span<const std::int64_t> changes);

}  // namespace tidemark::sim
