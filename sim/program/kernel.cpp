#include "sim/program/kernel.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace tidemark::sim {

std::int64_t elements_of(const Shape& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

Shape contiguous_strides(const Shape& sizes) {
  Shape strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<std::int64_t>(sizes[d], 1);
  return strides;
}

std::int64_t View::stored() const {
  std::int64_t product = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (strides[d] != 0 || sizes[d] == 0) product *= sizes[d];
  return product;
}

Bytes View::extent() const {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return {};
    last += (sizes[d] - 1) * strides[d];
  }
  return (last + 1) * size_of(dtype);
}

}  // namespace tidemark::sim
