#include "parallel/frameworks/pytorch/optimizers/optimizer.hpp"

#include <algorithm>
#include <limits>

#include "parallel/torch/operation.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::pytorch {
namespace {

using List = std::vector<Tensor>;

UpdateRulePtr rule_of(Session& session, Optimizer kind, const EagerBehavior& behavior, const Parameters& parameters) {
  switch (kind) {
    case Optimizer::AdamW:
    case Optimizer::Sgd:
    case Optimizer::SgdMomentum:
      return torch_rule(session, kind, behavior, parameters);
    case Optimizer::Adafactor:
      return adafactor_rule(session, behavior, parameters);
    case Optimizer::Muon:
      return muon_rule(session, behavior, parameters);
    case Optimizer::AdamW8Bit:
    case Optimizer::Lion:
    case Optimizer::Lion8Bit:
    case Optimizer::PagedAdamW:
    case Optimizer::PagedAdamW8Bit:
    case Optimizer::PagedLion:
    case Optimizer::PagedLion8Bit:
      return bitsandbytes_rule(session, kind, behavior, parameters);
    case Optimizer::ApolloAdamW:
      return apollo_rule(session, behavior, parameters);
    case Optimizer::GaloreAdamW:
    case Optimizer::GaloreAdamWLayerwise:
      return galore_rule(session, behavior, parameters);
  }
  ensure(false, "an optimizer that is not modelled is an error of the scenario");
  return nullptr;
}

}  // namespace

void foreach (Session& s, const Computation& what, std::initializer_list<const List*> operands, const List& made) {
  if (made.empty()) return;  // multi_tensor_apply launches nothing for tensors without elements
  List in;
  for (std::size_t i = 0; i < made.size(); ++i)
    for (const List* list : operands) in.push_back((*list)[i]);
  s.launch(what, in, made);
}

void drop(List& list) {
  while (!list.empty()) list.pop_back();
}

TorchOptimizer::TorchOptimizer(Session& session, const Train& train, const EagerBehavior& behavior,
                               const Parameters& parameters, std::vector<CommSlot> shards)
    : s_(session),
      behavior_(behavior),
      parameters_(parameters),
      shards_(std::move(shards)),
      kept_(train.master_dtype),
      in_backward_(steps_in_backward(train.optimizer)) {
  if (!in_backward_) {
    rules_.push_back(rule_of(session, train.optimizer, behavior, parameters));
    return;
  }
  // An optimizer for each parameter, which a hook calls once its gradient is there.
  for (const std::shared_ptr<Leaf>& p : parameters_) {
    rules_.push_back(rule_of(session, train.optimizer, behavior, {p}));
    p->accumulated = [this, rule = rules_.back().get()](Leaf& its) {
      const NoGrad no_grad(s_);
      const Session::Scope scope(s_, "optimizer");
      rule->step(steps_ + 1);
      its.gradient = Tensor{};
    };
  }
}

Tensor clip_grad_norm(Session& s, const Parameters& parameters, const std::vector<CommSlot>& all_shards, DType kept) {
  const NoGrad no_grad(s);
  const Session::Scope scope(s, "clip_grad_norm");
  s.mark(Phase::OptimizerStep, "clip_grad_norm");
  List norms, gradients;
  for (const std::shared_ptr<Leaf>& p : parameters) {
    if (!p->gradient.defined()) continue;
    gradients.push_back(p->gradient);
    norms.push_back(s.empty({}, gradients.back().dtype, "norm"));
    s.launch(Operation::Norm, {gradients.back()}, {norms.back()});
  }
  if (norms.empty()) {
    if (std::ranges::none_of(all_shards, &CommSlot::valid)) return {};
    norms.push_back(s.empty({}, kept, "norm"));  // 0, with which the rank meets the others
    s.launch({Operation::Fill, {0}}, {}, {norms.back()});
  }
  const Tensor stacked = s.empty({static_cast<std::int64_t>(norms.size())}, norms.front().dtype, "norms");
  List places;
  for (std::size_t i = 0; i < norms.size(); ++i)
    places.push_back(narrowed(stacked, 0, static_cast<std::int64_t>(i), 1));
  s.launch(Operation::Copy, norms, places);
  const Tensor total = s.empty({}, stacked.dtype, "total_norm");
  s.launch(Operation::Norm, {stacked}, {total});
  for (const CommSlot shards : all_shards) {
    if (!shards.valid()) continue;
    // torch/distributed/tensor/_ops/_math_ops.py _NormPartial: squares are summed, and the root is taken of the sum.
    s.launch({Operation::Power, {2}}, {total}, {total});
    s.sum_over(shards, total);
    s.launch({Operation::Power, {0.5}}, {total}, {total});
  }
  // torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
  constexpr double largest_norm = 1, apart_from_zero = 1e-6;
  const Tensor coefficient =
      elementwise(s, "mul_number", {Operation::AddNumber, {apart_from_zero}}, {&total}, total.dtype);
  s.launch({Operation::Power, {-1}}, {coefficient}, {coefficient});
  s.launch({Operation::Scale, {largest_norm}}, {coefficient}, {coefficient});
  const Tensor clamped = elementwise(s, "mul_number", {Operation::Clamp, {-std::numeric_limits<double>::infinity(), 1}},
                                     {&coefficient}, coefficient.dtype);
  const List factors(gradients.size(), clamped);
  foreach (s, Operation::Multiply, {&gradients, &factors}, gradients)
    ;
  return total;
}

void TorchOptimizer::clip() {
  if (behavior_.clips_gradients) (void)clip_grad_norm(s_, parameters_, shards_, kept_);
}

void TorchOptimizer::step() {
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "optimizer");
  s_.mark(Phase::OptimizerStep, "optimizer_step");
  ++steps_;
  if (!in_backward_) rules_.front()->step(steps_);
}

std::vector<Tensor*> TorchOptimizer::kept() {
  std::vector<Tensor*> all;
  for (const UpdateRulePtr& rule : rules_)
    for (Tensor* const its : rule->kept()) all.push_back(its);
  return all;
}

void TorchOptimizer::zero_grad() {
  s_.mark(Phase::OptimizerStep, "zero_grad");
  for (const std::shared_ptr<Leaf>& p : parameters_) p->gradient = Tensor{};
}

}  // namespace tidemark::parallel::pytorch
