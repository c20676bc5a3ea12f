#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/frameworks/megatron/module_offload.hpp"
#include "parallel/frameworks/megatron/recompute.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/ops/indexing.hpp"

namespace tidemark::parallel::megatron {

namespace {

std::unique_ptr<TokenDispatcher> make_dispatcher(Worker& w, const std::string& path, std::int32_t layer) {
  switch (w.train.routing.dispatcher) {
    case parallel::TokenDispatcher::AllToAll:
      return all_to_all_dispatcher(w, path, layer);
    case parallel::TokenDispatcher::AllGather:
      return all_gather_dispatcher(w, path, layer);
    case parallel::TokenDispatcher::Flex:
      // Alone, which Megatron refuses, a rank stands for many where they are compared.
      return w.layout.expert * w.layout.expert_tensor_parallel() > 1 ? deep_ep_dispatcher(w, path, layer)
                                                                     : all_to_all_dispatcher(w, path, layer);
  }
  return {};
}

}  // namespace

MoELayer::MoELayer(Worker& w, Parameters& parameters, const std::string& path, std::int32_t layer)
    : w_(w),
      name_(w.name(path)),
      norm_(make_norm(w, parameters, path + ".norm")),
      router_(w, parameters, *w.model.layer(layer).experts(), path),
      dispatcher_(make_dispatcher(w, path, layer)) {
  const Experts& experts = *w.model.layer(layer).experts();
  if (w.runtime.experts.grouped_linears)
    grouped_.emplace(w, parameters, experts, path);
  else
    sequential_.emplace(w, parameters, experts, path);
  if (experts.shared_ffn == 0) return;
  // A module's own parameters come before those of modules within it.
  if (experts.shared_gate)
    shared_gate_ = parameters.add({.name = path + ".shared.gate.weight",
                                   .rows = 1,
                                   .columns = w.model.hidden,
                                   .in_parts = GradientInParts::UnderSequenceParallelism});
  shared_.emplace(w, parameters, path + ".shared", experts.shared_ffn, Mlp::Norms::None);
}

// shared_experts.py SharedExpertMLP.
Tensor MoELayer::shared(const Tensor& hidden) {
  Tensor out = (*shared_)(hidden);
  if (shared_gate_ == nullptr) return out;
  Session& s = w_.session;
  w_.mark(Phase::Forward, name_);
  const Session::Scope scope(s, name_("shared.gate"));
  const Tensor score = torch::sigmoid(s, torch::linear(s, hidden, shared_gate_->value, {}));
  return torch::mul(s, out, score);
}

Tensor MoELayer::operator()(Tensor hidden, OffloadedRegion* norm) {
  const Recomputation& again = w_.train.recompute;
  RecomputedNorm before(w_);
  const Tensor normed = before(norm_, std::move(hidden));
  if (norm != nullptr) norm->close(normed);
  Tensor out = again.selects(RecomputedModule::Experts)
                   ? checkpoint(w_, [this](const Tensors& of) { return forward(of.front()); }, {normed})
                   : forward(normed);
  before.discard_output(out);
  return out;
}

// Tensors live as long as the variables of these functions do: in the last exchange, rows that were permuted, and that
// came, are still there.
Tensor MoELayer::forward(const Tensor& residual) {
  const auto route = [&] {
    const Router::Choice choice = router_(residual);
    return dispatcher_->preprocess(residual, choice);
  };
  const auto run_shared = [&] {
    return w_.train.recompute.selects(RecomputedModule::SharedExperts)
               ? checkpoint(w_, [this](const Tensors& of) { return shared(of.front()); }, {residual})
               : shared(residual);
  };
  Tensor shared_out;
  const bool shared_first = w_.runtime.experts.shared_first;
  if (shared_ && shared_first) shared_out = run_shared();
  const Rows permuted = route();
  const Rows dispatched = dispatcher_->dispatch(permuted);
  const auto compute = [&] {
    if (shared_ && !shared_first) shared_out = run_shared();
    const Rows rows = dispatcher_->postprocess(dispatched);
    const std::vector<std::int64_t>& counts = dispatcher_->rows_of_experts();
    const Tensor out = grouped_ ? (*grouped_)(rows, counts) : (*sequential_)(rows, counts);
    return dispatcher_->combine_preprocess(out);
  };
  const Tensor output = compute();
  Tensor combined = dispatcher_->combine(output);
  combined = dispatcher_->combine_postprocess(combined);
  if (!shared_out.defined()) return combined;
  w_.mark(Phase::Forward, name_);
  const Session::Scope scope(w_.session, name_());
  return torch::add(w_.session, combined, shared_out);
}

}  // namespace tidemark::parallel::megatron
