#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/math/compute.hpp"
#include "kernels/math/elements.hpp"

namespace tidemark::math {

/// One group of operands of a kernel, as the functions below are handed it.
struct Call {
  const Attributes& attributes;
  std::span<const Array> in, out;
  const Setting& setting;
  std::size_t group = 0;

  [[nodiscard]] const Shape& sizes_in(std::size_t i) const { return in[i].view.sizes; }
  [[nodiscard]] const Shape& sizes_out(std::size_t o) const { return out[o].view.sizes; }

  /// An input row by row; one that is absent is zero, or nothing where no sizes are asked for.
  template <class Value>
  [[nodiscard]] std::vector<Value> read(std::size_t i, const Shape& sizes) const {
    return math::read<Value>(in[i], setting.storage, sizes);
  }
  template <class Value>
  [[nodiscard]] std::vector<Value> read(std::size_t i) const {
    if (!in[i].there()) return {};
    return read<Value>(i, sizes_in(i));
  }
  template <class Value>
  void write(std::size_t o, const std::vector<Value>& values) const {
    math::write<Value>(out[o], setting.storage, values);
  }
};

inline std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// How many rows there are of the last dimension, and how many elements each has.
struct Rows {
  std::int64_t count, width;
};
inline Rows rows_of(const Shape& sizes) {
  const std::int64_t width = sizes.empty() ? 1 : sizes.back();
  return {width > 0 ? elements_of(sizes) / width : 0, width};
}

/// The larger one; NaN if one of them is.
template <class Real>
Real larger(Real a, Real b) {
  return b > a || b != b ? b : a;
}

/// Of labels, the one that no loss counts (torch.nn.functional.cross_entropy ignore_index, TransformerEngine
/// ignore_idx).
constexpr std::int64_t no_label = -100;

/// That an index is one of so many; WrongIndex where it is not.
void check_index(std::int64_t id, std::int64_t count, const char* of);

}  // namespace tidemark::math
