#pragma once

#include <cstdint>

#include "kernels/math/namespace.hpp"
#include "kernels/math/values.hpp"
#include "sim/base/shape.hpp"
#include "sim/program/kernel.hpp"

namespace tidemark::math {

/// Strides under which something of those sizes and strides is seen with larger sizes, as PyTorch broadcasts.
inline Shape broadcast_strides(const Shape& sizes, const Shape& strides, const Shape& to) {
  ensure(sizes.size() <= to.size(), "what is broadcast has no more dimensions");
  Shape seen(to.size(), 0);
  const std::size_t missing = to.size() - sizes.size();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    ensure(sizes[d] == 1 || sizes[d] == to[missing + d], "what is broadcast has one place or as many");
    seen[missing + d] = sizes[d] == 1 ? 0 : strides[d];
  }
  return seen;
}

/// Elements of a tensor row by row, innermost dimension first. Dimensions that lie one after another are one.
struct Runs {
  int dimensions = 1;
  std::int64_t counts[Shape::most] = {1}, steps[Shape::most] = {1};

  Runs(const Shape& sizes, const Shape& strides) {
    int at = -1;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      if (sizes[d] == 1) continue;
      if (at >= 0 && strides[d] == steps[at] * counts[at]) {
        counts[at] *= sizes[d];
      } else {
        counts[++at] = sizes[d];
        steps[at] = strides[d];
      }
    }
    dimensions = at < 0 ? 1 : at + 1;
  }

  /// Those from `begin` to `end` as runs of equal distances: calls `visit(element, offset, count, stride)` for each.
  template <class Visit>
  TIDEMARK_EVERYWHERE void walk(std::int64_t begin, std::int64_t end, const Visit& visit) const {
    std::int64_t at[Shape::most] = {}, offset = 0, rest = begin;
    for (int d = 0; d < dimensions && begin < end; ++d) {
      at[d] = rest % counts[d];
      rest /= counts[d];
      offset += at[d] * steps[d];
    }
    while (begin < end) {
      const std::int64_t left = counts[0] - at[0], count = left < end - begin ? left : end - begin;
      visit(begin, offset, count, steps[0]);
      begin += count;
      offset -= at[0] * steps[0];
      at[0] = 0;
      for (int d = 1; d < dimensions; ++d) {
        offset += steps[d];
        if (++at[d] < counts[d]) break;
        offset -= steps[d] * counts[d];
        at[d] = 0;
      }
    }
  }

  /// Where one of them lies.
  [[nodiscard]] TIDEMARK_EVERYWHERE std::int64_t offset(std::int64_t element) const {
    std::int64_t found = 0;
    for (int d = 0; d < dimensions; ++d) {
      found += element % counts[d] * steps[d];
      element /= counts[d];
    }
    return found;
  }
};

}  // namespace tidemark::math
