#include <algorithm>
#include <cmath>
#include <string_view>

#include "parallel/frameworks/pytorch/update_rule.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/products.hpp"

// galore_torch/adamw.py, galore_projector.py (1.0): moments of a gradient that was projected to its first singular
// vectors, and the update brought back. As transformers sets it up: "std", every 200 steps.

namespace tidemark::parallel::pytorch {
namespace {

constexpr double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
constexpr double usual_scale = 0.25;      // trainer_optimizer.py _get_galore_optimizer
constexpr std::int64_t usual_rank = 128;  // the same

class GaloreRule final : public UpdateRule {
 public:
  // trainer_optimizer.py _setup_low_rank_optimizer: parameters that are not projected are a group of their own, the
  // first.
  GaloreRule(Session& session, const EagerHabits& habits, const Parameters& parameters)
      : s_(session),
        habits_(habits),
        rank_(habits.small_optimizer.rank > 0 ? habits.small_optimizer.rank : usual_rank) {
    for (const bool projected : {false, true})
      for (const std::shared_ptr<Leaf>& p : parameters)
        if ((p->role == ParameterRole::Hidden && p->value.sizes.size() == 2) == projected)
          states_.push_back({p, projected, {}, {}, {}});
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
    Tensor projection;
    Tensor mean, squares;
  };
  // What step's variables hold until the next parameter has its own.
  struct Variables {
    Tensor gradient, denominator, update;
  };

  struct Decomposition {
    Tensor u, s, vh;
  };

  // torch.linalg.svd(full_matrices=False), by cuSOLVER's gesvdj (BatchLinearAlgebraLib.cpp): of a copy by columns,
  // which it overwrites. U lies by columns, V^H by rows. Which numbers come out is left to copies of others.
  [[nodiscard]] Decomposition decomposed(const Tensor& matrix) {
    const std::int64_t rows = matrix.size(0), columns = matrix.size(1), least = std::min(rows, columns);
    Decomposition made;
    made.u = s_.empty_strided({rows, least}, {1, rows}, DType::FP32, "svd_u");
    made.s = s_.empty({least}, DType::FP32, "svd_s");
    made.vh = s_.empty({least, columns}, DType::FP32, "svd_vh");
    const Tensor info = s_.empty({}, DType::INT32, "svd_info");
    s_.launch({Operation::Fill, {0}}, {}, {info});
    const Tensor copy = s_.empty_strided({rows, columns}, {1, rows}, DType::FP32, "svd_copy");
    s_.launch(Operation::Copy, {matrix}, {copy});
    s_.launch(Operation::Copy, {narrowed(copy, 1, 0, least)}, {made.u});
    s_.launch(Operation::Copy, {narrowed(copy, 0, 0, least)}, {made.vh});
    s_.launch(Operation::Copy, {sized(narrowed(rows < columns ? made.u : made.vh, 1, 0, 1), {least})}, {made.s});
    return made;
  }

  // get_orthogonal_matrix: of fp32 gradients a view, which holds all of the vectors.
  [[nodiscard]] Tensor first_vectors(const Tensor& gradient, bool right) {
    const Tensor matrix = to(s_, gradient, DType::FP32);
    const Decomposition made = decomposed(matrix);
    const std::int64_t rank = std::min(rank_, made.s.size(0));
    const Tensor first = right ? narrowed(made.vh, 0, 0, rank) : narrowed(made.u, 1, 0, rank);
    return to(s_, first, gradient.dtype);
  }

  [[nodiscard]] Tensor project(State& state, const Tensor& gradient) {
    const bool right = gradient.size(0) >= gradient.size(1);
    if (!state.projection.defined()) {
      state.projection = first_vectors(gradient, right);
      s_.reclassify(state.projection, Category::OptimizerMoments);
    }
    return right ? linear(s_, gradient, state.projection, {})
                 : conv1d(s_, swapped(state.projection, 0, 1), gradient, {});
  }

  [[nodiscard]] Tensor project_back(const State& state, const Tensor& update) {
    const bool right = update.size(0) >= update.size(1);
    const Tensor whole = conv1d(s_, right ? update : state.projection, right ? state.projection : update, {});
    return elementwise(s_, "norm_grad", {Operation::Scale, {usual_scale}}, {&whole}, whole.dtype);
  }

  [[nodiscard]] Tensor zeros_like(const Tensor& x, std::string_view what) {
    Tensor made = s_.empty(x.sizes, x.dtype, what, Category::OptimizerMoments);
    s_.launch({Operation::Fill, {0}}, {}, {made});
    return made;
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
    its.update = elementwise(s_, "norm_grad", Operation::Divide, {&state.mean, &its.denominator}, state.mean.dtype);
    if (state.projected) its.update = project_back(state, its.update);
    s_.launch({Operation::AddScaled, {-size}}, {value, its.update}, {value});
    if (habits_.weight_decay != 0)
      s_.launch({Operation::AddScaled, {-usual_learning_rate * habits_.weight_decay}}, {value, value}, {value});
  }

  Session& s_;
  const EagerHabits& habits_;
  std::int64_t rank_;
  std::vector<State> states_;
};

}  // namespace

UpdateRulePtr galore_rule(Session& session, const EagerHabits& habits, const Parameters& parameters) {
  return std::make_unique<GaloreRule>(session, habits, parameters);
}

}  // namespace tidemark::parallel::pytorch
