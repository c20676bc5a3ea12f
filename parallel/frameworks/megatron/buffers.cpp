#include "parallel/frameworks/megatron/buffers.hpp"

#include <limits>
#include <utility>

#include <fmt/format.h>

namespace tidemark::parallel::megatron {

ParamAndGradBuffer::ParamAndGradBuffer(Worker& w, const Stage& stage, std::string suffix)
    : w_(w),
      stage_(stage),
      suffix_(std::move(suffix)),
      parameters_(stage_parameters(w.graph, stage, w.runtime)),
      layout_(buffer_layout(w.graph, parameters_, w.sizes, w.runtime, stage, w.layout.sharding, w.layout.data)) {}

namespace {

// A parameter's gradient accumulator, with Megatron's hook on it. A GEMM that has added the gradient itself gives none.
Ref<Node> gradient_accumulator(Worker& w, Weight& weight) {
  Ref<Node> node = w.session.bare_node();
  node->sequence = std::numeric_limits<std::int64_t>::max();
  node->leaf = true;
  node->immediate = true;
  node->scope = {};
  node->apply = [&w, &weight](Gradients& gradients) {
    if (gradients.front().defined()) w.accumulate(weight, std::move(gradients.front()));
    return Gradients{};
  };
  return node;
}

}  // namespace

void ParamAndGradBuffer::build_model() {
  for (const ParameterId id : parameters_) {
    Weight& weight = w_.weight(id);
    weight.parameter = &w_.graph[id];
    weight.rows = w_.sizes.rows(*weight.parameter);
    weight.columns = w_.sizes.columns(*weight.parameter);
    const bool tied = w_.model.tied_embeddings && weight.parameter->vocabulary;
    weight.uses += tied && stage_.embedding && stage_.head ? 2 : 1;
    weight.value =
        w_.make(w_.process.label(weight.parameter->name), weight.shape(), w_.train.precision, Category::Parameters);
    weight.value.gradient = {gradient_accumulator(w_, weight), 0};
    w_.stream(Streaming::Fill, {}, {weight.value}, {}, weight.value.bytes());
  }
}

void ParamAndGradBuffer::build() {
  const auto make = [&](std::string_view what, DType dtype, Category category) {
    Tensor buffer = w_.make(w_.process.label(fmt::format("{}{}", what, suffix_)), {layout_.elements}, dtype, category);
    w_.stream(Streaming::Fill, {}, {buffer}, {}, buffer.bytes());
    return buffer;
  };
  const bool sharded = w_.layout.sharding == Sharding::Zero1;
  if (sharded) values_ = make("parameter_buffer", w_.train.precision, Category::Parameters);
  gradients_ = make("gradient_buffer", w_.train.gradient_dtype, Category::Gradients);
  for (const ParameterId id : parameters_) w_.weight(id).main_gradients = gradients_;
  if (!sharded) return;
  for (const BufferLayout::Place& place : layout_.places) {
    Tensor& value = w_.weight(place.parameter).value;
    const Bytes moved = value.bytes();
    w_.stream(Streaming::Copy, {value, values_}, {values_}, moved, moved);
    value.storage = values_.storage;
  }
}

void ParamAndGradBuffer::zero_gradients() { w_.stream(Streaming::Fill, {}, {gradients_}, {}, gradients_.bytes()); }

void ParamAndGradBuffer::reduce() {
  const bool sharded = w_.layout.sharding == Sharding::Zero1;
  w_.process.unchecked_collective(w_.comms.data, sharded ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce,
                                  gradients_.buffer(), gradients_.buffer(), gradients_.bytes());
}

void ParamAndGradBuffer::gather_parameters() {
  w_.process.unchecked_collective(w_.comms.data, CollectiveKind::AllGather, values_.buffer(), values_.buffer(),
                                  values_.bytes());
}

namespace {

// Parameters that every tensor-parallel rank holds whole, and of whose gradient each computes a part, by id. Ranks meet
// them with other heads (norms of queries and keys), or under sequence parallelism with other tokens. Learned positions
// are looked up before the sequence is cut: every rank computes all of their gradient.
std::vector<bool> partial_gradients(const Worker& w) {
  std::vector<bool> partial(w.graph.parameters.size(), false);
  if (!w.tensor_parallel()) return partial;
  for (const Operator& op : w.graph.operators) {
    if (std::holds_alternative<Embedding>(op.type)) continue;
    const Placement met = w.graph[op.outputs.front()].placement;
    const bool in_parts = met == Placement::Tensor || (met == Placement::Residual && w.sequence_parallel());
    for (const ParameterId id : op.parameters) partial[id.index()] = in_parts && w.graph[id].cut == WeightCut::None;
  }
  return partial;
}

// Over tensor-parallel ranks. Megatron-LM core 0.14, core/distributed/finalize_model_grads.py,
// _allreduce_non_tensor_model_parallel_grads (before 0.13 _allreduce_layernorm_grads): what carries `sequence_parallel`
// (norms, biases of row-parallel linears), and q_layernorm and k_layernorm with or without it. Learned positions carry
// nothing.
void sum_partial_gradients(Worker& w, const std::vector<ParamAndGradBuffer>& buffers) {
  const std::vector<bool> partial = partial_gradients(w);
  std::vector<BufferId> whose;  // gradients of chunks that have any
  std::int64_t parameters = 0, elements = 0;
  for (const ParamAndGradBuffer& buffer : buffers)
    for (const ParameterId id : buffer.parameters()) {
      if (!partial[id.index()]) continue;
      ++parameters;
      elements += w.sizes.elements(w.graph[id]);
      const BufferId its = buffer.gradients().buffer();
      if (whose.empty() || whose.back() != its) whose.push_back(its);
    }
  if (parameters == 0) return;
  const Bytes size = elements * size_of(w.train.gradient_dtype);
  if (parameters == 1) {  // torch/_utils.py _flatten_dense_tensors: a single tensor, flat, is a view of itself
    w.process.collective(w.comms.tensor, CollectiveKind::AllReduce, whose.front(), whose.front(), size);
    return;
  }
  const Tensor flat = w.communicated(w.process.label("partial_gradients.flat"), {elements}, w.train.gradient_dtype);
  w.process.launch(Stream{Streaming::Copy, size, size}, whose, std::vector{flat.buffer()});
  w.all_reduce(flat);
  std::vector<BufferId> read{flat.buffer()};
  read.insert(read.end(), whose.begin(), whose.end());  // what lies between stays
  w.process.launch(Stream{Streaming::Copy, size, size}, read, whose);
}

}  // namespace

void finalize_model_gradients(Worker& w, std::vector<ParamAndGradBuffer>& buffers) {
  w.process.mark(Phase::Communication, "reduce_gradients");
  for (ParamAndGradBuffer& buffer : buffers) buffer.reduce();
  sum_partial_gradients(w, buffers);
  if (!w.comms.embedding.valid() || (!w.embedding() && !w.head())) return;
  // Both ends of the pipeline hold the embedding's weight.
  const BufferId its = (w.embedding() ? buffers.front() : buffers.back()).gradients().buffer();
  const Bytes size = w.sizes.elements(w.graph.parameters.front()) * size_of(w.train.gradient_dtype);
  w.process.collective(w.comms.embedding, CollectiveKind::AllReduce, its, its, size);
}

}  // namespace tidemark::parallel::megatron
