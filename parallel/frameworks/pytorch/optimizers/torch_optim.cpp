#include <cmath>
#include <initializer_list>
#include <string_view>

#include "parallel/frameworks/pytorch/optimizers/update_rule.hpp"
#include "parallel/torch/operation.hpp"

// torch/optim/adamw.py, adam.py, sgd.py, as they call tensor operations.

namespace tidemark::parallel::pytorch {
namespace {

using List = std::vector<Tensor>;

class TorchRule final : public UpdateRule {
 public:
  TorchRule(Session& session, Optimizer kind, const EagerBehavior& behavior, const Parameters& parameters)
      : s_(session), kind_(kind), behavior_(behavior) {
    for (const std::shared_ptr<Leaf>& p : parameters) states_.push_back({p, {}, {}});
  }

  void step(std::int32_t number) override;
  std::vector<Tensor*> kept() override;

 private:
  struct State {
    std::shared_ptr<Leaf> parameter;
    List moments;
    Tensor step;  ///< on the device where the fused kernel counts there
  };
  /// How far Adam goes in a step.
  struct AdamStep {
    double size;             ///< the learning rate over the first moments' bias correction
    double root_correction;  ///< by which roots of second moments are divided
  };
  [[nodiscard]] AdamStep adam_step() const;
  void make_state(State& state);
  [[nodiscard]] bool decays_gradients() const;
  [[nodiscard]] bool shrinks_weights() const;
  void update(State& state, Tensor& gradient, Tensor& denominator);
  void update_all_at_once();
  void update_by_adam(const List& values, List& gradients);
  void update_by_sgd(const List& values, const List& gradients);
  [[nodiscard]] Tensor own_rows(const Leaf& parameter, const Tensor& gradient) const;
  [[nodiscard]] List own_rows(const List& gradients) const;  ///< of all parameters
  [[nodiscard]] List moments(std::size_t which) const;       ///< of all parameters
  void update_fused();

  Session& s_;
  Optimizer kind_;
  const EagerBehavior& behavior_;
  std::vector<State> states_;
  std::vector<State*> updated_;  ///< of those that have a gradient in this step
  std::int32_t steps_ = 0;       ///< begun so far
};

void TorchRule::make_state(State& state) {
  if (!state.moments.empty()) return;
  const int of_adam = behavior_.amsgrad ? 3 : 2;
  const int moments = kind_ == Optimizer::AdamW ? of_adam : kind_ == Optimizer::SgdMomentum ? 1 : 0;
  static constexpr std::string_view names[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  const Tensor& value = state.parameter->value;
  if (behavior_.optimizer == OptimizerKernels::Fused && kind_ == Optimizer::AdamW) {
    state.step = s_.empty({}, DType::FP32, "step", Category::OptimizerMoments);
    s_.launch({Operation::Fill, {0}}, {}, {state.step});
  }
  for (int m = 0; m < moments; ++m) {
    state.moments.push_back(
        s_.empty(value.sizes, value.dtype, moments > 1 ? names[m] : "momentum_buffer", Category::OptimizerMoments));
    s_.launch({Operation::Fill, {0}}, {}, {state.moments.back()});
  }
}

bool TorchRule::shrinks_weights() const {
  return behavior_.weight_decay != 0 && kind_ == Optimizer::AdamW && behavior_.decoupled_weight_decay;
}

// adam.py, sgd.py: grad.add(param, alpha=weight_decay), where AdamW shrinks the weights, and fused kernels do it
// inside.
bool TorchRule::decays_gradients() const {
  return behavior_.weight_decay != 0 && !shrinks_weights() && behavior_.optimizer != OptimizerKernels::Fused;
}

TorchRule::AdamStep TorchRule::adam_step() const {
  return {usual_learning_rate / (1 - std::pow(beta1, steps_)), std::sqrt(1 - std::pow(beta2, steps_))};
}

// torch/distributed/tensor/_dispatch.py redistribute_local_args: operations on parts of a DTensor are given parts of
// what every rank has whole (placement_types.py _replicate_to_shard), which go when they are over.
Tensor TorchRule::own_rows(const Leaf& parameter, const Tensor& gradient) const {
  if (!parameter.rows_of_whole_gradient) return gradient;
  const Tensor own = s_.empty(parameter.value.sizes, gradient.dtype, "chunk");
  s_.launch(Operation::Copy, {narrowed(gradient, 0, *parameter.rows_of_whole_gradient, own.sizes.front())}, {own});
  return own;
}

List TorchRule::own_rows(const List& gradients) const {
  List own;
  for (std::size_t i = 0; i < updated_.size(); ++i) own.push_back(own_rows(*updated_[i]->parameter, gradients[i]));
  return own;
}

void TorchRule::update(State& state, Tensor& gradient, Tensor& denominator) {
  const Tensor& value = state.parameter->value;
  gradient = state.parameter->gradient;
  if (decays_gradients())
    gradient =
        elementwise(s_, "add", {Operation::AddScaled, {behavior_.weight_decay}}, {&gradient, &value}, value.dtype);
  make_state(state);
  if (kind_ != Optimizer::AdamW) {
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
    s_.launch({Operation::Scale, {1 - usual_learning_rate * behavior_.weight_decay}}, {value}, {value});
  const auto own = [&] { return own_rows(*state.parameter, gradient); };
  s_.launch({Operation::Lerp, {1 - beta1}}, {mean, own()}, {mean});
  s_.launch({Operation::Scale, {beta2}}, {squares}, {squares});
  s_.launch({Operation::AddProduct, {1 - beta2}}, {squares, own(), own()}, {squares});
  if (behavior_.amsgrad) s_.launch(Operation::Maximum, {largest, squares}, {largest});
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

void TorchRule::update_all_at_once() {
  List values, gradients;
  for (const State* const state : updated_) {
    values.push_back(state->parameter->value.detached());
    gradients.push_back(state->parameter->gradient);
  }
  if (decays_gradients()) {
    List sums;
    for (const Tensor& t : values) sums.push_back(s_.empty_strided(t.sizes, t.strides, t.dtype, "add"));
    foreach (s_, {Operation::AddScaled, {behavior_.weight_decay}}, {&gradients, &values}, sums)
      ;
    gradients = std::move(sums);
  }
  for (State* const state : updated_) make_state(*state);
  if (kind_ == Optimizer::AdamW)
    update_by_adam(values, gradients);
  else
    update_by_sgd(values, gradients);
  drop(gradients);
}

List TorchRule::moments(std::size_t which) const {
  List all;
  for (const State* const state : updated_) all.push_back(state->moments[which]);
  return all;
}

void TorchRule::update_by_adam(const List& values, List& gradients) {
  const AdamStep step = adam_step();
  const List means = moments(0), squares = moments(1), largest = behavior_.amsgrad ? moments(2) : squares;
  if (shrinks_weights())
    foreach (s_, {Operation::Scale, {1 - usual_learning_rate * behavior_.weight_decay}}, {&values}, values)
      ;
  {
    List own = own_rows(gradients);
    foreach (s_, {Operation::Lerp, {1 - beta1}}, {&means, &own}, means)
      ;
  }
  foreach (s_, {Operation::Scale, {beta2}}, {&squares}, squares)
    ;
  {
    List first = own_rows(gradients), second = own_rows(gradients);
    foreach (s_, {Operation::AddProduct, {1 - beta2}}, {&squares, &first, &second}, squares)
      ;
  }
  drop(gradients);  // del device_grads, scaled_device_grads: those that were decayed go before roots are made
  if (behavior_.amsgrad)
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
void TorchRule::update_by_sgd(const List& values, const List& gradients) {
  const bool has_momentum = kind_ == Optimizer::SgdMomentum;
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

void TorchRule::update_fused() {
  const bool adam = kind_ == Optimizer::AdamW;
  List read, written;
  for (const State* const state : updated_) {
    const auto moment = [&](std::size_t which) {
      return which < state->moments.size() ? state->moments[which] : Tensor{};
    };
    const List kept = adam ? List{moment(0), moment(1), moment(2), state->step} : List{moment(0)};
    read.push_back(state->parameter->value);
    read.push_back(own_rows(*state->parameter, state->parameter->gradient));
    written.push_back(state->parameter->value);
    for (List* const list : {&read, &written}) list->insert(list->end(), kept.begin(), kept.end());
  }
  const double decay = behavior_.weight_decay, of_gradients = shrinks_weights() ? 0 : decay;
  if (adam)
    s_.launch({Operation::Adam, {usual_learning_rate, decay - of_gradients, of_gradients}}, read, written);
  else
    s_.launch({Operation::Sgd, {usual_learning_rate, usual_momentum, of_gradients}}, read, written);
}

void TorchRule::step(std::int32_t number) {
  steps_ = number;
  updated_.clear();
  for (State& state : states_)
    if (state.parameter->gradient.defined()) updated_.push_back(&state);
  if (updated_.empty()) return;  // of a rank that has no row of any parameter
  // adam.py _init_group makes all state first, sgd.py where a buffer is first needed: by its fused kernel, all.
  if (kind_ == Optimizer::AdamW || behavior_.optimizer == OptimizerKernels::Fused)
    for (State* const state : updated_) make_state(*state);
  switch (behavior_.optimizer) {
    case OptimizerKernels::Foreach:
      update_all_at_once();
      return;
    case OptimizerKernels::Fused:
      update_fused();
      return;
    case OptimizerKernels::ForLoop: {
      Tensor gradient, denominator;
      for (State* const state : updated_) update(*state, gradient, denominator);
      return;
    }
  }
}

std::vector<Tensor*> TorchRule::kept() {
  std::vector<Tensor*> all;
  for (State& state : states_)
    for (Tensor& moment : state.moments) all.push_back(&moment);
  return all;
}

}  // namespace

UpdateRulePtr torch_rule(Session& session, Optimizer kind, const EagerBehavior& behavior,
                         const Parameters& parameters) {
  return std::make_unique<TorchRule>(session, kind, behavior, parameters);
}

}  // namespace tidemark::parallel::pytorch
