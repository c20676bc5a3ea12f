#include "parallel/frameworks/megatron/ssm/mamba_mixer.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

namespace tidemark::parallel::megatron {

using torch::usual_epsilon;
using torch::with;

// A module's own parameters come before those of the modules in it (torch.nn.Module.named_parameters).
MambaMixer::MambaMixer(Worker& w, Parameters& parameters, std::int32_t layer) : w_(w) {
  const Mamba2& its = std::get<Mamba2>(w.model.layer(layer).mixer);
  const std::string at = fmt::format("layers.{}.mixer", layer);
  const auto vector = [&](const char* what, std::int64_t rows, std::vector<std::int64_t> joined = {}) {
    return parameters.add({.name = at + what, .rows = rows, .cut = WeightCut::Rows, .joined = std::move(joined)});
  };
  name_ = w.name(at);
  dt_bias_name_ = w.name(at + ".dt_bias"), rates_name_ = w.name(at + ".rates"), group_norm_ = w.name(at + ".out_norm");
  batch_first_ = w.name(at + ".batch_first"), sequence_first_ = w.name(at + ".sequence_first");
  dt_bias_ = vector(".dt_bias", its.heads);
  log_rates_ = vector(".A_log", its.heads);
  const Weight* const skip = vector(".D", its.heads);
  norm_ = make_norm(w, parameters, at + ".norm");
  const std::vector<std::int64_t> mixed{its.inner(), its.shared(), its.shared()};
  const std::vector<std::int64_t> projected{its.inner(), its.inner(), its.shared(), its.shared(), its.heads};
  const std::int64_t rows = its.inner() + its.channels() + its.heads;
  in_proj_ = {w.name(at + ".in_proj"), parameters.add({.name = at + ".in_proj.weight",
                                                       .rows = rows,
                                                       .columns = w.model.hidden,
                                                       .cut = WeightCut::Rows,
                                                       .joined = projected})};
  scan_ = {.name = w.name(at + ".scan"),
           .heads = its.heads / w.sizes.tensor,
           .head_dim = its.head_dim,
           .groups = its.groups / w.sizes.tensor,
           .state = its.state,
           .conv_weight = parameters.add({.name = at + ".conv1d.weight",
                                          .rows = its.channels(),
                                          .columns = Mamba2::conv_kernel,
                                          .cut = WeightCut::Rows,
                                          .joined = mixed}),
           .conv_bias = vector(".conv1d.bias", its.channels(), mixed),
           .skip = skip};
  group_weight_ = vector(".out_norm.weight", its.inner());
  out_proj_ =
      make_linear(w, parameters, at + ".out_proj", w.model.hidden, its.inner(), WeightCut::Columns, GemmBias::None);
}

// rearrange(x, …).contiguous(): nothing happens to one sequence. Backward a view of the gradient is given: the scan
// reads it as it lies, and a linear copies it.
Tensor MambaMixer::ordered(const Name& name, Tensor x, Order order) {
  const std::int64_t batch = w_.sizes.micro_batch, sequence = w_.sizes.sequence;
  if (batch == 1) return x;
  w_.mark(Phase::Forward, name);
  const auto node = w_.node(name(), {&x});
  const bool by_batch = order == Order::BatchFirst;
  Tensor made = w_.temporary(name("out"), w_.whole(x.size(-1)));
  w_.transpose_tokens(std::move(x), made, by_batch ? sequence : batch);
  if (!node) return made;
  node->apply = [&w = w_, &name, by_batch, batch, sequence](Gradients& gradients) {
    Tensor& gradient = gradients.front();
    if (!by_batch) return Gradients{swapped(sized(gradient, {sequence, batch, gradient.size(-1)}), 0, 1)};
    Tensor own = w.like(name("gradient"), gradient);
    w.transpose_tokens(std::move(gradient), own, batch);
    return Gradients{std::move(own)};
  };
  return with(std::move(made), node);
}

// Tensor.float() of a parameter.
Tensor MambaMixer::in_fp32(const Name& name, const Weight& weight) {
  if (w_.train.precision == DType::FP32) return weight.value;
  w_.mark(Phase::Forward, name);
  const auto node = w_.node(name(), {&weight.value});
  Tensor wide = w_.temporary(name("fp32"), weight.shape(), DType::FP32);
  w_.launch(Operation::Copy, {weight.value}, {wide});
  if (!node) return wide;
  node->apply = [&w = w_, &name](Gradients& gradients) {
    Tensor narrow = w.temporary(name("gradient"), gradients.front().sizes);
    w.launch(Operation::Copy, {std::move(gradients.front())}, {narrow});
    return Gradients{std::move(narrow)};
  };
  return with(std::move(wide), node);
}

// A = -torch.exp(self.A_log.float())
Tensor MambaMixer::rates() {
  Tensor logarithms = in_fp32(rates_name_, *log_rates_);
  w_.mark(Phase::Forward, rates_name_);
  const auto exponential = w_.node(rates_name_(), {&logarithms});
  Tensor exponentials = w_.temporary(rates_name_("exponentials"), logarithms.sizes, DType::FP32);
  w_.launch(Operation::Exponential, {std::move(logarithms)}, {exponentials});
  if (exponential) {
    exponential->apply = [&w = w_, &name = rates_name_,
                          saved = w_.session.save(exponentials)](Gradients& gradients) mutable {
      Tensor made = w.like(name("logarithm_gradient"), gradients.front());
      w.launch(Operation::Multiply, {std::move(gradients.front()), w.take(saved)}, {made});
      return Gradients{std::move(made)};
    };
    exponentials = with(std::move(exponentials), exponential);
  }
  const auto negative = w_.node(rates_name_(), {&exponentials});
  Tensor made = w_.temporary(rates_name_("rates"), exponentials.sizes, DType::FP32);
  w_.launch({Operation::Scale, {-1}}, {std::move(exponentials)}, {made});
  if (!negative) return made;
  negative->apply = [&w = w_, &name = rates_name_](Gradients& gradients) {
    Tensor own = w.like(name("exponential_gradient"), gradients.front());
    w.launch({Operation::Scale, {-1}}, {std::move(gradients.front())}, {own});
    return Gradients{std::move(own)};
  };
  return with(std::move(made), negative);
}

// mamba_ssm, ops/triton/layernorm_gated.py LayerNormFn, without a gate: of each group of heads by itself.
Tensor MambaMixer::group_norm(Tensor x) {
  w_.mark(Phase::Forward, group_norm_);
  const auto node = w_.node(group_norm_(), {&x, &group_weight_->value});
  Saved input;
  if (node) input = w_.session.save(x);
  Tensor out = w_.like(group_norm_("out"), x);
  const Tensor rstd = w_.temporary(group_norm_("rstd"), {x.size(0), scan_.groups}, DType::FP32);
  w_.launch({Operation::GroupedRmsNorm, {usual_epsilon}}, {std::move(x), group_weight_->value}, {out, rstd});
  if (!node) return out;
  node->apply = [this, input = std::move(input), its_rstd = w_.session.save(rstd)](Gradients& gradients) mutable {
    return group_norm_backward(gradients.front(), std::move(input), std::move(its_rstd));
  };
  return with(std::move(out), node);
}

// Programs add up the weight's gradient of some rows each.
Gradients MambaMixer::group_norm_backward(const Tensor& gradient, Saved saved_input, Saved saved_rstd) {
  const Tensor x = w_.take(saved_input), rstd = w_.take(saved_rstd);
  Tensor dx = w_.like(group_norm_("input_gradient"), x), dweight;
  const std::int64_t width = x.size(-1), of_group = width / scan_.groups;
  const auto block = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(of_group)));
  const std::int64_t warps = std::clamp<std::int64_t>(block / 256, 1, 8);
  const std::int64_t programs = w_.runtime.core.multiprocessors * ((4 + warps - 1) / warps);
  const std::int64_t rows = (programs + scan_.groups - 1) / scan_.groups;
  {
    const Tensor parts = w_.temporary(group_norm_("weight_gradient_parts"), {rows, width}, DType::FP32);
    dweight = w_.temporary(group_norm_("weight_gradient_sum"), {width}, DType::FP32);
    w_.launch(Operation::GroupedRmsNormBackward, {gradient, x, rstd, group_weight_->value}, {dx, dweight}, parts);
  }
  if (w_.train.precision != DType::FP32) {
    Tensor narrow = w_.temporary(group_norm_("weight_gradient"), {width});
    w_.launch(Operation::Copy, {std::move(dweight)}, {narrow});
    dweight = std::move(narrow);
  }
  return {std::move(dx), std::move(dweight)};
}

Tensor MambaMixer::operator()(Tensor hidden) {
  Tensor projected = norm_linear(w_, norm_, in_proj_, std::move(hidden));
  // A variable of forward(), where what comes next is a function of its own.
  Tensor held;
  if (w_.runtime.core.holds_projected) held = projected.detached();
  projected = ordered(batch_first_, std::move(projected), Order::BatchFirst);
  Tensor its_rates = rates();
  Tensor dt_bias = in_fp32(dt_bias_name_, *dt_bias_);
  Tensor y = ssd_scan(w_, scan_, std::move(projected), std::move(dt_bias), std::move(its_rates));
  y = ordered(sequence_first_, std::move(y), Order::SequenceFirst);
  return linear(w_, out_proj_, group_norm(std::move(y)));
}

}  // namespace tidemark::parallel::megatron
