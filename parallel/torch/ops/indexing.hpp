#pragma once

#include <cstdint>

#include "parallel/torch/session.hpp"

// Operations of ATen that pick elements and put them back, and what routers use besides.

namespace tidemark::parallel::torch {

struct TopK {
  Tensor values, ids;
};
/// Whether what is picked are experts for tokens: then a job's stated loads decide in place of scores.
enum class Picks : std::uint8_t { Elements, Experts };
/// torch.topk, over the last dimension.
[[nodiscard]] TopK top_k(Session& s, const Tensor& x, std::int64_t count, Picks picks = Picks::Elements);
/// The same, of groups of `of_group` experts, of which each token will pick `choices`: those that these are of.
[[nodiscard]] TopK top_groups(Session& s, const Tensor& x, std::int64_t count, std::int64_t choices,
                              std::int64_t of_group);

[[nodiscard]] Tensor zeros(Session& s, const Shape& sizes, DType dtype);
/// base.scatter(-1, ids, values).
[[nodiscard]] Tensor scatter(Session& s, const Tensor& base, const Tensor& ids, const Tensor& values);
/// base.scatter(-1, ids, 1).
[[nodiscard]] Tensor scatter_ones(Session& s, const Tensor& base, const Tensor& ids);
[[nodiscard]] Tensor gather(Session& s, const Tensor& x, const Tensor& ids);
[[nodiscard]] Tensor masked_fill(Session& s, const Tensor& x, const Tensor& mask, double value);
/// As many elements as the mask has true ones.
[[nodiscard]] Tensor masked_select(Session& s, const Tensor& x, const Tensor& mask, std::int64_t count);
/// Rows of a matrix.
[[nodiscard]] Tensor index_select(Session& s, const Tensor& x, const Tensor& ids);
/// zeros(rows, ...).scatter_add_(0, ids, x), whole rows.
[[nodiscard]] Tensor scatter_add_rows(Session& s, const Tensor& x, const Tensor& ids, std::int64_t rows);

/// zeros.index_add_(0, ids, x), in place.
[[nodiscard]] Tensor index_add_rows(Session& s, Tensor zeros, const Tensor& ids, const Tensor& x);
/// mask.argsort(descending=True, stable=True), of a flat mask: places where it is true come first.
[[nodiscard]] Tensor argsort(Session& s, const Tensor& mask);
/// Of whole numbers.
[[nodiscard]] Tensor remainder(Session& s, const Tensor& x, std::int64_t divisor);
/// torch.split and torch.cat along the first dimension.
[[nodiscard]] std::vector<Tensor> split_rows(Session& s, const Tensor& x, const std::vector<std::int64_t>& rows);
[[nodiscard]] Tensor cat_rows(Session& s, const std::vector<Tensor>& parts);

[[nodiscard]] Tensor sigmoid(Session& s, const Tensor& x);
/// The divisor may be broadcast.
[[nodiscard]] Tensor div(Session& s, const Tensor& x, const Tensor& divisor);
/// x /= divisor.
[[nodiscard]] Tensor div_in_place(Session& s, const Tensor& x, const Tensor& divisor);
/// Of a mask, where it is false.
[[nodiscard]] Tensor logical_not(Session& s, const Tensor& mask);
/// Over the last dimension, which goes.
[[nodiscard]] Tensor logsumexp(Session& s, const Tensor& x);
/// Over one dimension, which goes; of masks and whole numbers in int64.
[[nodiscard]] Tensor sum(Session& s, const Tensor& x, int dimension);

}  // namespace tidemark::parallel::torch
