#pragma once

#include <cstdint>
#include <vector>

#include "parallel/torch/session.hpp"

// Products of groups of rows with a matrix each, and the indexing around them.

namespace tidemark::parallel::torch {

/// torch._grouped_mm(x, weights.transpose(-2, -1), offs=ends): the first rows of x times the first matrix of [groups,
/// outputs, inputs], transposed, and so on. There may be rows beyond the last group, whose products nobody reads.
[[nodiscard]] Tensor grouped_linear(Session& s, const Tensor& x, const Tensor& weights, const Tensor& ends,
                                    const std::vector<std::int64_t>& rows);

/// x[ids] of a matrix, and its backward pass, which sorts ids and adds up rows of one place.
[[nodiscard]] Tensor index_rows(Session& s, const Tensor& x, const Tensor& ids);
/// out[ids] = x, of rows of `out` that nobody has written yet.
[[nodiscard]] Tensor index_put_rows(Session& s, const Tensor& out, const Tensor& ids, const Tensor& x);
/// torch.sort of numbers of experts, and places that they come from.
struct SortedIds {
  Tensor ids, places;
};
[[nodiscard]] SortedIds sort_ascending(Session& s, const Tensor& ids);
/// inverse[places] = torch.arange(…): where each place has gone.
[[nodiscard]] Tensor inverse_of(Session& s, const Tensor& places);
/// ids.argsort(stable=True), the least first.
[[nodiscard]] Tensor argsort_ascending(Session& s, const Tensor& ids);
/// torch.histc of whole numbers below `count`, of [rows, different numbers of each].
[[nodiscard]] Tensor histogram(Session& s, const Tensor& ids, std::int64_t count, DType dtype = DType::INT64);
/// ids // divisor.
[[nodiscard]] Tensor floor_divide(Session& s, const Tensor& ids, std::int64_t divisor);

}  // namespace tidemark::parallel::torch
