#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/layers.hpp"
#include "parallel/frameworks/megatron/recompute.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

namespace {

std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::SwiGlu:
      return "swiglu";
    case Activation::GeGlu:
      return "geglu";
    case Activation::Gelu:
      return "gelu";
    case Activation::SquaredRelu:
      return "squared_relu";
  }
  return "";
}

// The activation in one kernel; of gated ones both halves.
Operation operation_of(Activation activation) {
  switch (activation) {
    case Activation::SwiGlu:
      return Operation::SwiGlu;
    case Activation::GeGlu:
      return Operation::GeGlu;
    case Activation::Gelu:
      return Operation::Gelu;
    case Activation::SquaredRelu:
      return Operation::SquaredRelu;
  }
  return {};
}

Operation backward_of(Activation activation) {
  switch (activation) {
    case Activation::SwiGlu:
      return Operation::SwiGluBackward;
    case Activation::GeGlu:
      return Operation::GeGluBackward;
    case Activation::Gelu:
      return Operation::GeluBackward;
    case Activation::SquaredRelu:
      return Operation::SquaredReluBackward;
  }
  return {};
}

// core/transformer/mlp.py glu: the first half of what fc1 gives is the gate.
Tensor gate_of(Tensor x) {
  const std::int64_t half = x.size(-1) / 2;
  return narrowed(std::move(x), -1, 0, half);
}
Tensor up_of(Tensor x) {
  const std::int64_t half = x.size(-1) / 2;
  return narrowed(std::move(x), -1, half, half);
}

}  // namespace

Mlp::Mlp(Worker& w, Parameters& parameters, const std::string& at, std::int64_t ffn, Norms norms) : w_(w) {
  const Model& m = w.model;
  const std::int64_t width = gated(m.activation) ? 2 * ffn : ffn;
  const bool own = norms == Norms::Own;
  name_ = w.name(at);
  if (own && m.norms != NormPlacement::After) norm_ = make_norm(w, parameters, at + ".norm");
  fc1_ = make_linear(w, parameters, at + ".fc1", width, m.hidden, WeightCut::Rows, GemmBias::None);
  if (m.mlp_bias) bias_ = parameters.add({.name = at + ".fc1.bias", .rows = width, .cut = WeightCut::Rows});
  activation_ = w.name(fmt::format("{}.{}", at, activation_name(m.activation)));
  fc2_ = make_linear(w, parameters, at + ".fc2", m.hidden, ffn, WeightCut::Columns, GemmBias::None);
  if (m.mlp_bias) output_bias_ = make_output_bias(w, parameters, at + ".fc2");
  fc1_.user_buffer = "fc1", fc2_.user_buffer = "fc2";
  if (own && m.norms != NormPlacement::Before) post_norm_ = make_norm(w, parameters, at + ".post_norm");
}

// core/fusions/fused_bias_gelu.py computes GELU by the hyperbolic tangent; torch.nn.functional.gelu does not.
Attributes Mlp::in_one_kernel() const {
  const bool tanh = w_.model.activation == Activation::Gelu && fused_bias().defined();
  return {tanh ? 1.0 : 0.0};
}

const Tensor& Mlp::fused_bias() const { return value_of(w_.runtime.fused_bias_activation ? bias_ : nullptr); }

Tensor Mlp::activation(Tensor x) {
  w_.mark(Phase::Forward, activation_);
  const auto node = w_.node(activation_(), {&value_of(bias_), &x});
  const Shape shape{x.size(0), gated(w_.model.activation) ? x.size(1) / 2 : x.size(1)};
  bool saves_input = true;
  if (bias_ != nullptr && !w_.runtime.fused_bias_activation) {
    if (node) w_.session.keep_saved(x);
    Tensor biased = w_.like(activation_("biased"), x);
    w_.launch(Operation::Add, {std::move(x), bias_->value}, {biased});
    x = std::move(biased);  // which is what the activation saves
    saves_input = false;
  }
  Tensor held, gate, out;
  Saved kept, kept_gate, kept_up;
  if (node && (saves_input || w_.runtime.offloaded_layers > 0))
    kept = w_.session.save(x);
  else if (node)
    held = x.detached();
  if (gated(w_.model.activation) && !w_.built.options.fused_gate) {  // the gate's activation, and then the product
    gate = w_.temporary(name_("gate"), shape);
    if (w_.model.activation == Activation::SwiGlu)
      w_.launch(Operation::Silu, {gate_of(x)}, {gate});
    else
      w_.launch(Operation::Gelu, {gate_of(x), Tensor{}}, {gate});
    Tensor up = up_of(std::move(x));
    if (w_.runtime.core.offsets_gate) {
      Tensor sum = w_.temporary(name_("up_with_offset"), shape);
      w_.launch(Operation::Copy, {std::move(up)}, {sum});  // the offset is 0
      up = std::move(sum);
      if (node) kept_up = w_.session.save(up);
    }
    out = w_.temporary(activation_(), shape);
    w_.launch(Operation::Multiply, {gate, std::move(up)}, {out});
    if (node) kept_gate = w_.session.save(gate);
    gate = {};
  } else {
    out = w_.temporary(activation_(), shape);
    w_.launch({operation_of(w_.model.activation), in_one_kernel()}, {std::move(x), fused_bias()}, {out});
  }
  if (!node) return out;
  node->apply = [this, held = std::move(held), kept = std::move(kept), kept_gate = std::move(kept_gate),
                 kept_up = std::move(kept_up)](Gradients& gradients) mutable {
    Tensor input = kept ? w_.take(kept) : std::move(held);
    Tensor its_gate = kept_gate ? w_.take(kept_gate) : Tensor{};
    Tensor its_up = kept_up ? w_.take(kept_up) : Tensor{};
    return activation_gradient(std::move(gradients.front()), std::move(input), std::move(its_gate), std::move(its_up));
  };
  return with(std::move(out), node);
}

Gradients Mlp::activation_gradient(Tensor gradient, Tensor input, Tensor gate, Tensor offset_up) {
  const Shape shape = input.sizes;
  Tensor dx;
  if (gate.defined()) {  // a gradient of each factor, and the two halves joined
    Tensor activated = w_.like(activation_("gate_output_gradient"), gradient);
    w_.launch(Operation::Multiply, {gradient, offset_up.defined() ? offset_up : up_of(input)}, {activated});
    Tensor up = w_.like(activation_("up_gradient"), gradient);
    w_.launch(Operation::Multiply, {std::move(gradient), std::move(gate)}, {up});
    offset_up = {};
    Tensor of_gate = w_.like(activation_("gate_gradient"), up);
    if (w_.model.activation == Activation::SwiGlu)
      w_.launch(Operation::SiluBackward, {std::move(activated), gate_of(std::move(input))}, {of_gate});
    else
      w_.launch(Operation::GeluBackward, {std::move(activated), gate_of(std::move(input)), Tensor{}}, {of_gate});
    dx = w_.temporary(activation_("input_gradient"), shape);
    w_.launch(Operation::Copy, {std::move(of_gate), std::move(up)}, {gate_of(dx), up_of(dx)});
  } else {
    dx = w_.temporary(activation_("input_gradient"), shape);
    w_.launch({backward_of(w_.model.activation), in_one_kernel()},
              {std::move(gradient), std::move(input), fused_bias()}, {dx});
  }
  Tensor dbias;
  if (bias_ != nullptr) {
    dbias = w_.temporary(activation_("bias_gradient"), bias_->shape());
    w_.launch(Operation::Sum, {dx}, {dbias});
  }
  return {std::move(dbias), std::move(dx)};
}

Tensor Mlp::operator()(Tensor hidden) {
  RecomputedNorm before(w_);
  if (norm_ && !w_.runtime.fused_norm_linear) hidden = before(*norm_, std::move(hidden));
  Tensor x = norm_ && w_.runtime.fused_norm_linear ? norm_linear(w_, *norm_, fc1_, std::move(hidden))
                                                   : linear(w_, fc1_, std::move(hidden));
  Tensor active = activation(std::move(x));
  Tensor out = linear(w_, fc2_, std::move(active));
  if (post_norm_) out = norm(w_, *post_norm_, std::move(out));
  before.discard_output(out);
  return out;
}

}  // namespace tidemark::parallel::megatron
