#include <algorithm>
#include <utility>

#include "parallel/frameworks/megatron/te.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

namespace {

Attention attention_kernel(const Worker& w, Pass pass) {
  return {pass,
          w.sizes.micro_batch,
          w.train.sequence_length,
          w.model.heads / w.sizes.tensor,
          w.model.kv_heads / w.sizes.tensor,
          w.model.head_dim,
          w.train.precision};
}

// Batch-first copy of a sequence-first tensor, or back; one sequence that lies side by side needs none. Kernels take
// gradients as they lie.
Tensor transposed(Worker& w, const Name& outside, std::string_view mark, std::string_view label, Tensor x) {
  w.process.mark(Phase::Forward, outside(mark));
  const auto node = w.node(outside(mark), {&x});
  if (node) node->apply = [](Gradients& gradients) { return Gradients{std::move(gradients.front())}; };
  if (w.sizes.micro_batch == 1 && x.contiguous()) return with(std::move(x), node);
  Tensor out = w.like(outside(label), x);
  const Bytes size = x.bytes();
  w.stream(Streaming::Copy, {std::move(x)}, {out}, size, size);
  return with(std::move(out), node);
}

}  // namespace

Tensor core_attention(Worker& w, const CoreAttention& a, Tensor query, Tensor key, Tensor value) {
  if (stores_scores(w.train.attention))
    return scored_attention(w, a, std::move(query), std::move(key), std::move(value));
  if (w.train.attention != AttentionKernel::Flash)
    return fused_attention(w, a, std::move(query), std::move(key), std::move(value));
  // FlashAttention works batch first: its inputs are copies, and so is what the projection reads.
  Tensor q = transposed(w, a.outside, "q.transpose", "q.transposed", std::move(query));
  Tensor k = transposed(w, a.outside, "k.transpose", "k.transposed", std::move(key));
  Tensor v = transposed(w, a.outside, "v.transpose", "v.transposed", std::move(value));
  return transposed(w, a.outside, "context.transpose", "context.transposed",
                    fused_attention(w, a, std::move(q), std::move(k), std::move(v)));
}

Tensor fused_attention(Worker& w, const CoreAttention& a, Tensor query, Tensor key, Tensor value) {
  w.mark(Phase::Forward, a.name);
  const auto node = w.node(a.name(), {&query, &key, &value});
  Tensor out = w.temporary(a.outside("context"), w.part(w.model.heads * w.model.head_dim));
  Tensor lse = w.temporary(a.outside("lse"), w.part(w.model.heads), DType::FP32);
  Tensor rng = w.temporary(a.outside("rng_state"), {2}, DType::INT64);
  if (!node) {
    w.launch(attention_kernel(w, Pass::Forward), {std::move(query), std::move(key), std::move(value)},
             {out, std::move(lse), std::move(rng)});
    return out;
  }
  w.launch(attention_kernel(w, Pass::Forward), {query, key, value}, {out, lse, rng});
  Session& s = w.session;
  node->apply = [&w, &a, q = s.save(query), k = s.save(key), v = s.save(value), o = s.save(out), l = s.save(lse),
                 r = s.save(rng)](Gradients& gradients) {
    const Tensor queries = w.session.unpack(q), keys = w.session.unpack(k), values = w.session.unpack(v);
    // Where q, k and v are views of one tensor, so are their gradients.
    const bool joint = queries.storage == keys.storage;
    const auto part_of = [](const Tensor& mixed, const Tensor& x) {
      return Tensor{mixed.storage, x.sizes, x.strides, x.dtype, {}, true};
    };
    Tensor dq, dk, dv;
    if (joint) {
      const std::int64_t width = queries.size(-1) + keys.size(-1) + values.size(-1);
      const Tensor mixed = w.temporary(a.name("mixed_gradient"), w.whole(width));
      dq = part_of(mixed, queries), dk = part_of(mixed, keys), dv = part_of(mixed, values);
    } else {
      dq = w.like(a.name("query_gradient"), queries);
      dk = w.like(a.name("key_gradient"), keys);
      dv = w.like(a.name("value_gradient"), values);
    }
    // Query gradients are summed in fp32 over blocks of keys.
    std::int64_t copies = 1;
    const std::int64_t fill = w.runtime.query_gradients_fill;
    const std::int64_t sequences = w.sizes.micro_batch * (w.model.heads / w.sizes.tensor);
    if (fill > 0 && w.train.attention == AttentionKernel::Flash) copies = (fill + sequences - 1) / sequences;
    const Tensor sums =
        w.temporary(a.name("query_gradient_fp32"), {copies, queries.size(0), queries.size(1)}, DType::FP32);
    w.launch(attention_kernel(w, Pass::Backward),
             {std::move(gradients.front()), queries, keys, values, w.session.unpack(o), w.session.unpack(l),
              w.session.unpack(r)},
             {dq, joint ? Tensor{} : dk, joint ? Tensor{} : dv, sums});
    return Gradients{std::move(dq), std::move(dk), std::move(dv)};
  };
  return with(std::move(out), node);
}

// ---- rotary positions ----------------------------------------------------------------------------------------------

namespace {

// Of queries or keys: the part that positions turn, where not all of a head is.
Shape turned_shape(const Worker& w, const Tensor& x) {
  return {x.size(0), x.size(1) / w.model.head_dim * w.model.rotary_dim()};
}

Tensor turned_by_one_kernel(Worker& w, const Rotary& r, Tensor x) {
  const Bytes size = x.bytes();
  Tensor out = w.temporary(r.out, {x.size(0), x.size(1)});
  w.stream(Streaming::Rotary, {std::move(x), w.rotary_table()}, {out}, size, size);
  return out;
}

// Cosines or sines: computed in fp32, then narrowed.
Tensor of_angles(Worker& w, const Rotary& r, LabelId label) {
  const Shape shape{w.train.sequence_length, w.model.rotary_dim()};
  Tensor wide = w.temporary(r.name("angle_function"), {2, shape[0], shape[1]});
  const Bytes size = wide.bytes();
  w.stream(Streaming::Copy, {w.rotary_table()}, {wide}, size, size);
  Tensor narrow = w.temporary(label, shape);
  w.stream(Streaming::Copy, {std::move(wide)}, {narrow}, size, narrow.bytes());
  return narrow;
}

Tensor turned_by_terms(Worker& w, const Rotary& r, Tensor x, Tensor cos, Tensor sin) {
  const Shape shape{x.size(0), x.size(1)}, turned = turned_shape(w, x), half{turned[0], turned[1] / 2};
  const bool all_turned = turned == shape;
  const Bytes size = x.bytes();
  Tensor straight = w.temporary(r.name("times_cos"), turned);
  const Bytes part = straight.bytes();
  w.stream(Streaming::Rotary, {x, std::move(cos)}, {straight}, part, part);
  Tensor negated = w.temporary(r.name("negated_half"), half);
  w.stream(Streaming::Copy, {x}, {negated}, part / 2, part / 2);
  Tensor rotated = w.temporary(r.name("rotated"), turned);
  Tensor passed;  // the dimensions that are not turned
  if (!all_turned) passed = x;
  w.stream(Streaming::Copy, {std::move(x), std::move(negated)}, {rotated}, part, part);
  Tensor crossed = w.temporary(r.name("times_sin"), turned);
  w.stream(Streaming::Rotary, {std::move(rotated), std::move(sin)}, {crossed}, part, part);
  Tensor sum = w.temporary(r.name("turned"), turned);
  w.stream(Streaming::Add, {std::move(straight), std::move(crossed)}, {sum}, 2 * part, part);
  Tensor out = w.temporary(r.out, shape);
  w.stream(Streaming::Copy, {std::move(sum), std::move(passed)}, {out}, size, size);
  return out;
}

Tensor turned_back(Worker& w, const Rotary& r, Tensor gradient, Tensor cos, Tensor sin) {
  const Shape shape = gradient.sizes, turned = turned_shape(w, gradient), half{turned[0], turned[1] / 2};
  const bool all_turned = turned == shape;
  const Bytes size = gradient.bytes();
  Tensor crossed = w.temporary(r.name("times_sin_gradient"), turned);
  const Bytes part = crossed.bytes();
  w.stream(Streaming::Rotary, {gradient, std::move(sin)}, {crossed}, part, part);
  // Each half's gradient is laid into a tensor of zeros.
  Tensor first = w.temporary(r.name("half_gradient"), turned);
  w.stream(Streaming::Copy, {crossed}, {first}, part / 2, part);
  Tensor negated = w.temporary(r.name("negated_half_gradient"), half);
  w.stream(Streaming::Copy, {std::move(crossed)}, {negated}, part / 2, part / 2);
  Tensor second = w.temporary(r.name("half_gradient"), turned);
  w.stream(Streaming::Copy, {std::move(negated)}, {second}, part / 2, part);
  Tensor straight = w.temporary(all_turned ? r.gradient : r.name("turned_gradient"), turned);
  Tensor of_passed;
  if (!all_turned) of_passed = gradient;
  w.stream(Streaming::Rotary, {std::move(gradient), std::move(cos)}, {straight}, part, part);
  w.stream(Streaming::Add, {straight, std::move(first), std::move(second)}, {straight}, 3 * part, part);
  if (all_turned) return straight;
  // So are the gradients of what is turned and of what is not.
  Tensor passed = w.temporary(r.name("passed_gradient"), shape);
  w.stream(Streaming::Copy, {std::move(of_passed)}, {passed}, size - part, size);
  Tensor whole = w.temporary(r.gradient, shape);
  w.stream(Streaming::Copy, {std::move(straight)}, {whole}, part, size);
  w.stream(Streaming::Add, {std::move(passed), whole}, {whole}, 2 * size, size);
  return whole;
}

}  // namespace

Tensor rotary(Worker& w, const Rotary& r, Tensor x) {
  const auto node = w.node(r.mark, {&x});
  if (w.graph.options.rotary == RotaryKernel::Fused) {  // its table of angles is shared by all layers
    Tensor out = turned_by_one_kernel(w, r, std::move(x));
    if (!node) return out;
    node->apply = [&w, &r](Gradients& gradients) {
      Tensor gradient = std::move(gradients.front());
      const Bytes size = gradient.bytes();
      Tensor back = w.like(r.gradient, gradient);
      w.stream(Streaming::Rotary, {std::move(gradient), w.rotary_table()}, {back}, size, size);
      return Gradients{std::move(back)};
    };
    return with(std::move(out), node);
  }
  Tensor cos = of_angles(w, r, r.cos), sin = of_angles(w, r, r.sin);
  if (!node) return turned_by_terms(w, r, std::move(x), std::move(cos), std::move(sin));
  node->apply = [&w, &r, c = w.session.save(cos), s = w.session.save(sin)](Gradients& gradients) mutable {
    Tensor cosines = w.take(c), sines = w.take(s);
    return Gradients{turned_back(w, r, std::move(gradients.front()), std::move(cosines), std::move(sines))};
  };
  return with(turned_by_terms(w, r, std::move(x), std::move(cos), std::move(sin)), node);
}

}  // namespace tidemark::parallel::megatron
