#pragma once

#include <cstdint>

#include "parallel/torch/session.hpp"

// Places of a mask that are true, and what is read and added up there.

namespace tidemark::parallel::torch {

/// torch.nn.functional.one_hot of whole numbers below `count`.
[[nodiscard]] Tensor one_hot(Session& s, const Tensor& ids, std::int64_t count);

/// Rows and columns of a matrix's places, in one tensor.
struct Places {
  Tensor rows, columns;
};
/// torch.where of a matrix of whole numbers, of which so many are not zero. The host waits for how many.
[[nodiscard]] Places where(Session& s, const Tensor& mask, std::int64_t count);

/// x[columns, rows, None] of a matrix.
[[nodiscard]] Tensor index_places(Session& s, const Tensor& x, const Places& places);

/// x.index_add_(0, ids, rows), where x may need a gradient too.
[[nodiscard]] Tensor index_add_in_place(Session& s, const Tensor& x, const Tensor& ids, const Tensor& rows);

}  // namespace tidemark::parallel::torch
