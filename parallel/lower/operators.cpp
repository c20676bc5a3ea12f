#include "parallel/lower/operators.hpp"

#include <utility>

#include "sim/overloaded.hpp"

// How TransformerEngine 2.11's linears, norms and attention, Megatron's embedding, LM head and losses use memory:
// which temporaries they take, in which order, and what they drop when. Every function is one operator's pass.

namespace tidemark {
namespace {

constexpr std::string_view mixed_qkv_frame = "attention.mixed_qkv";
constexpr std::string_view logits_frame = "model.logits";
// A linear's backward function refers to the gradient before its reduce-scatter until it returns.
constexpr std::string_view whole_gradient_frame = "linear_backward.input_gradient";
// … and to the saved input from which it gathered.
constexpr std::string_view saved_input_frame = "linear_backward.saved_input";
constexpr std::string_view output_gradient_frame = "linear_backward.output_gradient";

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

  /// A weight's gradient that is not fused into its GEMM: a tensor of its own, added into the buffer by a hook.
  void accumulate(const Parameter& parameter, BufferId gradient) const {
    const Bytes size = emit.sizes.elements(parameter) * size_of(emit.gradient_dtype());
    stream(Streaming::Add, {gradient, emit.gradients}, {emit.gradients}, 2 * size, size);
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
  const bool transposed = p.emit.sizes.micro_batch > 1;
  const bool last = !p.sequence_parallel() && !transposed;
  BufferId found = last ? p.make(p.out()) : p.temporary(whole, "batch_first");
  p.stream(Streaming::Lookup, {ids, p.weight()}, {found}, whole, whole);
  if (p.emit.tensor_parallel()) p.stream(Streaming::Fill, {p.batch.embedding_mask}, {found}, Bytes{p.tokens()}, whole);
  if (p.emit.tensor_parallel() && !p.sequence_parallel())
    p.tensor_collective(CollectiveKind::AllReduce, found, found, whole);
  if (transposed) {
    const BufferId copy = p.sequence_parallel() ? p.temporary(whole, "sequence_first") : p.make(p.out());
    p.stream(Streaming::Copy, {found}, {copy}, whole, whole);
    found = copy;
  }
  if (p.sequence_parallel()) p.tensor_collective(CollectiveKind::ReduceScatter, found, p.make(p.out()), whole);
}

void forward_norm(const OperatorPass& p) {
  const BufferId out = p.make(p.out());
  const BufferId rstd = p.make(p.out(1));
  p.stream(Streaming::Norm, {p.buffer(p.in()), p.weight()}, {out, rstd}, p.bytes(p.in()), p.bytes(p.out()));
}

Gemm forward_gemm(const OperatorPass& p) {
  return {p.tokens(), p.emit.sizes.rows(p.parameter()), p.emit.sizes.columns(p.parameter()), p.emit.train.precision};
}

void forward_linear(const OperatorPass& p) {
  const bool row_parallel = p.parameter().cut == WeightCut::Columns;
  BufferId input = p.buffer(p.in());
  if (!row_parallel && p.sequence_parallel()) {
    const BufferId gathered = p.communicated(p.gathered_bytes(p.in()), "gathered");
    p.tensor_collective(CollectiveKind::AllGather, input, gathered, p.gathered_bytes(p.in()));
    input = gathered;
  }
  const BufferId workspace = p.emit.gemm_workspace();
  if (row_parallel && p.sequence_parallel()) {
    const BufferId partial = p.temporary(p.gathered_bytes(p.out()), "partial_sum");
    p.emit.program.launch(forward_gemm(p), {input, p.weight(), workspace}, {partial});
    p.tensor_collective(CollectiveKind::ReduceScatter, partial, p.make(p.out()), p.gathered_bytes(p.out()));
  } else {
    const BufferId out = p.make(p.out());
    p.emit.program.launch(forward_gemm(p), {input, p.weight(), workspace}, {out});
    if (row_parallel) p.tensor_collective(CollectiveKind::AllReduce, out, out, p.bytes(p.out()));
  }
  if (p.op.parameters.size() > 1 && row_parallel) {  // a column-parallel bias is added inside the GEMM
    const BufferId biased = p.temporary(p.bytes(p.out()), "biased");
    p.stream(Streaming::Add, {p.buffer(p.out()), p.weight(1)}, {biased}, p.bytes(p.out()), p.bytes(p.out()));
    p.batch.values[p.out().index()] = biased;
  }
}

void forward_rotary(const OperatorPass& p) {
  const BufferId mixed = p.buffer(p.in());
  const BufferId table = p.emit.rotary_table();
  const Bytes q_size = p.bytes(p.out(0)), kv_size = p.bytes(p.out(1));
  p.batch.attention_frame = p.emit.runtime.mixed_qkv_in_frame;
  if (p.batch.attention_frame) p.emit.bind(mixed_qkv_frame, mixed);
  // Query heads lie grouped with their key and value heads. Regrouped, several groups need a copy; one is a view.
  BufferId q = mixed;
  if (p.emit.graph.model.kv_heads / p.emit.sizes.tensor > 1) {
    q = p.temporary(q_size, "query");
    p.stream(Streaming::Copy, {mixed}, {q}, q_size, q_size);
  }
  const BufferId turned_q = p.make(p.out(0));
  p.stream(Streaming::Rotary, {q, table}, {turned_q}, q_size, q_size);
  const BufferId turned_k = p.make(p.out(1));
  p.stream(Streaming::Rotary, {mixed, table}, {turned_k}, kv_size, kv_size);
  const BufferId v = p.make(p.out(2));
  p.stream(Streaming::Copy, {mixed}, {v}, kv_size, kv_size);
}

void forward_transpose(const OperatorPass& p) {
  if (p.emit.sizes.micro_batch == 1) {
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

void forward_activation(const OperatorPass& p) {
  p.stream(Streaming::Activation, {p.buffer(p.in())}, {p.make(p.out())}, p.bytes(p.in()), p.bytes(p.out()));
}

void forward_residual(const OperatorPass& p) {
  if (std::exchange(p.batch.attention_frame, false)) p.emit.unbind(mixed_qkv_frame);
  p.stream(Streaming::Add, {p.buffer(p.in(0)), p.buffer(p.in(1))}, {p.make(p.out())}, 2 * p.bytes(p.in()),
           p.bytes(p.out()));
}

void forward_head(const OperatorPass& p) {
  BufferId input = p.buffer(p.in());
  if (p.sequence_parallel()) {
    const BufferId gathered = p.emit.head_gather(p.gathered_bytes(p.in()));
    p.tensor_collective(CollectiveKind::AllGather, input, gathered, p.gathered_bytes(p.in()));
    input = gathered;
  }
  const BufferId workspace = p.emit.blas_workspace(Pass::Forward);
  const BufferId logits = p.make(p.out());
  p.emit.program.launch(forward_gemm(p), {input, p.weight(), workspace}, {logits});
  p.emit.bind(logits_frame, logits);
}

void forward_loss(const OperatorPass& p, const Loss& loss) {
  const BufferId logits = p.buffer(p.in(0)), labels = p.buffer(p.in(1));
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
    p.emit.unbind(logits_frame);
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
  const BufferId maximum = p.temporary(per_token, "maximum");
  p.stream(Streaming::Reduce, {work}, {maximum}, fp32_size, per_token);
  p.tensor_collective(CollectiveKind::AllReduce, maximum, maximum, per_token);
  const BufferId mask = p.make(p.out(3)), target = p.make(p.out(2));
  p.stream(Streaming::Loss, {labels}, {mask, target}, p.bytes(p.in(1)), p.bytes(p.out(2)));
  // The compiled kernel writes the exponentials beside the fp32 logits, the plain one over them.
  if (compiled) p.make(softmax);
  if (!compiled) p.batch.values[softmax.index()] = work;
  const BufferId out = p.make(p.out(0));
  const BufferId sums = p.temporary(2 * per_token, "sums");
  p.stream(Streaming::Loss, {work, maximum, target}, {p.buffer(softmax), sums}, fp32_size, fp32_size);
  p.tensor_collective(CollectiveKind::AllReduce, sums, sums, 2 * per_token);
  p.stream(Streaming::Loss, {p.buffer(softmax), sums}, {p.buffer(softmax), out}, fp32_size, fp32_size);
  p.emit.unbind(logits_frame);
}

// ---- backward ------------------------------------------------------------------------------------------------------

void backward_embedding(const OperatorPass& p) {
  BufferId gradient = p.gradient(p.out());
  const Bytes whole = p.gathered_bytes(p.out());
  if (p.sequence_parallel()) {
    const BufferId gathered = p.communicated(whole, "gradient_gathered");
    p.tensor_collective(CollectiveKind::AllGather, gradient, gathered, whole);
    gradient = gathered;
  }
  if (p.emit.sizes.micro_batch > 1) {
    const BufferId batch_first = p.temporary(whole, "gradient_batch_first");
    p.stream(Streaming::Copy, {gradient}, {batch_first}, whole, whole);
    gradient = batch_first;
  }
  if (p.emit.tensor_parallel()) {
    const BufferId masked = p.temporary(whole, "gradient_masked");
    p.stream(Streaming::Copy, {gradient, p.batch.embedding_mask}, {masked}, whole, whole);
    gradient = masked;
  }
  const BufferId dense = p.temporary(p.weight_bytes(p.parameter()), "weight_gradient");
  p.stream(Streaming::Lookup, {p.buffer(p.in()), gradient}, {dense}, whole, p.weight_bytes(p.parameter()));
  p.accumulate(p.parameter(), dense);
}

void backward_norm(const OperatorPass& p) {
  const BufferId dx = p.temporary(p.bytes(p.in()), "input_gradient");
  const BufferId dweight = p.temporary(p.weight_bytes(p.parameter()), "weight_gradient");
  p.stream(Streaming::Norm, {p.gradient(p.out()), p.buffer(p.in()), p.buffer(p.out(1)), p.weight()}, {dx, dweight},
           2 * p.bytes(p.in()), p.bytes(p.in()));
  p.give(p.in(), dx);
  p.accumulate(p.parameter(), dweight);
  if (std::exchange(p.batch.norm_linear_frame, false)) {
    p.emit.unbind(whole_gradient_frame);
    p.emit.unbind(output_gradient_frame);
  }
}

Gemm data_gradient_gemm(const OperatorPass& p) {
  const Gemm g = forward_gemm(p);
  return {g.m, g.k, g.n, g.dtype};
}
Gemm weight_gradient_gemm(const OperatorPass& p) {
  const Gemm g = forward_gemm(p);
  return {g.n, g.k, g.m, g.dtype};
}

// The GEMM adds into the gradient buffer; autograd gets a dummy, because it wants something.
void fused_weight_gradient(const OperatorPass& p, BufferId input, BufferId gradient, BufferId workspace) {
  p.emit.program.launch(weight_gradient_gemm(p), {input, gradient, workspace, p.emit.gradients}, {p.emit.gradients});
  p.emit.dummy_gradient(p.parameter());
}

void backward_linear(const OperatorPass& p) {
  const bool row_parallel = p.parameter().cut == WeightCut::Columns;
  BufferId gradient = p.gradient(p.out());
  const BufferId workspace = p.emit.gemm_workspace();
  if (row_parallel && p.sequence_parallel()) {
    const BufferId gathered = p.communicated(p.gathered_bytes(p.out()), "gradient_gathered");
    p.tensor_collective(CollectiveKind::AllGather, gradient, gathered, p.gathered_bytes(p.out()));
    gradient = gathered;
  }
  BufferId input = p.buffer(p.in());
  p.emit.bind(saved_input_frame, input);
  EventId gathering;  // while the GEMM of the input's gradient runs
  if (!row_parallel && p.sequence_parallel()) {
    const BufferId gathered = p.communicated(p.gathered_bytes(p.in()), "gathered");
    gathering = p.tensor_collective_aside(CollectiveKind::AllGather, input, gathered, p.gathered_bytes(p.in()));
    input = gathered;
  }
  const Bytes dgrad_size = row_parallel ? p.bytes(p.in()) : p.gathered_bytes(p.in());
  const BufferId dgrad = p.temporary(dgrad_size, "input_gradient");
  p.emit.bind(whole_gradient_frame, dgrad);
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
  fused_weight_gradient(p, input, gradient, workspace);
  p.emit.join(reducing);
  p.emit.unbind(saved_input_frame);  // TransformerEngine clears it as soon as the weight gradient is done
  if (p.op.parameters.size() > 1) {
    const Parameter& bias = p.parameter(1);
    const BufferId dbias = p.temporary(p.weight_bytes(bias), "bias_gradient");
    p.stream(Streaming::Reduce, {gradient}, {dbias}, p.bytes(p.out()), p.weight_bytes(bias));
    p.accumulate(bias, dbias);
  }
  if (!row_parallel && p.emit.runtime.fused_norm_linear) {
    p.emit.bind(output_gradient_frame, p.gradient(p.out()));
    p.batch.norm_linear_frame = true;  // the norm's own backward pass runs inside the same function
  } else {
    p.emit.unbind(whole_gradient_frame);
  }
  p.give(p.in(), result);
}

void backward_rotary(const OperatorPass& p) {
  const BufferId table = p.emit.rotary_table();
  const Bytes q_size = p.bytes(p.out(0)), kv_size = p.bytes(p.out(1));
  const BufferId dk = p.temporary(kv_size, "key_gradient");
  p.stream(Streaming::Rotary, {p.gradient(p.out(1)), table}, {dk}, kv_size, kv_size);
  const BufferId dq = p.temporary(q_size, "query_gradient");
  p.stream(Streaming::Rotary, {p.gradient(p.out(0)), table}, {dq}, q_size, q_size);
  const BufferId mixed = p.temporary(p.bytes(p.in()), "mixed_gradient");
  p.stream(Streaming::Copy, {dq, dk, p.gradient(p.out(2))}, {mixed}, p.bytes(p.in()), p.bytes(p.in()));
  p.give(p.in(), mixed);
}

void backward_transpose(const OperatorPass& p) {
  if (p.emit.sizes.micro_batch == 1) {
    p.give(p.in(), p.gradient(p.out()));
    return;
  }
  const BufferId copy = p.temporary(p.bytes(p.in()), "gradient");
  p.stream(Streaming::Copy, {p.gradient(p.out())}, {copy}, p.bytes(p.in()), p.bytes(p.in()));
  p.give(p.in(), copy);
}

void backward_attention(const OperatorPass& p) {
  const BufferId dq = p.temporary(p.bytes(p.in(0)), "query_gradient");
  const BufferId dk = p.temporary(p.bytes(p.in(1)), "key_gradient");
  const BufferId dv = p.temporary(p.bytes(p.in(2)), "value_gradient");
  // Query gradients are summed in fp32 over blocks of keys.
  const std::int64_t q_elements = p.emit.sizes.elements(p.value(p.in(0)));
  const BufferId sums = p.temporary(q_elements * size_of(DType::FP32), "query_gradient_fp32");
  p.emit.program.launch(attention_kernel(p, Pass::Backward),
                        {p.gradient(p.out(0)), p.buffer(p.in(0)), p.buffer(p.in(1)), p.buffer(p.in(2)),
                         p.buffer(p.out(0)), p.buffer(p.out(1)), p.buffer(p.out(2))},
                        {dq, dk, dv, sums});
  p.give(p.in(0), dq);
  p.give(p.in(1), dk);
  p.give(p.in(2), dv);
}

void backward_activation(const OperatorPass& p) {
  const BufferId gradient = p.temporary(p.bytes(p.in()), "input_gradient");
  p.stream(Streaming::Activation, {p.gradient(p.out()), p.buffer(p.in())}, {gradient},
           p.bytes(p.in()) + p.bytes(p.out()), p.bytes(p.in()));
  p.give(p.in(), gradient);
}

void backward_residual(const OperatorPass& p) {
  p.give(p.in(0), p.gradient(p.out()));
  p.give(p.in(1), p.gradient(p.out()));
}

void backward_head(const OperatorPass& p) {
  const BufferId gradient = p.gradient(p.out());
  BufferId input = p.buffer(p.in());
  p.emit.bind(saved_input_frame, input);
  EventId gathering;
  if (p.sequence_parallel()) {
    const BufferId gathered = p.emit.head_gather(p.gathered_bytes(p.in()));
    gathering = p.tensor_collective_aside(CollectiveKind::AllGather, input, gathered, p.gathered_bytes(p.in()));
    input = gathered;
  }
  const BufferId workspace = p.emit.blas_workspace(Pass::Backward);
  const BufferId dgrad = p.temporary(p.gathered_bytes(p.in()), "input_gradient");
  p.emit.bind(whole_gradient_frame, dgrad);
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
  fused_weight_gradient(p, input, gradient, workspace);
  p.emit.join(reducing);
  p.emit.unbind(whole_gradient_frame);
  p.emit.unbind(saved_input_frame);
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
                 [&](const Transpose&) { forward_transpose(p); },
                 [&](const SelfAttention&) { forward_attention(p); },
                 [&](const GatedActivation&) { forward_activation(p); },
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
                 [&](const Transpose&) { backward_transpose(p); },
                 [&](const SelfAttention&) { backward_attention(p); },
                 [&](const GatedActivation&) { backward_activation(p); },
                 [&](const Residual&) { backward_residual(p); },
                 [&](const Head&) { backward_head(p); },
                 [&](const Loss& o) { backward_loss(p, o); },
             },
             p.op.type);
}

}  // namespace tidemark
