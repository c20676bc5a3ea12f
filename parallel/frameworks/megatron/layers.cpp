#include "parallel/frameworks/megatron/layers.hpp"

#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/recompute.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

Parameters::Parameters(Worker& w) : made_(!w.built.parameters.empty()) {
  for (std::size_t i = 0; i < w.built.parameters.size(); ++i)
    if (const Weight& weight = w.weight({static_cast<std::int32_t>(i)}); weight.parameter != nullptr)
      by_name_.emplace(w.built.parameters[i].name, &weight);
}

const Weight* Parameters::add(Parameter parameter) {
  static const Weight nowhere;
  const auto [found, added] = by_name_.try_emplace(parameter.name, &nowhere);
  if (!added) return found->second;
  ensure(!made_, "a rank has the parameters that its modules register");
  parameter.layer = layer_;
  registered_.push_back(std::move(parameter));
  return &nowhere;
}

const Tensor& value_of(const Weight* weight) {
  static const Tensor none;
  return weight != nullptr ? weight->value : none;
}

Norm make_norm(const Worker& w, Parameters& parameters, const std::string& name) {
  const auto vector = [&](const char* what) {
    return parameters.add(
        {.name = name + what, .rows = w.model.hidden, .in_parts = GradientInParts::UnderSequenceParallelism});
  };
  const Weight* const weight = vector(".weight");
  return {w.name(name), weight, w.model.normalization == Normalization::Layer ? vector(".bias") : nullptr};
}

Linear make_linear(const Worker& w, Parameters& parameters, const std::string& name, std::int64_t rows,
                   std::int64_t columns, WeightCut cut, GemmBias bias) {
  const Weight* const weight = parameters.add({.name = name + ".weight", .rows = rows, .columns = columns, .cut = cut});
  if (bias == GemmBias::None) return {w.name(name), weight, nullptr};
  return {w.name(name), weight, parameters.add({.name = name + ".bias", .rows = rows, .cut = cut})};
}

const Weight* make_output_bias(const Worker& w, Parameters& parameters, const std::string& linear) {
  return parameters.add(
      {.name = linear + ".bias", .rows = w.model.hidden, .in_parts = GradientInParts::UnderSequenceParallelism});
}

// ---- residual stream -----------------------------------------------------------------------------------------------

namespace {

// The backward pass of what happens to a branch before it is added.
void undo_bias_and_dropout(Worker& w, const BiasDropoutAdd& add, const Ref<Node>& node, Tensor mask) {
  if (!node) return;
  Saved saved;
  if (mask.defined()) saved = w.session.save(mask);
  node->apply = [&w, &add, saved = std::move(saved)](Gradients& gradients) mutable {
    Tensor branch = std::move(gradients.front()), dbias;
    if (saved) {
      Tensor dropped = w.take(saved);
      Tensor kept = w.like(add.name("dropout_gradient"), branch);
      w.launch({Operation::DropoutBackward, {w.train.hidden_dropout}}, {std::move(branch), std::move(dropped)}, {kept});
      branch = std::move(kept);
    }
    if (add.bias != nullptr) {
      dbias = w.temporary(add.name("bias_gradient"), add.bias->shape());
      w.launch(Operation::Sum, {branch}, {dbias});
    }
    return Gradients{std::move(dbias), std::move(branch)};
  };
}

}  // namespace

Tensor bias_dropout_add(Worker& w, const BiasDropoutAdd& add, Tensor residual, Tensor branch) {
  w.mark(Phase::Forward, add.name);
  const bool bias = add.bias != nullptr, dropout = w.train.hidden_dropout > 0;
  Ref<Node> changed;
  if (bias || dropout) changed = w.node({}, {&value_of(add.bias), &branch});
  if (changed) branch.gradient = {changed, 0};
  const auto node = w.node(add.name(), {&residual, &branch});
  const Shape shape = residual.sizes;
  const Attributes probability{w.train.hidden_dropout};
  const auto make_mask = [&] { return w.temporary(add.name("dropout_mask"), shape, DType::BOOL); };
  Tensor mask, out;
  if (w.runtime.fused_bias_dropout) {
    if (dropout) mask = make_mask();
    out = w.temporary(add.name("out"), shape);
    w.launch({Operation::BiasDropoutAdd, probability}, {std::move(residual), std::move(branch), value_of(add.bias)},
             {out, mask});
  } else {
    if (bias) {
      Tensor biased = w.temporary(add.name("biased"), shape);
      w.launch(Operation::Add, {std::move(branch), add.bias->value}, {biased});
      branch = std::move(biased);
    }
    if (dropout) {
      mask = make_mask();
      Tensor kept = w.temporary(add.name("dropped"), shape);
      w.launch({Operation::Dropout, probability}, {std::move(branch)}, {kept, mask});
      if (!changed) mask = {};
      branch = std::move(kept);
    }
    out = w.temporary(add.name("out"), shape);
    w.launch(Operation::Add, {std::move(residual), std::move(branch)}, {out});
  }
  undo_bias_and_dropout(w, add, changed, std::move(mask));
  if (!node) return out;
  node->sum = add.name("gradient_sum");
  node->apply = [](Gradients& gradients) { return Gradients{gradients.front(), gradients.front()}; };
  return with(std::move(out), node);
}

// ---- layers --------------------------------------------------------------------------------------------------------

TransformerLayer::TransformerLayer(Worker& w, Parameters& parameters, std::int32_t layer)
    : w_(w), attention_(w, parameters, layer), mlp_(w, parameters, fmt::format("layers.{}", layer)) {
  const std::string at = fmt::format("layers.{}", layer);
  const bool bias = attention_.output_bias() != nullptr || mlp_.output_bias() != nullptr;
  ensure(!bias || w.model.norms == NormPlacement::Before, "a bias is added before its branch is normalized");
  attention_add_ = {w.name(at + ".attention.add"), attention_.output_bias()};
  mlp_add_ = {w.name(at + ".mlp.add"), mlp_.output_bias()};
  attention_.recompute_core = w.train.recompute.selects(RecomputedModule::CoreAttention);
}

Tensor TransformerLayer::mlp(Tensor hidden) {
  if (!w_.train.recompute.selects(RecomputedModule::Mlp)) return mlp_(std::move(hidden));
  Tensors inputs;
  inputs.push_back(std::move(hidden));
  return checkpoint(
      w_, [this](Tensors of) { return mlp_(std::move(of.front())); }, std::move(inputs));
}

Tensor TransformerLayer::operator()(Tensor hidden) {
  Tensor attended = attention_(hidden);
  if (w_.model.parallel_residual) {
    attended = bias_dropout_add(w_, attention_add_, hidden, std::move(attended));
    Tensor branch = mlp(std::move(hidden));
    return bias_dropout_add(w_, mlp_add_, std::move(attended), std::move(branch));
  }
  hidden = bias_dropout_add(w_, attention_add_, std::move(hidden), std::move(attended));
  Tensor branch = mlp(hidden);
  return bias_dropout_add(w_, mlp_add_, std::move(hidden), std::move(branch));
}

}  // namespace tidemark::parallel::megatron
