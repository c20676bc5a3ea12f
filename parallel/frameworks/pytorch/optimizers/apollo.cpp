#include <cmath>
#include <string_view>

#include "parallel/frameworks/pytorch/optimizers/projected_adam.hpp"
#include "parallel/torch/operation.hpp"

// apollo_torch/apollo.py, random_projector.py (1.0.3): moments of a gradient that was projected to a few dimensions say
// how far each channel of the gradient itself goes. As transformers sets it up: "random", "channel", "std".

namespace tidemark::parallel::pytorch {
namespace {

constexpr double apart_from_zero = 1e-8;

class ApolloRule final : public ProjectedAdam {
 public:
  using ProjectedAdam::ProjectedAdam;

 private:
  // get_orthogonal_matrix: random numbers beside a wide copy of the gradient, of which it asks the sizes.
  [[nodiscard]] Tensor projection_of(const Tensor& gradient, bool right) override {
    const Shape sizes = right ? Shape{rank(), gradient.size(1)} : Shape{gradient.size(0), rank()};
    const Tensor wide = to(s_, gradient, DType::FP32);
    const auto scaled = [&] {
      const Tensor random = s_.empty(sizes, DType::FP32, "randn");
      s_.launch({Operation::Fill, {1}}, {}, {random});
      const double share = 1 / std::sqrt(static_cast<double>(rank()));
      return elementwise(s_, "projection", {Operation::Scale, {share}}, {&random}, DType::FP32);
    };
    Tensor made = scaled();
    made = to(s_, made, gradient.dtype);
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

  void bring_back(State& state, Variables& its) override {
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
};

}  // namespace

UpdateRulePtr apollo_rule(Session& session, const EagerBehavior& behavior, const Parameters& parameters) {
  return std::make_unique<ApolloRule>(session, behavior, parameters);
}

}  // namespace tidemark::parallel::pytorch
