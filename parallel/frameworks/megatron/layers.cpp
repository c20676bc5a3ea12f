#include "parallel/frameworks/megatron/layers.hpp"

#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/frameworks/megatron/module_offload.hpp"
#include "parallel/frameworks/megatron/recompute.hpp"
#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

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
    Tensor held;  // by the tuple of both that the layer's own function refers to
    if (bias || dropout) held = branch.detached();
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

TransformerLayer::TransformerLayer(Worker& w, Parameters& parameters, std::int32_t layer) : w_(w) {
  const std::string at = fmt::format("layers.{}", layer);
  const Layer& kinds = w.model.layer(layer);
  const bool recompute_core = w.train.recompute.selects(RecomputedModule::CoreAttention);
  const Weight* const of_attention =
      std::visit(Overloaded{
                     [&](const Attention&) {
                       attention_.emplace(w, parameters, layer).recompute_core = recompute_core;
                       return attention_->output_bias();
                     },
                     [&](const MultiLatentAttention&) {
                       multi_latent_attention_.emplace(w, parameters, layer).recompute_core = recompute_core;
                       return multi_latent_attention_->output_bias();
                     },
                 },
                 kinds.mixer);
  const Weight* const of_mlp = std::visit(Overloaded{
                                              [&](const DenseMlp&) {
                                                mlp_.emplace(w, parameters, at + ".mlp", w.model.ffn, Mlp::Norms::Own);
                                                return mlp_->output_bias();
                                              },
                                              [&](const Experts&) -> const Weight* {
                                                experts_ =
                                                    std::make_unique<MoELayer>(w, parameters, at + ".mlp", layer);
                                                return nullptr;
                                              },
                                          },
                                          kinds.mlp);
  const bool bias = of_attention != nullptr || of_mlp != nullptr;
  ensure(!bias || w.model.norms == NormPlacement::Before, "a bias is added before its branch is normalized");
  attention_add_ = {w.name(at + ".attention.add"), of_attention};
  mlp_add_ = {w.name(at + ".mlp.add"), of_mlp};
}

TransformerLayer::~TransformerLayer() = default;

namespace {

// What a norm saved, which the residual is, goes when both have been added.
Tensor added(Worker& w, const BiasDropoutAdd& add, Tensor residual, Tensor branch,
             std::optional<OffloadedRegion>& norm) {
  const bool offloads = norm && norm->offloads();
  const Tensor held = offloads ? residual.detached() : Tensor{};
  Tensor out = bias_dropout_add(w, add, std::move(residual), std::move(branch));
  return offloads ? norm->commit(std::move(out), {&held}) : out;
}

}  // namespace

Tensor TransformerLayer::mlp(Tensor hidden, OffloadedRegion* norm) {
  if (experts_) return (*experts_)(std::move(hidden), norm);
  if (!w_.train.recompute.selects(RecomputedModule::Mlp)) return (*mlp_)(std::move(hidden));
  Tensors inputs;
  inputs.push_back(std::move(hidden));
  return checkpoint(
      w_, [this](Tensors of) { return (*mlp_)(std::move(of.front())); }, std::move(inputs));
}

Tensor TransformerLayer::operator()(Tensor hidden) {
  std::optional<OffloadedRegion> norm;  // where it is one by itself
  Tensor input = hidden;
  if (multi_latent_attention_) norm.emplace(w_, OffloadedModule::AttentionNorm, input);
  Tensor attended =
      multi_latent_attention_ ? (*multi_latent_attention_)(std::move(input), &*norm) : (*attention_)(std::move(input));
  if (w_.model.parallel_residual) {
    attended = bias_dropout_add(w_, attention_add_, hidden, std::move(attended));
    Tensor branch = mlp(std::move(hidden), nullptr);
    return bias_dropout_add(w_, mlp_add_, std::move(attended), std::move(branch));
  }
  hidden = added(w_, attention_add_, std::move(hidden), std::move(attended), norm);
  norm.reset();
  input = hidden;
  if (experts_) norm.emplace(w_, OffloadedModule::MlpNorm, input);
  Tensor branch = mlp(std::move(input), norm ? &*norm : nullptr);
  return added(w_, mlp_add_, std::move(hidden), std::move(branch), norm);
}

}  // namespace tidemark::parallel::megatron
