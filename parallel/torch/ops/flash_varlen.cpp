#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/aten.hpp"

// FlashAttention-2 over packed sequences, as flash_attn 2.8 calls it: flash_attn_interface.py FlashAttnVarlenFunc,
// csrc/flash_attn/flash_api.cpp mha_varlen_fwd, mha_varlen_bwd.

namespace tidemark::parallel::torch {
namespace {

// Tokens, heads, width: as sequences, tokens of each, heads, width.
Tensor by_sequence(const Tensor& x, std::int64_t sequences) {
  if (!x.defined()) return x;
  return sized(x, {sequences, x.sizes[0] / sequences, x.sizes[1], x.sizes[2]});
}

}  // namespace

Tensor flash_attention_of_packed(Session& s, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ends,
                                 double dropout, std::int64_t window) {
  auto node = s.node({&q, &k, &v});
  const std::int64_t tokens = q.sizes[0], heads = q.sizes[1], width = q.sizes[2];
  const std::int64_t sequences = ends.sizes[0] - 1;
  const FlashWindow seen{std::max<std::int64_t>(window, FlashWindow::causal)};
  const Attributes attributes{1 / std::sqrt(static_cast<double>(width)), static_cast<double>(seen.keys), dropout};
  const auto rows = [=](const Tensor& x) { return by_sequence(x, sequences); };
  const auto by_row = [=](const Tensor& sums) { return sized(sums, {sequences, heads, tokens / sequences}); };
  Tensor out = s.empty(q.sizes, q.dtype, "attention");
  const Tensor lse = s.empty({heads, tokens}, DType::FP32, "attention_lse");
  const Tensor seed = s.empty({2}, DType::INT64, "attention_rng_state");
  {
    const Tensor offset = s.empty({1}, DType::INT64, "attention_rng_offset");
    s.launch({Operation::Attention, attributes}, {rows(q), rows(k), rows(v), Tensor{}},
             {rows(out), by_row(lse), seed, offset});
  }
  if (node)
    node->apply = [=, &s, saved_q = s.save(q), saved_k = s.save(k), saved_v = s.save(v), saved_out = s.save(out),
                   saved_lse = s.save(lse), saved_ends = s.save(ends), saved_seed = s.save(seed)](const Gradients& g) {
      const Tensor in_q = s.unpack(saved_q), in_k = s.unpack(saved_k), in_v = s.unpack(saved_v);
      const Tensor result = s.unpack(saved_out), sums = s.unpack(saved_lse), its_ends = s.unpack(saved_ends),
                   random = s.unpack(saved_seed);
      const auto like = [&](const Tensor& x, std::string_view what) { return s.empty(x.sizes, x.dtype, what); };
      const Tensor dq = like(in_q, "query_gradient"), dk = like(in_k, "key_gradient"),
                   dv = like(in_v, "value_gradient");
      std::vector<Tensor> scratch;
      if (s.behavior().kernel_workspaces) {
        // Each sequence may begin within a block of 128: as many rows more for each.
        const std::int64_t padded = tokens + 128 * sequences, rounded = (width + 31) / 32 * 32;
        scratch.push_back(s.empty({heads, padded}, DType::FP32, "softmax_d"));
        scratch.push_back(s.empty({padded, heads, rounded}, DType::FP32, "query_gradient_sum"));
        if (heads != in_k.sizes[1]) {  // summed over the heads that share a key once all are there
          scratch.push_back(s.empty({tokens, heads, width}, in_k.dtype, "expanded_key_gradient"));
          scratch.push_back(s.empty({tokens, heads, width}, in_v.dtype, "expanded_value_gradient"));
        }
      }
      const Tensor offset = s.empty({1}, DType::INT64, "attention_rng_offset");
      s.launch(
          {Operation::AttentionBackward, attributes},
          {rows(g.front()), rows(in_q), rows(in_k), rows(in_v), rows(result), by_row(sums), random, offset, Tensor{}},
          {rows(dq), rows(dk), rows(dv)}, scratch);
      while (!scratch.empty()) scratch.pop_back();
      return Gradients{dq, dk, dv};
    };
  return with(std::move(out), std::move(node));
}

}  // namespace tidemark::parallel::torch
