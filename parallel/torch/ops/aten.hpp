#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "parallel/torch/session.hpp"

// The operations of ATen that models are written in: which tensors each makes, what it saves for its backward pass
// (tools/autograd/derivatives.yaml), and what that pass makes (torch/csrc/autograd/FunctionsManual.cpp). PyTorch 2.x.

namespace tidemark::parallel::torch {

// Views.
[[nodiscard]] Tensor view(Session& s, const Tensor& x, Shape sizes);
[[nodiscard]] Tensor transpose(Session& s, const Tensor& x, int a, int b);
[[nodiscard]] Tensor unsqueeze(Session& s, const Tensor& x, int dimension);
[[nodiscard]] Tensor expand(Session& s, const Tensor& x, Shape sizes);
/// A part of one dimension; its gradient is a whole tensor of zeros but for that part.
[[nodiscard]] Tensor slice(Session& s, const Tensor& x, int dimension, std::int64_t begin, std::int64_t end);
/// A dimension cut into pieces; their gradients are put together in one tensor.
[[nodiscard]] std::vector<Tensor> split(Session& s, const Tensor& x, int dimension,
                                        const std::vector<std::int64_t>& pieces);
[[nodiscard]] std::vector<Tensor> split_last(Session& s, const Tensor& x, const std::vector<std::int64_t>& pieces);

// Copies.
[[nodiscard]] Tensor to(Session& s, const Tensor& x, DType dtype);
[[nodiscard]] Tensor clone(Session& s, const Tensor& x, Shape strides);
[[nodiscard]] Tensor contiguous(Session& s, const Tensor& x);
/// A view where there is one, else a view of a copy.
[[nodiscard]] Tensor reshape(Session& s, const Tensor& x, Shape sizes);
/// In one type, where `dtype` says which; the kernel converts on its way.
[[nodiscard]] Tensor cat_last(Session& s, const std::vector<Tensor>& parts, std::optional<DType> dtype = {});

// Element by element.
[[nodiscard]] Tensor add(Session& s, const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor sub(Session& s, const Tensor& a, const Tensor& b);
/// a += b.
[[nodiscard]] Tensor add_in_place(Session& s, const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor mul(Session& s, const Tensor& a, const Tensor& b);
/// The product of complex numbers, each two neighbours in the last dimension. `b` is a table and needs no gradient.
[[nodiscard]] Tensor complex_mul(Session& s, const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor add_number(Session& s, const Tensor& x, double number);
[[nodiscard]] Tensor mul_number(Session& s, const Tensor& x, double factor);
[[nodiscard]] Tensor neg(Session& s, const Tensor& x);
[[nodiscard]] Tensor pow_number(Session& s, const Tensor& x, double exponent);
[[nodiscard]] Tensor rsqrt(Session& s, const Tensor& x);
[[nodiscard]] Tensor tanh(Session& s, const Tensor& x);
[[nodiscard]] Tensor silu(Session& s, const Tensor& x);
/// torch.nn.functional.gelu's argument of that name.
enum class Approximate : std::uint8_t { None, Tanh };
[[nodiscard]] Tensor gelu(Session& s, const Tensor& x, Approximate approximate);
[[nodiscard]] Tensor relu(Session& s, const Tensor& x);
/// x itself where the probability is 0.
[[nodiscard]] Tensor dropout(Session& s, const Tensor& x, double probability);

// Over the last dimension.
[[nodiscard]] Tensor mean_last(Session& s, const Tensor& x);
[[nodiscard]] Tensor softmax_last(Session& s, const Tensor& x, DType dtype);
/// Zeros in rows that are all minus infinity: _safe_softmax of scaled_dot_product_attention.
[[nodiscard]] Tensor safe_softmax_last(Session& s, const Tensor& x);
[[nodiscard]] Tensor layer_norm(Session& s, const Tensor& x, const Tensor& weight, const Tensor& bias);
/// torch.nn.functional.rms_norm, which is a kernel from PyTorch 2.9 on; operation by operation where types differ.
[[nodiscard]] Tensor rms_norm(Session& s, const Tensor& x, const Tensor& weight);
/// Summed over the dimensions in which `sizes` are smaller.
[[nodiscard]] Tensor sum_to(Session& s, const Tensor& x, const Shape& sizes);
/// The mean of the same. It has no gradient.
[[nodiscard]] Tensor mean_to(Session& s, const Tensor& x, const Shape& sizes);
/// The 2-norm of all elements: one number.
[[nodiscard]] Tensor norm_of_all(Session& s, const Tensor& x, std::string_view name);
/// isnan, then isinf of one number: the host waits for each answer, and reads no.
void ask_for_nan_and_inf(Session& s);

// Products. Under autocast operands are converted; weights once, until autocast ends.
[[nodiscard]] Tensor matmul(Session& s, const Tensor& a, const Tensor& b);
/// x W^T, and + b where there is one.
[[nodiscard]] Tensor linear(Session& s, const Tensor& x, const Tensor& weight, const Tensor& bias);
/// x W + b, with the weight laid out inputs by outputs (transformers' Conv1D).
[[nodiscard]] Tensor conv1d(Session& s, const Tensor& x, const Tensor& weight, const Tensor& bias);
/// FlashAttention-2: batch, heads, sequence, width of a head; fewer heads of keys and values will do. A query sees the
/// last `window` keys; 0: all up to its own.
[[nodiscard]] Tensor flash_attention(Session& s, const Tensor& q, const Tensor& k, const Tensor& v, double dropout,
                                     std::int64_t window = 0);
/// What a query sees: all keys, those up to its own, or the last so many of these.
struct FlashWindow {
  static constexpr std::int64_t all = 0, causal = 1;
  std::int64_t keys = causal;
  std::int64_t head_dim = 0;  ///< by which scores are scaled, where heads are padded; 0: theirs
};
/// The kernel itself, outside the autograd graph: the output, the logarithm of each row's sum, and the seed and the
/// offset of what is drawn. There may be other numbers of keys than of queries.
[[nodiscard]] std::array<Tensor, 4> flash_kernel(Session& s, const Tensor& q, const Tensor& k, const Tensor& v,
                                                 FlashWindow seen, double dropout);
/// Gradients of queries, keys and values, of what that made.
[[nodiscard]] Gradients flash_backward_kernel(Session& s, const Tensor& gradient, const Tensor& q, const Tensor& k,
                                              const Tensor& v, const std::array<Tensor, 4>& made, FlashWindow seen,
                                              double dropout);
/// flash_attn_varlen_func of packed sequences, all of one length: tokens, heads, width of a head. `ends` says where
/// each begins, and the last one ends.
[[nodiscard]] Tensor flash_attention_of_packed(Session& s, const Tensor& q, const Tensor& k, const Tensor& v,
                                               const Tensor& ends, double dropout, std::int64_t window = 0);
/// The memory-efficient kernel: the same; `bias` is added to the scores where it is defined.
[[nodiscard]] Tensor efficient_attention(Session& s, const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& bias, double dropout);
/// torch.nn.functional.scaled_dot_product_attention; `mask` may be undefined.
[[nodiscard]] Tensor scaled_dot_product_attention(Session& s, const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const Tensor& mask, double dropout);

[[nodiscard]] Tensor embedding(Session& s, const Tensor& ids, const Tensor& weight);
/// The gradient of an embedding's weight of those sizes.
[[nodiscard]] Tensor embedding_backward(Session& s, const Tensor& gradient, const Tensor& ids, const Shape& sizes,
                                        DType dtype);
/// Mean over the rows of a [rows, classes] tensor.
[[nodiscard]] Tensor cross_entropy(Session& s, const Tensor& logits, const Tensor& labels);

}  // namespace tidemark::parallel::torch
