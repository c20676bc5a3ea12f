#include <utility>

#include "parallel/frameworks/megatron/te.hpp"

// Attention that stores its scores: Megatron's DotProductAttention, TransformerEngine's unfused one.

namespace tidemark::parallel::megatron {

using torch::with;

Tensor cap_forward(Worker& w, const Cap& cap, const Tensor& x, Tensor& tangent) {
  const Bytes size = x.bytes();
  Tensor divided = w.make(cap.divided, x.sizes, x.dtype, cap.category);
  w.stream(Streaming::Copy, {x}, {divided}, size, size);
  tangent = w.make(cap.tangent, x.sizes, x.dtype, cap.tangent_category);
  w.stream(Streaming::Activation, {std::move(divided)}, {tangent}, size, size);
  Tensor capped = w.make(cap.capped, x.sizes, x.dtype, cap.category);
  w.stream(Streaming::Copy, {tangent}, {capped}, size, size);
  return capped;
}

Tensor cap_backward(Worker& w, const Cap& cap, Tensor gradient, Tensor tangent) {
  const Bytes size = tangent.bytes();
  const auto step = [&, shape = tangent.sizes, dtype = tangent.dtype](LabelId label) {
    return w.make(label, shape, dtype, cap.category);
  };
  Tensor multiplied = step(cap.capped_gradient);
  w.stream(Streaming::Copy, {std::move(gradient)}, {multiplied}, size, size);
  Tensor through = step(cap.tangent_gradient);
  w.stream(Streaming::Activation, {std::move(multiplied), std::move(tangent)}, {through}, 2 * size, size);
  Tensor divided = step(cap.uncapped_gradient);
  w.stream(Streaming::Copy, {std::move(through)}, {divided}, size, size);
  return divided;
}

namespace {

// Scores of all queries with all keys; `scores` is one head's part of them after the other.
Gemm scores_gemm(const Worker& w) {
  const std::int64_t heads = w.model.heads / w.sizes.tensor;
  return {w.sizes.micro_batch * heads * w.train.sequence_length, w.train.sequence_length, w.model.head_dim,
          w.train.precision};
}
// Sums over a sequence of keys (or queries), weighted by scores.
Gemm weighted_gemm(const Worker& w) {
  const Gemm g = scores_gemm(w);
  return {g.m, g.k, g.n, g.dtype};
}
Shape scores_shape(const Worker& w) {
  const Gemm g = scores_gemm(w);
  return {g.m, g.n};
}

Cap scores_cap(const CoreAttention& a) {
  return {.divided = a.name("divided_by_cap"),
          .tangent = a.outside("scores_tanh"),
          .capped = a.name("scores_capped"),
          .capped_gradient = a.name("capped_gradient"),
          .tangent_gradient = a.name("tanh_gradient"),
          .uncapped_gradient = a.name("uncapped_gradient")};
}

// Each query head gets keys and values of its own.
Tensor repeated(Worker& w, LabelId label, Tensor x) {
  if (w.model.kv_heads == w.model.heads) return x;
  const Bytes size = x.bytes();
  Tensor whole = w.temporary(label, w.part(w.model.heads * w.model.head_dim));
  w.stream(Streaming::Copy, {std::move(x)}, {whole}, size, whole.bytes());
  return whole;
}

struct ScoredContext {
  Saved query, key, value, softmax, mask, dropped, tangent;
  Shape kv_shape;  // before they were repeated
};

Gradients scored_backward(Worker& w, const CoreAttention& a, Tensor by_head, ScoredContext c) {
  const auto take = [&](Saved& saved) { return w.take(saved); };
  const BufferId workspace = w.process.blas_workspace(Pass::Backward);
  Tensor query = take(c.query), keys = take(c.key), values = take(c.value), softmax = take(c.softmax);
  const Shape q_shape{query.size(0), query.size(1)}, kv_shape{keys.size(0), keys.size(1)};
  const Shape scores = scores_shape(w);
  Tensor scores_gradient = w.temporary(a.name("weights_gradient"), scores);
  const Bytes size = scores_gradient.bytes();
  w.launch(scores_gemm(w), {by_head, std::move(values), workspace}, {scores_gradient});
  Tensor dv = w.temporary(a.name("value_gradient"), kv_shape);
  w.launch(weighted_gemm(w), {c.dropped ? take(c.dropped) : softmax, std::move(by_head), workspace}, {dv});
  if (c.mask) {
    Tensor mask = take(c.mask);
    Tensor kept = w.temporary(a.name("dropout_gradient"), scores);
    const Bytes read = size + mask.bytes();
    w.stream(Streaming::Copy, {std::move(scores_gradient), std::move(mask)}, {kept}, read, size);
    scores_gradient = std::move(kept);
  }
  if (const Bytes wide_size = softmax.bytes(); wide_size == size) {
    w.stream(Streaming::Copy, {scores_gradient, std::move(softmax)}, {scores_gradient}, 2 * size, size);
  } else {
    Tensor wide = w.temporary(a.name("weights_gradient_fp32"), scores, softmax.dtype);
    w.stream(Streaming::Copy, {std::move(scores_gradient)}, {wide}, size, wide_size);
    Tensor masked = w.temporary(a.name("masked_gradient"), scores, softmax.dtype);
    w.stream(Streaming::Copy, {std::move(wide), std::move(softmax)}, {masked}, 2 * wide_size, wide_size);
    scores_gradient = w.temporary(a.name("scores_gradient"), scores);
    w.stream(Streaming::Copy, {std::move(masked)}, {scores_gradient}, wide_size, size);
  }
  if (c.tangent) scores_gradient = cap_backward(w, scores_cap(a), std::move(scores_gradient), take(c.tangent));
  // The product and then its multiple by the scale.
  const auto scaled_product = [&](Tensor of, Tensor other, const Shape& shape, LabelId label) {
    Tensor product = w.temporary(a.name("unscaled_gradient"), shape);
    const Bytes bytes = product.bytes();
    w.launch(weighted_gemm(w), {std::move(of), std::move(other), workspace}, {product});
    Tensor scaled = w.temporary(label, shape);
    w.stream(Streaming::Copy, {std::move(product)}, {scaled}, bytes, bytes);
    return scaled;
  };
  Tensor dq = scaled_product(scores_gradient, std::move(keys), q_shape, a.name("query_gradient"));
  Tensor dk = scaled_product(std::move(scores_gradient), std::move(query), kv_shape, a.name("key_gradient"));
  const auto summed = [&](Tensor gradient) {  // over the query heads that shared it
    if (c.kv_shape == kv_shape) return gradient;
    Tensor sum = w.temporary(a.name("repeated_gradient_sum"), c.kv_shape);
    const Bytes read = gradient.bytes();
    w.stream(Streaming::Reduce, {std::move(gradient)}, {sum}, read, sum.bytes());
    return sum;
  };
  dk = summed(std::move(dk));
  dv = summed(std::move(dv));
  return {std::move(dq), std::move(dk), std::move(dv)};
}

}  // namespace

Tensor scored_attention(Worker& w, const CoreAttention& a, Tensor query, Tensor key, Tensor value) {
  w.mark(Phase::Forward, a.name);
  const auto node = w.node(a.name(), {&query, &key, &value});
  ScoredContext context;
  const auto keep = [&](Saved& saved, const Tensor& tensor) {
    if (node) saved = w.session.save(tensor);
  };
  context.kv_shape = {key.size(0), key.size(1)};
  key = repeated(w, a.outside("k_repeated"), std::move(key));
  value = repeated(w, a.outside("v_repeated"), std::move(value));
  keep(context.query, query), keep(context.key, key), keep(context.value, value);
  const Shape shape = scores_shape(w);
  const Bytes size = torch::elements_of(shape) * size_of(w.train.precision);
  // The product is added to a tensor of nothing, and is another one.
  Tensor nothing = w.runtime.persistent_scores ? w.global_buffer(size) : w.temporary(a.name("scores_addend"), shape);
  const BufferId workspace = w.process.blas_workspace(Pass::Forward);
  Tensor scores = w.temporary(a.name("scores"), shape);
  w.launch(scores_gemm(w), {std::move(query), std::move(key), std::move(nothing), workspace}, {scores});
  if (w.model.attention_softcap > 0) {
    Tensor tangent;
    scores = cap_forward(w, scores_cap(a), scores, tangent);
    keep(context.tangent, tangent);
  }
  const DType softmax_dtype = w.sizes.dtype(w.graph.options.softmax_precision);
  Tensor weights;
  if (softmax_dtype == w.train.precision) {
    weights = w.temporary(a.outside("softmax"), shape);
    w.stream(Streaming::Copy, {scores}, {weights}, size, size);
    keep(context.softmax, weights);
  } else {  // without the fused kernel: to fp32, masked, softmax, and back
    Tensor wide = w.temporary(a.name("scores_fp32"), shape, softmax_dtype);
    Tensor masked = w.temporary(a.name("masked"), shape, softmax_dtype);
    const Bytes wide_size = wide.bytes();
    w.stream(Streaming::Copy, {scores}, {wide}, size, wide_size);
    w.stream(Streaming::Copy, {std::move(wide)}, {masked}, wide_size, wide_size);
    Tensor softmax = w.temporary(a.outside("softmax"), shape, softmax_dtype);
    w.stream(Streaming::Copy, {std::move(masked)}, {softmax}, wide_size, wide_size);
    keep(context.softmax, softmax);
    weights = w.temporary(a.name("softmax_narrow"), shape);
    w.stream(Streaming::Copy, {std::move(softmax)}, {weights}, wide_size, size);
  }
  if (w.train.attention_dropout > 0) {
    // The softmax's backward pass reads its output, the weighted sum's what is left of it.
    Tensor mask = w.temporary(a.outside("dropout_mask"), shape, DType::BOOL);
    Tensor dropped = w.temporary(a.outside("dropped"), shape);
    keep(context.mask, mask), keep(context.dropped, dropped);
    const Bytes written = size + mask.bytes();
    w.stream(Streaming::Copy, {std::move(weights)}, {dropped, std::move(mask)}, size, written);
    weights = std::move(dropped);
  }
  // Batch and heads first; the projection reads it sequence first.
  Tensor by_head = w.temporary(a.name("by_head"), w.part(w.model.heads * w.model.head_dim));
  const Bytes bytes = by_head.bytes();
  w.launch(weighted_gemm(w), {std::move(weights), std::move(value), workspace}, {by_head});
  Tensor out = w.temporary(a.outside("context"), by_head.sizes);
  w.stream(Streaming::Copy, {std::move(by_head)}, {out}, bytes, bytes);
  if (!node) return out;
  node->apply = [&w, &a, context = std::move(context)](Gradients& gradients) mutable {
    return scored_backward(w, a, std::move(gradients.front()), std::move(context));
  };
  return with(std::move(out), node);
}

}  // namespace tidemark::parallel::megatron
