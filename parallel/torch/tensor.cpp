#include "parallel/torch/tensor.hpp"

#include <algorithm>
#include <array>

#include "parallel/torch/session.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::torch {

void Storage::unreferenced() { session_.give_up(*this); }

std::int64_t Tensor::size(int dimension) const {
  const auto place = dimension < 0 ? static_cast<std::ptrdiff_t>(sizes.size()) + dimension : dimension;
  return sizes[static_cast<std::size_t>(place)];
}

std::int64_t Tensor::elements() const { return elements_of(sizes); }

bool Tensor::contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

bool Tensor::dense() const {
  // Dimensions from the innermost on: each begins where those within it end.
  std::int64_t within = 1;
  for (std::size_t left = sizes.size(); left > 0; --left) {
    if (within == elements()) return true;
    std::int64_t size = 0;
    for (std::size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d] != 1 && strides[d] == within) size = sizes[d];
    if (size == 0) return false;
    within *= size;
  }
  return within == elements();
}

Tensor Tensor::detached() const { return {storage, sizes, strides, offset, dtype, {}}; }

// ---- views ----------------------------------------------------------------------------------------------------------

namespace {

std::size_t place_of(const Tensor& x, int dimension) {
  return static_cast<std::size_t>(dimension < 0 ? static_cast<int>(x.sizes.size()) + dimension : dimension);
}

Tensor viewed(Tensor x) {
  x.gradient = {};
  x.view = true;
  return x;
}

}  // namespace

Tensor sized(Tensor x, const Shape& sizes) {
  x.strides = strides_of_view(x, sizes);
  ensure(x.strides.size() == sizes.size(), "a view has strides");
  x.sizes = sizes;
  return viewed(std::move(x));
}

Tensor with_last_dimension(const Tensor& x) {
  Shape sizes = x.sizes;
  sizes.push_back(1);
  return sized(x, sizes);
}

Tensor narrowed(Tensor x, int dimension, std::int64_t begin, std::int64_t size) {
  const std::size_t d = place_of(x, dimension);
  x.offset += begin * x.strides[d];
  x.sizes[d] = size;
  return viewed(std::move(x));
}

Tensor swapped(Tensor x, int a, int b) {
  std::swap(x.sizes[place_of(x, a)], x.sizes[place_of(x, b)]);
  std::swap(x.strides[place_of(x, a)], x.strides[place_of(x, b)]);
  return viewed(std::move(x));
}

Tensor expanded(Tensor x, const Shape& sizes) {
  Shape strides(sizes.size(), 0);
  const std::size_t missing = sizes.size() - x.sizes.size();
  for (std::size_t d = 0; d < x.sizes.size(); ++d)
    strides[missing + d] = x.sizes[d] == sizes[missing + d] ? x.strides[d] : 0;
  x.sizes = sizes;
  x.strides = strides;
  return viewed(std::move(x));
}

// ---- layouts --------------------------------------------------------------------------------------------------------

Shape broadcast(const Shape& a, const Shape& b) {
  Shape sizes(std::max(a.size(), b.size()), 1);
  for (std::size_t back = 1; back <= sizes.size(); ++back) {
    const std::int64_t from_a = back <= a.size() ? a[a.size() - back] : 1;
    const std::int64_t from_b = back <= b.size() ? b[b.size() - back] : 1;
    ensure(from_a == from_b || from_a == 1 || from_b == 1, "operands of an elementwise operation fit each other");
    sizes[sizes.size() - back] = std::max(from_a, from_b);
  }
  return sizes;
}

Shape strides_of_view(const Tensor& tensor, const Shape& sizes) {
  Shape strides(sizes.size(), 0);
  std::ptrdiff_t view = static_cast<std::ptrdiff_t>(sizes.size()) - 1;
  std::int64_t base = tensor.strides.empty() ? 1 : tensor.strides.back();
  std::int64_t in_chunk = 1, in_view = 1;
  for (std::ptrdiff_t d = static_cast<std::ptrdiff_t>(tensor.sizes.size()) - 1; d >= 0; --d) {
    const auto at = static_cast<std::size_t>(d);
    in_chunk *= tensor.sizes[at];
    const bool chunk_ends = d == 0 || (tensor.sizes[at - 1] != 1 && tensor.strides[at - 1] != in_chunk * base);
    if (!chunk_ends) continue;
    while (view >= 0 && (in_view < in_chunk || sizes[static_cast<std::size_t>(view)] == 1)) {
      strides[static_cast<std::size_t>(view)] = in_view * base;
      in_view *= sizes[static_cast<std::size_t>(view)];
      --view;
    }
    if (in_view != in_chunk) return {};
    if (d > 0) {
      base = tensor.strides[at - 1];
      in_chunk = in_view = 1;
    }
  }
  return view == -1 ? strides : Shape{};
}

namespace {

// The stride of an output's dimension in an operand, which may have fewer; 0 where it is repeated.
std::int64_t stride_within(const Tensor& operand, std::size_t dimension, const Shape& sizes) {
  const std::size_t missing = sizes.size() - operand.sizes.size();
  if (dimension < missing) return 0;
  const std::size_t own = dimension - missing;
  return operand.sizes[own] == 1 && sizes[dimension] != 1 ? 0 : operand.strides[own];
}

// Negative: `a` lies within `b` in memory; positive: around it; 0: nobody says.
int order_of(const Operands& operands, std::size_t a, std::size_t b, const Shape& sizes) {
  for (const Tensor& operand : operands) {
    const std::int64_t of_a = stride_within(operand, a, sizes), of_b = stride_within(operand, b, sizes);
    if (of_a == 0 || of_b == 0) continue;
    if (of_a != of_b) return of_a < of_b ? -1 : 1;
    if (sizes[a] > sizes[b]) return 1;
  }
  return 0;
}

}  // namespace

Shape elementwise_strides(Operands operands, const Shape& sizes) {
  Shape strides = contiguous_strides(sizes);
  bool all_contiguous = true;
  for (const Tensor& operand : operands) all_contiguous &= operand.sizes == sizes && operand.strides == strides;
  if (all_contiguous) return strides;
  // Innermost first; insertion keeps those in place of which nobody says anything.
  std::array<std::size_t, Shape::most> order{};
  for (std::size_t d = 0; d < sizes.size(); ++d) order[d] = sizes.size() - 1 - d;
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    std::size_t moving = i;
    for (std::size_t before = i; before-- > 0;) {
      const int order_between = order_of(operands, order[before], order[moving], sizes);
      if (order_between > 0) {
        std::swap(order[before], order[moving]);
        moving = before;
      } else if (order_between < 0) {
        break;
      }
    }
  }
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    strides[order[i]] = stride;
    stride *= sizes[order[i]];
  }
  return strides;
}

}  // namespace tidemark::parallel::torch
