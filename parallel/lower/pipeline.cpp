#include "parallel/lower/pipeline.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "sim/ensure.hpp"

namespace tidemark {

using namespace literals;

PipelineLowering::PipelineLowering(Emitter& emit, std::int32_t stage_index) : emit_(emit), stage_index_(stage_index) {
  const std::int32_t layers = static_cast<std::int32_t>(emit.graph.model.layers);
  for (const OperatorId id : topological_order(emit.graph))
    if (emit.stage.holds(emit.graph[id].layer, layers)) operators_.push_back(id);

  const auto only_value_across = [&](std::int32_t layer) {
    const std::vector<ValueId> values = values_across(emit.graph, layer);
    ensure(values.size() == 1, "one tensor crosses between pipeline stages");
    return values.front();
  };
  if (!first_stage()) boundary_in_ = only_value_across(emit.stage.first);
  if (!last_stage()) boundary_out_ = only_value_across(emit.stage.last);
  if (emit.stage.embedding) tokens_ = emit.graph.operators.front().inputs.front();
  if (emit.stage.head) labels_ = emit.graph.operators.back().inputs.back();
}

void PipelineLowering::bind(std::string_view name, BufferId buffer) {
  emit_.bind(name, buffer);
  bound_[std::string(name)] = true;
}

void PipelineLowering::unbind(std::string_view name) {
  const auto found = bound_.find(name);
  if (found == bound_.end() || !found->second) return;
  found->second = false;
  emit_.unbind(name);
}

PipelineLowering::InFlight& PipelineLowering::in_flight(std::int32_t micro_batch) {
  if (const auto found = in_flight_.find(micro_batch); found != in_flight_.end()) return found->second;
  if (spare_.empty()) return in_flight_.emplace(micro_batch, InFlight(emit_.graph)).first->second;
  InFlight reused = std::move(spare_.back());
  spare_.pop_back();
  std::fill(reused.tensors.gradients.begin(), reused.tensors.gradients.end(), BufferId{});
  reused.input = reused.input_gradient = reused.output = reused.output_gradient = BufferId{};
  return in_flight_.emplace(micro_batch, std::move(reused)).first->second;
}

void PipelineLowering::load_batch(InFlight& batch) {
  // What the loader hands to a stage, and the first tensor-parallel rank to its group.
  const auto load = [&](std::string_view name, std::int64_t bytes_per_token) {
    const Bytes size{emit_.sizes.tokens * bytes_per_token};
    const BufferId tensor = emit_.alloc(size, Category::Temporaries, name);
    emit_.program.launch(Stream{Streaming::Fill, {}, size}, {}, {tensor});
    emit_.collective(emit_.comms.tensor, CollectiveKind::Broadcast, tensor, tensor, size);
    bind(name, tensor);
    return tensor;
  };
  emit_.mark(Phase::Forward, "load_batch");
  if (tokens_.valid()) batch.tensors.values[tokens_.index()] = load("batch.tokens", 8);
  if (labels_.valid()) {
    batch.tensors.values[labels_.index()] = load("batch.labels", 8);
    load("batch.loss_mask", 4);
  }
  if (tokens_.valid()) {
    const BufferId positions = load("batch.position_ids", 8);
    const std::vector<ValueId>& ids = emit_.graph.operators.front().inputs;
    if (ids.size() > 1) batch.tensors.values[ids[1].index()] = positions;  // the embedding looks them up too
  }
  if ((tokens_.valid() || labels_.valid()) && emit_.runtime.batch_attention_mask)
    load("batch.attention_mask", emit_.train.sequence_length);  // one byte for each token it may look at
}

void PipelineLowering::forward_pass(std::int32_t micro_batch) {
  emit_.at(step_, micro_batch);
  InFlight& batch = in_flight(micro_batch);
  if (!first_stage()) {
    batch.tensors.values[boundary_in_.index()] = batch.input;
    // The decoder keeps what it was last given, and that tensor keeps its gradient.
    decoder_input_ = batch.input;
    bind("decoder.input_tensor", batch.input);
    unbind("decoder.input_tensor.grad");
  }
  load_batch(batch);
  for (const OperatorId op : operators_) forward(emit_, batch.tensors, op);
  for (const std::string_view name :
       {"batch.tokens", "batch.labels", "batch.loss_mask", "batch.position_ids", "batch.attention_mask"})
    unbind(name);

  if (!last_stage()) {
    batch.output = batch.tensors.values[boundary_out_.index()];
    bind("schedule.output_tensor", batch.output);
  }
  if (!first_stage()) {
    // `output_tensor` now leads to this micro-batch's autograd graph, and through it to the stage input.
    bind("schedule.output_tensor.graph.input", batch.input);
    unbind("schedule.output_tensor.graph.input_grad");
    bind(fmt::format("schedule.input_tensors[{}]", micro_batch), batch.input);
    unbind("schedule.input_tensor");
  }
}

void PipelineLowering::backward_pass(std::int32_t micro_batch) {
  emit_.at(step_, micro_batch);
  InFlight& batch = in_flight(micro_batch);
  if (!first_stage()) {
    bind("schedule.input_tensor", batch.input);
    bind("schedule.output_tensor.graph.input", batch.input);
    unbind("schedule.output_tensor.graph.input_grad");
    unbind(fmt::format("schedule.input_tensors[{}]", micro_batch));
  }
  if (!last_stage()) {
    unbind(fmt::format("schedule.output_tensors[{}]", micro_batch));
    batch.tensors.gradients[boundary_out_.index()] = batch.output_gradient;
  }
  for (auto op = operators_.rbegin(); op != operators_.rend(); ++op) backward(emit_, batch.tensors, *op);
  if (!first_stage()) {
    batch.input_gradient = batch.tensors.gradients[boundary_in_.index()];
    bind("schedule.output_tensor.graph.input_grad", batch.input_gradient);
    if (batch.input == decoder_input_) bind("decoder.input_tensor.grad", batch.input_gradient);
    bind("schedule.input_tensor_grad", batch.input_gradient);
  }
}

void PipelineLowering::receive_into(const ScheduleStep& next, std::vector<Transfer>& transfers) {
  InFlight& batch = in_flight(next.micro_batch);
  if (next.pass == Pass::Forward) {
    const Bytes size = emit_.sizes.bytes(emit_.graph[boundary_in_]);
    batch.input = emit_.alloc(size, Category::SavedActivations, "received.input");
    transfers.push_back({Direction::Receive, -1, batch.input});
  } else {
    const Bytes size = emit_.sizes.bytes(emit_.graph[boundary_out_]);
    batch.output_gradient = emit_.alloc(size, Category::CommPp, "received.output_gradient");
    transfers.push_back({Direction::Receive, +1, batch.output_gradient});
  }
}

void PipelineLowering::forget_output(std::int32_t micro_batch) {
  if (emit_.runtime.deallocates_outputs) {
    const BufferId one_element =
        emit_.alloc(size_of(emit_.train.precision), Category::Temporaries, "output.deallocated");
    bind(fmt::format("schedule.output_tensors[{}]", micro_batch), one_element);
  } else {
    bind(fmt::format("schedule.output_tensors[{}]", micro_batch), in_flight(micro_batch).output);
  }
  unbind("schedule.output_tensor");
}

void PipelineLowering::retire(std::int32_t micro_batch) {
  const auto done = in_flight_.find(micro_batch);
  spare_.push_back(std::move(done->second));
  in_flight_.erase(done);
}

void PipelineLowering::hand_over(const ScheduleStep* done, const ScheduleStep* next) {
  // Megatron's p2p calls: what one pass sends goes out together with what the other kind of pass waits for.
  static constexpr std::string_view send_names[] = {"send_forward", "send_backward"};
  static constexpr std::string_view receive_names[] = {"recv_forward", "recv_backward"};
  const bool sending = done != nullptr && sends(*done);
  const bool receiving = next != nullptr && receives(*next);
  const bool together = sending && receiving && done->pass != next->pass;

  std::vector<Transfer> transfers;
  std::string label;
  if (sending) {
    label = send_names[static_cast<int>(done->pass)];
    const InFlight& batch = in_flight(done->micro_batch);
    if (done->pass == Pass::Forward)
      transfers.push_back({Direction::Send, +1, batch.output});
    else
      transfers.push_back({Direction::Send, -1, batch.input_gradient});
    if (together) label += fmt::format("_{}", receive_names[static_cast<int>(next->pass)]);
    emit_.at(step_, done->micro_batch);
    emit_.mark(Phase::Communication, label);
    if (together) receive_into(*next, transfers);
    emit_.exchange(emit_.comms.pipeline, transfers);
    emit_.synchronize();  // p2p_communication.py: batch_p2p_sync
    if (done->pass == Pass::Forward) forget_output(done->micro_batch);
  }
  if (done != nullptr && done->pass == Pass::Backward) retire(done->micro_batch);
  if (receiving && !together) {
    transfers.clear();
    emit_.at(step_, next->micro_batch);
    emit_.mark(Phase::Communication, receive_names[static_cast<int>(next->pass)]);
    receive_into(*next, transfers);
    emit_.exchange(emit_.comms.pipeline, transfers);
    emit_.synchronize();  // p2p_communication.py: batch_p2p_sync
  }
  if (!receiving) return;
  const InFlight& batch = in_flight(next->micro_batch);
  if (next->pass == Pass::Forward)
    bind("schedule.input_tensor", batch.input);
  else
    bind("schedule.output_tensor_grad", batch.output_gradient);
}

void PipelineLowering::run(std::int32_t step, const Schedule& schedule) {
  step_ = step;
  const ScheduleStep* done = nullptr;
  for (const ScheduleStep& next : schedule) {
    hand_over(done, &next);
    if (next.pass == Pass::Forward)
      forward_pass(next.micro_batch);
    else
      backward_pass(next.micro_batch);
    done = &next;
  }
  hand_over(done, nullptr);
  for (auto& [name, bound] : bound_)
    if (bound && name.starts_with("schedule.")) unbind(name);
  emit_.at(step, -1);
}

}  // namespace tidemark
