#include "parallel/frameworks/pytorch/optimizer.hpp"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "parallel/torch/operation.hpp"

namespace tidemark::parallel::pytorch {
namespace {

// torch.optim's defaults.
constexpr double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;

using List = std::vector<Tensor>;

// torch._foreach_*: one kernel for as many groups of operands as it makes tensors.
void foreach (Session& s, const Computation& what, std::initializer_list<const List*> operands, const List& made) {
  List in;
  for (std::size_t i = 0; i < made.size(); ++i)
    for (const List* list : operands) in.push_back((*list)[i]);
  s.launch(what, in, made);
}

// A Python list drops its last element first.
void drop(List& list) {
  while (!list.empty()) list.pop_back();
}

}  // namespace

TorchOptimizer::TorchOptimizer(Session& session, const Train& train, const EagerHabits& habits,
                               const Parameters& parameters, std::vector<CommSlot> shards)
    : s_(session), train_(train), habits_(habits), shards_(std::move(shards)) {
  for (const std::shared_ptr<Leaf>& p : parameters) states_.push_back({p, {}, {}});
}

void TorchOptimizer::clip() {
  if (!habits_.clips_gradients) return;
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "clip_grad_norm");
  s_.mark(Phase::OptimizerStep, "clip_grad_norm");
  List norms, gradients;
  for (const State& state : states_) {
    gradients.push_back(state.parameter->gradient);
    norms.push_back(s_.empty({}, gradients.back().dtype, "norm"));
    s_.launch(Operation::Norm, {gradients.back()}, {norms.back()});
  }
  const Tensor stacked = s_.empty({static_cast<std::int64_t>(norms.size())}, norms.front().dtype, "norms");
  List places;
  for (std::size_t i = 0; i < norms.size(); ++i)
    places.push_back(narrowed(stacked, 0, static_cast<std::int64_t>(i), 1));
  s_.launch(Operation::Copy, norms, places);
  const Tensor total = s_.empty({}, stacked.dtype, "total_norm");
  s_.launch(Operation::Norm, {stacked}, {total});
  for (const CommSlot shards : shards_) {
    if (!shards.valid()) continue;
    // torch/distributed/tensor/_ops/_math_ops.py _NormPartial: squares are summed, and the root is taken of the sum.
    s_.launch({Operation::Power, {2}}, {total}, {total});
    s_.sum_over(shards, total);
    s_.launch({Operation::Power, {0.5}}, {total}, {total});
  }
  // torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
  constexpr double largest_norm = 1, apart_from_zero = 1e-6;
  const Tensor coefficient =
      elementwise(s_, "mul_number", {Operation::AddNumber, {apart_from_zero}}, {&total}, total.dtype);
  s_.launch({Operation::Power, {-1}}, {coefficient}, {coefficient});
  s_.launch({Operation::Scale, {largest_norm}}, {coefficient}, {coefficient});
  const Tensor clamped =
      elementwise(s_, "mul_number", {Operation::Clamp, {-std::numeric_limits<double>::infinity(), 1}}, {&coefficient},
                  coefficient.dtype);
  const List factors(gradients.size(), clamped);
  foreach (s_, Operation::Multiply, {&gradients, &factors}, gradients)
    ;
}

void TorchOptimizer::make_state(State& state) {
  if (!state.moments.empty()) return;
  const int of_adam = habits_.amsgrad ? 3 : 2;
  const int moments = train_.optimizer == Optimizer::AdamW         ? of_adam
                      : train_.optimizer == Optimizer::SgdMomentum ? 1
                                                                   : 0;
  static constexpr std::string_view names[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  const Tensor& value = state.parameter->value;
  if (habits_.optimizer == OptimizerKernels::Fused && train_.optimizer == Optimizer::AdamW) {
    state.step = s_.empty({}, DType::FP32, "step", Category::OptimizerMoments);
    s_.launch({Operation::Fill, {0}}, {}, {state.step});
  }
  for (int m = 0; m < moments; ++m) {
    state.moments.push_back(
        s_.empty(value.sizes, value.dtype, moments > 1 ? names[m] : "momentum_buffer", Category::OptimizerMoments));
    s_.launch({Operation::Fill, {0}}, {}, {state.moments.back()});
  }
}

bool TorchOptimizer::shrinks_weights() const {
  return habits_.weight_decay != 0 && train_.optimizer == Optimizer::AdamW && habits_.decoupled_weight_decay;
}

// adam.py, sgd.py: grad.add(param, alpha=weight_decay), where AdamW shrinks the weights, and fused kernels do it
// inside.
bool TorchOptimizer::decays_gradients() const {
  return habits_.weight_decay != 0 && !shrinks_weights() && habits_.optimizer != OptimizerKernels::Fused;
}

TorchOptimizer::AdamStep TorchOptimizer::adam_step() const {
  return {usual_learning_rate / (1 - std::pow(beta1, steps_)), std::sqrt(1 - std::pow(beta2, steps_))};
}

void TorchOptimizer::update(State& state, Tensor& gradient, Tensor& denominator) {
  const Tensor& value = state.parameter->value;
  gradient = state.parameter->gradient;
  if (decays_gradients())
    gradient = elementwise(s_, "add", {Operation::AddScaled, {habits_.weight_decay}}, {&gradient, &value}, value.dtype);
  make_state(state);
  if (train_.optimizer != Optimizer::AdamW) {
    const Tensor& step = state.moments.empty() ? gradient : state.moments[0];
    if (!state.moments.empty()) {
      s_.launch({Operation::Scale, {usual_momentum}}, {step}, {step});
      s_.launch({Operation::AddScaled, {1}}, {step, gradient}, {step});
    }
    s_.launch({Operation::AddScaled, {-usual_learning_rate}}, {value, step}, {value});
    return;
  }
  const AdamStep step = adam_step();
  const Tensor &mean = state.moments[0], &squares = state.moments[1], &largest = state.moments.back();
  if (shrinks_weights())
    s_.launch({Operation::Scale, {1 - usual_learning_rate * habits_.weight_decay}}, {value}, {value});
  s_.launch({Operation::Lerp, {1 - beta1}}, {mean, gradient}, {mean});
  s_.launch({Operation::Scale, {beta2}}, {squares}, {squares});
  s_.launch({Operation::AddProduct, {1 - beta2}}, {squares, gradient, gradient}, {squares});
  if (habits_.amsgrad) s_.launch(Operation::Maximum, {largest, squares}, {largest});
  // denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps): the last parameter's goes when this one is there.
  const auto next = [&] {
    const Tensor root = elementwise(s_, "mul_number", {Operation::Power, {0.5}}, {&largest}, largest.dtype);
    Tensor made = mul_number(s_, root, 1 / step.root_correction);
    s_.launch({Operation::AddNumber, {epsilon}}, {made}, {made});
    return made;
  };
  denominator = next();
  s_.launch({Operation::AddQuotient, {-step.size}}, {value, mean, denominator}, {value});
}

void TorchOptimizer::update_all_at_once() {
  List values, gradients;
  for (const State& state : states_) {
    values.push_back(state.parameter->value.detached());
    gradients.push_back(state.parameter->gradient);
  }
  if (decays_gradients()) {
    List sums;
    for (const Tensor& t : values) sums.push_back(s_.empty_strided(t.sizes, t.strides, t.dtype, "add"));
    foreach (s_, {Operation::AddScaled, {habits_.weight_decay}}, {&gradients, &values}, sums)
      ;
    gradients = std::move(sums);
  }
  for (State& state : states_) make_state(state);
  if (train_.optimizer == Optimizer::AdamW)
    update_by_adam(values, gradients);
  else
    update_by_sgd(values, gradients);
  drop(gradients);
}

List TorchOptimizer::moments(std::size_t which) const {
  List all;
  for (const State& state : states_) all.push_back(state.moments[which]);
  return all;
}

void TorchOptimizer::update_by_adam(const List& values, const List& gradients) {
  const AdamStep step = adam_step();
  const List means = moments(0), squares = moments(1), largest = habits_.amsgrad ? moments(2) : squares;
  if (shrinks_weights())
    foreach (s_, {Operation::Scale, {1 - usual_learning_rate * habits_.weight_decay}}, {&values}, values)
      ;
  foreach (s_, {Operation::Lerp, {1 - beta1}}, {&means, &gradients}, means)
    ;
  foreach (s_, {Operation::Scale, {beta2}}, {&squares}, squares)
    ;
  foreach (s_, {Operation::AddProduct, {1 - beta2}}, {&squares, &gradients, &gradients}, squares)
    ;
  if (habits_.amsgrad)
    foreach (s_, Operation::Maximum, {&largest, &squares}, largest)
      ;
  // exp_avg_sq_sqrt = torch._foreach_sqrt(exp_avg_sqs), or of their largest: the same.
  List roots;
  for (const Tensor& t : largest) roots.push_back(s_.empty(t.sizes, t.dtype, "exp_avg_sq_sqrt"));
  foreach (s_, {Operation::Power, {0.5}}, {&largest}, roots)
    ;
  foreach (s_, {Operation::Scale, {1 / step.root_correction}}, {&roots}, roots)
    ;
  foreach (s_, {Operation::AddNumber, {epsilon}}, {&roots}, roots)
    ;
  foreach (s_, {Operation::AddQuotient, {-step.size}}, {&values, &means, &roots}, values)
    ;
  drop(roots);
}

// The first gradient becomes the momentum, as it does of zeros.
void TorchOptimizer::update_by_sgd(const List& values, const List& gradients) {
  const bool has_momentum = train_.optimizer == Optimizer::SgdMomentum;
  const List buffers = has_momentum ? moments(0) : List{};
  if (has_momentum) {
    foreach (s_, {Operation::Scale, {usual_momentum}}, {&buffers}, buffers)
      ;
    foreach (s_, {Operation::AddScaled, {1}}, {&buffers, &gradients}, buffers)
      ;
  }
  foreach (s_, {Operation::AddScaled, {-usual_learning_rate}}, {&values, has_momentum ? &buffers : &gradients}, values)
    ;
}

void TorchOptimizer::update_fused() {
  const bool adam = train_.optimizer == Optimizer::AdamW;
  List read, written;
  for (const State& state : states_) {
    const auto moment = [&](std::size_t which) {
      return which < state.moments.size() ? state.moments[which] : Tensor{};
    };
    const List kept = adam ? List{moment(0), moment(1), moment(2), state.step} : List{moment(0)};
    read.push_back(state.parameter->value);
    read.push_back(state.parameter->gradient);
    written.push_back(state.parameter->value);
    for (List* const list : {&read, &written}) list->insert(list->end(), kept.begin(), kept.end());
  }
  const double decay = habits_.weight_decay, of_gradients = shrinks_weights() ? 0 : decay;
  if (adam)
    s_.launch({Operation::Adam, {usual_learning_rate, decay - of_gradients, of_gradients}}, read, written);
  else
    s_.launch({Operation::Sgd, {usual_learning_rate, usual_momentum, of_gradients}}, read, written);
}

void TorchOptimizer::step() {
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "optimizer");
  s_.mark(Phase::OptimizerStep, "optimizer_step");
  ++steps_;
  // adam.py _init_group makes all state first, sgd.py where a buffer is first needed: by its fused kernel, all.
  if (train_.optimizer == Optimizer::AdamW || habits_.optimizer == OptimizerKernels::Fused)
    for (State& state : states_) make_state(state);
  switch (habits_.optimizer) {
    case OptimizerKernels::Foreach:
      update_all_at_once();
      return;
    case OptimizerKernels::Fused:
      update_fused();
      return;
    case OptimizerKernels::ForLoop: {
      Tensor gradient, denominator;
      for (State& state : states_) update(state, gradient, denominator);
      return;
    }
  }
}

std::vector<Tensor*> TorchOptimizer::kept() {
  std::vector<Tensor*> all;
  for (State& state : states_)
    for (Tensor& moment : state.moments) all.push_back(&moment);
  return all;
}

void TorchOptimizer::zero_grad() {
  s_.mark(Phase::OptimizerStep, "zero_grad");
  for (State& state : states_) state.parameter->gradient = Tensor{};
}

}  // namespace tidemark::parallel::pytorch
