#include "parallel/lower/operators.hpp"

#include <utility>

#include "sim/base/overloaded.hpp"

// How TransformerEngine 2.11's linears, norms and attention, Megatron's embedding, LM head and losses use memory:
// which temporaries they take, in which order, and what they drop when. Every function is one operator's pass.

namespace tidemark::parallel {
namespace {

// One operator's pass over one micro-batch: short names for what all of them touch.
struct OperatorPass {
  Emitter& emit;
  MicroBatch& batch;
  OperatorId id;
  const Operator& op;

  [[nodiscard]] const Value& value(ValueId v) const { return emit.graph[v]; }
  [[nodiscard]] ValueId in(std::size_t i = 0) const { return op.inputs[i]; }
  [[nodiscard]] ValueId out(std::size_t i = 0) const { return op.outputs[i]; }
  [[nodiscard]] BufferId buffer(ValueId v) const { return batch.values[v.index()]; }
  [[nodiscard]] BufferId gradient(ValueId v) const { return batch.gradients[v.index()]; }
  [[nodiscard]] const Parameter& parameter(std::size_t i = 0) const { return emit.graph[op.parameters[i]]; }
  [[nodiscard]] BufferId weight(std::size_t i = 0) const { return emit.weight[op.parameters[i].index()]; }
  [[nodiscard]] Bytes bytes(ValueId v) const { return emit.sizes.bytes(value(v)); }
  [[nodiscard]] Bytes gathered_bytes(ValueId v) const { return emit.sizes.gathered_bytes(value(v)); }
  [[nodiscard]] bool sequence_parallel() const { return emit.sizes.sequence_parallel; }

  BufferId make(ValueId v) const { return batch.values[v.index()] = emit.alloc(v); }
  [[nodiscard]] BufferId temporary(Bytes size, std::string_view use) const {
    return emit.alloc(size, Category::Temporaries, id, use);
  }
  [[nodiscard]] BufferId communicated(Bytes size, std::string_view use) const {
    return emit.alloc(size, Category::CommTp, id, use);
  }
  void stream(Streaming kind, std::initializer_list<BufferId> inputs, std::initializer_list<BufferId> outputs,
              Bytes read, Bytes written) const {
    emit.program.launch(Stream{kind, read, written}, inputs, outputs);
  }
  void tensor_collective(CollectiveKind kind, BufferId from, BufferId to, Bytes size) const {
    emit.collective(emit.comms.tensor, kind, from, to, size);
  }

  [[nodiscard]] EventId tensor_collective_aside(CollectiveKind kind, BufferId from, BufferId to, Bytes size) const {
    return emit.collective_aside(emit.comms.tensor, kind, from, to, size);
  }

  /// Hands a gradient to a value. A second one is summed with the first into a new tensor, as autograd does.
  void give(ValueId v, BufferId gradient) const {
    BufferId& sum = batch.gradients[v.index()];
    if (!sum.valid()) {
      sum = gradient;
      return;
    }
    const Bytes size = bytes(v);
    const BufferId total = temporary(size, "gradient_sum");
    stream(Streaming::Add, {sum, gradient}, {total}, 2 * size, size);
    sum = total;
  }

  /// A weight's gradient that is not fused into its GEMM: a tensor of its own, added into the buffer by a hook. That of
  /// a weight which two operators use waits for the second, and the sum is made in place.
  void accumulate(ParameterId which, BufferId gradient) const {
    const Bytes size = emit.sizes.elements(emit.graph[which]) * size_of(emit.gradient_dtype());
    if (emit.uses(which) > 1) {
      const BufferId first = std::exchange(batch.shared_gradient, BufferId{});
      if (!first.valid()) {
        batch.shared_gradient = gradient;
        return;
      }
      const Bytes dense = weight_bytes(emit.graph[which]);
      // What a cache holds too cannot be written over.
      const bool cached = emit.runtime.dummy_gradient == DummyGradient::Cached;
      const BufferId sum = cached ? temporary(dense, "weight_gradient_sum") : first;
      stream(Streaming::Add, {first, gradient}, {sum}, 2 * dense, dense);
      gradient = sum;
    }
    stream(Streaming::Add, {gradient, emit.gradients}, {emit.gradients}, 2 * size, size);
  }
  /// The same once the backward function has returned.
  void accumulate_later(ParameterId which, BufferId gradient) const { batch.unhooked.emplace_back(which, gradient); }
  void run_hooks() const {
    for (const auto& [which, gradient] : batch.unhooked) accumulate(which, gradient);
    batch.unhooked.clear();
  }
  [[nodiscard]] Bytes weight_bytes(const Parameter& parameter) const {
    return emit.sizes.elements(parameter) * size_of(emit.train.precision);
  }

  [[nodiscard]] std::int64_t tokens() const { return emit.sizes.tokens; }
};

// ---- forward -------------------------------------------------------------------------------------------------------

void forward_embedding(const OperatorPass& p) {
  BufferId ids = p.buffer(p.in());
  const Bytes whole = p.gathered_bytes(p.out());
  if (p.emit.tensor_parallel()) {
    p.batch.embedding_mask = p.temporary(Bytes{p.tokens()}, "mask");
    const BufferId masked = p.temporary(p.bytes(p.in()), "masked_ids");
    p.stream(Streaming::Lookup, {ids}, {p.batch.embedding_mask, masked}, p.bytes(p.in()), p.bytes(p.in()));
    ids = p.batch.values[p.in().index()] = masked;
  }
  // The table is looked up batch first; the layers work sequence first.
  const bool positions = p.op.parameters.size() > 1, dropout = p.op.outputs.size() > 1;
  const bool transposed = p.emit.sizes.micro_batch > 1;
  const bool scaled = p.emit.graph.model.scaled_embedding;
  const bool scattered = p.sequence_parallel() && !positions;  // the sum over ranks and the cut are one collective
  int steps_left = (positions ? 1 : 0) + (transposed ? 1 : 0) + (p.sequence_parallel() ? 1 : 0) + (dropout ? 1 : 0) +
                   (scaled ? 1 : 0);
  const auto next = [&](std::string_view use) { return steps_left-- == 0 ? p.make(p.out()) : p.temporary(whole, use); };
  BufferId found = next("batch_first");
  p.stream(Streaming::Lookup, {ids, p.weight()}, {found}, whole, whole);
  if (p.emit.tensor_parallel()) p.stream(Streaming::Fill, {p.batch.embedding_mask}, {found}, Bytes{p.tokens()}, whole);
  if (p.emit.tensor_parallel() && !scattered) p.tensor_collective(CollectiveKind::AllReduce, found, found, whole);
  if (positions) {
    p.emit.bind(Local::WordEmbeddings, found);
    const BufferId places = p.temporary(whole, "positions");
    p.stream(Streaming::Lookup, {p.buffer(p.in(1)), p.weight(1)}, {places}, whole, whole);
    p.emit.bind(Local::PositionEmbeddings, places);
    const BufferId sum = next("sum");
    p.stream(Streaming::Add, {found, places}, {sum}, 2 * whole, whole);
    found = sum;
  }
  if (transposed) {
    const BufferId copy = next("sequence_first");
    p.stream(Streaming::Copy, {found}, {copy}, whole, whole);
    found = copy;
  }
  const Bytes size = p.bytes(p.out());
  if (p.sequence_parallel()) {
    const BufferId part = steps_left-- == 0 ? p.make(p.out()) : p.temporary(size, "scattered");
    if (scattered)
      p.tensor_collective(CollectiveKind::ReduceScatter, found, part, whole);
    else
      p.stream(Streaming::Copy, {found}, {part}, size, size);
    found = part;
  }
  if (dropout) {
    const BufferId mask = p.make(p.out(1)), kept = scaled ? p.temporary(size, "dropped") : p.make(p.out());
    p.stream(Streaming::Copy, {found}, {kept, mask}, size, size + p.bytes(p.out(1)));
    found = kept;
  }
  if (scaled) p.stream(Streaming::Copy, {found}, {p.make(p.out())}, size, size);
  if (!positions) return;
  p.emit.unbind(Local::WordEmbeddings);
  p.emit.unbind(Local::PositionEmbeddings);
}

void forward_norm(const OperatorPass& p) {
  const BufferId out = p.make(p.out());
  std::vector<BufferId> inputs{p.buffer(p.in())}, outputs{out};
  for (std::size_t i = 0; i < p.op.parameters.size(); ++i) inputs.push_back(p.weight(i));
  for (std::size_t i = 1; i < p.op.outputs.size(); ++i) outputs.push_back(p.make(p.out(i)));
  p.emit.program.launch(Stream{Streaming::Norm, p.bytes(p.in()), p.bytes(p.out())}, inputs, outputs);
}

Gemm forward_gemm(const OperatorPass& p) {
  return {p.tokens(), p.emit.sizes.rows(p.parameter()), p.emit.sizes.columns(p.parameter()), p.emit.train.precision};
}

void forward_linear(const OperatorPass& p) {
  const bool row_parallel = p.parameter().cut == WeightCut::Columns;
  if (std::exchange(p.batch.value_in_frame, false)) p.emit.unbind(Local::Value);
  BufferId input = p.buffer(p.in());
  if (!row_parallel && p.sequence_parallel()) {
    const BufferId gathered = p.communicated(p.gathered_bytes(p.in()), "gathered");
    p.tensor_collective(CollectiveKind::AllGather, input, gathered, p.gathered_bytes(p.in()));
    input = gathered;
  }
  const BufferId workspace = p.emit.linear_workspace(Pass::Forward);
  if (row_parallel && p.sequence_parallel()) {
    const BufferId partial = p.temporary(p.gathered_bytes(p.out()), "partial_sum");
    p.emit.program.launch(forward_gemm(p), {input, p.weight(), workspace}, {partial});
    p.tensor_collective(CollectiveKind::ReduceScatter, partial, p.make(p.out()), p.gathered_bytes(p.out()));
  } else {
    const BufferId out = p.make(p.out());
    p.emit.program.launch(forward_gemm(p), {input, p.weight(), workspace}, {out});
    if (row_parallel) p.tensor_collective(CollectiveKind::AllReduce, out, out, p.bytes(p.out()));
  }
}

// Query heads lie grouped with their key and value heads. Regrouped, several groups need a copy; one is a view.
BufferId regrouped_query(const OperatorPass& p, BufferId mixed) {
  if (p.emit.graph.model.kv_heads / p.emit.sizes.tensor == 1) return mixed;
  const Bytes size = p.bytes(p.out(0));
  const BufferId q = p.temporary(size, "query");
  p.stream(Streaming::Copy, {mixed}, {q}, size, size);
  return q;
}

void enter_attention(const OperatorPass& p, BufferId mixed) {
  p.batch.attention_frame = p.emit.runtime.mixed_qkv_in_frame;
  if (p.batch.attention_frame) p.emit.bind(Local::MixedQkv, mixed);
}

void forward_split(const OperatorPass& p) {
  const BufferId mixed = p.buffer(p.in());
  enter_attention(p, mixed);
  if (p.emit.strided_view(p.out())) {
    for (const ValueId part : p.op.outputs) p.batch.values[part.index()] = mixed;
    return;
  }
  // With several query heads to a key the parts fit none of the layouts that attention takes as they lie.
  for (const ValueId part : p.op.outputs) {
    const Bytes size = p.bytes(part);
    p.stream(Streaming::Copy, {mixed}, {p.make(part)}, size, size);
  }
}

// The values that norms of queries and keys add to a rotary's outputs.
constexpr std::size_t of_head_norms = 4;
bool fused_rotary(const OperatorPass& p) {
  return p.op.outputs.size() - (p.op.parameters.empty() ? 0 : of_head_norms) == 3;
}
// What is normalized of queries (0) or keys (1), and the statistics.
ValueId norm_input(const OperatorPass& p, std::size_t which) {
  return p.out(p.op.outputs.size() - of_head_norms + which);
}
ValueId norm_statistics(const OperatorPass& p, std::size_t which) {
  return p.out(p.op.outputs.size() - of_head_norms + 2 + which);
}

// Launches a norm of queries or keys. Ranks that hold a part of the heads each sum up first what all heads are
// normalized by together.
void launch_head_norm(const OperatorPass& p, std::vector<BufferId> inputs, const std::vector<BufferId>& outputs,
                      Bytes read, Bytes written) {
  if (p.emit.graph.model.qk_norm == QkNorm::AllHeads && p.emit.tensor_parallel()) {
    const Bytes size = p.tokens() * size_of(DType::FP32);
    const BufferId sums = p.communicated(size, "sums_of_heads");
    p.stream(Streaming::Reduce, {inputs.front()}, {sums}, read, size);
    p.tensor_collective(CollectiveKind::AllReduce, sums, sums, size);
    inputs.push_back(sums);
  }
  p.emit.program.launch(Stream{Streaming::Norm, read, written}, inputs, outputs);
}

// Megatron's q_layernorm and k_layernorm: Transformer Engine's norm works on a copy that lies side by side, and saves
// it.
BufferId head_normed(const OperatorPass& p, std::size_t which, BufferId mixed) {
  const Bytes size = p.bytes(p.out(which));
  const BufferId in = p.make(norm_input(p, which));
  p.stream(Streaming::Copy, {mixed}, {in}, size, size);
  const BufferId out = p.temporary(size, which == 0 ? "query_normed" : "key_normed");
  const BufferId rstd = p.make(norm_statistics(p, which));
  launch_head_norm(p, {in, p.weight(which)}, {out, rstd}, size, size);
  return out;
}

BufferId head_norm_gradient(const OperatorPass& p, std::size_t which, BufferId gradient) {
  const Bytes size = p.bytes(p.out(which));
  const BufferId dx = p.temporary(size, which == 0 ? "query_norm_gradient" : "key_norm_gradient");
  const BufferId dweight = p.temporary(p.weight_bytes(p.parameter(which)), "weight_gradient");
  launch_head_norm(p, {gradient, p.buffer(norm_input(p, which)), p.buffer(norm_statistics(p, which)), p.weight(which)},
                   {dx, dweight}, 2 * size, size);
  p.accumulate(p.op.parameters[which], dweight);
  return dx;
}

// Of queries (0) or keys (1): what positions turn, where not all of a head is.
Bytes turned_bytes(const OperatorPass& p, std::size_t output) {
  const Model& m = p.emit.graph.model;
  return p.bytes(p.out(output)) / m.head_dim * m.rotary_dim();
}

// Queries (0) or keys (1), turned: by one kernel, or x cos + rotated(x) sin, each term a tensor.
BufferId turned(const OperatorPass& p, std::size_t output, BufferId x, BufferId table) {
  const Bytes size = p.bytes(p.out(output));
  if (fused_rotary(p)) {
    const BufferId out = p.make(p.out(output));
    p.stream(Streaming::Rotary, {x, table}, {out}, size, size);
    return out;
  }
  const ValueId cos_value = p.out(3 + 2 * output), sin_value = p.out(4 + 2 * output);
  const Bytes angles = p.bytes(cos_value);
  const auto of_angles = [&](ValueId made) {
    const BufferId wide = p.temporary(2 * angles, "angle_function");  // fp32, then narrowed
    p.stream(Streaming::Copy, {table}, {wide}, 2 * angles, 2 * angles);
    const BufferId narrow = p.make(made);
    p.stream(Streaming::Copy, {wide}, {narrow}, 2 * angles, angles);
    return narrow;
  };
  const BufferId cos = of_angles(cos_value), sin = of_angles(sin_value);
  const Bytes part = turned_bytes(p, output);
  const BufferId straight = p.temporary(part, "times_cos");
  p.stream(Streaming::Rotary, {x, cos}, {straight}, part, part);
  const BufferId negated = p.temporary(part / 2, "negated_half");
  p.stream(Streaming::Copy, {x}, {negated}, part / 2, part / 2);
  const BufferId rotated = p.temporary(part, "rotated");
  p.stream(Streaming::Copy, {x, negated}, {rotated}, part, part);
  const BufferId crossed = p.temporary(part, "times_sin");
  p.stream(Streaming::Rotary, {rotated, sin}, {crossed}, part, part);
  const BufferId sum = p.temporary(part, "turned");
  p.stream(Streaming::Add, {straight, crossed}, {sum}, 2 * part, part);
  const BufferId out = p.make(p.out(output));  // joined with the dimensions that are not turned, if there are any
  if (part == size)
    p.stream(Streaming::Copy, {sum}, {out}, size, size);
  else
    p.stream(Streaming::Copy, {sum, x}, {out}, size, size);
  return out;
}

void forward_rotary(const OperatorPass& p) {
  const BufferId mixed = p.buffer(p.in());
  const BufferId table = p.emit.rotary_table();
  const Bytes kv_size = p.bytes(p.out(1));
  enter_attention(p, mixed);
  const bool norms = !p.op.parameters.empty();
  const BufferId q = norms ? head_normed(p, 0, mixed) : regrouped_query(p, mixed);
  const BufferId k = norms ? head_normed(p, 1, mixed) : mixed;
  const BufferId turned_q = turned(p, 0, q, table);
  const BufferId turned_k = turned(p, 1, k, table);
  if (p.batch.attention_frame) {
    p.emit.bind(Local::Query, turned_q);
    p.emit.bind(Local::Key, turned_k);
    p.batch.turned_in_frame = true;
  }
  const BufferId v = p.make(p.out(2));
  p.stream(Streaming::Copy, {mixed}, {v}, kv_size, kv_size);
  if (!p.batch.attention_frame) return;
  p.emit.bind(Local::Value, v);
  p.batch.value_in_frame = true;
}

void forward_transpose(const OperatorPass& p) {
  if (p.emit.sizes.micro_batch == 1 && !p.emit.strided_view(p.in())) {
    p.batch.values[p.out().index()] = p.buffer(p.in());
    return;
  }
  p.stream(Streaming::Copy, {p.buffer(p.in())}, {p.make(p.out())}, p.bytes(p.in()), p.bytes(p.out()));
}

Attention attention_kernel(const OperatorPass& p, Pass pass) {
  const Model& m = p.emit.graph.model;
  return {pass,
          p.emit.sizes.micro_batch,
          p.emit.train.sequence_length,
          m.heads / p.emit.sizes.tensor,
          m.kv_heads / p.emit.sizes.tensor,
          m.head_dim,
          p.emit.train.precision};
}

void forward_attention(const OperatorPass& p) {
  const BufferId out = p.make(p.out(0)), lse = p.make(p.out(1)), rng = p.make(p.out(2));
  p.emit.program.launch(attention_kernel(p, Pass::Forward), {p.buffer(p.in(0)), p.buffer(p.in(1)), p.buffer(p.in(2))},
                        {out, lse, rng});
}

// Scores of all queries with all keys; `scores` is one head's part of them after the other.
Gemm scores_gemm(const OperatorPass& p) {
  const Attention a = attention_kernel(p, Pass::Forward);
  return {a.batch * a.heads * a.sequence, a.sequence, a.head_dim, a.dtype};
}
// Sums over a sequence of keys (or queries), weighted by scores.
Gemm weighted_gemm(const OperatorPass& p) {
  const Gemm g = scores_gemm(p);
  return {g.m, g.k, g.n, g.dtype};
}
Bytes scores_bytes(const OperatorPass& p) {
  const Gemm g = scores_gemm(p);
  return g.m * g.n * size_of(g.dtype);
}

/// The keys (1) or values (2) that scored attention multiplies: those of its inputs, or repeated for each query head.
ValueId multiplied(const OperatorPass& p, std::size_t input) {
  const std::size_t outputs = p.op.outputs.size();
  return p.emit.graph.model.heads == p.emit.graph.model.kv_heads ? p.in(input) : p.out(outputs - 3 + input);
}

bool drops_weights(const OperatorPass& p) { return p.emit.train.attention_dropout > 0; }

// cap * tanh(x / cap), as three steps; only the tangent is saved.
template <class MakeCapped>
BufferId cap(const OperatorPass& p, BufferId x, ValueId tanh, Category category, MakeCapped make_capped) {
  const Bytes size = p.bytes(tanh);
  const BufferId divided = p.emit.alloc(size, category, p.id, "divided_by_cap");
  p.stream(Streaming::Copy, {x}, {divided}, size, size);
  const BufferId tangent = p.make(tanh);
  p.stream(Streaming::Activation, {divided}, {tangent}, size, size);
  const BufferId capped = make_capped();
  p.stream(Streaming::Copy, {tangent}, {capped}, size, size);
  return capped;
}

// The gradient of what was capped.
BufferId uncapped_gradient(const OperatorPass& p, BufferId gradient, ValueId tanh, Category category) {
  const Bytes size = p.bytes(tanh);
  const auto step = [&](std::string_view use) { return p.emit.alloc(size, category, p.id, use); };
  const BufferId multiplied = step("capped_gradient");
  p.stream(Streaming::Copy, {gradient}, {multiplied}, size, size);
  const BufferId through = step("tanh_gradient");
  p.stream(Streaming::Activation, {multiplied, p.buffer(tanh)}, {through}, 2 * size, size);
  const BufferId divided = step("uncapped_gradient");
  p.stream(Streaming::Copy, {through}, {divided}, size, size);
  return divided;
}

// Where the scores' hyperbolic tangents lie among the outputs.
ValueId scores_tanh(const OperatorPass& p) { return p.out(drops_weights(p) ? 4 : 2); }

void forward_scored_attention(const OperatorPass& p) {
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
    if (const ValueId whole = multiplied(p, i); whole != p.in(i))
      p.stream(Streaming::Copy, {p.buffer(p.in(i))}, {p.make(whole)}, p.bytes(p.in(i)), p.bytes(whole));
  const BufferId q = p.buffer(p.in(0)), k = p.buffer(multiplied(p, 1)), v = p.buffer(multiplied(p, 2));
  const Bytes context = p.bytes(p.out());
  const Bytes size = scores_bytes(p);
  // The product is added to a tensor of nothing, and is another one.
  const BufferId nothing =
      p.emit.runtime.persistent_scores ? p.emit.global_buffer(size) : p.temporary(size, "scores_addend");
  const BufferId workspace = p.emit.blas_workspace(Pass::Forward);
  BufferId scores = p.temporary(size, "scores");
  p.emit.bind(Local::Scores, scores);
  p.emit.program.launch(scores_gemm(p), {q, k, nothing, workspace}, {scores});
  if (p.emit.graph.model.attention_softcap > 0) {
    scores = cap(p, scores, scores_tanh(p), Category::Temporaries, [&] { return p.temporary(size, "scores_capped"); });
    p.emit.bind(Local::Scores, scores);
  }
  const ValueId softmax = p.out(1);
  BufferId weights;
  if (p.bytes(softmax) == size) {
    weights = p.make(softmax);
    p.stream(Streaming::Copy, {scores}, {weights}, size, size);
  } else {  // without the fused kernel: to fp32, masked, softmax, and back
    const BufferId wide = p.temporary(p.bytes(softmax), "scores_fp32"),
                   masked = p.temporary(p.bytes(softmax), "masked");
    p.stream(Streaming::Copy, {scores}, {wide}, size, p.bytes(softmax));
    p.stream(Streaming::Copy, {wide}, {masked}, p.bytes(softmax), p.bytes(softmax));
    const BufferId saved = p.make(softmax);
    p.stream(Streaming::Copy, {masked}, {saved}, p.bytes(softmax), p.bytes(softmax));
    weights = p.temporary(size, "softmax_narrow");
    p.stream(Streaming::Copy, {saved}, {weights}, p.bytes(softmax), size);
  }
  if (drops_weights(p)) {
    const BufferId mask = p.make(p.out(2)), dropped = p.make(p.out(3));
    p.stream(Streaming::Copy, {weights}, {dropped, mask}, size, size + p.bytes(p.out(2)));
    weights = dropped;
  }
  // Batch and heads first; the projection reads it sequence first.
  const BufferId by_head = p.temporary(context, "by_head");
  p.emit.program.launch(weighted_gemm(p), {weights, v, workspace}, {by_head});
  p.stream(Streaming::Copy, {by_head}, {p.make(p.out())}, context, context);
  p.emit.unbind(Local::Scores);
}

void forward_activation(const OperatorPass& p) {
  BufferId input = p.buffer(p.in());
  const bool bias = !p.op.parameters.empty();
  if (bias && !p.emit.runtime.fused_bias_activation) {
    const BufferId biased = p.temporary(p.bytes(p.in()), "biased");
    p.stream(Streaming::Add, {input, p.weight()}, {biased}, p.bytes(p.in()), p.bytes(p.in()));
    input = p.batch.values[p.in().index()] = biased;  // which is what the activation saves
  }
  if (p.op.outputs.size() > 1) {  // the gate's activation, and then the product
    const Bytes size = p.bytes(p.out());
    const BufferId gate = p.make(p.out(1));
    p.stream(Streaming::Activation, {input}, {gate}, size, size);
    p.stream(Streaming::Copy, {gate, input}, {p.make(p.out())}, 2 * size, size);
    return;
  }
  const BufferId out = p.make(p.out());
  if (bias)
    p.stream(Streaming::Activation, {input, p.weight()}, {out}, p.bytes(p.in()), p.bytes(p.out()));
  else
    p.stream(Streaming::Activation, {input}, {out}, p.bytes(p.in()), p.bytes(p.out()));
}

void forward_residual(const OperatorPass& p) {
  if (std::exchange(p.batch.attention_frame, false)) p.emit.unbind(Local::MixedQkv);
  if (std::exchange(p.batch.turned_in_frame, false)) {
    p.emit.unbind(Local::Query);
    p.emit.unbind(Local::Key);
  }
  const bool bias = !p.op.parameters.empty(), dropout = p.op.outputs.size() > 1;
  const Bytes size = p.bytes(p.out());
  std::vector<BufferId> inputs{p.buffer(p.in(0)), p.buffer(p.in(1))}, outputs;
  if (p.emit.runtime.fused_bias_dropout) {
    if (bias) inputs.push_back(p.weight());
    if (dropout) outputs.push_back(p.make(p.out(1)));
  } else {
    BufferId& branch = inputs[1];
    if (bias) {
      const BufferId biased = p.temporary(size, "biased");
      p.stream(Streaming::Add, {branch, p.weight()}, {biased}, size, size);
      branch = biased;
    }
    if (dropout) {
      const BufferId mask = p.make(p.out(1)), kept = p.temporary(size, "dropped");
      p.stream(Streaming::Copy, {branch}, {kept, mask}, size, size + p.bytes(p.out(1)));
      branch = kept;
    }
  }
  outputs.push_back(p.make(p.out()));
  p.emit.program.launch(Stream{Streaming::Add, 2 * size, size}, inputs, outputs);
}

void forward_head(const OperatorPass& p) {
  BufferId input = p.buffer(p.in());
  if (p.sequence_parallel()) {
    const BufferId gathered = p.emit.head_gather(p.gathered_bytes(p.in()));
    p.tensor_collective(CollectiveKind::AllGather, input, gathered, p.gathered_bytes(p.in()));
    input = gathered;
  }
  const BufferId workspace = p.emit.blas_workspace(Pass::Forward);
  if (p.op.outputs.size() == 1) {
    const BufferId logits = p.make(p.out());
    p.emit.program.launch(forward_gemm(p), {input, p.weight(), workspace}, {logits});
    p.emit.bind(Local::Logits, logits);
    return;
  }
  const Bytes size = p.bytes(p.out());
  const BufferId raw = p.emit.alloc(size, Category::LogitsLoss, p.id, "uncapped");
  p.emit.program.launch(forward_gemm(p), {input, p.weight(), workspace}, {raw});
  p.emit.bind(Local::Logits, raw);
  p.emit.bind(Local::Logits, cap(p, raw, p.out(1), Category::LogitsLoss, [&] { return p.make(p.out()); }));
}

// The plain loss from the fp32 logits on: exponentials and softmax over them, the target's logit looked up between.
void forward_plain_loss(const OperatorPass& p, BufferId work, BufferId labels) {
  const ValueId softmax = p.out(1);
  const Bytes size = p.bytes(softmax), per_token = p.tokens() * size_of(DType::FP32), ids = p.bytes(p.in(1));
  const BufferId maximum = p.temporary(per_token, "maximum");
  p.stream(Streaming::Reduce, {work}, {maximum}, size, per_token);
  p.tensor_collective(CollectiveKind::AllReduce, maximum, maximum, per_token);
  const BufferId mask = p.make(p.out(3));
  const BufferId copy = p.temporary(ids, "target_copy");
  p.stream(Streaming::Loss, {labels}, {mask, copy}, ids, ids);
  const BufferId target = p.make(p.out(2));
  p.stream(Streaming::Copy, {copy}, {target}, ids, ids);
  const BufferId rows = p.temporary(ids, "row_numbers");
  p.stream(Streaming::Fill, {}, {rows}, {}, ids);
  const BufferId looked_up = p.temporary(per_token, "target_logits");
  p.stream(Streaming::Loss, {work, rows, target}, {looked_up}, per_token, per_token);
  const BufferId target_logits = p.temporary(per_token, "target_logits_copy");
  p.stream(Streaming::Copy, {looked_up}, {target_logits}, per_token, per_token);
  p.batch.values[softmax.index()] = work;
  const BufferId sums = p.temporary(per_token, "sums");
  p.stream(Streaming::Loss, {work, maximum, rows, labels}, {work, sums}, size, size);
  p.tensor_collective(CollectiveKind::AllReduce, target_logits, target_logits, per_token);
  p.tensor_collective(CollectiveKind::AllReduce, sums, sums, per_token);
  p.stream(Streaming::Loss, {work, sums, target_logits}, {work, p.make(p.out(0))}, size, size);
}

void forward_loss(const OperatorPass& p, const Loss& loss) {
  const BufferId logits = p.buffer(p.in(0));
  BufferId labels = p.buffer(p.in(1));
  if (p.emit.sizes.micro_batch > 1) {  // as the logits lie: sequence first
    const BufferId transposed = p.temporary(p.bytes(p.in(1)), "labels");
    p.stream(Streaming::Copy, {labels}, {transposed}, p.bytes(p.in(1)), p.bytes(p.in(1)));
    labels = transposed;
  }
  const Bytes logits_size = p.bytes(p.in(0));
  const Bytes per_token = p.tokens() * size_of(DType::FP32);
  if (loss.variant == CrossEntropy::TransformerEngine) {
    // Softmax statistics (maximum, denominator, target logit) of each token, gathered over the vocabulary's parts; then
    // one kernel writes the gradient over the logits.
    const BufferId out = p.make(p.out());
    const BufferId statistics = p.temporary(3 * per_token, "statistics");
    p.stream(Streaming::Loss, {logits, labels}, {statistics}, logits_size, 3 * per_token);
    BufferId gathered = statistics;
    if (p.emit.tensor_parallel()) {
      gathered = p.communicated(3 * per_token * p.emit.sizes.tensor, "statistics_gathered");
      p.tensor_collective(CollectiveKind::AllGather, statistics, gathered, 3 * per_token * p.emit.sizes.tensor);
    }
    p.stream(Streaming::Loss, {logits, labels, gathered}, {logits, out}, logits_size, logits_size);
    p.emit.unbind(Local::Logits);
    return;
  }
  const ValueId softmax = p.out(1);
  const Bytes fp32_size = p.bytes(softmax);
  const bool compiled = loss.variant == CrossEntropy::Fused;
  BufferId work = logits;
  if (p.emit.train.precision != DType::FP32) {
    work = compiled ? p.emit.alloc(fp32_size, Category::LogitsLoss, p.id, "logits_fp32") : p.make(softmax);
    p.stream(Streaming::Copy, {logits}, {work}, logits_size, fp32_size);
  }
  if (!compiled) {
    forward_plain_loss(p, work, labels);
    p.emit.unbind(Local::Logits);
    return;
  }
  const BufferId maximum = p.temporary(per_token, "maximum");
  p.stream(Streaming::Reduce, {work}, {maximum}, fp32_size, per_token);
  p.tensor_collective(CollectiveKind::AllReduce, maximum, maximum, per_token);
  const BufferId mask = p.make(p.out(3)), target = p.make(p.out(2));
  p.stream(Streaming::Loss, {labels}, {mask, target}, p.bytes(p.in(1)), p.bytes(p.out(2)));
  p.make(softmax);  // the compiled kernel writes the exponentials beside the fp32 logits
  const BufferId out = p.make(p.out(0));
  const BufferId sums = p.temporary(2 * per_token, "sums");
  p.stream(Streaming::Loss, {work, maximum, target}, {p.buffer(softmax), sums}, fp32_size, fp32_size);
  p.tensor_collective(CollectiveKind::AllReduce, sums, sums, 2 * per_token);
  p.stream(Streaming::Loss, {p.buffer(softmax), sums}, {p.buffer(softmax), out}, fp32_size, fp32_size);
  p.emit.unbind(Local::Logits);
}

// ---- backward ------------------------------------------------------------------------------------------------------

// The gradient of what went into dropout.
BufferId undropped(const OperatorPass& p, BufferId gradient, ValueId mask) {
  const Bytes size = p.bytes(p.out());
  const BufferId kept = p.temporary(size, "dropout_gradient");
  p.stream(Streaming::Copy, {gradient, p.buffer(mask)}, {kept}, size + p.bytes(mask), size);
  return kept;
}

// The gradient of a table that rows were looked up in: as large as the table. Many rows are sorted by token and summed
// in two steps, the first of which leaves a row of fp32 for every ten of a token (ATen/native/cuda/Embedding.cu,
// EmbeddingBackwardKernel.cu). The sort's own scratch space is left out.
void dense_gradient(const OperatorPass& p, std::size_t i, BufferId gradient) {
  constexpr std::int64_t summed_at_once = 3072, rows_of_a_part = 10;
  const std::int64_t rows = p.bytes(p.in(i)) / size_of(DType::INT64);
  const Bytes size = p.weight_bytes(p.parameter(i));
  const bool sorts = rows > summed_at_once && !p.emit.runtime.indexes_embedding;
  std::vector<BufferId> made;
  const auto scratch = [&](Bytes bytes, std::string_view use) { made.push_back(p.temporary(bytes, use)); };
  if (sorts) {
    scratch(rows * size_of(DType::INT64), "sorted_ids");
    scratch(rows * size_of(DType::INT64), "sorted_places");
  }
  const BufferId dense = p.temporary(size, i == 0 ? "weight_gradient" : "positions_gradient");
  if (sorts) {
    const std::int64_t tokens = std::min(rows, p.emit.sizes.rows(p.parameter(i)));
    const std::int64_t parts = rows / rows_of_a_part + tokens;
    scratch(rows * size_of(DType::INT64), "segments");
    scratch(tokens * size_of(DType::INT64), "segment_parts");
    scratch(tokens * size_of(DType::INT64), "segment_part_offsets");
    scratch(parts * size_of(DType::INT64), "part_offsets");
    scratch(parts * p.emit.sizes.columns(p.parameter(i)) * size_of(DType::FP32), "partial_sums");
  }
  made.insert(made.end(), {p.buffer(p.in(i)), gradient});
  p.emit.program.launch(Stream{Streaming::Lookup, p.gathered_bytes(p.out()), size}, made, std::vector{dense});
  p.accumulate(p.op.parameters[i], dense);
}

void backward_embedding(const OperatorPass& p) {
  BufferId gradient = p.gradient(p.out());
  if (p.emit.graph.model.scaled_embedding) {
    const BufferId unscaled = p.temporary(p.bytes(p.out()), "gradient_scaled");
    p.stream(Streaming::Copy, {gradient}, {unscaled}, p.bytes(p.out()), p.bytes(p.out()));
    gradient = unscaled;
  }
  if (p.op.outputs.size() > 1) gradient = undropped(p, gradient, p.out(1));
  const Bytes whole = p.gathered_bytes(p.out());
  if (p.sequence_parallel()) {
    const BufferId gathered = p.communicated(whole, "gradient_gathered");
    p.tensor_collective(CollectiveKind::AllGather, gradient, gathered, whole);
    gradient = gathered;
  }
  const auto batch_first = [&](std::string_view use) {
    if (p.emit.sizes.micro_batch == 1) return gradient;
    const BufferId copy = p.temporary(whole, use);
    p.stream(Streaming::Copy, {gradient}, {copy}, whole, whole);
    return copy;
  };
  if (p.op.parameters.size() > 1) dense_gradient(p, 1, batch_first("positions_gradient_batch_first"));
  gradient = batch_first("gradient_batch_first");
  if (p.emit.tensor_parallel()) {
    const BufferId masked = p.temporary(whole, "gradient_masked");
    p.stream(Streaming::Copy, {gradient, p.batch.embedding_mask}, {masked}, whole, whole);
    gradient = masked;
  }
  dense_gradient(p, 0, gradient);
}

void backward_norm(const OperatorPass& p) {
  const BufferId dx = p.temporary(p.bytes(p.in()), "input_gradient");
  std::vector<BufferId> inputs{p.gradient(p.out()), p.buffer(p.in())}, outputs{dx};
  for (std::size_t i = 1; i < p.op.outputs.size(); ++i) inputs.push_back(p.buffer(p.out(i)));
  inputs.push_back(p.weight());
  for (std::size_t i = 0; i < p.op.parameters.size(); ++i)
    outputs.push_back(p.temporary(p.weight_bytes(p.parameter(i)), i == 0 ? "weight_gradient" : "bias_gradient"));
  p.emit.program.launch(Stream{Streaming::Norm, 2 * p.bytes(p.in()), p.bytes(p.in())}, inputs, outputs);
  p.give(p.in(), dx);
  for (std::size_t i = 0; i < p.op.parameters.size(); ++i) p.accumulate(p.op.parameters[i], outputs[i + 1]);
  if (std::exchange(p.batch.norm_linear_frame, false)) {
    p.emit.unbind(Local::WholeGradient);
    p.emit.unbind(Local::OutputGradient);
  }
  p.run_hooks();
}

Gemm data_gradient_gemm(const OperatorPass& p) {
  const Gemm g = forward_gemm(p);
  return {g.m, g.k, g.n, g.dtype};
}
Gemm weight_gradient_gemm(const OperatorPass& p) {
  const Gemm g = forward_gemm(p);
  return {g.n, g.k, g.m, g.dtype};
}

// The GEMM adds into the gradient buffer, and autograd gets a dummy, because it wants something; or it makes a tensor
// of its own.
void weight_gradient(const OperatorPass& p, BufferId input, BufferId gradient, BufferId workspace) {
  const ParameterId id = p.op.parameters.front();
  if (p.emit.runtime.dummy_gradient == DummyGradient::None) {
    const BufferId own = p.temporary(p.weight_bytes(p.parameter()), "weight_gradient");
    p.emit.program.launch(weight_gradient_gemm(p), {input, gradient, workspace}, {own});
    p.accumulate_later(id, own);
    return;
  }
  p.emit.program.launch(weight_gradient_gemm(p), {input, gradient, workspace, p.emit.gradients}, {p.emit.gradients});
  const BufferId dummy = p.emit.dummy_gradient(p.parameter());
  if (p.emit.uses(id) > 1) p.accumulate_later(id, dummy);
}

void backward_linear(const OperatorPass& p) {
  const bool row_parallel = p.parameter().cut == WeightCut::Columns;
  BufferId gradient = p.gradient(p.out());
  const BufferId workspace = p.emit.linear_workspace(Pass::Backward);
  if (row_parallel && p.sequence_parallel()) {
    const BufferId gathered = p.communicated(p.gathered_bytes(p.out()), "gradient_gathered");
    p.tensor_collective(CollectiveKind::AllGather, gradient, gathered, p.gathered_bytes(p.out()));
    gradient = gathered;
  }
  BufferId input = p.buffer(p.in());
  p.emit.bind(Local::SavedInput, input);
  EventId gathering;  // while the GEMM of the input's gradient runs
  if (!row_parallel && p.sequence_parallel()) {
    const BufferId gathered = p.communicated(p.gathered_bytes(p.in()), "gathered");
    gathering = p.tensor_collective_aside(CollectiveKind::AllGather, input, gathered, p.gathered_bytes(p.in()));
    input = gathered;
  }
  const Bytes dgrad_size = row_parallel ? p.bytes(p.in()) : p.gathered_bytes(p.in());
  const BufferId dgrad = p.temporary(dgrad_size, "input_gradient");
  p.emit.bind(Local::WholeGradient, dgrad);
  p.emit.program.launch(data_gradient_gemm(p), {gradient, p.weight(), workspace}, {dgrad});
  BufferId result = dgrad;
  EventId reducing;  // while the GEMM of the weight's gradient runs
  if (!row_parallel && p.sequence_parallel()) {
    result = p.communicated(p.bytes(p.in()), "input_gradient_scattered");
    reducing = p.tensor_collective_aside(CollectiveKind::ReduceScatter, dgrad, result, dgrad_size);
  } else if (!row_parallel) {
    reducing = p.tensor_collective_aside(CollectiveKind::AllReduce, dgrad, dgrad, dgrad_size);
  }
  p.emit.join(gathering);
  weight_gradient(p, input, gradient, workspace);
  p.emit.join(reducing);
  p.emit.unbind(Local::SavedInput);  // TransformerEngine clears it as soon as the weight gradient is done
  if (p.op.parameters.size() > 1) {
    const Parameter& bias = p.parameter(1);
    const BufferId dbias = p.temporary(p.weight_bytes(bias), "bias_gradient");
    p.stream(Streaming::Reduce, {gradient}, {dbias}, p.bytes(p.out()), p.weight_bytes(bias));
    p.accumulate(p.op.parameters[1], dbias);
  }
  const bool after_norm = p.emit.graph.model.norms != NormPlacement::After;
  if (!row_parallel && after_norm && p.emit.runtime.fused_norm_linear) {
    p.emit.bind(Local::OutputGradient, p.gradient(p.out()));
    p.batch.norm_linear_frame = true;  // the norm's own backward pass runs inside the same function
  } else {
    p.emit.unbind(Local::WholeGradient);
    p.run_hooks();
  }
  p.give(p.in(), result);
}

void backward_split(const OperatorPass& p) {
  const BufferId q = p.gradient(p.out(0)), k = p.gradient(p.out(1)), v = p.gradient(p.out(2));
  if (q == k && k == v) {  // parts of one tensor already
    p.give(p.in(), q);
    return;
  }
  const BufferId mixed = p.temporary(p.bytes(p.in()), "mixed_gradient");
  p.stream(Streaming::Copy, {q, k, v}, {mixed}, p.bytes(p.in()), p.bytes(p.in()));
  p.give(p.in(), mixed);
}

BufferId turned_back(const OperatorPass& p, std::size_t output, BufferId table, std::string_view use) {
  const BufferId gradient = p.gradient(p.out(output));
  const Bytes size = p.bytes(p.out(output));
  if (fused_rotary(p)) {
    const BufferId back = p.temporary(size, use);
    p.stream(Streaming::Rotary, {gradient, table}, {back}, size, size);
    return back;
  }
  const BufferId cos = p.buffer(p.out(3 + 2 * output)), sin = p.buffer(p.out(4 + 2 * output));
  const Bytes part = turned_bytes(p, output);
  const BufferId crossed = p.temporary(part, "times_sin_gradient");
  p.stream(Streaming::Rotary, {gradient, sin}, {crossed}, part, part);
  // Each half's gradient is laid into a tensor of zeros.
  const BufferId first = p.temporary(part, "half_gradient");
  p.stream(Streaming::Copy, {crossed}, {first}, part / 2, part);
  const BufferId negated = p.temporary(part / 2, "negated_half_gradient");
  p.stream(Streaming::Copy, {crossed}, {negated}, part / 2, part / 2);
  const BufferId second = p.temporary(part, "half_gradient");
  p.stream(Streaming::Copy, {negated}, {second}, part / 2, part);
  const BufferId straight = p.temporary(part, part == size ? use : "turned_gradient");
  p.stream(Streaming::Rotary, {gradient, cos}, {straight}, part, part);
  p.stream(Streaming::Add, {straight, first, second}, {straight}, 3 * part, part);
  if (part == size) return straight;
  // So are the gradients of what is turned and of what is not.
  const BufferId passed = p.temporary(size, "passed_gradient");
  p.stream(Streaming::Copy, {gradient}, {passed}, size - part, size);
  const BufferId whole = p.temporary(size, use);
  p.stream(Streaming::Copy, {straight}, {whole}, part, size);
  p.stream(Streaming::Add, {passed, whole}, {whole}, 2 * size, size);
  return whole;
}

void backward_rotary(const OperatorPass& p) {
  const BufferId table = p.emit.rotary_table();
  BufferId dk = turned_back(p, 1, table, "key_gradient");
  BufferId dq = turned_back(p, 0, table, "query_gradient");
  if (!p.op.parameters.empty()) {
    dk = head_norm_gradient(p, 1, dk);
    dq = head_norm_gradient(p, 0, dq);
  }
  const BufferId mixed = p.temporary(p.bytes(p.in()), "mixed_gradient");
  p.stream(Streaming::Copy, {dq, dk, p.gradient(p.out(2))}, {mixed}, p.bytes(p.in()), p.bytes(p.in()));
  p.give(p.in(), mixed);
  if (!p.op.parameters.empty()) p.run_hooks();
}

// Kernels take gradients as they lie.
void backward_transpose(const OperatorPass& p) { p.give(p.in(), p.gradient(p.out())); }

void backward_attention(const OperatorPass& p) {
  // Where q, k and v are views of one tensor, so are their gradients.
  const bool joint = p.emit.strided_view(p.in());
  const Bytes q_size = p.bytes(p.in(0)), kv_size = p.bytes(p.in(1));
  const BufferId dq =
      joint ? p.temporary(q_size + 2 * kv_size, "mixed_gradient") : p.temporary(q_size, "query_gradient");
  const BufferId dk = joint ? dq : p.temporary(kv_size, "key_gradient");
  const BufferId dv = joint ? dq : p.temporary(kv_size, "value_gradient");
  // Query gradients are summed in fp32 over blocks of keys.
  std::int64_t q_elements = p.emit.sizes.elements(p.value(p.in(0)));
  const std::int64_t fill = p.emit.runtime.query_gradients_fill;
  const std::int64_t sequences = p.emit.sizes.micro_batch * (p.emit.graph.model.heads / p.emit.sizes.tensor);
  if (fill > 0 && p.emit.train.attention == AttentionKernel::Flash) q_elements *= (fill + sequences - 1) / sequences;
  const BufferId sums = p.temporary(q_elements * size_of(DType::FP32), "query_gradient_fp32");
  const std::vector<BufferId> inputs{p.gradient(p.out(0)), p.buffer(p.in(0)),  p.buffer(p.in(1)), p.buffer(p.in(2)),
                                     p.buffer(p.out(0)),   p.buffer(p.out(1)), p.buffer(p.out(2))};
  const std::vector<BufferId> outputs =
      joint ? std::vector<BufferId>{dq, sums} : std::vector<BufferId>{dq, dk, dv, sums};
  p.emit.program.launch(attention_kernel(p, Pass::Backward), inputs, outputs);
  p.give(p.in(0), dq);
  p.give(p.in(1), dk);
  p.give(p.in(2), dv);
}

void backward_scored_attention(const OperatorPass& p) {
  const BufferId workspace = p.emit.blas_workspace(Pass::Backward);
  const ValueId softmax = p.out(1), keys = multiplied(p, 1), values = multiplied(p, 2);
  const bool dropout = drops_weights(p);
  const Bytes q_size = p.bytes(p.in(0)), kv_size = p.bytes(keys), size = scores_bytes(p);
  const BufferId by_head = p.gradient(p.out());  // a view of it will do
  BufferId weights_gradient = p.temporary(size, "weights_gradient");
  p.emit.program.launch(scores_gemm(p), {by_head, p.buffer(values), workspace}, {weights_gradient});
  const BufferId dv = p.temporary(kv_size, "value_gradient");
  p.emit.program.launch(weighted_gemm(p), {p.buffer(dropout ? p.out(3) : softmax), by_head, workspace}, {dv});
  if (dropout) {
    const BufferId kept = p.temporary(size, "dropout_gradient");
    p.stream(Streaming::Copy, {weights_gradient, p.buffer(p.out(2))}, {kept}, size + p.bytes(p.out(2)), size);
    weights_gradient = kept;
  }
  BufferId scores_gradient = weights_gradient;
  if (p.bytes(softmax) == size) {
    p.stream(Streaming::Copy, {weights_gradient, p.buffer(softmax)}, {scores_gradient}, 2 * size, size);
  } else {
    const BufferId wide = p.temporary(p.bytes(softmax), "weights_gradient_fp32");
    p.stream(Streaming::Copy, {weights_gradient}, {wide}, size, p.bytes(softmax));
    const BufferId masked = p.temporary(p.bytes(softmax), "masked_gradient");
    p.stream(Streaming::Copy, {wide, p.buffer(softmax)}, {masked}, 2 * p.bytes(softmax), p.bytes(softmax));
    scores_gradient = p.temporary(size, "scores_gradient");
    p.stream(Streaming::Copy, {masked}, {scores_gradient}, p.bytes(softmax), size);
  }
  if (p.emit.graph.model.attention_softcap > 0)
    scores_gradient = uncapped_gradient(p, scores_gradient, scores_tanh(p), Category::Temporaries);
  // The product and then its multiple by the scale.
  const auto scaled_product = [&](ValueId other, Bytes bytes, std::string_view use) {
    const BufferId product = p.temporary(bytes, "unscaled_gradient");
    p.emit.program.launch(weighted_gemm(p), {scores_gradient, p.buffer(other), workspace}, {product});
    const BufferId scaled = p.temporary(bytes, use);
    p.stream(Streaming::Copy, {product}, {scaled}, bytes, bytes);
    return scaled;
  };
  const BufferId dq = scaled_product(keys, q_size, "query_gradient");
  const BufferId dk = scaled_product(p.in(0), kv_size, "key_gradient");
  p.give(p.in(0), dq);
  const auto give_summed = [&](std::size_t input, BufferId gradient) {  // over the query heads that shared it
    if (const Bytes own = p.bytes(p.in(input)); own != kv_size) {
      const BufferId sum = p.temporary(own, "repeated_gradient_sum");
      p.stream(Streaming::Reduce, {gradient}, {sum}, kv_size, own);
      gradient = sum;
    }
    p.give(p.in(input), gradient);
  };
  give_summed(1, dk);
  give_summed(2, dv);
}

void bias_gradient(const OperatorPass& p, BufferId gradient, Bytes size) {
  if (p.op.parameters.empty()) return;
  const Bytes own = p.weight_bytes(p.parameter());
  const BufferId sum = p.temporary(own, "bias_gradient");
  p.stream(Streaming::Reduce, {gradient}, {sum}, size, own);
  p.accumulate(p.op.parameters.front(), sum);
}

// Of a gate and a product in two steps: a gradient of each factor, and the two halves joined.
BufferId gate_gradient(const OperatorPass& p) {
  const Bytes half = p.bytes(p.out());
  const BufferId activated = p.temporary(half, "gate_output_gradient");
  p.stream(Streaming::Copy, {p.gradient(p.out()), p.buffer(p.in())}, {activated}, 2 * half, half);
  const BufferId up = p.temporary(half, "up_gradient");
  p.stream(Streaming::Copy, {p.gradient(p.out()), p.buffer(p.out(1))}, {up}, 2 * half, half);
  const BufferId gate = p.temporary(half, "gate_gradient");
  p.stream(Streaming::Activation, {activated, p.buffer(p.in())}, {gate}, 2 * half, half);
  const BufferId joined = p.temporary(p.bytes(p.in()), "input_gradient");
  p.stream(Streaming::Copy, {gate, up}, {joined}, 2 * half, 2 * half);
  return joined;
}

BufferId activation_gradient(const OperatorPass& p) {
  if (p.op.outputs.size() > 1) return gate_gradient(p);
  const BufferId gradient = p.temporary(p.bytes(p.in()), "input_gradient");
  p.stream(Streaming::Activation, {p.gradient(p.out()), p.buffer(p.in())}, {gradient},
           p.bytes(p.in()) + p.bytes(p.out()), p.bytes(p.in()));
  return gradient;
}

void backward_activation(const OperatorPass& p) {
  const BufferId gradient = activation_gradient(p);
  bias_gradient(p, gradient, p.bytes(p.in()));
  p.give(p.in(), gradient);
}

void backward_residual(const OperatorPass& p) {
  const BufferId gradient = p.gradient(p.out());
  p.give(p.in(0), gradient);
  const BufferId branch = p.op.outputs.size() > 1 ? undropped(p, gradient, p.out(1)) : gradient;
  bias_gradient(p, branch, p.bytes(p.out()));
  p.give(p.in(1), branch);
}

void backward_head(const OperatorPass& p) {
  BufferId gradient = p.gradient(p.out());
  if (p.op.outputs.size() > 1) gradient = uncapped_gradient(p, gradient, p.out(1), Category::LogitsLoss);
  BufferId input = p.buffer(p.in());
  p.emit.bind(Local::SavedInput, input);
  EventId gathering;
  if (p.sequence_parallel()) {
    const BufferId gathered = p.emit.head_gather(p.gathered_bytes(p.in()));
    gathering = p.tensor_collective_aside(CollectiveKind::AllGather, input, gathered, p.gathered_bytes(p.in()));
    input = gathered;
  }
  const BufferId workspace = p.emit.blas_workspace(Pass::Backward);
  const BufferId dgrad = p.temporary(p.gathered_bytes(p.in()), "input_gradient");
  p.emit.bind(Local::WholeGradient, dgrad);
  p.emit.program.launch(data_gradient_gemm(p), {gradient, p.weight(), workspace}, {dgrad});
  p.emit.join(gathering);
  BufferId result = dgrad;
  EventId reducing;
  if (p.sequence_parallel()) {
    result = p.communicated(p.bytes(p.in()), "input_gradient_scattered");
    reducing = p.tensor_collective_aside(CollectiveKind::ReduceScatter, dgrad, result, p.gathered_bytes(p.in()));
  } else {
    reducing = p.tensor_collective_aside(CollectiveKind::AllReduce, dgrad, dgrad, p.gathered_bytes(p.in()));
  }
  weight_gradient(p, input, gradient, workspace);
  p.emit.join(reducing);
  p.emit.unbind(Local::WholeGradient);
  p.emit.unbind(Local::SavedInput);
  p.run_hooks();
  p.give(p.in(), result);
}

void backward_loss(const OperatorPass& p, const Loss& loss) {
  const ValueId logits = p.in(0);
  if (loss.variant == CrossEntropy::TransformerEngine) {
    p.stream(Streaming::Loss, {p.buffer(logits)}, {p.buffer(logits)}, p.bytes(logits), p.bytes(logits));
    p.give(logits, p.buffer(logits));
    return;
  }
  const BufferId softmax = p.buffer(p.out(1));
  const Bytes fp32_size = p.bytes(p.out(1));
  p.stream(Streaming::Loss, {softmax, p.buffer(p.out(2)), p.buffer(p.out(3))}, {softmax}, fp32_size, fp32_size);
  if (p.emit.train.precision == DType::FP32) {
    p.give(logits, softmax);
    return;
  }
  const BufferId gradient = p.emit.alloc(p.bytes(logits), Category::LogitsLoss, p.id, "logits_gradient");
  p.stream(Streaming::Copy, {softmax}, {gradient}, fp32_size, p.bytes(logits));
  p.give(logits, gradient);
}

OperatorPass enter(Emitter& emit, MicroBatch& batch, OperatorId id, Phase phase) {
  emit.mark(phase, id);
  return {emit, batch, id, emit.graph[id]};
}

}  // namespace

void forward(Emitter& emit, MicroBatch& batch, OperatorId id) {
  const OperatorPass p = enter(emit, batch, id, Phase::Forward);
  std::visit(Overloaded{
                 [&](const Embedding&) { forward_embedding(p); },
                 [&](const Norm&) { forward_norm(p); },
                 [&](const Linear&) { forward_linear(p); },
                 [&](const Rotary&) { forward_rotary(p); },
                 [&](const Split&) { forward_split(p); },
                 [&](const Transpose&) { forward_transpose(p); },
                 [&](const SelfAttention&) { forward_attention(p); },
                 [&](const ScoredAttention&) { forward_scored_attention(p); },
                 [&](const PointwiseActivation&) { forward_activation(p); },
                 [&](const Residual&) { forward_residual(p); },
                 [&](const Head&) { forward_head(p); },
                 [&](const Loss& o) { forward_loss(p, o); },
             },
             p.op.type);
}

void backward(Emitter& emit, MicroBatch& batch, OperatorId id) {
  const OperatorPass p = enter(emit, batch, id, Phase::Backward);
  std::visit(Overloaded{
                 [&](const Embedding&) { backward_embedding(p); },
                 [&](const Norm&) { backward_norm(p); },
                 [&](const Linear&) { backward_linear(p); },
                 [&](const Rotary&) { backward_rotary(p); },
                 [&](const Split&) { backward_split(p); },
                 [&](const Transpose&) { backward_transpose(p); },
                 [&](const SelfAttention&) { backward_attention(p); },
                 [&](const ScoredAttention&) { backward_scored_attention(p); },
                 [&](const PointwiseActivation&) { backward_activation(p); },
                 [&](const Residual&) { backward_residual(p); },
                 [&](const Head&) { backward_head(p); },
                 [&](const Loss& o) { backward_loss(p, o); },
             },
             p.op.type);
}

}  // namespace tidemark::parallel
