#include "parallel/frameworks/pytorch/optimizers/projected_adam.hpp"

#include <cmath>
#include <string_view>

#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/products.hpp"

// galore_torch/adamw.py (1.0) and apollo_torch/apollo.py (1.0.3).

namespace tidemark::parallel::pytorch {
namespace {

constexpr std::int64_t usual_rank = 128;  // trainer_optimizer.py _get_galore_optimizer, _get_apollo_optimizer

}  // namespace

// trainer_optimizer.py _setup_low_rank_optimizer: parameters that are not projected are a group of their own, the
// first.
ProjectedAdam::ProjectedAdam(Session& session, const EagerBehavior& behavior, const Parameters& parameters)
    : s_(session), behavior_(behavior) {
  for (const bool projected : {false, true})
    for (const std::shared_ptr<Leaf>& p : parameters)
      if ((p->role == ParameterRole::Hidden && p->value.sizes.size() == 2) == projected)
        states_.push_back({p, projected, {}, {}, {}, {}});
}

void ProjectedAdam::step(std::int32_t number) {
  const double size = usual_learning_rate * std::sqrt(1 - std::pow(beta2, number)) / (1 - std::pow(beta1, number));
  Variables its;
  for (State& state : states_)
    if (state.parameter->gradient.defined()) update(state, size, its);
}

std::int64_t ProjectedAdam::rank() const {
  return behavior_.small_optimizer.rank > 0 ? behavior_.small_optimizer.rank : usual_rank;
}

Tensor ProjectedAdam::project(State& state, const Tensor& gradient) {
  const bool right = from_the_right(gradient);
  if (!state.projection.defined()) {
    state.projection = projection_of(gradient, right);
    s_.reclassify(state.projection, Category::OptimizerMoments);
  }
  return right ? linear(s_, gradient, state.projection, {}) : conv1d(s_, swapped(state.projection, 0, 1), gradient, {});
}

Tensor ProjectedAdam::zeros_like(const Tensor& x, std::string_view what) {
  Tensor made = s_.empty(x.sizes, x.dtype, what, Category::OptimizerMoments);
  s_.launch({Operation::Fill, {0}}, {}, {made});
  return made;
}

void ProjectedAdam::update(State& state, double size, Variables& its) {
  const Tensor value = state.parameter->value.detached();
  its.gradient = state.parameter->gradient.detached();
  if (state.projected) its.gradient = project(state, its.gradient);
  if (!state.mean.defined()) {
    state.mean = zeros_like(its.gradient, "exp_avg");
    state.squares = zeros_like(its.gradient, "exp_avg_sq");
  }
  s_.launch({Operation::Scale, {beta1}}, {state.mean}, {state.mean});
  s_.launch({Operation::AddScaled, {1 - beta1}}, {state.mean, its.gradient}, {state.mean});
  s_.launch({Operation::Scale, {beta2}}, {state.squares}, {state.squares});
  s_.launch({Operation::AddProduct, {1 - beta2}}, {state.squares, its.gradient, its.gradient}, {state.squares});
  its.denominator = elementwise(s_, "denom", {Operation::Power, {0.5}}, {&state.squares}, state.squares.dtype);
  s_.launch({Operation::AddNumber, {epsilon}}, {its.denominator}, {its.denominator});
  its.update = elementwise(s_, "norm_grad", Operation::Divide, {&state.mean, &its.denominator}, state.mean.dtype);
  if (state.projected) bring_back(state, its);
  s_.launch({Operation::AddScaled, {-size}}, {value, its.update}, {value});
  if (behavior_.weight_decay != 0)
    s_.launch({Operation::AddScaled, {-usual_learning_rate * behavior_.weight_decay}}, {value, value}, {value});
}

}  // namespace tidemark::parallel::pytorch
