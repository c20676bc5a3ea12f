#include <utility>

#include "parallel/frameworks/megatron/experts/expert_biases.hpp"
#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/ops/indexing.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

// core/fusions/fused_bias_swiglu.py WeightedSwiGLUFunction, fused_bias_geglu.py WeightedQuickGeGLUFunction.
Tensor ExpertActivation::in_one_kernel(const Tensor& fc1_out, const Tensor& probabilities) {
  const bool clamped = experts_.clamped_gate;
  const Tensor x = clamped ? clamped_halves(w_, name_, fc1_out) : fc1_out;
  const Attributes gate = clamped ? Attributes{1.702, 1} : Attributes{1, 0};
  const auto node = w_.node(name_(), {&x, &probabilities});
  Saved input, weights;
  if (node) input = w_.session.save(x), weights = w_.session.save(probabilities);
  Tensor out = w_.temporary(name_(), {x.size(0), x.size(1) / 2});
  w_.launch({Operation::WeightedSwiGlu, gate}, {x, Tensor{}, probabilities}, {out});
  if (!node) return out;
  node->apply = [this, gate, input = std::move(input), weights = std::move(weights)](Gradients& gradients) mutable {
    const Tensor of = w_.take(input), by = w_.take(weights);
    Tensor dx = w_.like(name_("input_gradient"), of), dprobs = w_.like(name_("probs_gradient"), by);
    w_.launch({Operation::WeightedSwiGluBackward, gate}, {std::move(gradients.front()), of, Tensor{}, by},
              {dx, dprobs});
    return Gradients{std::move(dx), std::move(dprobs)};
  };
  return with(std::move(out), node);
}

namespace {

// torch.nn.functional.gelu, core/activations.py squared_relu; core/transformer/mlp.py glu.
Tensor activated(Session& s, Activation activation, const Tensor& x) {
  const auto halves = [&] {
    const std::int64_t half = x.size(-1) / 2;
    return torch::split_last(s, x, {half, half});
  };
  switch (activation) {
    case Activation::Gelu:
      return torch::gelu(s, x, torch::Approximate::None);
    case Activation::SquaredRelu:
      return torch::pow_number(s, torch::relu(s, x), 2);
    case Activation::SwiGlu: {
      const std::vector<Tensor> parts = halves();
      return torch::mul(s, torch::silu(s, parts[0]), parts[1]);
    }
    case Activation::GeGlu: {
      const std::vector<Tensor> parts = halves();
      return torch::mul(s, torch::gelu(s, parts[0], torch::Approximate::None), parts[1]);
    }
  }
  return {};
}

}  // namespace

Tensor ExpertActivation::operator()(const Tensor& x, const Tensor& probabilities) {
  w_.mark(Phase::Forward, name_);
  if (w_.runtime.fused_bias_activation || experts_.clamped_gate) {
    ensure(w_.model.activation == Activation::SwiGlu, "experts' fused activation is SwiGLU: readers check");
    return in_one_kernel(x, probabilities);
  }
  Session& s = w_.session;
  const Session::Scope scope(s, name_());
  Tensor active = activated(s, w_.model.activation, x);
  const DType type = active.dtype;
  active = torch::mul(s, active, torch::unsqueeze(s, probabilities, 1));
  return torch::to(s, active, type);
}

}  // namespace tidemark::parallel::megatron
