#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/model/expert_routing.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/grouped_mm.hpp"
#include "parallel/torch/ops/stage_3_linear.hpp"

// Mixtures of experts of Mixtral, Qwen2-MoE and Qwen3-MoE. As in modules.cpp, no call is nested in a call that is
// nested in another.
//
// Read in transformers 4.45 to 4.57 and 5.0 to 5.23: models/*/modeling_*.py …SparseMoeBlock, …TopKRouter, …Experts, and
// integrations/moe.py grouped_mm_experts_forward, which is the default from 5.0 on.

namespace tidemark::parallel::transformers {

// ---- construction --------------------------------------------------------------------------------------------------

// Mixtral's block had a name of its own while its experts were linears, and these have names of its own.
std::string CausalLM::block_name(const std::string& at) const {
  return at + (mixtral() && !behavior_.experts.fused ? ".block_sparse_moe" : ".mlp");
}

bool CausalLM::router_first() const { return model_.architecture != "qwen3_moe" || !behavior_.experts.fused; }

void CausalLM::make_experts(const std::string& at, const Experts& experts, Mixture& made) {
  if (behavior_.experts.fused) {
    made.gate_up = parameter(at + ".gate_up_proj", {experts.count, 2 * experts.ffn, model_.hidden});
    made.down = parameter(at + ".down_proj", {experts.count, model_.hidden, experts.ffn});
    return;
  }
  for (std::int64_t e = 0; e < experts.count; ++e) {
    const std::string in = fmt::format("{}.{}", at, e);
    if (!mixtral()) {
      made.each.push_back(make_gated(in, experts.ffn, false));
      continue;
    }
    Mlp& its = made.each.emplace_back();
    its.gate = make_linear(in + ".w1", experts.ffn, model_.hidden, false);
    its.down = make_linear(in + ".w2", model_.hidden, experts.ffn, false);
    its.up = make_linear(in + ".w3", experts.ffn, model_.hidden, false);
  }
}

void CausalLM::make_mixture(const std::string& at, std::int32_t index, Layer& layer) {
  const Experts& experts = *model_.layer(index).experts();
  const std::string in = block_name(at);
  Mixture& made = layer.mixture.emplace();
  made.chosen = experts.chosen;
  made.normalizes = mixtral() || experts.score == RouterScore::Softmax;
  made.rows = LayerRouting(model_, train_.routing, index, train_.tokens(), 1).received(0, 1);
  const auto make_router = [&] {
    // Quantization takes linears, which it is not from 5.0 on.
    made.router.name = in + ".gate";
    if (!behavior_.experts.fused) {
      made.router = make_linear(made.router.name, experts.count, model_.hidden, false);
      return;
    }
    made.router.weight = parameter(made.router.name + ".weight", {experts.count, model_.hidden});
    made.router.adds_apart = behavior_.stage_3_linear;
  };
  if (router_first()) make_router();
  make_experts(in + ".experts", experts, made);
  if (!router_first()) make_router();
  if (experts.shared_ffn == 0) return;
  made.shared = make_gated(in + ".shared_expert", experts.shared_ffn, false);
  made.shared_gate = make_linear(in + ".shared_expert_gate", 1, model_.hidden, false);
}

// ---- the router ----------------------------------------------------------------------------------------------------

// Of the chosen experts, whose sum is made one where the model says so. Mixtral's stay fp32 from 5.0 on.
Tensor CausalLM::router_scores(const Mixture& mixture, const TopK& top, DType dtype) {
  Tensor scores = top.values;
  if (mixture.normalizes) scores = div_in_place(s_, scores, unsqueeze(s_, sum(s_, scores, -1), 1));
  return mixtral() && behavior_.experts.fused ? scores : to(s_, scores, dtype);
}

CausalLM::Choice CausalLM::choose(const Mixture& mixture, const Tensor& hidden) {
  const Session::Scope scope(s_, "router");
  Choice made;
  const auto scored = [&](DType dtype) {
    const Tensor probabilities = softmax_last(s_, made.logits, DType::FP32);
    TopK top = top_k(s_, probabilities, mixture.chosen, Picks::Experts);
    made.experts = top.ids;
    return router_scores(mixture, std::exchange(top, {}), dtype);
  };
  if (!behavior_.experts.fused) {
    made.logits = mixture.router(s_, hidden);
    made.scores = scored(hidden.dtype);
    return made;
  }
  made.scores = hooked(mixture.router.hooks, hidden, [&](const Tensor& x) {
    const auto of_weight = [&](const Tensor& weight) {
      made.logits = mixture.router.adds_apart ? linear_of_stage_3(s_, x, weight) : linear(s_, x, weight, {});
      return scored(made.logits.dtype);
    };
    return mixture.router_lora ? adapted_router(mixture, of_weight) : of_weight(mixture.router.weight->value);
  });
  return made;
}

// ---- experts as one module -----------------------------------------------------------------------------------------

// A token for each expert that it chose, the first expert's first. Before 5.8 tokens' numbers are a tensor, which is
// put into that order, and before 5.5 copies of all tokens are, which a variable holds.
Tensor CausalLM::rows_of_tokens(const Tensor& hidden, const Tensor& places, std::int64_t each, Tensor& copies) {
  if (!behavior_.experts.numbers_tokens) return index_rows(s_, hidden, floor_divide(s_, places, each));
  const std::int64_t tokens = hidden.size(0);
  const Tensor arange = s_.in_registers({tokens * each}, {1}, DType::INT64, "arange");
  s_.launch({Operation::Arange, {0}}, {}, {arange});
  const Tensor numbers = floor_divide(s_, arange, each);
  if (behavior_.experts.copies_tokens) {
    copies = index_rows(s_, hidden, numbers);
    return index_rows(s_, copies, places);
  }
  const auto sorted = [&] { return index_rows(s_, sized(numbers, {numbers.elements(), 1}), places); };
  return index_rows(s_, hidden, flattened(sorted()));
}

// _grouped_linear, _default_apply_gate: what is multiplied takes the weights' type, which autocast does not change.
Tensor CausalLM::products_of_groups(const Mixture& mixture, const Tensor& rows, const Tensor& ends,
                                    const ExpertWeights& read) {
  const auto times = [&](const Tensor& x, const Tensor& weights) {
    return grouped_linear(s_, to(s_, x, weights.dtype), weights, ends, mixture.rows);
  };
  Tensor made = times(rows, read.gate_up());
  const auto gate = [&] {
    const std::vector<Tensor> halves = split_last(s_, made, {made.size(-1) / 2, made.size(-1) / 2});
    const Tensor active =
        hooked(mixture.of_activation, halves[0], [&](const Tensor& given) { return activated(given); });
    return mul(s_, active, halves[1]);
  };
  made = gate();
  return times(made, read.down());
}

Tensor CausalLM::grouped_experts(const Mixture& mixture, const Tensor& hidden, const Choice& choice,
                                 const ExpertWeights& read) {
  const Session::Scope scope(s_, "experts");
  const std::int64_t each = mixture.chosen, tokens = hidden.size(0), width = hidden.size(1), rows = tokens * each;
  // Variables are given up in the order of their names, and here in the other one.
  Tensor together, weighted, product, counts, whole, weights, selected, copies;
  SortedIds order;
  const Tensor each_weight = reshape(s_, choice.scores, {rows, 1});
  order = sort_ascending(s_, sized(choice.experts, {rows}));
  selected = rows_of_tokens(hidden, order.places, each, copies);
  weights = index_rows(s_, each_weight, order.places);
  whole = to(s_, order.ids, DType::INT32);
  counts = histogram(s_, choice.experts, static_cast<std::int64_t>(mixture.rows.size()), DType::INT32);
  const Tensor ends = s_.empty(counts.sizes, DType::INT32, "offsets");
  s_.launch(Operation::CumulativeSum, {counts}, {ends});
  const bool masks = behavior_.experts.masks_rows;
  const Tensor elsewhere = masks ? s_.empty({rows, 1}, DType::BOOL, "sentinel_mask") : Tensor{};
  if (masks) s_.launch({Operation::Equals, {-1}}, {sized(order.ids, {rows, 1})}, {elsewhere});
  if (masks) selected = filled(selected, elsewhere);
  product = products_of_groups(mixture, selected, ends, read);
  weighted = mul(s_, product, weights);
  if (masks) weighted = filled(weighted, elsewhere);
  const Tensor inverse = inverse_of(s_, order.places);
  weighted = index_rows(s_, weighted, inverse);
  together = sum(s_, view(s_, weighted, {tokens, each, width}), 1);
  return to(s_, together, hidden.dtype);
}

// masked_fill_ of zeros.
Tensor CausalLM::filled(const Tensor& x, const Tensor& mask) {
  auto node = s_.node({&x});
  s_.launch({Operation::MaskedFill, {0}}, {x, mask}, {x});
  if (node)
    node->apply = [this, saved = s_.save(mask)](const Gradients& g) {
      const Tensor its = s_.unpack(saved);
      const Tensor made = s_.empty(g.front().sizes, g.front().dtype, "masked_fill_gradient");
      s_.launch({Operation::MaskedFill, {0}}, {g.front(), its}, {made});
      return Gradients{made};
    };
  return with(x.detached(), std::move(node));
}

// ---- the block -----------------------------------------------------------------------------------------------------

// sigmoid(shared_expert_gate(hidden)) * shared_expert(hidden), added to what experts give.
Tensor CausalLM::with_shared(const Mixture& mixture, const Tensor& hidden, const Tensor& routed, const Tensor& shared) {
  const auto weighted = [&] {
    const Tensor open = mixture.shared_gate(s_, hidden);
    return mul(s_, sigmoid(s_, open), shared);
  };
  const Tensor part = weighted();
  return add(s_, routed, part);
}

Tensor CausalLM::mixture_of(const Layer& layer, const Tensor& x) {
  const Session::Scope scope(s_, "moe");
  const Mixture& m = *layer.mixture;
  const std::int64_t width = x.size(-1);
  Tensor out, shared;
  Choice choice;
  const Tensor hidden = view(s_, x, {x.elements() / width, width});
  const auto of_shared = [&] {
    const Session::Scope of(s_, "shared_expert");
    return hooked(m.shared.hooks, hidden, [&](const Tensor& given) { return gated_mlp(m.shared, given); });
  };
  const bool fused = behavior_.experts.fused, shares = m.shared.gate.weight || m.shared.gate.quantized;
  if (shares && fused) shared = of_shared();
  choice = choose(m, hidden);
  const auto grouped = [&](const Tensor& given) {
    if (m.gate_up_lora || m.down_lora) return adapted_experts(m, given, choice);
    return grouped_experts(m, given, choice, {[&] { return m.gate_up->value; }, [&] { return m.down->value; }});
  };
  out = fused ? hooked(m.of_experts, hidden, grouped) : experts_in_turn(m, hidden, choice);
  if (shares && !fused) shared = of_shared();
  if (shares) out = with_shared(m, hidden, out, shared);
  return reshape(s_, out, x.sizes);
}

}  // namespace tidemark::parallel::transformers
