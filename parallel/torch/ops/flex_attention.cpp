#include "parallel/torch/ops/flex_attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/aten.hpp"

// PyTorch 2.15: torch/nn/attention/flex_attention.py, torch/_inductor/kernel/flex/flex_attention.py.

namespace tidemark::parallel::torch {
namespace {

// Strides in the order of another tensor's, without gaps (infer_dense_strides).
Tensor like(Session& s, const Tensor& of, Shape sizes, std::string_view what) {
  std::array<std::size_t, 4> order{3, 2, 1, 0};
  std::ranges::stable_sort(order, {}, [&](std::size_t d) { return of.strides[d]; });
  Shape strides = sizes;
  std::int64_t next = 1;
  for (const std::size_t d : order) strides[d] = next, next *= sizes[d];
  return s.empty_strided(std::move(sizes), std::move(strides), of.dtype, what);
}

Attributes attributes_of(const Tensor& q) {
  constexpr double causal = FlashWindow::causal, dropout = 0;
  return {1 / std::sqrt(static_cast<double>(q.sizes[3])), causal, dropout};
}

// Each row's sum of gradient times output, by a fused kernel; what it read goes.
Tensor row_sums(Session& s, const Tensor& gradient, const Tensor& out) {
  const Shape& z = out.sizes;
  const Tensor sums = s.empty({z[0], z[1], z[2]}, DType::FP32, "delta");
  const Tensor product = s.in_registers(z, contiguous_strides(z), DType::FP32, "delta_product");
  Computation multiply(Operation::Multiply), sum(Operation::Sum);
  multiply.fused = FusedStep{.follows = false, .traffic = gradient.bytes() + out.bytes() + sums.bytes()};
  sum.fused = FusedStep{.follows = true, .traffic = {}};
  s.launch(multiply, {gradient, out}, {product});
  s.launch(sum, {product}, {sized(sums, {z[0], z[1], z[2], 1})});
  return sums;
}

// Which blocks are seen in part and whole, and how many.
std::vector<Tensor> seen_blocks(Session& s, std::int64_t batch, std::int64_t sequence) {
  constexpr std::int64_t block = 128;  // _DEFAULT_SPARSE_BLOCK_SIZE
  const std::int64_t blocks = (sequence + block - 1) / block;
  std::vector<Tensor> made;
  for (int of = 0; of < 2; ++of) {
    made.push_back(s.empty({batch, 1, blocks}, DType::INT32, "counts"));
    made.push_back(s.empty({batch, 1, blocks, blocks}, DType::INT32, "blocks"));
  }
  return made;
}

}  // namespace

std::vector<Tensor> block_mask(Session& s, std::int64_t batch, std::int64_t sequence) {
  const NoGrad no_grad(s);
  const Session::Scope scope(s, "block_mask");
  std::vector<Tensor> made{s.empty({batch, sequence}, DType::INT32, "documents")};
  for (int by = 0; by < 2; ++by)  // queries and keys
    std::ranges::move(seen_blocks(s, batch, sequence), std::back_inserter(made));
  for (const Tensor& its : made) s.launch({Operation::Fill, {0}}, {}, {its});
  return made;
}

std::vector<Tensor> block_mask_parts(Session& s, std::int64_t parts, std::int64_t batch, std::int64_t sequence) {
  const NoGrad no_grad(s);
  const Session::Scope scope(s, "block_mask");
  std::vector<Tensor> made;
  for (std::int64_t part = 0; part < parts; ++part)
    std::ranges::move(seen_blocks(s, batch, sequence), std::back_inserter(made));
  for (const Tensor& its : made) s.launch({Operation::Fill, {0}}, {}, {its});
  return made;
}

Tensor flex_attention(Session& s, const Tensor& q, const Tensor& k, const Tensor& v) {
  auto node = s.node({&q, &k, &v});
  const Shape rows{q.sizes[0], q.sizes[1], q.sizes[2]};
  // What the compiled region returns: what it saves for its backward pass, inputs too.
  std::array<Tensor, 5> made;
  if (!s.recalled(Dispatched::FusedAttention, made)) {
    made[2] = q.detached(), made[3] = k.detached(), made[4] = v.detached();
    made[1] = s.empty(rows, DType::FP32, "attention_lse");
    const Tensor most = s.empty(rows, DType::FP32, "attention_max_scores");
    made[0] = like(s, q, with_size(q.sizes, -1, v.size(-1)), "attention");
    s.launch({Operation::Attention, attributes_of(q)}, {by_sequence(q), by_sequence(k), by_sequence(v), Tensor{}},
             {by_sequence(made[0]), made[1], Tensor{}, Tensor{}}, most);
    s.made(Dispatched::FusedAttention, made);
  }
  auto& [out, sums, kept_q, kept_k, kept_v] = made;
  if (node)
    node->apply = [&s, saved_q = s.save(kept_q), saved_k = s.save(kept_k), saved_v = s.save(kept_v),
                   saved_out = s.save(out), saved_sums = s.save(sums)](const Gradients& g) mutable {
      const Tensor in_q = s.unpack(saved_q), in_k = s.unpack(saved_k), in_v = s.unpack(saved_v);
      const Tensor logarithms = s.unpack(saved_sums);
      const Tensor delta = row_sums(s, g.front(), s.unpack(std::exchange(saved_out, {})));
      const Tensor dq = like(s, in_q, in_q.sizes, "query_gradient"), dv = like(s, in_v, in_v.sizes, "value_gradient"),
                   dk = like(s, in_k, in_k.sizes, "key_gradient");
      s.launch({Operation::AttentionBackward, attributes_of(in_q)},
               {by_sequence(g.front()), by_sequence(in_q), by_sequence(in_k), by_sequence(in_v), Tensor{}, logarithms,
                Tensor{}, Tensor{}, Tensor{}},
               {by_sequence(dq), by_sequence(dk), by_sequence(dv)}, delta);
      return Gradients{dq, dk, dv};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace tidemark::parallel::torch
