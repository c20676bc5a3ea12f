#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/execute/namespace.hpp"
#include "sim/base/units.hpp"

namespace tidemark::execute {

/// How much of each block a run really holds: whole units, one of `divisor`, at least one. Block logic stays in the
/// job's own bytes. A payload is made of 8-byte words.
struct PageScale {
  std::int64_t divisor = 1;
  Bytes unit = page;  ///< pages on the host; words on a device, where blocks hold what was asked for

  static constexpr Bytes page{4096};
  static constexpr Bytes word{8};
  static constexpr std::int64_t words_per_page = page / word;

  [[nodiscard]] constexpr std::int64_t units(Bytes size) const {
    const std::int64_t whole = (size.count() + unit.count() - 1) / unit.count();
    return std::max<std::int64_t>((whole + divisor - 1) / divisor, 1);
  }
  [[nodiscard]] constexpr Bytes held(Bytes size) const { return units(size) * unit; }
  [[nodiscard]] constexpr std::int64_t words(Bytes size) const { return held(size) / word; }
  /// Of one of several uneven parts of a buffer: rounded down, so that they never hold more than it does.
  [[nodiscard]] constexpr std::int64_t part_words(Bytes size) const { return size / word / divisor; }
};

/// Nothing is scaled, and a payload is exactly as large as its buffer.
inline constexpr PageScale device_scale{1, PageScale::word};

}  // namespace tidemark::execute
