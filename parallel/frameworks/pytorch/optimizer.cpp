#include "parallel/frameworks/pytorch/optimizer.hpp"

namespace tidemark::parallel::pytorch {

TorchOptimizer::TorchOptimizer(Session& session, const Train& train, const EagerHabits& habits,
                               const Parameters& parameters)
    : s_(session), train_(train), habits_(habits) {
  for (const std::shared_ptr<Leaf>& p : parameters) states_.push_back({p, {}, {}});
}

void TorchOptimizer::clip() {
  if (!habits_.clips_gradients) return;
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "clip_grad_norm");
  s_.mark(Phase::OptimizerStep, "clip_grad_norm");
  std::vector<Tensor> norms, gradients;
  for (const State& state : states_) {
    gradients.push_back(state.parameter->gradient);
    norms.push_back(s_.empty({}, gradients.back().dtype, "norm"));
    s_.stream(Streaming::Reduce, {gradients.back()}, {norms.back()});
  }
  const Tensor stacked = s_.empty({static_cast<std::int64_t>(norms.size())}, norms.front().dtype, "norms");
  s_.stream(Streaming::Copy, norms, {stacked});
  const Tensor total = s_.empty({}, stacked.dtype, "total_norm");
  s_.stream(Streaming::Reduce, {stacked}, {total});
  const Tensor coefficient = mul_number(s_, total), clamped = mul_number(s_, coefficient);
  s_.stream(Streaming::Update, gradients, gradients);
}

void TorchOptimizer::make_state(State& state) {
  if (!state.moments.empty()) return;
  const int of_adam = habits_.amsgrad ? 3 : 2;
  const int moments = train_.optimizer == Optimizer::AdamW         ? of_adam
                      : train_.optimizer == Optimizer::SgdMomentum ? 1
                                                                   : 0;
  static constexpr std::string_view names[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  const Tensor& value = state.parameter->value;
  if (habits_.optimizer == OptimizerKernels::Fused && train_.optimizer == Optimizer::AdamW)
    state.step = s_.empty({}, DType::FP32, "step", Category::OptimizerMoments);
  for (int m = 0; m < moments; ++m) {
    state.moments.push_back(
        s_.empty(value.sizes, value.dtype, moments > 1 ? names[m] : "momentum_buffer", Category::OptimizerMoments));
    s_.stream(Streaming::Fill, {}, {state.moments.back()});
  }
}

// adam.py, sgd.py: grad.add(param, alpha=weight_decay), where AdamW shrinks the weights, and fused kernels do it
// inside.
bool TorchOptimizer::decays_gradients() const {
  const bool shrinks = train_.optimizer == Optimizer::AdamW && habits_.decoupled_weight_decay;
  return habits_.weight_decay && !shrinks && habits_.optimizer != OptimizerKernels::Fused;
}

Tensor TorchOptimizer::decayed(const State& state) {
  return add(s_, state.parameter->gradient, state.parameter->value);
}

void TorchOptimizer::update(State& state, Tensor& gradient, Tensor& denominator) {
  const Tensor& value = state.parameter->value;
  gradient = state.parameter->gradient;
  if (decays_gradients()) gradient = decayed(state);
  make_state(state);
  if (train_.optimizer != Optimizer::AdamW) {
    std::vector<Tensor> in{value, gradient};
    in.insert(in.end(), state.moments.begin(), state.moments.end());
    s_.stream(Streaming::Update, in, {value});
    return;
  }
  s_.stream(Streaming::Update, {value}, {value});
  s_.stream(Streaming::Update, {gradient, state.moments[0]}, {state.moments[0]});
  s_.stream(Streaming::Update, {gradient, state.moments[1]}, {state.moments[1]});
  // denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps): the last parameter's goes when this one is there.
  const auto next = [&] {
    const Tensor root = mul_number(s_, state.moments.back());
    return mul_number(s_, root);
  };
  denominator = next();
  s_.stream(Streaming::Update, {value, state.moments[0], denominator}, {value});
}

void TorchOptimizer::update_all_at_once() {
  std::vector<Tensor> all, roots, gradients;
  const auto drop = [](std::vector<Tensor>& list) {
    while (!list.empty()) list.pop_back();  // a Python list drops its last element first
  };
  // torch._foreach_add(grads, params, alpha=weight_decay): of all parameters at once.
  for (const State& state : states_)
    gradients.push_back(decays_gradients() ? decayed(state) : state.parameter->gradient);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    make_state(states_[i]);
    all.push_back(states_[i].parameter->value);
    all.push_back(gradients[i]);
    all.insert(all.end(), states_[i].moments.begin(), states_[i].moments.end());
  }
  s_.stream(Streaming::Update, all, all);
  if (train_.optimizer == Optimizer::AdamW) {
    // exp_avg_sq_sqrt = torch._foreach_sqrt(exp_avg_sqs), or of their largest: the same.
    for (const State& state : states_)
      roots.push_back(s_.empty(state.moments.back().sizes, state.moments.back().dtype, "exp_avg_sq_sqrt"));
    all.insert(all.end(), roots.begin(), roots.end());
    s_.stream(Streaming::Update, all, all);
  }
  all.clear();
  drop(roots);
  drop(gradients);
}

void TorchOptimizer::update_fused() {
  std::vector<Tensor> all;
  for (const State& state : states_) {
    all.push_back(state.parameter->value);
    all.push_back(state.parameter->gradient);
    all.push_back(state.step);
    all.insert(all.end(), state.moments.begin(), state.moments.end());
  }
  s_.stream(Streaming::Update, all, all);
}

void TorchOptimizer::step() {
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "optimizer");
  s_.mark(Phase::OptimizerStep, "optimizer_step");
  // adam.py _init_group makes all state first, sgd.py where a buffer is first needed.
  if (train_.optimizer == Optimizer::AdamW)
    for (State& state : states_) make_state(state);
  switch (habits_.optimizer) {
    case OptimizerKernels::Foreach:
      update_all_at_once();
      return;
    case OptimizerKernels::Fused:
      if (train_.optimizer == Optimizer::AdamW) {
        update_fused();
        return;
      }
      [[fallthrough]];
    case OptimizerKernels::ForLoop: {
      Tensor gradient, denominator;
      for (State& state : states_) update(state, gradient, denominator);
      return;
    }
  }
}

void TorchOptimizer::zero_grad() {
  s_.mark(Phase::OptimizerStep, "zero_grad");
  for (State& state : states_) state.parameter->gradient = Tensor{};
}

}  // namespace tidemark::parallel::pytorch
