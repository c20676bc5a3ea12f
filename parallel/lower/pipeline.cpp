#include "parallel/lower/pipeline.hpp"

#include <fmt/format.h>

namespace tidemark::parallel {

void PipelineLowering::forward_pass(std::int32_t micro_batch) {
  passes_.forward_pass(step_, micro_batch);
  const InFlight& batch = passes_.in_flight(micro_batch);
  if (!passes_.last()) variables_.bind("schedule.output_tensor", batch.output);
  if (passes_.first()) return;
  // `output_tensor` now leads to this micro-batch's autograd graph, and through it to the stage input.
  variables_.bind("schedule.output_tensor.graph.input", batch.input);
  variables_.unbind("schedule.output_tensor.graph.input_grad");
  variables_.bind(fmt::format("schedule.input_tensors[{}]", micro_batch), batch.input);
  variables_.unbind("schedule.input_tensor");
}

void PipelineLowering::backward_pass(std::int32_t micro_batch) {
  emit_.at(step_, micro_batch);
  const InFlight& batch = passes_.in_flight(micro_batch);
  if (!passes_.first()) {
    variables_.bind("schedule.input_tensor", batch.input);
    variables_.bind("schedule.output_tensor.graph.input", batch.input);
    variables_.unbind("schedule.output_tensor.graph.input_grad");
    variables_.unbind(fmt::format("schedule.input_tensors[{}]", micro_batch));
  }
  if (!passes_.last()) variables_.unbind(fmt::format("schedule.output_tensors[{}]", micro_batch));
  passes_.backward_pass(step_, micro_batch);
  if (passes_.first()) return;
  variables_.bind("schedule.output_tensor.graph.input_grad", batch.input_gradient);
  variables_.bind("schedule.input_tensor_grad", batch.input_gradient);
}

void PipelineLowering::receive_into(const Action& next, std::vector<Transfer>& transfers) {
  InFlight& batch = passes_.in_flight(next.micro_batch);
  if (is_forward(next.kind)) {
    batch.input = passes_.receive_input();
    transfers.push_back({Direction::Receive, -1, batch.input});
  } else {
    batch.output_gradient = passes_.receive_output_gradient();
    transfers.push_back({Direction::Receive, +1, batch.output_gradient});
  }
}

void PipelineLowering::forget_output(std::int32_t micro_batch) {
  if (emit_.runtime.deallocates_outputs) {
    const BufferId one_element =
        emit_.alloc(size_of(emit_.train.precision), Category::Temporaries, "output.deallocated");
    variables_.bind(fmt::format("schedule.output_tensors[{}]", micro_batch), one_element);
  } else {
    variables_.bind(fmt::format("schedule.output_tensors[{}]", micro_batch), passes_.in_flight(micro_batch).output);
  }
  variables_.unbind("schedule.output_tensor");
}

void PipelineLowering::hand_over(const Action* done, const Action* next) {
  // Megatron's p2p calls: what one pass sends goes out together with what the other kind of pass waits for.
  static constexpr std::string_view send_names[] = {"send_forward", "send_backward"};
  static constexpr std::string_view receive_names[] = {"recv_forward", "recv_backward"};
  const bool sending = done != nullptr && sends(*done);
  const bool receiving = next != nullptr && receives(*next);
  const bool together = sending && receiving && is_forward(done->kind) != is_forward(next->kind);

  std::vector<Transfer> transfers;
  std::string label;
  if (sending) {
    label = send_names[is_forward(done->kind) ? 0 : 1];
    const InFlight& batch = passes_.in_flight(done->micro_batch);
    if (is_forward(done->kind))
      transfers.push_back({Direction::Send, +1, batch.output});
    else
      transfers.push_back({Direction::Send, -1, batch.input_gradient});
    if (together) label += fmt::format("_{}", receive_names[is_forward(next->kind) ? 0 : 1]);
    emit_.at(step_, done->micro_batch);
    emit_.mark(Phase::Communication, label);
    if (together) receive_into(*next, transfers);
    emit_.exchange(emit_.comms.pipeline, transfers);
    emit_.synchronize();  // p2p_communication.py: batch_p2p_sync
    if (is_forward(done->kind)) forget_output(done->micro_batch);
  }
  if (done != nullptr && !is_forward(done->kind)) passes_.retire(done->micro_batch);
  if (receiving && !together) {
    transfers.clear();
    emit_.at(step_, next->micro_batch);
    emit_.mark(Phase::Communication, receive_names[is_forward(next->kind) ? 0 : 1]);
    receive_into(*next, transfers);
    emit_.exchange(emit_.comms.pipeline, transfers);
    emit_.synchronize();  // p2p_communication.py: batch_p2p_sync
  }
  if (!receiving) return;
  const InFlight& batch = passes_.in_flight(next->micro_batch);
  if (is_forward(next->kind))
    variables_.bind("schedule.input_tensor", batch.input);
  else
    variables_.bind("schedule.output_tensor_grad", batch.output_gradient);
}

void PipelineLowering::run(std::int32_t step, const Schedule& schedule) {
  step_ = step;
  const Action* done = nullptr;
  for (const Action& next : schedule) {
    hand_over(done, &next);
    if (is_forward(next.kind))
      forward_pass(next.micro_batch);
    else
      backward_pass(next.micro_batch);
    done = &next;
  }
  hand_over(done, nullptr);
  variables_.unbind_all("schedule.");
  emit_.at(step, -1);
}

}  // namespace tidemark::parallel
