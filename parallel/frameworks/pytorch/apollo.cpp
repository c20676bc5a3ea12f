#include <cmath>
#include <string_view>

#include "parallel/frameworks/pytorch/update_rule.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/products.hpp"

// apollo_torch/apollo.py, random_projector.py (1.0.3): moments of a gradient that was projected to a few dimensions say
// how far each channel of the gradient itself goes. As transformers sets it up: "random", "channel", "std".

namespace tidemark::parallel::pytorch {
namespace {

constexpr double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, apart_from_zero = 1e-8;
constexpr std::int64_t usual_rank = 128;  // trainer_optimizer.py _get_apollo_optimizer

class ApolloRule final : public UpdateRule {
 public:
  // trainer_optimizer.py _setup_low_rank_optimizer: parameters that are not projected are a group of their own, the
  // first.
  ApolloRule(Session& session, const EagerHabits& habits, const Parameters& parameters) : s_(session), habits_(habits) {
    for (const bool projected : {false, true})
      for (const std::shared_ptr<Leaf>& p : parameters)
        if ((p->role == ParameterRole::Hidden && p->value.sizes.size() == 2) == projected)
          states_.push_back({p, projected, {}, {}, {}, {}});
  }

  void step(std::int32_t number) override {
    const double size = usual_learning_rate * std::sqrt(1 - std::pow(beta2, number)) / (1 - std::pow(beta1, number));
    Variables its;
    for (State& state : states_)
      if (state.parameter->gradient.defined()) update(state, size, its);
  }

 private:
  struct State {
    std::shared_ptr<Leaf> parameter;
    bool projected;
    Tensor projection;  ///< drawn anew every 200 steps
    Tensor mean, squares;
    Tensor norm;  ///< of the last step's scaled gradient
  };
  // What step's variables hold until the next parameter has its own.
  struct Variables {
    Tensor gradient, denominator, update, factor, scaled, scaled_norm, limiter;
  };

  // get_orthogonal_matrix: random numbers beside a wide copy of the gradient, of which it asks the sizes.
  [[nodiscard]] Tensor drawn(const Tensor& gradient, const Shape& sizes, std::int64_t rank) {
    const Tensor wide = to(s_, gradient, DType::FP32);
    const auto scaled = [&] {
      const Tensor random = s_.empty(sizes, DType::FP32, "randn");
      s_.launch({Operation::Fill, {1}}, {}, {random});
      const double share = 1 / std::sqrt(static_cast<double>(rank));
      return elementwise(s_, "projection", {Operation::Scale, {share}}, {&random}, DType::FP32);
    };
    Tensor made = scaled();
    made = to(s_, made, gradient.dtype);
    return made;
  }

  [[nodiscard]] Tensor project(State& state, const Tensor& gradient) {
    const std::int64_t rows = gradient.size(0), columns = gradient.size(1);
    const std::int64_t rank = habits_.small_optimizer.rank > 0 ? habits_.small_optimizer.rank : usual_rank;
    const bool right = rows >= columns;
    if (!state.projection.defined()) {
      state.projection = drawn(gradient, right ? Shape{rank, columns} : Shape{rows, rank}, rank);
      s_.reclassify(state.projection, Category::OptimizerMoments);
    }
    return right ? linear(s_, gradient, state.projection, {})
                 : conv1d(s_, swapped(state.projection, 0, 1), gradient, {});
  }

  [[nodiscard]] Tensor zeros_like(const Tensor& x, std::string_view what) {
    Tensor made = s_.empty(x.sizes, x.dtype, what, Category::OptimizerMoments);
    s_.launch({Operation::Fill, {0}}, {}, {made});
    return made;
  }

  // torch.norm(x, dim)
  [[nodiscard]] Tensor norm_along(const Tensor& x, int dimension) {
    const Tensor squares = s_.in_registers(x.sizes, x.strides, x.dtype, "squares");
    s_.launch({Operation::Power, {2}}, {x}, {squares});
    Tensor norm = sum_to(s_, squares, with_size(x.sizes, dimension, 1));
    s_.launch({Operation::Power, {0.5}}, {norm}, {norm});
    return norm;
  }
  [[nodiscard]] Tensor norm_of(const Tensor& x) {
    Tensor norm = s_.empty({}, x.dtype, "norm");
    s_.launch(Operation::Norm, {x}, {norm});
    return norm;
  }
  [[nodiscard]] Tensor divided(const Tensor& x, const Tensor& by, std::string_view what) {
    return elementwise(s_, what, Operation::Divide, {&x, &by}, x.dtype);
  }
  [[nodiscard]] Tensor away_from_zero(const Tensor& x) {
    return elementwise(s_, "add_number", {Operation::AddNumber, {apart_from_zero}}, {&x}, x.dtype);
  }

  void scale(State& state, Variables& its) {
    const Tensor& gradient = state.parameter->gradient;
    const int along = gradient.size(0) < gradient.size(1) ? 0 : 1;
    const auto factor = [&] {
      const Tensor of_update = norm_along(its.update, along), of_gradient = norm_along(its.gradient, along);
      return divided(of_update, away_from_zero(of_gradient), "factor");
    };
    its.factor = factor();
    its.scaled = elementwise(s_, "scaled_grad", Operation::Multiply, {&gradient, &its.factor}, gradient.dtype);
    if (state.norm.defined()) {  // the norm-growth limiter
      its.scaled_norm = norm_of(its.scaled);
      const auto limiter = [&] {
        const Tensor ratio = divided(its.scaled_norm, away_from_zero(state.norm), "ratio");
        return elementwise(s_, "limiter", {Operation::Scale, {1}}, {&ratio}, ratio.dtype);
      };
      its.limiter = limiter();
      its.scaled = divided(its.scaled, its.limiter, "scaled_grad");
      state.norm = divided(its.scaled_norm, its.limiter, "norm");
    } else {
      state.norm = norm_of(its.scaled);
    }
    s_.reclassify(state.norm, Category::OptimizerMoments);
    its.update = its.scaled;
    s_.launch({Operation::Scale, {1}}, {its.update}, {its.update});
  }

  void update(State& state, double size, Variables& its) {
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
    its.update = divided(state.mean, its.denominator, "norm_grad");
    if (state.projected) scale(state, its);
    s_.launch({Operation::AddScaled, {-size}}, {value, its.update}, {value});
    if (habits_.weight_decay != 0)
      s_.launch({Operation::AddScaled, {-usual_learning_rate * habits_.weight_decay}}, {value, value}, {value});
  }

  Session& s_;
  const EagerHabits& habits_;
  std::vector<State> states_;
};

}  // namespace

UpdateRulePtr apollo_rule(Session& session, const EagerHabits& habits, const Parameters& parameters) {
  return std::make_unique<ApolloRule>(session, habits, parameters);
}

}  // namespace tidemark::parallel::pytorch
