#include <utility>

#include "parallel/frameworks/megatron/layers.hpp"
#include "parallel/frameworks/megatron/recompute.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

SelfAttention::SelfAttention(Worker& w, const Parameters& parameters, const std::string& layer) : w_(w) {
  const std::string at = layer + ".attention";
  name_ = w.name(at);
  norm_ = norm_named(w, parameters, at + ".norm");
  post_norm_ = norm_named(w, parameters, at + ".post_norm");
  qkv_ = {w.name(at + ".qkv"), parameters[at + ".qkv.weight"], parameters[at + ".qkv.bias"]};
  proj_ = {w.name(at + ".proj"), parameters[at + ".proj.weight"], nullptr};
  q_norm_ = {w.name(at + ".q_norm"), parameters[at + ".q_norm.weight"], nullptr};
  k_norm_ = {w.name(at + ".k_norm"), parameters[at + ".k_norm.weight"], nullptr};
  positions_ = w.name(at + (w.model.positions == Positions::Rotary ? ".rotary" : ".split"));
  core_ = {w.name(at + ".core"), name_};
  if (w.model.positions != Positions::Rotary) return;
  query_rotary_ = {.name = positions_,
                   .cos = name_("query_cos"),
                   .sin = name_("query_sin"),
                   .out = name_("q"),
                   .gradient = positions_("query_gradient"),
                   .mark = {}};
  key_rotary_ = {.name = positions_,
                 .cos = name_("key_cos"),
                 .sin = name_("key_sin"),
                 .out = name_("k"),
                 .gradient = positions_("key_gradient"),
                 .mark = positions_()};  // whose backward pass comes first
}

namespace {

// A part of the joint tensor, which has others beside it.
Tensor part_of(const Tensor& mixed, std::int64_t width, const Ref<Node>& node, std::size_t output) {
  return with({mixed.storage, {mixed.size(0), width}, mixed.strides, mixed.dtype, {}, true}, node, output);
}

}  // namespace

SelfAttention::Heads SelfAttention::split(const Tensor& mixed) {
  const Model& m = w_.model;
  const std::int64_t q_width = m.heads * m.head_dim / w_.sizes.tensor;
  const std::int64_t kv_width = m.kv_heads * m.head_dim / w_.sizes.tensor;
  w_.mark(Phase::Forward, positions_);
  const auto node = w_.node(positions_(), {&mixed});
  if (node) {
    node->outputs = 3;
    node->apply = [this, shape = mixed.sizes, strides = mixed.strides](Gradients& gradients) {
      Tensor &q = gradients[0], &k = gradients[1], &v = gradients[2];
      if (q.storage == k.storage && k.storage == v.storage)  // parts of one tensor already
        return Gradients{Tensor{q.storage, shape, strides, q.dtype, {}}};
      Tensor whole = w_.temporary(positions_("mixed_gradient"), shape);
      const Bytes size = whole.bytes();
      w_.stream(Streaming::Copy, {std::move(q), std::move(k), std::move(v)}, {whole}, size, size);
      return Gradients{std::move(whole)};
    };
  }
  if (m.heads == m.kv_heads)
    return {part_of(mixed, q_width, node, 0), part_of(mixed, kv_width, node, 1), part_of(mixed, kv_width, node, 2)};
  // With several query heads to a key the parts fit none of the layouts that attention takes as they lie.
  const auto copy = [&](std::string_view label, std::int64_t width, std::size_t output) {
    Tensor part = w_.temporary(name_(label), {mixed.size(0), width});
    w_.stream(Streaming::Copy, {mixed}, {part}, part.bytes(), part.bytes());
    return with(std::move(part), node, output);
  };
  Tensor query = copy("q", q_width, 0), key = copy("k", kv_width, 1), value = copy("v", kv_width, 2);
  return {std::move(query), std::move(key), std::move(value)};
}

// Megatron's q_layernorm and k_layernorm: Transformer Engine's norm works on a copy that lies side by side, and saves
// it.
Tensor SelfAttention::head_norm(const Norm& norm, Of which, Tensor mixed) {
  const bool of_query = which == Of::Query;
  const auto node = w_.node({}, {&mixed, &norm.weight->value});
  Tensor in = w_.temporary(norm.name("in"), mixed.sizes);
  const Bytes size = in.bytes();
  w_.stream(Streaming::Copy, {std::move(mixed)}, {in}, size, size);
  Tensor out = w_.temporary(positions_(of_query ? "query_normed" : "key_normed"), in.sizes);
  const std::int64_t heads = in.size(1) / w_.model.head_dim;
  const bool per_head = w_.model.qk_norm == QkNorm::PerHead;
  Tensor rstd = w_.temporary(norm.name("rstd"), {in.size(0), per_head ? heads : 1}, DType::FP32);
  // Ranks that hold a part of the heads each sum up first what all heads are normalized by together.
  const auto sums_of_heads = [this](const Tensor& x, Bytes read) {
    if (w_.model.qk_norm != QkNorm::AllHeads || !w_.tensor_parallel()) return Tensor{};
    Tensor sums = w_.communicated(positions_("sums_of_heads"), w_.per_token(), DType::FP32);
    w_.stream(Streaming::Reduce, {x}, {sums}, read, sums.bytes());
    w_.all_reduce(sums);
    return sums;
  };
  w_.stream(Streaming::Norm, {in, norm.weight->value, sums_of_heads(in, size)}, {out, rstd}, size, size);
  if (!node) return out;
  node->apply = [this, &norm, of_query, sums_of_heads, saved_in = w_.session.save(in),
                 saved_rstd = w_.session.save(rstd)](Gradients& gradients) mutable {
    Tensor gradient = std::move(gradients.front());
    const Bytes bytes = gradient.bytes();
    Tensor dx = w_.like(positions_(of_query ? "query_norm_gradient" : "key_norm_gradient"), gradient);
    Tensor dweight = w_.temporary(positions_("weight_gradient"), norm.weight->shape());
    Tensor sums = sums_of_heads(gradient, 2 * bytes);
    w_.stream(Streaming::Norm,
              {std::move(gradient), w_.take(saved_in), w_.take(saved_rstd), norm.weight->value, std::move(sums)},
              {dx, dweight}, 2 * bytes, bytes);
    return Gradients{std::move(dx), std::move(dweight)};
  };
  return with(std::move(out), node);
}

SelfAttention::Heads SelfAttention::split_and_turn(const Tensor& mixed) {
  const Model& m = w_.model;
  const std::int64_t q_width = m.heads * m.head_dim / w_.sizes.tensor;
  const std::int64_t kv_width = m.kv_heads * m.head_dim / w_.sizes.tensor;
  w_.mark(Phase::Forward, positions_);
  const auto node = w_.node({}, {&mixed});
  if (node) {
    node->outputs = 3;
    node->apply = [this, shape = mixed.sizes](Gradients& gradients) {
      Tensor whole = w_.temporary(positions_("mixed_gradient"), shape);
      const Bytes size = whole.bytes();
      w_.stream(Streaming::Copy, {std::move(gradients[0]), std::move(gradients[1]), std::move(gradients[2])}, {whole},
                size, size);
      return Gradients{std::move(whole)};
    };
  }
  const Tensor table = w_.rotary_table();
  Tensor query = part_of(mixed, q_width, node, 0), key = part_of(mixed, kv_width, node, 1);
  if (q_norm_.weight != nullptr) {
    query = head_norm(q_norm_, Of::Query, std::move(query));
    key = head_norm(k_norm_, Of::Key, std::move(key));
  } else if (m.kv_heads / w_.sizes.tensor > 1) {
    // Query heads lie grouped with their key and value heads. Regrouped, several groups need a copy; one is a view.
    Tensor regrouped = w_.temporary(positions_("query"), query.sizes);
    const Bytes size = regrouped.bytes();
    w_.stream(Streaming::Copy, {std::move(query)}, {regrouped}, size, size);
    query = with(std::move(regrouped), node, 0);
  }
  query = rotary(w_, query_rotary_, std::move(query));
  key = rotary(w_, key_rotary_, std::move(key));
  Tensor value = w_.temporary(name_("v"), {mixed.size(0), kv_width});
  w_.stream(Streaming::Copy, {mixed}, {value}, value.bytes(), value.bytes());
  return {std::move(query), std::move(key), with(std::move(value), node, 2)};
}

Tensor SelfAttention::core(Tensor query, Tensor key, Tensor value) {
  if (!recompute_core) return core_attention(w_, core_, std::move(query), std::move(key), std::move(value));
  const auto run = [this](Tensors of) {
    return core_attention(w_, core_, std::move(of[0]), std::move(of[1]), std::move(of[2]));
  };
  Tensors inputs;
  inputs.push_back(std::move(query)), inputs.push_back(std::move(key)), inputs.push_back(std::move(value));
  return checkpoint(w_, run, std::move(inputs));
}

Tensor SelfAttention::operator()(Tensor hidden) {
  const Tensor mixed = norm_ ? norm_linear(w_, *norm_, qkv_, std::move(hidden)) : linear(w_, qkv_, std::move(hidden));
  Tensor context;
  Heads heads;
  if (w_.model.positions == Positions::Rotary) {
    // forward() refers to the joint tensor (`value` views it), queries and keys until it returns, to values while core
    // attention runs.
    heads = split_and_turn(mixed);
    context = core(heads.query, heads.key, heads.value);
    heads.value = {};
  } else {
    heads = split(mixed);
    context = core(std::move(heads.query), std::move(heads.key), std::move(heads.value));
  }
  Tensor out = linear(w_, proj_, std::move(context));
  if (post_norm_) out = norm(w_, *post_norm_, std::move(out));
  return out;
}

}  // namespace tidemark::parallel::megatron
