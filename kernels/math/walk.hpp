#pragma once

#include <cstdint>
#include <vector>

#include "kernels/math/namespace.hpp"
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

/// Elements of those sizes, row by row, as runs of equal distances: calls `visit(offset, count, stride)` for each.
/// Dimensions that lie one after another are one run.
template <class Visit>
void walk(const Shape& sizes, const Shape& strides, Visit&& visit) {
  Shape counts, steps;  // innermost first
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 0) return;
    if (sizes[d] == 1) continue;
    if (!counts.empty() && strides[d] == steps.back() * counts.back()) {
      counts.back() *= sizes[d];
    } else {
      counts.push_back(sizes[d]);
      steps.push_back(strides[d]);
    }
  }
  if (counts.empty()) return visit(std::int64_t{0}, std::int64_t{1}, std::int64_t{1});
  Shape at(counts.size(), 0);
  std::int64_t offset = 0;
  while (true) {
    visit(offset, counts[0], steps[0]);
    std::size_t d = 1;
    for (; d < counts.size(); ++d) {
      offset += steps[d];
      if (++at[d] < counts[d]) break;
      offset -= steps[d] * counts[d];
      at[d] = 0;
    }
    if (d == counts.size()) return;
  }
}

/// Of each element of sizes, which one of smaller sizes it is broadcast from.
inline std::vector<std::int64_t> broadcast_places(const Shape& from, const Shape& to) {
  std::vector<std::int64_t> places;
  places.reserve(static_cast<std::size_t>(elements_of(to)));
  walk(to, broadcast_strides(from, contiguous_strides(from), to),
       [&](std::int64_t offset, std::int64_t count, std::int64_t stride) {
         for (std::int64_t i = 0; i < count; ++i) places.push_back(offset + i * stride);
       });
  return places;
}

}  // namespace tidemark::math
