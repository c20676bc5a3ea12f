#include <utility>

#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/grouped_mm.hpp"
#include "parallel/torch/ops/where.hpp"

// Experts that are modules by themselves, one after the other, as transformers has them before 5.0 (models/mixtral,
// qwen2_moe, qwen3_moe: …SparseMoeBlock.forward). From 4.52 on the host asks first which of them any token chose.

namespace tidemark::parallel::transformers {
namespace {

// The only matrix of a tensor.
Tensor only_matrix(Tensor x) {
  x.sizes.erase(x.sizes.begin());
  x.strides.erase(x.strides.begin());
  return x;
}

// expert_mask.sum(dim=(-1, -2)), torch.greater and nonzero: a number for each expert that runs.
Tensor hit(Session& s, const Tensor& mask) {
  const std::int64_t experts = mask.size(0);
  const Tensor counts = s.empty({experts}, DType::INT64, "expert_counts");
  s.launch(Operation::Sum, {mask}, {sized(counts, {experts, 1, 1})});
  const Tensor any = s.empty({experts}, DType::BOOL, "any");
  s.launch(Operation::Copy, {counts}, {any});
  Tensor found = s.empty({experts, 1}, DType::INT64, "expert_hit");
  s.launch(Operation::Copy, {any}, {sized(found, {experts})});
  s.process.synchronize();
  return found;
}

}  // namespace

// Who chose an expert, of the mask of all: slots of tokens by tokens. Where the host knows who is hit, an
// expert's number is a tensor, by which a copy is made.
Tensor CausalLM::chosen_by(const Tensor& mask, std::int64_t expert) {
  const Tensor its = narrowed(mask, 0, expert, 1);
  if (behavior_.experts.runs_idle) return only_matrix(its);
  s_.process.synchronize();  // which module it is
  const Tensor copied = s_.empty({1, mask.size(1), mask.size(2)}, DType::INT64, "index");
  s_.launch(Operation::Copy, {its}, {copied});
  return only_matrix(copied);
}

Tensor CausalLM::experts_in_turn(const Mixture& m, const Tensor& hidden, const Choice& choice) {
  const Session::Scope scope(s_, "experts");
  Tensor weighted, current, hits;
  Places places;
  Tensor all = zeros(s_, hidden.sizes, hidden.dtype);
  const Tensor mask = swapped(one_hot(s_, choice.experts, static_cast<std::int64_t>(m.rows.size())), 0, 2);
  if (!behavior_.experts.runs_idle) hits = hit(s_, mask);
  for (std::size_t e = 0; e < m.each.size(); ++e) {
    if (m.rows[e] == 0) continue;
    const Mlp& expert = m.each[e];
    places = where(s_, chosen_by(mask, static_cast<std::int64_t>(e)), m.rows[e]);
    current = index_rows(s_, hidden, places.columns);
    const auto of_expert = [&] {
      const Tensor made = hooked(expert.hooks, current, [&](const Tensor& x) { return gated_mlp(expert, x); });
      return mul(s_, made, index_places(s_, choice.scores, places));
    };
    weighted = of_expert();
    all = index_add_in_place(s_, all, places.columns, to(s_, weighted, hidden.dtype));
  }
  return all;
}

}  // namespace tidemark::parallel::transformers
