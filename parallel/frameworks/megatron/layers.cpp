#include "parallel/frameworks/megatron/layers.hpp"

#include <functional>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/frameworks/megatron/module_offload.hpp"
#include "parallel/frameworks/megatron/recompute.hpp"
#include "parallel/frameworks/megatron/ssm/mamba_mixer.hpp"
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

namespace {

// The modules live as long as what runs them.
template <class Module, class... Arguments>
std::shared_ptr<Module> module_of(Arguments&&... arguments) {
  return std::make_shared<Module>(std::forward<Arguments>(arguments)...);
}

std::optional<Branch> mixer_of(Worker& w, Parameters& parameters, std::int32_t layer) {
  const std::string at = fmt::format("layers.{}", layer);
  const bool recompute_core = w.train.recompute.selects(RecomputedModule::CoreAttention);
  using Its = std::optional<Branch>;
  return std::visit(Overloaded{
                        [&](const Attention&) -> Its {
                          const auto its = module_of<SelfAttention>(w, parameters, layer);
                          its->recompute_core = recompute_core;
                          return Branch{{w.name(at + ".attention.add"), its->output_bias()},
                                        std::nullopt,
                                        [its](Tensor x, auto*) { return (*its)(std::move(x)); }};
                        },
                        [&](const MultiLatentAttention&) -> Its {
                          const auto its = module_of<MlaSelfAttention>(w, parameters, layer);
                          its->recompute_core = recompute_core;
                          return Branch{{w.name(at + ".attention.add"), its->output_bias()},
                                        OffloadedModule::AttentionNorm,
                                        [its](Tensor x, OffloadedRegion* norm) { return (*its)(std::move(x), norm); }};
                        },
                        [&](const Mamba2&) -> Its {
                          const auto its = module_of<MambaMixer>(w, parameters, layer);
                          return Branch{{w.name(at + ".mixer.add"), nullptr}, std::nullopt, [its](Tensor x, auto*) {
                                          return (*its)(std::move(x));
                                        }};
                        },
                        [](const NoMixer&) -> Its { return std::nullopt; },
                    },
                    w.model.layer(layer).mixer);
}

std::optional<Branch> mlp_of(Worker& w, Parameters& parameters, std::int32_t layer) {
  const std::string at = fmt::format("layers.{}.mlp", layer);
  using Its = std::optional<Branch>;
  return std::visit(Overloaded{
                        [&](const DenseMlp& dense) -> Its {
                          const auto its = module_of<Mlp>(w, parameters, at, dense.width(w.model), Mlp::Norms::Own);
                          const auto run = [its, &w](Tensor x, auto*) {
                            if (!w.train.recompute.selects(RecomputedModule::Mlp)) return (*its)(std::move(x));
                            Tensors inputs;
                            inputs.push_back(std::move(x));
                            return checkpoint(
                                w, [&mlp = *its](Tensors of) { return mlp(std::move(of.front())); }, std::move(inputs));
                          };
                          return Branch{{w.name(at + ".add"), its->output_bias()}, std::nullopt, run};
                        },
                        [&](const Experts&) -> Its {
                          const auto its = module_of<MoELayer>(w, parameters, at, layer);
                          return Branch{{w.name(at + ".add"), nullptr},
                                        OffloadedModule::MlpNorm,
                                        [its](Tensor x, OffloadedRegion* norm) { return (*its)(std::move(x), norm); }};
                        },
                        [](const NoMlp&) -> Its { return std::nullopt; },
                    },
                    w.model.layer(layer).mlp);
}

}  // namespace

TransformerLayer::TransformerLayer(Worker& w, Parameters& parameters, std::int32_t layer)
    : w_(w), mixer_(mixer_of(w, parameters, layer)), mlp_(mlp_of(w, parameters, layer)) {
  const auto biased = [](const std::optional<Branch>& its) { return its && its->add.bias != nullptr; };
  const bool bias = biased(mixer_) || biased(mlp_);
  ensure(!bias || w.model.norms == NormPlacement::Before, "a bias is added before its branch is normalized");
}

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

Tensor TransformerLayer::operator()(Tensor hidden) {
  std::optional<OffloadedRegion> norm;  // where it is one by itself
  Tensor input = hidden;
  if (mixer_) {
    if (mixer_->norm) norm.emplace(w_, *mixer_->norm, input);
    Tensor mixed = mixer_->run(std::move(input), norm ? &*norm : nullptr);
    if (w_.model.parallel_residual) {
      mixed = bias_dropout_add(w_, mixer_->add, hidden, std::move(mixed));
      Tensor branch = mlp_->run(std::move(hidden), nullptr);
      return bias_dropout_add(w_, mlp_->add, std::move(mixed), std::move(branch));
    }
    hidden = added(w_, mixer_->add, std::move(hidden), std::move(mixed), norm);
    norm.reset();
    input = hidden;
  }
  if (!mlp_) return hidden;
  if (mlp_->norm) norm.emplace(w_, *mlp_->norm, input);
  Tensor branch = mlp_->run(std::move(input), norm ? &*norm : nullptr);
  return added(w_, mlp_->add, std::move(hidden), std::move(branch), norm);
}

}  // namespace tidemark::parallel::megatron
