#include <utility>

#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/ops/indexing.hpp"

// core/transformer/moe/moe_utils.py: rows of tokens in the order of experts, by TransformerEngine's kernels or by
// PyTorch's.

namespace tidemark::parallel::megatron {

using torch::with;

namespace {

// transformer_engine/pytorch/permutation.py _moe_permute_mask_map.
Permuted permute_by_kernels(Worker& w, const Tensor& hidden, const Tensor& map, const Tensor& probabilities,
                            std::int64_t rows) {
  Session& s = w.session;
  const std::int64_t tokens = map.size(0), experts = map.size(1);
  const auto node = s.node({&hidden, &probabilities});
  const Tensor order = s.empty({tokens, 2 * experts + 1}, DType::INT32, "row_id_map");
  {
    constexpr std::int64_t block = 1024;
    const Tensor workspace = s.empty({experts, (tokens + block - 1) / block}, DType::INT32, "row_id_map_workspace");
    s.launch(Operation::TokenMap, {map}, {order}, workspace);
  }
  Rows out{s.empty({rows, hidden.size(1)}, hidden.dtype, "permuted_tokens"), {}};
  if (probabilities.defined()) out.probabilities = s.empty({rows}, probabilities.dtype, "permuted_probs");
  s.launch(Operation::PermuteRows, {hidden, order, probabilities}, {out.tokens, out.probabilities});
  if (node) {
    node->outputs = 2;
    node->apply = [&s, saved = s.save(order), sizes = hidden.sizes, all = probabilities.sizes](const Gradients& g) {
      const Tensor its = s.unpack(saved);
      Gradients made(2);
      made[0] = s.empty(sizes, g[0].dtype, "input_gradient");
      if (g[1].defined()) made[1] = s.empty(all, g[1].dtype, "probs_gradient");
      s.launch(Operation::UnpermuteRows, {g[0], its, Tensor{}, g[1]}, {made[0], made[1]});
      return made;
    };
  }
  out.tokens = with(std::move(out.tokens), node);
  if (probabilities.defined()) out.probabilities = with(std::move(out.probabilities), node, 1);
  return {std::move(out), order};
}

// From core 0.17 on.
Permuted permute_by_sort(Session& s, const Tensor& hidden, const Tensor& by_expert, const Tensor& probabilities,
                         std::int64_t rows) {
  const std::int64_t all = by_expert.elements();
  const Tensor places = narrowed(torch::argsort(s, sized(by_expert, {all})), 0, 0, rows);
  Permuted permuted;
  permuted.order = torch::remainder(s, places, by_expert.size(1));
  if (probabilities.defined()) {
    const Tensor its = torch::contiguous(s, torch::transpose(s, probabilities, 0, 1));
    permuted.rows.probabilities = torch::gather(s, torch::view(s, its, {all}), places);
  }
  permuted.rows.tokens = torch::index_select(s, hidden, permuted.order);
  return permuted;
}

}  // namespace

Permuted permute(Worker& w, const Tensor& hidden, const Tensor& map, const Tensor& probabilities, std::int64_t rows) {
  if (w.runtime.experts.fused_permutation) return permute_by_kernels(w, hidden, map, probabilities, rows);
  Session& s = w.session;
  const std::int64_t tokens = map.size(0), experts = map.size(1);
  const Tensor by_expert = torch::contiguous(s, swapped(map, 0, 1));
  if (w.runtime.experts.sorts_rows) return permute_by_sort(s, hidden, by_expert, probabilities, rows);
  const Tensor numbers = s.empty({tokens}, DType::INT64, "arange");
  s.launch({Operation::Arange, {0}}, {}, {numbers});
  Permuted permuted;
  permuted.order = torch::masked_select(s, expanded(sized(numbers, {1, tokens}), {experts, tokens}), by_expert, rows);
  if (probabilities.defined()) {
    const Tensor its = torch::contiguous(s, torch::transpose(s, probabilities, 0, 1));
    permuted.rows.probabilities = torch::masked_select(s, its, by_expert, rows);
  }
  permuted.rows.tokens = torch::index_select(s, hidden, permuted.order);
  return permuted;
}

Tensor unpermute(Worker& w, const Tensor& rows, const Tensor& order, std::int64_t tokens) {
  Session& s = w.session;
  if (!w.runtime.experts.fused_permutation) {
    if (!w.runtime.experts.adds_rows_by_index) return torch::scatter_add_rows(s, rows, order, tokens);
    const auto zeros = [&] { return s.empty({tokens, rows.size(1)}, rows.dtype, "zeros"); };
    Tensor out = zeros();
    out = zeros();  // made anew for index_add_, before the former goes
    return torch::index_add_rows(s, std::move(out), order, rows);
  }
  const auto node = s.node({&rows});
  Tensor out = s.empty({tokens, rows.size(1)}, rows.dtype, "unpermuted_tokens");
  s.launch(Operation::UnpermuteRows, {rows, order, Tensor{}, Tensor{}}, {out, Tensor{}});
  if (node)
    node->apply = [&s, saved = s.save(order), sizes = rows.sizes](const Gradients& g) {
      const Tensor made = s.empty(sizes, g.front().dtype, "input_gradient");
      s.launch(Operation::PermuteRows, {g.front(), s.unpack(saved), Tensor{}}, {made, Tensor{}});
      return Gradients{made};
    };
  return with(std::move(out), node);
}

}  // namespace tidemark::parallel::megatron
