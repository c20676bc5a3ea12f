#pragma once

#include "parallel/torch/session.hpp"

// Matrix products beside those of aten.hpp.

namespace tidemark::parallel::torch {

// Into memory that is there, outside of the graph.
/// out = a b.
void mm_into(Session& s, const Tensor& a, const Tensor& b, const Tensor& out);
/// out += a b.
void add_mm_into(Session& s, const Tensor& a, const Tensor& b, const Tensor& out);
/// torch.addmm of a matrix: beta x + alpha a b.
[[nodiscard]] Tensor addmm(Session& s, const Tensor& x, const Tensor& a, const Tensor& b, double beta, double alpha);

/// torch.baddbmm of batches of matrices, in the graph: x + alpha a b.
[[nodiscard]] Tensor baddbmm(Session& s, const Tensor& x, const Tensor& a, const Tensor& b, double alpha);

}  // namespace tidemark::parallel::torch
