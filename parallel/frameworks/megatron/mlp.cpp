#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/layers.hpp"

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

}  // namespace

Mlp::Mlp(Worker& w, const Parameters& parameters, const std::string& layer) : w_(w) {
  const std::string at = layer + ".mlp";
  name_ = w.name(at);
  norm_ = norm_named(w, parameters, at + ".norm");
  post_norm_ = norm_named(w, parameters, at + ".post_norm");
  fc1_ = {w.name(at + ".fc1"), parameters[at + ".fc1.weight"], nullptr};
  bias_ = parameters[at + ".fc1.bias"];
  activation_ = w.name(fmt::format("{}.{}", at, activation_name(w.model.activation)));
  fc2_ = {w.name(at + ".fc2"), parameters[at + ".fc2.weight"], nullptr};
}

Tensor Mlp::activation(Tensor x) {
  w_.mark(Phase::Forward, activation_);
  const auto node = w_.node(activation_(), {&value_of(bias_), &x});
  const Shape shape = w_.part(w_.model.ffn);
  const Bytes in_size = x.bytes();
  bool saves_input = true;
  if (bias_ != nullptr && !w_.runtime.fused_bias_activation) {
    if (node) w_.session.keep(x);
    Tensor biased = w_.like(activation_("biased"), x);
    w_.stream(Streaming::Add, {std::move(x), bias_->value}, {biased}, in_size, in_size);
    x = std::move(biased);  // which is what the activation saves
    saves_input = false;
  }
  Tensor kept = x, gate, out;
  if (node && saves_input) w_.session.keep(x);
  if (!node) kept = {};
  if (gated(w_.model.activation) && !w_.graph.options.fused_gate) {  // the gate's activation, and then the product
    gate = w_.temporary(name_("gate"), shape);
    const Bytes size = gate.bytes();
    w_.stream(Streaming::Activation, {x}, {gate}, size, size);
    out = w_.temporary(activation_(), shape);
    w_.stream(Streaming::Copy, {gate, std::move(x)}, {out}, 2 * size, size);
    if (node) w_.session.keep(gate);
  } else {
    out = w_.temporary(activation_(), shape);
    w_.stream(Streaming::Activation, {std::move(x), value_of(bias_)}, {out}, in_size, out.bytes());
  }
  if (!node) return out;
  node->apply = [this, input = kept.detached(), gate = gate.detached()](Gradients& gradients) mutable {
    return activation_gradient(std::move(gradients.front()), std::move(input), std::move(gate));
  };
  return with(std::move(out), node);
}

Gradients Mlp::activation_gradient(Tensor gradient, Tensor input, Tensor gate) {
  const Bytes half = gradient.bytes(), size = input.bytes();
  const Shape shape = input.sizes;
  Tensor dx;
  if (gate.defined()) {  // a gradient of each factor, and the two halves joined
    Tensor activated = w_.like(activation_("gate_output_gradient"), gradient);
    w_.stream(Streaming::Copy, {gradient, input}, {activated}, 2 * half, half);
    Tensor up = w_.like(activation_("up_gradient"), gradient);
    w_.stream(Streaming::Copy, {std::move(gradient), std::move(gate)}, {up}, 2 * half, half);
    Tensor of_gate = w_.like(activation_("gate_gradient"), up);
    w_.stream(Streaming::Activation, {std::move(activated), std::move(input)}, {of_gate}, 2 * half, half);
    dx = w_.temporary(activation_("input_gradient"), shape);
    w_.stream(Streaming::Copy, {std::move(of_gate), std::move(up)}, {dx}, 2 * half, 2 * half);
  } else {
    dx = w_.temporary(activation_("input_gradient"), shape);
    w_.stream(Streaming::Activation, {std::move(gradient), std::move(input)}, {dx}, size + half, size);
  }
  Tensor dbias;
  if (bias_ != nullptr) {
    dbias = w_.temporary(activation_("bias_gradient"), bias_->shape());
    w_.stream(Streaming::Reduce, {dx}, {dbias}, size, dbias.bytes());
  }
  return {std::move(dbias), std::move(dx)};
}

Tensor Mlp::operator()(Tensor hidden) {
  Tensor x = norm_ ? norm_linear(w_, *norm_, fc1_, std::move(hidden)) : linear(w_, fc1_, std::move(hidden));
  Tensor active = activation(std::move(x));
  Tensor out = linear(w_, fc2_, std::move(active));
  if (post_norm_) out = norm(w_, *post_norm_, std::move(out));
  return out;
}

}  // namespace tidemark::parallel::megatron
