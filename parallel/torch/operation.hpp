#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "parallel/namespace.hpp"
#include "parallel/torch/session.hpp"

// What the files that write operations share.

namespace tidemark::parallel::torch {

using Gradients = std::vector<Tensor>;

/// The result of an operation, whose gradient goes to that node.
inline Tensor with(Tensor made, std::shared_ptr<Node> node, std::size_t output = 0) {
  made.gradient = {std::move(node), output};
  return made;
}

/// An operand of a product, in autocast's type where it is on.
[[nodiscard]] Tensor operand(Session& s, const Tensor& x);

}  // namespace tidemark::parallel::torch
