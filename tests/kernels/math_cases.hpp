#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tests/kernels/math_numbers.hpp"

// What every operation of the instruction set is tried with.

namespace tidemark::tests {

struct MathCase {
  Operation operation;
  Attributes attributes;
  Tensors inputs, outputs;  ///< of outputs, types and sizes
  /// What the outputs should hold, by the operation's formula in fp64, written again; it is handed the outputs too, for
  /// what was drawn at random. None of backward operations, which finite differences check.
  std::function<Tensors(const Tensors& in, const Tensors& out)> expected = {};
};

/// A backward operation and what it is the gradient of.
struct GradientCase {
  Operation backward;
  Tensors inputs;
  std::function<Tensors(const Tensors& in)> forward;
  std::size_t result = 0;  ///< of forward: the loss is a weighted sum of it
  /// The gradients of some inputs, from those of the result.
  std::function<Tensors(const Numbers& dy, const Tensors& in, const Tensors& made)> gradients;
  std::vector<std::size_t> of = {0};  ///< which inputs
};

namespace math_elementwise_test {
std::vector<MathCase> elementwise_cases();
std::vector<GradientCase> elementwise_gradients();
}  // namespace math_elementwise_test
namespace math_rows_test {
std::vector<MathCase> row_cases();
std::vector<GradientCase> row_gradients();
}  // namespace math_rows_test
namespace math_scans_test {
std::vector<MathCase> scan_cases();
std::vector<GradientCase> scan_gradients();
}  // namespace math_scans_test
namespace math_losses_test {
std::vector<MathCase> loss_cases();
std::vector<GradientCase> loss_gradients();
}  // namespace math_losses_test
namespace math_products_test {
std::vector<MathCase> product_cases();
std::vector<GradientCase> attention_gradients();
}  // namespace math_products_test
namespace math_optimizers_test {
std::vector<MathCase> optimizer_cases();
}  // namespace math_optimizers_test
namespace math_routing_test {
std::vector<MathCase> routing_cases();
std::vector<GradientCase> routing_gradients();
}  // namespace math_routing_test
namespace math_backward_test {
std::vector<MathCase> backward_cases();
}  // namespace math_backward_test

/// All of them.
inline const std::vector<MathCase>& all_math_cases() {
  static const std::vector<MathCase> all = [] {
    std::vector<MathCase> joined;
    for (auto* family :
         {math_elementwise_test::elementwise_cases, math_rows_test::row_cases, math_losses_test::loss_cases,
          math_products_test::product_cases, math_optimizers_test::optimizer_cases, math_routing_test::routing_cases,
          math_scans_test::scan_cases, math_backward_test::backward_cases})
      for (MathCase& one : family()) joined.push_back(std::move(one));
    return joined;
  }();
  return all;
}

inline constexpr MatrixLayout layouts[] = {MatrixLayout::SideBySide, MatrixLayout::FirstInnermost, MatrixLayout::Apart,
                                           MatrixLayout::FirstInnermostApart};

/// Floating-point operands as another type, with the numbers that it holds.
inline Tensors as(DType dtype, Tensors all) {
  for (Numbers& x : all) {
    if (!is_floating(x.dtype)) continue;
    x.dtype = dtype;
    if (x.there) x = Laid(x, math::Storage::Native, MatrixLayout::SideBySide).numbers();
  }
  return all;
}

/// What rounding loses of a number at most, as a share of it.
inline double bound(DType dtype) {
  switch (dtype) {
    case DType::BF16:
      return 0x1p-8;
    case DType::FP16:
      return 0x1p-11;
    case DType::FP32:
      return 0x1p-24;
    case DType::FP64:
      return 0x1p-53;
    case DType::INT32:
    case DType::INT64:
    case DType::BOOL:
    case DType::INT16:
    case DType::UINT8:
      return 0;
    case DType::E4M3:
      return 0x1p-4;
  }
  return 0;
}

// ---- how cases are written -----------------------------------------------------------------------------------------

/// Which element of smaller sizes an element of larger ones is broadcast from.
inline std::size_t broadcast_place(const Shape& from, const Shape& to, std::size_t element) {
  auto rest = static_cast<std::int64_t>(element);
  std::int64_t place = 0, apart = 1;
  for (std::size_t d = 0; d < to.size(); ++d) {
    const std::int64_t at = rest % to[to.size() - 1 - d];
    rest /= to[to.size() - 1 - d];
    if (d >= from.size()) continue;
    const std::int64_t size = from[from.size() - 1 - d];
    place += (size == 1 ? 0 : at) * apart;
    apart *= size;
  }
  return static_cast<std::size_t>(place);
}

/// An input as another tensor's element sees it; 0 where it is absent.
inline double seen(const Numbers& x, const Shape& sizes, std::size_t element) {
  return x.there ? x.values[broadcast_place(x.sizes, sizes, element)] : 0;
}

/// Outputs that are f of the inputs' elements, one by one.
inline std::function<Tensors(const Tensors&, const Tensors&)> by_element(
    std::function<double(const std::vector<double>&)> f) {
  return [f](const Tensors& in, const Tensors& out) {
    Tensors expected = out;
    for (std::size_t i = 0; i < out[0].values.size(); ++i) {
      std::vector<double> x;
      for (const Numbers& input : in) x.push_back(seen(input, out[0].sizes, i));
      expected[0].values[i] = f(x);
    }
    return expected;
  };
}

/// Rows of the last dimension.
inline std::vector<std::span<const double>> rows_of(const Numbers& x, std::int64_t width = 0) {
  if (width == 0) width = x.sizes.back();
  std::vector<std::span<const double>> rows;
  const auto length = static_cast<std::size_t>(width);
  for (std::size_t at = 0; at < x.values.size(); at += length) rows.push_back(std::span(x.values).subspan(at, length));
  return rows;
}

}  // namespace tidemark::tests
