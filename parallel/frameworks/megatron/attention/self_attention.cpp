#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/layers.hpp"
#include "parallel/frameworks/megatron/module_offload.hpp"
#include "parallel/frameworks/megatron/recompute.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::megatron {

using torch::usual_epsilon;
using torch::with;

// core/transformer/attention.py makes core attention and the output projection before the QKV projection.
// TransformerEngine registers a fused norm's weight before the linear's own; a norm by itself is a module of the layer,
// which comes before attention. A norm of a linear's output belongs to that linear (Megatron-Bridge
// models/common/te_layers.py TERowParallelLinearLayerNorm).
SelfAttention::SelfAttention(Worker& w, Parameters& parameters, std::int32_t layer) : w_(w) {
  const std::string at = fmt::format("layers.{}.attention", layer);
  const Model& m = w.model;
  const std::int64_t q_width = m.heads * m.head_dim, kv_width = m.kv_heads * m.head_dim;
  name_ = w.name(at);
  const bool norm_before = m.norms != NormPlacement::After, norm_after = m.norms != NormPlacement::Before;
  if (norm_before && !w.runtime.fused_norm_linear) norm_ = make_norm(w, parameters, at + ".norm");
  if (m.attention_sinks) sinks_ = parameters.add({.name = at + ".core.sinks", .rows = m.heads, .cut = WeightCut::Rows});
  proj_ = make_linear(w, parameters, at + ".proj", m.hidden, q_width, WeightCut::Columns, GemmBias::None);
  if (m.output_bias) output_bias_ = make_output_bias(w, parameters, at + ".proj");
  if (norm_after) post_norm_ = make_norm(w, parameters, at + ".post_norm");
  if (norm_before && w.runtime.fused_norm_linear) norm_ = make_norm(w, parameters, at + ".norm");
  qkv_ = make_linear(w, parameters, at + ".qkv", q_width + 2 * kv_width, m.hidden, WeightCut::Rows,
                     m.qkv_bias ? GemmBias::Added : GemmBias::None);
  proj_.user_buffer = "proj", qkv_.user_buffer = "qkv";
  if (m.qk_norm != QkNorm::None) {
    // Of each head alike, or of all heads together, which are cut.
    const auto norm = [&](const std::string& name, std::int64_t width) {
      const auto vector = [&](const char* what) {
        Parameter made{.name = name + what, .rows = width, .cut = WeightCut::Rows};
        if (m.qk_norm == QkNorm::PerHead)
          made.rows = m.head_dim, made.cut = WeightCut::None, made.in_parts = GradientInParts::Always;
        return parameters.add(std::move(made));
      };
      const Weight* const weight = vector(".weight");
      const bool layer_norm = m.normalization == Normalization::Layer && m.qk_norm == QkNorm::PerHead;
      return Norm{w.name(name), weight, layer_norm ? vector(".bias") : nullptr};
    };
    q_norm_ = norm(at + ".q_norm", q_width);
    k_norm_ = norm(at + ".k_norm", kv_width);
  }
  positions_ = w.name(at + (w.model.positions == Positions::Rotary ? ".rotary" : ".split"));
  core_ = {w.name(at + ".core"), name_, sinks_};
  if (w.model.positions != Positions::Rotary) return;
  const bool window = w.model.layer(layer).window() > 0;
  query_rotary_ = {.name = positions_,
                   .window = window,
                   .cos = name_("query_cos"),
                   .sin = name_("query_sin"),
                   .out = name_("q"),
                   .gradient = positions_("query_gradient"),
                   .mark = {}};
  key_rotary_ = {.name = positions_,
                 .window = window,
                 .cos = name_("key_cos"),
                 .sin = name_("key_sin"),
                 .out = name_("k"),
                 .gradient = positions_("key_gradient"),
                 .mark = positions_()};  // whose backward pass comes first
}

// The joint tensor of queries, keys and values: heads lie in groups, each group of query heads with the key and the
// value that it shares.
struct SelfAttention::Joint {
  Tensor query;       ///< [sequence, batch, groups, heads of a group, width]
  Tensor key, value;  ///< [sequence, batch, groups, width]
};

SelfAttention::Joint SelfAttention::parts_of(const Tensor& mixed) const {
  const Model& m = w_.model;
  const std::int64_t s = w_.sizes.sequence, b = w_.sizes.micro_batch, width = m.head_dim;
  const std::int64_t groups = m.kv_heads / w_.sizes.tensor, of_group = m.heads / m.kv_heads;
  const Tensor grouped = sized(mixed, {s, b, groups, of_group + 2, width});
  const auto one = [&](std::int64_t place) { return sized(narrowed(grouped, 3, place, 1), {s, b, groups, width}); };
  return {narrowed(grouped, 3, 0, of_group), one(of_group), one(of_group + 1)};
}

Shape SelfAttention::by_head(std::int64_t heads) const {
  return {w_.sizes.sequence, w_.sizes.micro_batch, heads / w_.sizes.tensor, w_.model.head_dim};
}

Tensor SelfAttention::joined(Gradients& gradients, const Shape& shape) {
  Tensor whole = w_.temporary(positions_("mixed_gradient"), shape);
  const Joint parts = parts_of(whole);
  w_.launch(Operation::Copy,
            {sized(std::move(gradients[0]), parts.query.sizes), std::move(gradients[1]), std::move(gradients[2])},
            {parts.query, parts.key, parts.value});
  return whole;
}

SelfAttention::Heads SelfAttention::split(const Tensor& mixed) {
  const Model& m = w_.model;
  w_.mark(Phase::Forward, positions_);
  const auto node = w_.node(positions_(), {&mixed});
  if (node) {
    node->outputs = 3;
    node->apply = [this, shape = mixed.sizes, strides = mixed.strides](Gradients& gradients) {
      Tensor &q = gradients[0], &k = gradients[1], &v = gradients[2];
      if (q.storage == k.storage && k.storage == v.storage)  // parts of one tensor already
        return Gradients{Tensor{q.storage, shape, strides, 0, q.dtype, {}}};
      return Gradients{joined(gradients, shape)};
    };
  }
  Joint parts = parts_of(mixed);
  if (m.heads == m.kv_heads && q_norm_.weight == nullptr)
    return {with(sized(std::move(parts.query), by_head(m.heads)), node, 0), with(std::move(parts.key), node, 1),
            with(std::move(parts.value), node, 2)};
  // What lies apart, or with several query heads to a key, fits none of the layouts that attention takes as they lie.
  const auto copy = [&](std::string_view label, const Tensor& part, std::int64_t heads, std::size_t output) {
    Tensor made = w_.temporary(name_(label), by_head(heads));
    w_.launch(Operation::Copy, {part}, {sized(made, part.sizes)});
    return with(std::move(made), node, output);
  };
  Tensor query, key;
  if (q_norm_.weight != nullptr) {
    query = head_norm(q_norm_, Of::Query, with(std::move(parts.query), node, 0));
    key = head_norm(k_norm_, Of::Key, with(std::move(parts.key), node, 1));
  } else {
    query = copy("q", parts.query, m.heads, 0);
    key = copy("k", parts.key, m.kv_heads, 1);
  }
  Tensor value = copy("v", parts.value, m.kv_heads, 2);
  return {std::move(query), std::move(key), std::move(value)};
}

// Megatron's q_layernorm and k_layernorm: Transformer Engine's norm works on a copy that lies side by side, and saves
// it.
Tensor SelfAttention::head_norm(const Norm& norm, Of which, Tensor mixed) {
  const bool of_query = which == Of::Query, per_head = w_.model.qk_norm == QkNorm::PerHead;
  static const Tensor none;
  const bool layer_norm = norm.bias != nullptr;
  // Where heads are not turned, the backward pass of keys' norms is what comes first.
  const LabelId mark = of_query || w_.model.positions == Positions::Rotary ? LabelId{} : positions_();
  const auto node = w_.node(mark, {&mixed, &norm.weight->value, layer_norm ? &norm.bias->value : &none});
  const Shape shape = mixed.sizes, heads = by_head(of_query ? w_.model.heads : w_.model.kv_heads);
  Tensor in = w_.temporary(norm.name("in"), heads);
  w_.launch(Operation::Copy, {std::move(mixed)}, {sized(in, shape)});
  Tensor out = w_.temporary(positions_(of_query ? "query_normed" : "key_normed"), heads);
  // What is normalized together: a head, or all heads of a token.
  const Shape rows = per_head ? heads : Shape{heads[0], heads[1], heads[2] * heads[3]};
  const Shape statistics{heads[0], heads[1], per_head ? heads[2] : 1};
  Tensor centre;
  if (layer_norm) centre = w_.temporary(norm.name("mean"), statistics, DType::FP32);
  Tensor rstd = w_.temporary(norm.name("rstd"), statistics, DType::FP32);
  // Ranks that hold a part of the heads average first what all heads are normalized by together; each holds as many.
  const auto of_all_heads = [this](Operands factors) {
    if (w_.model.qk_norm != QkNorm::AllHeads || !w_.tensor_parallel()) return Tensor{};
    ensure(norm_weight_offset(w_) == 0, "no family normalizes all heads together by weights centred at zero");
    const Shape& tokens = factors.front().sizes;
    Tensor mean = w_.communicated(positions_("sums_of_heads"), {tokens[0], tokens[1], 1}, DType::FP32);
    w_.launch(Operation::MeanOfProducts, factors, {mean});
    w_.all_reduce(mean, Reduction::Average);
    return mean;
  };
  const Tensor x = sized(in, rows);
  const Attributes numbers{usual_epsilon, norm_weight_offset(w_)};
  if (layer_norm)
    w_.launch({Operation::LayerNorm, numbers}, {x, norm.weight->value, norm.bias->value},
              {sized(out, rows), centre, rstd});
  else
    w_.launch({Operation::RmsNorm, numbers}, {x, norm.weight->value, of_all_heads({x, x})}, {sized(out, rows), rstd});
  if (!node) return out;
  Saved saved_mean;
  if (layer_norm) saved_mean = w_.session.save(centre);
  node->apply = [this, &norm, layer_norm, of_query, of_all_heads, shape, rows, saved_in = w_.session.save(in),
                 saved_mean = std::move(saved_mean), saved_rstd = w_.session.save(rstd)](Gradients& gradients) mutable {
    Tensor gradient = std::move(gradients.front());
    if (!gradient.contiguous()) {
      Tensor copy = w_.temporary(norm.name("gradient"), gradient.sizes);
      w_.launch(Operation::Copy, {std::move(gradient)}, {copy});
      gradient = std::move(copy);
    }
    Tensor dx = w_.like(positions_(of_query ? "query_norm_gradient" : "key_norm_gradient"), gradient);
    Tensor dweight = w_.temporary(positions_("weight_gradient"), norm.weight->shape());
    gradient = sized(std::move(gradient), rows);
    Tensor input = sized(w_.take(saved_in), rows);
    if (layer_norm) {
      Tensor dbias = w_.temporary(positions_("bias_gradient"), norm.bias->shape());
      w_.launch({Operation::LayerNormBackward, {norm_weight_offset(w_)}},
                {std::move(gradient), std::move(input), w_.take(saved_mean), w_.take(saved_rstd), norm.weight->value},
                {sized(dx, rows), dweight, dbias});
      return Gradients{sized(std::move(dx), shape), std::move(dweight), std::move(dbias)};
    }
    Tensor products = of_all_heads({gradient, input, norm.weight->value});
    w_.launch({Operation::RmsNormBackward, {norm_weight_offset(w_)}},
              {std::move(gradient), std::move(input), w_.take(saved_rstd), norm.weight->value, std::move(products)},
              {sized(dx, rows), dweight});
    return Gradients{sized(std::move(dx), shape), std::move(dweight)};
  };
  return with(std::move(out), node);
}

SelfAttention::Heads SelfAttention::split_and_turn(const Tensor& mixed) {
  const Model& m = w_.model;
  w_.mark(Phase::Forward, positions_);
  const auto node = w_.node({}, {&mixed});
  if (node) {
    node->outputs = 3;
    node->apply = [this, shape = mixed.sizes](Gradients& gradients) { return Gradients{joined(gradients, shape)}; };
  }
  const Tensor table = w_.rotary_table();
  Joint parts = parts_of(mixed);
  Tensor query = with(std::move(parts.query), node, 0), key = with(std::move(parts.key), node, 1);
  if (q_norm_.weight != nullptr) {
    query = head_norm(q_norm_, Of::Query, std::move(query));
    key = head_norm(k_norm_, Of::Key, std::move(key));
  } else if (m.kv_heads / w_.sizes.tensor > 1 && m.heads > m.kv_heads) {
    // Query heads lie grouped with their key and value heads. Regrouped, several groups of several need a copy; others
    // are views.
    Tensor regrouped = w_.temporary(positions_("query"), by_head(m.heads));
    const Shape grouped = query.sizes;
    w_.launch(Operation::Copy, {std::move(query)}, {sized(regrouped, grouped)});
    query = with(std::move(regrouped), node, 0);
  } else {
    query = with(sized(std::move(query), by_head(m.heads)), node, 0);
  }
  Tensor before_turning;
  if (w_.runtime.core.holds_heads) before_turning = query.detached();
  query = rotary(w_, query_rotary_, std::move(query));
  key = rotary(w_, key_rotary_, std::move(key));
  Tensor value = std::move(parts.value);
  if (w_.train.attention != AttentionKernel::Local) {  // which takes values as they lie
    Tensor copy = w_.temporary(name_("v"), value.sizes);
    w_.launch(Operation::Copy, {std::move(value)}, {copy});
    value = std::move(copy);
  }
  return {std::move(query), std::move(key), with(std::move(value), node, 2), std::move(before_turning)};
}

Tensor SelfAttention::core(Tensor query, Tensor key, Tensor value, std::initializer_list<const Tensor*> held) {
  if (!recompute_core) {
    OffloadedRegion offload(w_, OffloadedModule::CoreAttention, query);
    Tensor context = core_attention(w_, core_, std::move(query), std::move(key), std::move(value));
    return offload.commit(std::move(context), held);
  }
  const auto run = [this](Tensors of) {
    const GivenMask mask(w_, of, 3);
    return core_attention(w_, core_, std::move(of[0]), std::move(of[1]), std::move(of[2]));
  };
  Tensors inputs;
  inputs.push_back(std::move(query)), inputs.push_back(std::move(key)), inputs.push_back(std::move(value));
  if (w_.attention_mask.defined()) inputs.push_back(w_.attention_mask);
  return checkpoint(w_, run, std::move(inputs));
}

Tensor SelfAttention::joint(Tensor hidden) {
  OffloadedRegion offload(w_, OffloadedModule::Qkv, hidden);
  Tensor mixed = norm_ && w_.runtime.fused_norm_linear ? norm_linear(w_, *norm_, qkv_, std::move(hidden))
                                                       : linear(w_, qkv_, std::move(hidden));
  return offload.commit(std::move(mixed), {});
}

Tensor projected(Worker& w, const Linear& projection, Tensor context) {
  OffloadedRegion offload(w, OffloadedModule::AttentionProjection, context);
  const Tensor held = offload.offloads() ? context.detached() : Tensor{};
  Tensor out = linear(w, projection, std::move(context));
  return offload.commit(std::move(out), {&held});
}

Tensor SelfAttention::operator()(Tensor hidden) {
  RecomputedNorm before(w_);
  if (norm_ && !w_.runtime.fused_norm_linear) hidden = before(*norm_, std::move(hidden));
  const Tensor mixed = joint(std::move(hidden));
  const Tensor value = parts_of(mixed).value;
  Tensor context;
  Heads heads;
  if (w_.model.positions == Positions::Rotary || q_norm_.weight != nullptr) {
    // forward() refers to the joint tensor (`value` views it), queries and keys until it returns, to values while core
    // attention runs.
    heads = w_.model.positions == Positions::Rotary ? split_and_turn(mixed) : split(mixed);
    context = core(heads.query, heads.key, heads.value, {&heads.query, &heads.key, &value});
    heads.value = {};
  } else {
    heads = split(mixed);
    context = core(std::move(heads.query), std::move(heads.key), std::move(heads.value), {&value});
  }
  Tensor out = projected(w_, proj_, std::move(context));
  if (post_norm_) out = norm(w_, *post_norm_, std::move(out));
  before.discard_output(out);
  return out;
}

}  // namespace tidemark::parallel::megatron
