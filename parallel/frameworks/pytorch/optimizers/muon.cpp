#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "parallel/frameworks/pytorch/optimizers/update_rule.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/products.hpp"

// torch/optim/_muon.py: momentum made orthogonal, of matrices; an AdamW of torch.optim has the other parameters.

namespace tidemark::parallel::pytorch {
namespace {

// torch.optim.Muon's defaults.
constexpr double momentum = 0.95, a = 3.4445, b = -4.7750, c = 2.0315, least_norm = 1e-7;
constexpr int iterations = 5;

class MuonRule final : public UpdateRule {
 public:
  MuonRule(Session& session, const EagerBehavior& behavior, const Parameters& parameters)
      : s_(session), behavior_(behavior) {
    Parameters others;
    for (const std::shared_ptr<Leaf>& p : parameters) {
      if (p->role == ParameterRole::Hidden && p->value.sizes.size() == 2)
        matrices_.push_back({p, {}});
      else
        others.push_back(p);
    }
    others_ = torch_rule(session, Optimizer::AdamW, behavior, others);
  }

  void step(std::int32_t number) override {
    for (Matrix& m : matrices_) {
      if (m.buffer.defined()) continue;
      const Tensor& gradient = m.parameter->gradient;
      m.buffer = s_.empty(gradient.sizes, gradient.dtype, "momentum_buffer", Category::OptimizerMoments);
      s_.launch({Operation::Fill, {0}}, {}, {m.buffer});
    }
    {
      Tensor update;  // lives until the next matrix has its own
      for (const Matrix& m : matrices_) take(m, update);
    }
    others_->step(number);
  }

 private:
  struct Matrix {
    std::shared_ptr<Leaf> parameter;
    Tensor buffer;
  };

  void take(const Matrix& m, Tensor& update) {
    const Tensor& value = m.parameter->value;
    const Tensor& gradient = m.parameter->gradient;
    s_.launch({Operation::Lerp, {1 - momentum}}, {m.buffer, gradient}, {m.buffer});
    update = elementwise(s_, "update", {Operation::Lerp, {momentum}}, {&gradient, &m.buffer}, gradient.dtype);
    update = orthogonal(update);
    const double rows = static_cast<double>(value.size(0)), columns = static_cast<double>(value.size(1));
    if (behavior_.weight_decay != 0)
      s_.launch({Operation::Scale, {1 - usual_learning_rate * behavior_.weight_decay}}, {value}, {value});
    s_.launch({Operation::AddScaled, {-usual_learning_rate * std::sqrt(std::max(1.0, rows / columns))}},
              {value, update}, {value});
  }

  // _zeropower_via_newtonschulz, in bf16, of the wider side.
  [[nodiscard]] Tensor orthogonal(const Tensor& update) {
    const bool tall = update.size(0) > update.size(1);
    Tensor x = s_.empty(update.sizes, DType::BF16, "ortho_grad");
    s_.launch(Operation::Copy, {update}, {x});
    if (tall) x = swapped(std::move(x), 0, 1);
    {
      const Tensor norm = s_.empty({}, x.dtype, "norm");
      s_.launch(Operation::Norm, {x}, {norm});
      const Tensor clamped = elementwise(
          s_, "clamp", {Operation::Clamp, {least_norm, std::numeric_limits<double>::infinity()}}, {&norm}, norm.dtype);
      s_.launch(Operation::Divide, {x, clamped}, {x});
    }
    Tensor gram, gram_update;
    for (int i = 0; i < iterations; ++i) {
      gram = linear(s_, x, x, {});
      gram_update = addmm(s_, gram, gram, gram, b, c);
      x = addmm(s_, x, gram_update, x, a, 1);
    }
    return tall ? swapped(std::move(x), 0, 1) : x;
  }

  Session& s_;
  const EagerBehavior& behavior_;
  std::vector<Matrix> matrices_;
  UpdateRulePtr others_;
};

}  // namespace

UpdateRulePtr muon_rule(Session& session, const EagerBehavior& behavior, const Parameters& parameters) {
  return std::make_unique<MuonRule>(session, behavior, parameters);
}

}  // namespace tidemark::parallel::pytorch
