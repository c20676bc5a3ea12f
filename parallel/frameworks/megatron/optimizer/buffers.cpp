#include "parallel/frameworks/megatron/optimizer/buffers.hpp"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/frameworks/megatron/optimizer/layer_wise.hpp"
#include "parallel/frameworks/megatron/result_checks.hpp"

namespace tidemark::parallel::megatron {

ParamAndGradBuffer::ParamAndGradBuffer(Worker& w, const Stage& stage, ParameterGroup group, std::string suffix)
    : w_(w),
      stage_(stage),
      group_(group),
      shard_(shards_of(w.layout, w.place, group)),
      all_(of_experts(group) ? w.comms.expert_data : w.comms.data),
      sharing_(w.layout.instances() == 1 ? all_
               : of_experts(group)       ? w.comms.expert_shard
                                         : w.comms.shard),
      suffix_(std::move(suffix)),
      parameters_(parameters_of(w.built, stage, w.layout, w.runtime, group)),
      layout_(layout_of(w.built, parameters_, w.sizes, w.runtime, stage, w.layout, group)) {}

std::vector<ParameterId> parameters_of(const BuiltModel& built, const Stage& stage, const Layout& layout,
                                       const Runtime& runtime, ParameterGroup group) {
  const bool matrices_apart = buffer_groups(layout, runtime).size() > 2;
  if (!matrices_apart && !experts_apart(layout))
    return of_experts(group) ? std::vector<ParameterId>{} : stage_parameters(built, stage, layout);
  return of_group(built, stage_parameters(built, stage, layout), group, matrices_apart);
}

BufferLayout layout_of(const BuiltModel& built, const std::vector<ParameterId>& parameters, const Sizes& sizes,
                       const Runtime& runtime, const Stage& stage, const Layout& layout, ParameterGroup group) {
  const auto make = of_matrices(group) ? layer_wise_layout : buffer_layout;
  return make(built, parameters, sizes, runtime, stage, layout, shards_of(layout, {}, group).count);
}

namespace {

// A parameter's gradient accumulator, with Megatron's hook on it. A GEMM that has added the gradient itself gives none.
Ref<Node> gradient_accumulator(Worker& w, Weight& weight) {
  Ref<Node> node = w.session.bare_node();
  node->sequence = std::numeric_limits<std::int64_t>::max();
  node->leaf = true;
  node->immediate = true;
  node->scope = {};
  if (w.runtime.core.wraps_aside) node->stream = wrapper_stream;
  // The GEMMs of an LM head that is used several times give dummies, which are not added (grad_added_to_main_grad).
  const bool dummies = w.runtime.dummy_gradient != DummyGradient::None && weight.uses > 1 && !w.zeroes_dummies();
  node->apply = [&w, &weight, dummies](Gradients& gradients) {
    if (gradients.front().defined() && !dummies) w.accumulate(weight, std::move(gradients.front()));
    if (weight.gradient_arrived) weight.gradient_arrived();
    return Gradients{};
  };
  return node;
}

}  // namespace

void build_model(Worker& w, const Stage& stage) {
  for (const ParameterId id : stage_parameters(w.built, stage, w.layout)) {
    Weight& weight = w.weight(id);
    weight.parameter = &w.built[id];
    weight.rows = w.sizes.rows(*weight.parameter);
    weight.columns = w.sizes.columns(*weight.parameter);
    const bool tied = w.model.tied_embeddings && weight.parameter->vocabulary;
    const bool of_head = weight.parameter->vocabulary && stage.head && (tied || id != ParameterId{0});
    weight.uses += tied && stage.embedding && stage.head ? 2 : 1;
    if (of_head) weight.uses += static_cast<int>(w.model.further.size());
    weight.value =
        w.make(w.process.label(weight.parameter->name), weight.shape(), w.train.precision, Category::Parameters);
    weight.value.gradient = {gradient_accumulator(w, weight), 0};
    w.launch(Operation::Initialize, {}, {weight.value});
  }
  // core/models/common/embeddings/rotary_pos_embedding.py inv_freq.
  if (w.model.positions == Positions::Rotary && !w.model.latent()) {
    w.inverse_frequencies.push_back(w.make(w.process.label("rotary.inverse_frequencies"), {w.model.rotary_dim() / 2},
                                           DType::FP32, Category::Workspaces));
    w.process.keep(w.inverse_frequencies.back().buffer());
  }
}

void ParamAndGradBuffer::build() {
  const auto make = [&](std::string_view what, DType dtype, Category category) {
    // What is copied there from memory of the stream that all else runs on is copied on that: it is given up at once.
    const torch::OnStream aside(w_.session, w_.runtime.core.wraps_aside ? wrapper_stream : w_.session.stream());
    return w_.make(w_.process.label(fmt::format("{}{}", what, suffix_)), {layout_.elements}, dtype, category);
  };
  const auto make_filled = [&](std::string_view what, DType dtype, Category category) {
    Tensor buffer = make(what, dtype, category);
    w_.launch({Operation::Fill, {0}}, {}, {buffer});
    return buffer;
  };
  if (sharded()) values_ = make_filled("parameter_buffer", w_.train.precision, Category::Parameters);
  gradients_ = make_filled("gradient_buffer", w_.train.gradient_dtype, Category::Gradients);
  for (const BufferLayout::Place& place : layout_.places) {
    Weight& weight = w_.weight(place.parameter);
    weight.main_gradients = sized(gradients(place.begin, place.end), weight.shape());
  }
  if (!sharded()) return;
  for (const BufferLayout::Place& place : layout_.places) {
    Tensor& value = w_.weight(place.parameter).value;
    w_.launch(Operation::Copy, {value}, {sized(values(place.begin, place.end), value.sizes)});
    value.storage = values_.storage;
    value.offset = place.begin;
  }
}

void ParamAndGradBuffer::zero_gradients() { w_.launch({Operation::Fill, {0}}, {}, {gradients_}); }

// distributed_data_parallel.py: without --ddp-average-in-collective, gradient_scaling_factor is one over the number of
// ranks, a kernel multiplies by it (param_and_grad_buffer.py start_grad_sync), and the collective sums. Here the
// collective averages, and the time of that kernel is left out.
void ParamAndGradBuffer::reduce() {
  for (const BufferLayout::Bucket& bucket : layout_.buckets) check_gradients(w_, gradients(bucket.begin, bucket.end));
  scale_by_replicas(gradients_);
  const auto average = [&](CommSlot among, const Tensor& x) {
    w_.session.unchecked_collective(among, CollectiveKind::AllReduce, x, x, Reduction::Average);
  };
  if (!sharded()) return average(all_, gradients_);
  for_each_bucket(gradients_, CollectiveKind::ReduceScatter);
  if (w_.layout.instances() == 1) return;
  for (const BufferLayout::Bucket& bucket : layout_.buckets) average(w_.comms.replicate, own_part(bucket));
}

// distributed_data_parallel.py expert_gradient_scaling_factor.
void ParamAndGradBuffer::scale_by_replicas(const Tensor& gradients) {
  const std::int32_t parts = w_.layout.replicas(), replicas = replicas_of(w_.layout, w_.place, group_).count;
  if (replicas == parts) return;
  const double share = static_cast<double>(replicas) / static_cast<double>(parts);
  w_.launch({Operation::Scale, {share}}, {gradients}, {gradients});
}

// Where there are several instances of the optimizer, the second of two follows the first on a stream of Megatron's own
// (param_and_grad_buffer.py start_grad_sync).
EventId ParamAndGradBuffer::reduce_aside(std::size_t bucket) {
  const BufferLayout::Bucket& its = layout_.buckets[bucket];
  const Tensor all = gradients(its.begin, its.end);
  check_gradients(w_, all);
  scale_by_replicas(all);
  if (!sharded()) return aside(all_, CollectiveKind::AllReduce, all);
  const EventId scattered = aside(sharing_, CollectiveKind::ReduceScatter, all);
  if (w_.layout.instances() == 1) return scattered;
  return aside(w_.comms.replicate, CollectiveKind::AllReduce, own_part(its));
}

EventId ParamAndGradBuffer::gather_aside(std::size_t bucket) {
  const BufferLayout::Bucket& its = layout_.buckets[bucket];
  return aside(sharing_, CollectiveKind::AllGather, values(its.begin, its.end));
}

EventId ParamAndGradBuffer::aside(CommSlot among, CollectiveKind kind, const Tensor& its) {
  const StreamId stream = of_experts(group_) ? expert_data_stream : data_stream, running = w_.session.stream();
  if (running != torch::Process::compute_stream) w_.process.wait(stream, w_.process.record(running));
  return w_.session.unchecked_collective_aside(stream, among, kind, its, its,
                                               reduces(kind) ? Reduction::Average : Reduction::Sum);
}

Tensor ParamAndGradBuffer::own_part(const BufferLayout::Bucket& bucket) const {
  const std::int64_t share = (bucket.end - bucket.begin) / shard_.count, begin = bucket.begin + share * shard_.place;
  return gradients(begin, begin + share);
}

void ParamAndGradBuffer::gather_parameters() { for_each_bucket(values_, CollectiveKind::AllGather); }

void ParamAndGradBuffer::for_each_bucket(const Tensor& buffer, CollectiveKind kind) {
  for (const BufferLayout::Bucket& bucket : layout_.buckets) {
    const Tensor its = part(buffer, bucket.begin, bucket.end);
    w_.session.unchecked_collective(sharing_, kind, its, its, reduces(kind) ? Reduction::Average : Reduction::Sum);
  }
}

namespace {

bool in_parts(const Worker& w, const Parameter& parameter) {
  switch (parameter.in_parts) {
    case GradientInParts::Never:
      return false;
    case GradientInParts::UnderSequenceParallelism:
      return w.sequence_parallel();
    case GradientInParts::Always:
      return w.tensor_parallel();
  }
  return false;
}

// Over tensor-parallel ranks. Megatron-LM core 0.14, core/distributed/finalize_model_grads.py,
// _allreduce_non_tensor_model_parallel_grads (before 0.13 _allreduce_layernorm_grads): what carries `sequence_parallel`
// (norms, biases of row-parallel linears), and q_layernorm and k_layernorm with or without it. Learned positions carry
// nothing.
void sum_partial_gradients(Worker& w, const std::vector<ParamAndGradBuffer>& buffers) {
  std::vector<Tensor> gradients;
  std::int64_t elements = 0;
  for (const ParamAndGradBuffer& buffer : buffers)
    for (const ParameterId id : buffer.parameters()) {
      if (!in_parts(w, w.built[id])) continue;
      gradients.push_back(w.weight(id).main_gradients);
      elements += gradients.back().elements();
    }
  // torch/_utils.py _flatten_dense_tensors: a single tensor, flat, is a view of itself.
  if (gradients.size() == 1) w.all_reduce(gradients.front());
  if (gradients.size() <= 1) return;
  const Tensor flat = w.communicated(w.process.label("partial_gradients.flat"), {elements}, w.train.gradient_dtype);
  std::vector<Tensor> parts;  // of `flat`
  std::int64_t begin = 0;
  for (const Tensor& gradient : gradients) {
    parts.push_back(sized(narrowed(flat, 0, begin, gradient.elements()), gradient.sizes));
    begin += gradient.elements();
  }
  w.launch(Operation::Copy, gradients, parts);
  w.all_reduce(flat);
  w.launch(Operation::Copy, parts, gradients);
}

// Both ends of the pipeline hold the embedding's weight.
void sum_embedding(Worker& w) {
  if (!w.comms.embedding.valid() || (!w.embedding() && !w.head())) return;
  const Tensor& its = w.weight(ParameterId{0}).main_gradients;  // the model's first parameter
  w.session.collective(w.comms.embedding, CollectiveKind::AllReduce, its, its);
}

}  // namespace

void finalize_model_gradients(Worker& w, std::vector<ParamAndGradBuffer>& buffers) {
  if (!w.runtime.overlap.gradients)
    for (ParamAndGradBuffer& buffer : buffers) buffer.reduce();
  sum_partial_gradients(w, buffers);
  sum_embedding(w);
  finish_routing(w);
}

}  // namespace tidemark::parallel::megatron
