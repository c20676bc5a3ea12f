#pragma once

#include <utility>

#include "parallel/namespace.hpp"
#include "parallel/torch/session.hpp"

// What the files that write operations share.

namespace tidemark::parallel::torch {

/// The result of an operation, whose gradient goes to that node.
inline Tensor with(Tensor made, Ref<Node> node, std::size_t output = 0) {
  made.gradient = {std::move(node), output};
  return made;
}

/// An operand of a product, in autocast's type where it is on.
[[nodiscard]] Tensor operand(Session& s, const Tensor& x);

}  // namespace tidemark::parallel::torch
