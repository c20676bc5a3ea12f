#include <cmath>
#include <cstdint>
#include <utility>

#include "parallel/frameworks/megatron/te.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

bool batch_first(const Worker& w) { return w.train.attention == AttentionKernel::Flash; }

namespace {

// Of queries, keys, values or the context, as the kernels take them: [batch, sequence, heads, width].
Tensor of_kernel(const Worker& w, Tensor x) {
  if (batch_first(w)) return x;
  if (x.sizes.size() < 4) {  // rows of tokens, as the context's
    const std::int64_t width = w.model.value_dim(), heads = x.elements() / w.tokens() / width;
    x = sized(std::move(x), {w.sizes.sequence, w.sizes.micro_batch, heads, width});
  }
  return swapped(std::move(x), 0, 1);
}

Attributes attention_numbers(const Worker& w, Mask mask) {
  return {1 / std::sqrt(static_cast<double>(w.model.head_dim)), mask == Mask::Causal ? 1.0 : 0.0,
          w.train.attention_dropout};
}

// Batch-first copy of a sequence-first tensor, or back, seen with those sizes; one sequence that lies side by side
// needs none. Kernels take gradients as they lie.
Tensor transposed(Worker& w, const Name& outside, std::string_view mark, std::string_view label, Tensor x,
                  const Shape& seen) {
  w.process.mark(Phase::Forward, outside(mark));
  const auto node = w.node(outside(mark), {&x});
  Tensor other = swapped(std::move(x), 0, 1);
  if (node)
    node->apply = [sizes = other.sizes](Gradients& gradients) {
      return Gradients{swapped(sized(std::move(gradients.front()), sizes), 0, 1)};
    };
  if (w.sizes.micro_batch == 1 && other.contiguous()) return with(sized(std::move(other), seen), node);
  Tensor out = w.temporary(outside(label), seen);
  const Shape sizes = other.sizes;
  w.launch(Operation::Copy, {std::move(other)}, {sized(out, sizes)});
  return with(std::move(out), node);
}

}  // namespace

Tensor core_attention(Worker& w, const CoreAttention& a, Tensor query, Tensor key, Tensor value) {
  if (stores_scores(w.train.attention))
    return scored_attention(w, a, std::move(query), std::move(key), std::move(value));
  const auto attention = w.layout.context > 1 ? context_attention : fused_attention;
  if (!batch_first(w)) return attention(w, a, std::move(query), std::move(key), std::move(value));
  // FlashAttention works batch first: its inputs are copies, and so is what the projection reads.
  const auto turned = [](const Tensor& x) { return Shape{x.size(1), x.size(0), x.size(2), x.size(3)}; };
  const Shape q_shape = turned(query), kv_shape = turned(key);
  Tensor q = transposed(w, a.outside, "q.transpose", "q.transposed", std::move(query), q_shape);
  Tensor k = transposed(w, a.outside, "k.transpose", "k.transposed", std::move(key), kv_shape);
  Tensor v = transposed(w, a.outside, "v.transpose", "v.transposed", std::move(value), kv_shape);
  return transposed(w, a.outside, "context.transpose", "context.transposed",
                    attention(w, a, std::move(q), std::move(k), std::move(v)),
                    w.part(w.model.heads * w.model.head_dim));
}

Attended attend(Worker& w, const CoreAttention& a, Mask mask, Tensor query, Tensor key, Tensor value,
                const Shape& out) {
  const Tensor q = of_kernel(w, query);
  Attended made;
  made.out = w.temporary(a.outside("context"), out);
  made.lse = w.temporary(a.outside("lse"), {q.size(0), q.size(2), q.size(1)}, DType::FP32);
  made.rng_state = w.temporary(a.outside("rng_state"), {2}, DType::INT64);  // seed and offset
  w.launch({Operation::Attention, attention_numbers(w, mask)},
           {of_kernel(w, std::move(query)), of_kernel(w, std::move(key)), of_kernel(w, std::move(value)), Tensor{}},
           {of_kernel(w, made.out), made.lse, narrowed(made.rng_state, 0, 0, 1), narrowed(made.rng_state, 0, 1, 1)});
  return made;
}

void attend_backward(Worker& w, const CoreAttention& a, Mask mask, Tensor gradient, const Tensor& query,
                     const Tensor& key, const Tensor& value, const Attended& attended, const Gradients& made) {
  // Query gradients are summed in fp32 over blocks of keys.
  std::int64_t copies = 1;
  const std::int64_t fill = w.runtime.query_gradients_fill;
  const Tensor q = of_kernel(w, query);
  const std::int64_t sequences = q.size(0) * q.size(2);
  if (fill > 0 && batch_first(w)) copies = (fill + sequences - 1) / sequences;
  const Tensor sums = w.temporary(a.name("query_gradient_fp32"), {copies, query.elements()}, DType::FP32);
  w.launch({Operation::AttentionBackward, attention_numbers(w, mask)},
           {of_kernel(w, std::move(gradient)), q, of_kernel(w, key), of_kernel(w, value), of_kernel(w, attended.out),
            attended.lse, narrowed(attended.rng_state, 0, 0, 1), narrowed(attended.rng_state, 0, 1, 1), Tensor{}},
           {of_kernel(w, made[0]), of_kernel(w, made[1]), of_kernel(w, made[2])}, sums);
}

namespace {

// One number for each head, in fp32, as statistics of queries lie: [batch, heads, queries].
Tensor sinks_of(const Worker& w, const CoreAttention& a) {
  Tensor wide = w.temporary(a.name("sinks"), {1, a.sinks->rows, 1}, DType::FP32);
  w.launch(Operation::Copy, {sized(a.sinks->value.detached(), wide.sizes)}, {wide});
  return wide;
}

// Statistics beside the context: [batch, queries, heads, 1].
Tensor by_query(Tensor statistics) {
  Shape sizes = statistics.sizes;
  sizes.push_back(1);
  return swapped(sized(std::move(statistics), sizes), 1, 2);
}

// Softmax over the keys and a sink, of which nothing comes: what comes of the keys weighs less. cuDNN's kernels do
// this within (TransformerEngine softmax_type "learnable").
void let_sinks_take_part(const Worker& w, const CoreAttention& a, Attended& made) {
  Tensor all = w.like(a.outside("lse"), made.lse);
  w.launch(Operation::LogAddExp, {made.lse, sinks_of(w, a)}, {all});
  w.launch(Operation::SoftmaxCorrection, {of_kernel(w, made.out), by_query(made.lse), by_query(all), Tensor{}},
           {of_kernel(w, made.out)});
  made.lse = std::move(all);
}

// A sink's weight takes from each query what its context's gradient would give.
Tensor gradient_of_sinks(const Worker& w, const CoreAttention& a, Tensor gradient, const Attended& attended) {
  const Tensor lse = by_query(attended.lse), out = of_kernel(w, attended.out);
  Tensor products = w.temporary(a.name("sinks_products"), lse.sizes, DType::FP32);
  w.launch(Operation::MeanOfProducts, {of_kernel(w, std::move(gradient)), out}, {products});
  Tensor weights = w.temporary(a.name("sinks_weights"), lse.sizes, DType::FP32);
  w.launch({Operation::AddScaled, {-1}}, {by_query(sinks_of(w, a)), lse}, {weights});
  w.launch(Operation::Exponential, {weights}, {weights});
  w.launch(Operation::Multiply, {weights, std::move(products)}, {weights});
  Tensor sum = w.temporary(a.name("sinks_sum"), {1, 1, a.sinks->rows, 1}, DType::FP32);
  w.launch(Operation::Sum, {std::move(weights)}, {sum});
  w.launch({Operation::Scale, {-static_cast<double>(out.size(-1))}}, {sum}, {sum});
  Tensor made = w.temporary(a.name("sinks_gradient"), a.sinks->shape());
  w.launch(Operation::Copy, {sized(std::move(sum), made.sizes)}, {made});
  return made;
}

}  // namespace

Tensor fused_attention(Worker& w, const CoreAttention& a, Tensor query, Tensor key, Tensor value) {
  w.mark(Phase::Forward, a.name);
  const auto node = a.sinks == nullptr ? w.node(a.name(), {&query, &key, &value})
                                       : w.node(a.name(), {&query, &key, &value, &a.sinks->value});
  const Shape shape = batch_first(w) ? query.sizes : w.part(w.model.heads * w.model.value_dim());
  Attended made = node ? attend(w, a, Mask::Causal, query, key, value, shape)
                       : attend(w, a, Mask::Causal, std::move(query), std::move(key), std::move(value), shape);
  if (a.sinks != nullptr) let_sinks_take_part(w, a, made);
  if (!node) return made.out;
  Session& s = w.session;
  node->apply = [&w, &a, q = s.save(query), k = s.save(key), v = s.save(value), o = s.save(made.out),
                 l = s.save(made.lse), r = s.save(made.rng_state)](Gradients& gradients) {
    const Tensor queries = w.session.unpack(q), keys = w.session.unpack(k), values = w.session.unpack(v);
    const Attended attended{w.session.unpack(o), w.session.unpack(l), w.session.unpack(r)};
    // Where q, k and v are views of one tensor, so are their gradients.
    const bool joint = queries.storage == keys.storage;
    const auto part_of = [](const Tensor& mixed, const Tensor& x) {
      return Tensor{mixed.storage, x.sizes, x.strides, x.offset, x.dtype, {}, true};
    };
    Tensor dq, dk, dv;
    if (joint) {
      const std::int64_t elements = queries.elements() + keys.elements() + values.elements();
      const Tensor mixed = w.temporary(a.name("mixed_gradient"), w.whole(elements / w.tokens()));
      dq = part_of(mixed, queries), dk = part_of(mixed, keys), dv = part_of(mixed, values);
    } else {
      dq = w.like(a.name("query_gradient"), queries);
      dk = w.like(a.name("key_gradient"), keys);
      dv = w.like(a.name("value_gradient"), values);
    }
    Gradients all{std::move(dq), std::move(dk), std::move(dv)};
    Tensor of_sinks;
    if (a.sinks != nullptr) of_sinks = gradient_of_sinks(w, a, gradients.front(), attended);
    attend_backward(w, a, Mask::Causal, std::move(gradients.front()), queries, keys, values, attended, all);
    if (of_sinks.defined()) all.push_back(std::move(of_sinks));
    return all;
  };
  return with(made.out, node);
}

// ---- rotary positions ----------------------------------------------------------------------------------------------

namespace {

// Of each position, for all sequences and heads: [sequence, 1, 1, dimensions that are turned].
Tensor angles(Worker& w, const Rotary& r) {
  Tensor table = r.table != nullptr ? *r.table : w.rotary_table();
  if (w.model.window_rotary) table = narrowed(std::move(table), 0, r.window ? 1 : 0, 1);
  const std::int64_t turned = table.size(-1);
  return sized(std::move(table), {w.sizes.sequence, 1, 1, turned});
}

// Cosines or sines: computed in fp32, multiplied by a scale, which is 1, then narrowed; in fp32 the multiple is kept.
Tensor of_angles(Worker& w, const Rotary& r, Operation function, LabelId label) {
  const Tensor table = angles(w, r);
  const bool narrows = w.train.precision != DType::FP32;
  Tensor values = w.temporary(r.name("angle_function"), table.sizes, DType::FP32);
  w.launch(function, {table}, {values});
  Tensor scaled = w.temporary(narrows ? r.name("angle_function_scaled") : label, table.sizes, DType::FP32);
  w.launch({Operation::Scale, {1}}, {std::move(values)}, {scaled});
  if (!narrows) return scaled;
  Tensor narrow = w.temporary(label, table.sizes);
  w.launch(Operation::Copy, {std::move(scaled)}, {narrow});
  return narrow;
}

// Of queries or keys: the part that positions turn, where not all of a head is, its halves, and the rest.
struct Parts {
  explicit Parts(const Worker& w) : turned_width(w.model.rotary_dim()) {}
  [[nodiscard]] bool all(const Tensor& x) const { return x.size(-1) == turned_width; }
  [[nodiscard]] Tensor turned(Tensor x) const { return narrowed(std::move(x), -1, 0, turned_width); }
  [[nodiscard]] Tensor first(Tensor x) const { return narrowed(std::move(x), -1, 0, turned_width / 2); }
  [[nodiscard]] Tensor second(Tensor x) const { return narrowed(std::move(x), -1, turned_width / 2, turned_width / 2); }
  [[nodiscard]] Tensor rest(Tensor x) const {
    const std::int64_t width = x.size(-1) - turned_width;
    return narrowed(std::move(x), -1, turned_width, width);
  }
  std::int64_t turned_width;
};

// core/models/common/embeddings/rope_utils.py _apply_rotary_pos_emb_bshd.
Tensor turned_by_terms(Worker& w, const Rotary& r, Tensor x, Tensor cos, Tensor sin) {
  const Parts parts(w);
  const Shape shape = x.sizes, turned = parts.turned(x).sizes, half = parts.first(x).sizes;
  const bool all_turned = parts.all(x);
  Tensor straight = w.temporary(r.name("times_cos"), turned);
  w.launch(Operation::Multiply, {parts.turned(x), std::move(cos)}, {straight});
  Tensor negated = w.temporary(r.name("negated_half"), half);
  w.launch({Operation::Scale, {-1}}, {parts.second(x)}, {negated});
  Tensor rotated = w.temporary(r.name("rotated"), turned);
  Tensor passed;  // the dimensions that are not turned
  if (!all_turned) passed = parts.rest(x);
  w.launch(Operation::Copy, {std::move(negated), parts.first(std::move(x))},
           {parts.first(rotated), parts.second(rotated)});
  Tensor crossed = w.temporary(r.name("times_sin"), turned);
  w.launch(Operation::Multiply, {std::move(rotated), std::move(sin)}, {crossed});
  Tensor sum = w.temporary(r.name("turned"), turned);
  w.launch(Operation::Add, {std::move(straight), std::move(crossed)}, {sum});
  Tensor out = w.temporary(r.out, shape);
  if (all_turned)
    w.launch(Operation::Copy, {std::move(sum)}, {out});
  else
    w.launch(Operation::Copy, {std::move(sum), std::move(passed)}, {parts.turned(out), parts.rest(out)});
  return out;
}

Tensor turned_back(Worker& w, const Rotary& r, Tensor gradient, Tensor cos, Tensor sin) {
  const Parts parts(w);
  const Shape shape = gradient.sizes, turned = parts.turned(gradient).sizes, half = parts.first(gradient).sizes;
  const bool all_turned = parts.all(gradient);
  // A part's gradient is laid into a tensor of zeros.
  const auto laid = [&w](Tensor part, const Tensor& zeros, const Tensor& place) {
    w.launch({Operation::Fill, {0}}, {}, {zeros});
    w.launch(Operation::Copy, {std::move(part)}, {place});
  };
  Tensor crossed = w.temporary(r.name("times_sin_gradient"), turned);
  w.launch(Operation::Multiply, {parts.turned(gradient), std::move(sin)}, {crossed});
  Tensor negated = w.temporary(r.name("negated_half_gradient"), half);
  w.launch({Operation::Scale, {-1}}, {parts.first(crossed)}, {negated});
  Tensor joined = w.temporary(all_turned ? r.gradient : r.name("turned_gradient"), turned);  // chunk's backward pass
  w.launch(Operation::Copy, {parts.second(std::move(crossed)), std::move(negated)},
           {parts.first(joined), parts.second(joined)});
  Tensor straight = w.temporary(r.name("times_cos_gradient"), turned);
  w.launch(Operation::Multiply, {parts.turned(gradient), std::move(cos)}, {straight});
  w.launch(Operation::Add, {joined, std::move(straight)}, {joined});
  if (all_turned) {  // of dimensions that are not turned there are none, and zeros as large as all
    Tensor zeros = w.temporary(r.name("passed_gradient"), shape);
    w.launch({Operation::Fill, {0}}, {}, {zeros});
    return joined;
  }
  straight = std::move(joined);
  Tensor of_passed = parts.rest(std::move(gradient));
  // So are the gradients of what is turned and of what is not.
  Tensor passed = w.temporary(r.name("passed_gradient"), shape);
  laid(std::move(of_passed), passed, parts.rest(passed));
  Tensor whole = w.temporary(r.gradient, shape);
  laid(std::move(straight), whole, parts.turned(whole));
  w.launch(Operation::Add, {std::move(passed), whole}, {whole});
  return whole;
}

}  // namespace

Tensor rotary(Worker& w, const Rotary& r, Tensor x) {
  const auto node = w.node(r.mark, {&x});
  if (w.built.options.rotary == RotaryKernel::Fused) {  // its table of angles is shared by all layers
    Tensor out = w.like(r.out, x);
    w.launch(Operation::Rotary, {std::move(x), angles(w, r)}, {out});
    if (!node) return out;
    node->apply = [&w, &r](Gradients& gradients) {
      Tensor gradient = std::move(gradients.front());
      Tensor back = w.like(r.gradient, gradient);
      w.launch(Operation::RotaryBackward, {std::move(gradient), angles(w, r)}, {back});
      return Gradients{std::move(back)};
    };
    return with(std::move(out), node);
  }
  Tensor cos = of_angles(w, r, Operation::Cosine, r.cos), sin = of_angles(w, r, Operation::Sine, r.sin);
  if (!node) return turned_by_terms(w, r, std::move(x), std::move(cos), std::move(sin));
  node->apply = [&w, &r, c = w.session.save(cos), s = w.session.save(sin)](Gradients& gradients) mutable {
    Tensor cosines = w.take(c), sines = w.take(s);
    return Gradients{turned_back(w, r, std::move(gradients.front()), std::move(cosines), std::move(sines))};
  };
  return with(turned_by_terms(w, r, std::move(x), std::move(cos), std::move(sin)), node);
}

}  // namespace tidemark::parallel::megatron
