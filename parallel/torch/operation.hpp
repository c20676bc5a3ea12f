#pragma once

#include <string_view>
#include <utility>

#include "parallel/namespace.hpp"
#include "parallel/torch/session.hpp"

// What the files that write operations share.

namespace tidemark::parallel::torch {

/// Numbers of a model or a training that change neither memory nor time are the usual ones.
inline constexpr double usual_epsilon = 1e-5, usual_rotary_base = 10'000, usual_learning_rate = 1e-3,
                        usual_momentum = 0.9, usual_balance = 1e-2;

/// The result of an operation, whose gradient goes to that node.
inline Tensor with(Tensor made, Ref<Node> node, std::size_t output = 0) {
  made.gradient = {std::move(node), output};
  return made;
}

/// The sizes with another one in a dimension; negative ones count from the last.
inline Shape with_size(Shape sizes, int dimension, std::int64_t size) {
  sizes[static_cast<std::size_t>(dimension < 0 ? static_cast<int>(sizes.size()) + dimension : dimension)] = size;
  return sizes;
}

/// What an elementwise operation makes, laid out as its operands are.
[[nodiscard]] Tensor elementwise(Session& s, std::string_view name, const Computation& what, Operands operands,
                                 DType dtype);

/// An operand of a product, in autocast's type where it is on.
[[nodiscard]] Tensor operand(Session& s, const Tensor& x);

}  // namespace tidemark::parallel::torch
