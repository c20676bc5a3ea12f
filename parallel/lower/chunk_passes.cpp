#include "parallel/lower/chunk_passes.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "parallel/batch.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel {

void Variables::bind(std::string_view name, BufferId buffer) {
  emit_.bind(name, buffer);
  if (bound_.find(name) == bound_.end()) bound_.emplace(name);
}

void Variables::unbind(std::string_view name) {
  const auto found = bound_.find(name);
  if (found == bound_.end()) return;
  bound_.erase(found);
  emit_.unbind(name);
}

void Variables::unbind_all(std::string_view prefix) {
  for (auto at = bound_.lower_bound(prefix); at != bound_.end() && at->starts_with(prefix); at = bound_.erase(at))
    emit_.unbind(*at);
}

ChunkPasses::ChunkPasses(Emitter& emit, Variables& variables, std::int32_t chunk)
    : emit_(emit),
      variables_(variables),
      stage_(emit.chunks[static_cast<std::size_t>(chunk)]),
      chunk_(chunk),
      decoder_(emit.chunks.size() == 1 ? "decoder" : fmt::format("chunk{}.decoder", chunk)) {
  const std::int32_t layers = static_cast<std::int32_t>(emit.graph.model.layers);
  for (const OperatorId id : topological_order(emit.graph))
    if (stage_.holds(emit.graph[id].layer, layers)) operators_.push_back(id);

  segment_of_.assign(operators_.size(), -1);
  for (std::size_t s = 0; s < emit.segments().size(); ++s)
    for (const OperatorId op : emit.segments()[s].operators) {
      const auto at = std::find(operators_.begin(), operators_.end(), op);
      if (at != operators_.end())
        segment_of_[static_cast<std::size_t>(at - operators_.begin())] = static_cast<std::int32_t>(s);
    }

  const auto only_value_across = [&](std::int32_t layer) {
    const std::vector<ValueId> values = values_across(emit.graph, layer);
    ensure(values.size() == 1, "one tensor crosses between pipeline stages");
    return values.front();
  };
  if (!first()) boundary_in_ = only_value_across(stage_.first);
  if (!last()) boundary_out_ = only_value_across(stage_.last);
  if (stage_.embedding) tokens_ = emit.graph.operators.front().inputs.front();
  if (stage_.head) labels_ = emit.graph.operators.back().inputs.back();
}

InFlight& ChunkPasses::in_flight(std::int32_t micro_batch) {
  if (const auto found = in_flight_.find(micro_batch); found != in_flight_.end()) return found->second;
  if (spare_.empty()) return in_flight_.emplace(micro_batch, InFlight(emit_.graph)).first->second;
  InFlight reused = std::move(spare_.back());
  spare_.pop_back();
  std::fill(reused.tensors.gradients.begin(), reused.tensors.gradients.end(), BufferId{});
  reused.input = reused.input_gradient = reused.output = reused.output_gradient = BufferId{};
  return in_flight_.emplace(micro_batch, std::move(reused)).first->second;
}

void ChunkPasses::retire(std::int32_t micro_batch) {
  const auto done = in_flight_.find(micro_batch);
  spare_.push_back(std::move(done->second));
  in_flight_.erase(done);
}

BufferId ChunkPasses::receive_input() {
  return emit_.alloc(emit_.sizes.bytes(emit_.graph[boundary_in_]), Category::SavedActivations, "received.input");
}

BufferId ChunkPasses::receive_output_gradient() {
  return emit_.alloc(emit_.sizes.bytes(emit_.graph[boundary_out_]), Category::CommPp, "received.output_gradient");
}

void ChunkPasses::load_batch(InFlight& batch) {
  // Megatron-LM core 0.14, training/utils.py, get_batch_on_this_tp_rank: ranks of the first and the last stage make
  // room for all five tensors, whichever chunk runs. The first tensor-parallel rank keeps what its stage does not need
  // until the pass returns; the others drop it, and receive the rest from it. One tensor-parallel rank is that first
  // one.
  if (!emit_.embedding() && !emit_.head()) return;
  const std::vector<BatchTensor> items = batch_tensors(emit_.train, emit_.runtime, {first(), last()});
  emit_.mark(Phase::Forward, "load_batch");
  std::map<std::string_view, BufferId> tensors;
  for (const BatchTensor& item : items) {
    tensors[item.name] = emit_.alloc(item.size, Category::Temporaries, item.name);
    emit_.program.launch(Stream{Streaming::Fill, {}, item.size}, {}, {tensors[item.name]});
    variables_.bind(item.name, tensors[item.name]);
  }
  for (const BatchTensor& item : items)
    if (!item.needed && emit_.tensor_parallel()) variables_.unbind(item.name);
  for (const BatchTensor& item : items)
    if (item.needed)
      emit_.unchecked_collective(emit_.comms.tensor, CollectiveKind::Broadcast, tensors[item.name], tensors[item.name],
                                 item.size);

  if (tokens_.valid()) batch.tensors.values[tokens_.index()] = tensors["batch.tokens"];
  if (labels_.valid()) batch.tensors.values[labels_.index()] = tensors["batch.labels"];
  const std::vector<ValueId>& ids = emit_.graph.operators.front().inputs;
  if (first() && ids.size() > 1)  // the embedding looks positions up too
    batch.tensors.values[ids[1].index()] = tensors["batch.position_ids"];
}

// CheckpointFunction's context holds what came in.
std::string ChunkPasses::checkpoint(std::int32_t micro_batch, std::int32_t segment, std::size_t input) const {
  return fmt::format("checkpoint[{}][{}].inputs[{}]", micro_batch, segment, input);
}

void ChunkPasses::run_forward(std::int32_t micro_batch, InFlight& batch) {
  std::int32_t within = -1;
  for (std::size_t i = 0; i < operators_.size(); ++i) {
    const std::int32_t segment = segment_of_[i];
    if (segment >= 0 && segment != within) {
      const Segment& its = emit_.segments()[static_cast<std::size_t>(segment)];
      for (std::size_t k = 0; k < its.inputs.size(); ++k)
        variables_.bind(checkpoint(micro_batch, segment, k), batch.tensors.values[its.inputs[k].index()]);
    }
    within = segment;
    forward(emit_, batch.tensors, operators_[i]);
  }
}

void ChunkPasses::run_again(const Segment& segment, InFlight& batch) {
  emit_.again = true;
  for (const OperatorId op : segment.operators) forward(emit_, batch.tensors, op);
  emit_.again = false;
}

void ChunkPasses::run_backward(std::int32_t micro_batch, InFlight& batch) {
  // CheckpointFunction.backward runs the segment again, then its backward pass; its frame holds what the second run
  // made, and the gradient that came in, until it returns.
  static constexpr std::string_view outputs_frame = "checkpoint.outputs", gradient_frame = "checkpoint.output_gradient";
  for (std::size_t i = operators_.size(); i-- > 0;) {
    const std::int32_t segment = segment_of_[i];
    if (segment < 0) {
      backward(emit_, batch.tensors, operators_[i]);
      continue;
    }
    const Segment& its = emit_.segments()[static_cast<std::size_t>(segment)];
    const ValueId out = its.outputs.front();
    variables_.bind(gradient_frame, batch.tensors.gradients[out.index()]);
    run_again(its, batch);
    variables_.bind(outputs_frame, batch.tensors.values[out.index()]);
    for (auto op = its.operators.rbegin(); op != its.operators.rend(); ++op) backward(emit_, batch.tensors, *op);
    variables_.unbind(outputs_frame);
    variables_.unbind(gradient_frame);
    for (std::size_t k = 0; k < its.inputs.size(); ++k) variables_.unbind(checkpoint(micro_batch, segment, k));
    while (i > 0 && segment_of_[i - 1] == segment) --i;
  }
}

void ChunkPasses::forward_pass(std::int32_t step, std::int32_t micro_batch) {
  emit_.at(step, micro_batch);
  emit_.enter(chunk_);
  InFlight& batch = in_flight(micro_batch);
  if (!first()) {
    batch.tensors.values[boundary_in_.index()] = batch.input;
    // The decoder keeps what it was last given, and that tensor keeps its gradient.
    decoder_input_ = batch.input;
    variables_.bind(decoder_ + ".input_tensor", batch.input);
    variables_.unbind(decoder_ + ".input_tensor.grad");
  }
  load_batch(batch);
  run_forward(micro_batch, batch);
  for (const std::string_view name :
       {"batch.tokens", "batch.labels", "batch.loss_mask", "batch.position_ids", "batch.attention_mask"})
    variables_.unbind(name);
  if (!last()) batch.output = batch.tensors.values[boundary_out_.index()];
}

void ChunkPasses::backward_pass(std::int32_t step, std::int32_t micro_batch) {
  emit_.at(step, micro_batch);
  emit_.enter(chunk_);
  InFlight& batch = in_flight(micro_batch);
  if (!last()) batch.tensors.gradients[boundary_out_.index()] = batch.output_gradient;
  run_backward(micro_batch, batch);
  if (first()) return;
  batch.input_gradient = batch.tensors.gradients[boundary_in_.index()];
  if (batch.input == decoder_input_) variables_.bind(decoder_ + ".input_tensor.grad", batch.input_gradient);
}

}  // namespace tidemark::parallel
