#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/torch/ops/aten.hpp"

// Triton kernels in place of several operations of transformers' modules: autograd functions of their own, which
// write gradients over what they were made of.

namespace tidemark::parallel::transformers {

/// Liger-Kernel's: liger_kernel/ops. Read in 0.8.5.
namespace liger {

/// Whether the gradient is written over that of the output; not where norms follow each other around a residual sum.
enum class Gradient : std::uint8_t { InPlace, Apart };
[[nodiscard]] Tensor rms_norm(Session& s, const Tensor& x, const Tensor& weight, double weight_offset, Gradient where);
/// Queries and keys, turned where they are.
[[nodiscard]] std::pair<Tensor, Tensor> rope(Session& s, const Tensor& query, const Tensor& key, const Tensor& cosine,
                                             const Tensor& sine);
[[nodiscard]] Tensor swiglu(Session& s, const Tensor& gate, const Tensor& up);
/// Of GELU's approximation by tanh.
[[nodiscard]] Tensor geglu(Session& s, const Tensor& gate, const Tensor& up);
/// The mean loss over [rows, classes] logits.
[[nodiscard]] Tensor cross_entropy(Session& s, const Tensor& logits, const Tensor& labels, std::int64_t counted);

/// The head's product and the loss are one: chunk by chunk of tokens, gradients with the loss.
/// Of hidden [rows, width], a head's weight, and labels of which so many are not ignored.
[[nodiscard]] Tensor linear_cross_entropy(Session& s, const Tensor& hidden, const Tensor& weight, const Tensor& labels,
                                          std::int64_t counted);

}  // namespace liger

/// Unsloth's and Liger's, as fms-acceleration's plug-in of fused operations and kernels has them:
/// fms_acceleration_foak/kernels/unsloth, fused_ops/liger_ce.
namespace foak {

/// Its backward pass makes no gradient of the weight.
[[nodiscard]] Tensor rms_norm(Session& s, const Tensor& x, const Tensor& weight);
[[nodiscard]] std::pair<Tensor, Tensor> rope(Session& s, const Tensor& query, const Tensor& key, const Tensor& cosine,
                                             const Tensor& sine);
[[nodiscard]] Tensor cross_entropy(Session& s, const Tensor& logits, const Tensor& labels, std::int64_t counted);
[[nodiscard]] Tensor linear_cross_entropy(Session& s, const Tensor& hidden, const Tensor& weight, const Tensor& labels,
                                          std::int64_t counted);

}  // namespace foak

namespace fused {

/// How many rows of logits there are at a time: as many as make them no larger than the hidden states are, rounded up
/// to a power of two.
[[nodiscard]] std::int64_t rows_of_chunk(std::int64_t rows, std::int64_t width, std::int64_t classes);
/// One number of all rows' losses, which a node scales gradients by that were made with them.
[[nodiscard]] Tensor sum_of(Session& s, const Tensor& losses);
[[nodiscard]] Tensor zeros(Session& s, const Shape& sizes, DType dtype, std::string_view what);
/// What one kernel does of a loss: of [rows, classes] logits, where they are, the gradients of the sum of losses, and
/// the losses.
void losses_and_gradients(Session& s, const Tensor& logits, const Tensor& labels, const Tensor& gradients,
                          const Tensor& losses);
/// A loss whose gradients were made with it: of the hidden states, and of a weight where that is defined.
[[nodiscard]] Tensor with_gradients(Session& s, Tensor loss, Ref<Node> node, const Tensor& of_hidden,
                                    const Tensor& of_weight);
/// x cosine + rotate_half(x) sine, written over x [batch, heads, sequence, width]; backward by the transpose.
enum class Direction : std::uint8_t { Forward, Backward };
void turn(Session& s, const Tensor& x, const Tensor& cosine, const Tensor& sine, Direction direction);

}  // namespace fused

}  // namespace tidemark::parallel::transformers
