#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/units.hpp"

namespace tidemark {

/// How much of each block a run on host memory really holds: whole pages, one of `divisor`, at least one. Block logic
/// stays in the job's own bytes. A payload is made of 8-byte words.
struct PageScale {
  std::int64_t divisor = 1;

  static constexpr Bytes page{4096};
  static constexpr std::int64_t words_per_page = 512;

  [[nodiscard]] constexpr std::int64_t pages(Bytes size) const {
    const std::int64_t whole = (size.count() + page.count() - 1) / page.count();
    return std::max<std::int64_t>((whole + divisor - 1) / divisor, 1);
  }
  [[nodiscard]] constexpr Bytes held(Bytes size) const { return pages(size) * page; }
  [[nodiscard]] constexpr std::int64_t words(Bytes size) const { return pages(size) * words_per_page; }
};

}  // namespace tidemark
