#include "parallel/frameworks/megatron/schedule.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>

namespace tidemark::parallel::megatron {

void Pipeline::forward_step(std::int32_t micro_batch) {
  Tensor output = stage_.forward(step_, micro_batch, v_.input_tensor);
  if (!stage_.first()) {
    v_.graph_of_output = v_.input_tensor;
    v_.input_tensors[micro_batch] = std::exchange(v_.input_tensor, nullptr);
  }
  if (stage_.last())
    v_.output_tensors[micro_batch] = std::move(output);
  else
    v_.output_tensor = std::move(output);
}

void Pipeline::backward_step(std::int32_t micro_batch) {
  if (!stage_.first()) {  // popped from the lists
    v_.input_tensor = std::move(v_.input_tensors.extract(micro_batch).mapped());
    v_.graph_of_output = v_.input_tensor;
  }
  Tensor output = std::move(v_.output_tensors.extract(micro_batch).mapped());
  output.storage = {};
  stage_.backward(step_, micro_batch, output, v_.output_tensor_grad);
  if (!stage_.first()) v_.input_tensor_grad = v_.input_tensor->gradient;
}

// Megatron's p2p calls: what one pass sends goes out together with what the other kind of pass waits for.
void Pipeline::hand_over(const Action* done, const Action* next) {
  static constexpr std::string_view send_names[] = {"send_forward", "send_backward"};
  static constexpr std::string_view receive_names[] = {"recv_forward", "recv_backward"};
  const bool sending = done != nullptr && sends(*done);
  const bool receiving = next != nullptr && receives(*next);
  const bool together = sending && receiving && is_forward(done->kind) != is_forward(next->kind);

  std::vector<Transfer> transfers;
  std::shared_ptr<GraphInput> input;
  Tensor output_gradient;
  const auto receive = [&] {
    if (is_forward(next->kind)) {
      input = stage_.receive_input();
      transfers.push_back({Direction::Receive, -1, input->value.buffer()});
    } else {
      output_gradient = stage_.receive_output_gradient();
      transfers.push_back({Direction::Receive, +1, output_gradient.buffer()});
    }
  };
  const auto exchange = [&] {
    w_.process.exchange(w_.comms.pipeline, transfers);
    w_.process.synchronize();  // p2p_communication.py: batch_p2p_sync
    transfers.clear();
  };
  if (sending) {
    std::string label(send_names[is_forward(done->kind) ? 0 : 1]);
    if (is_forward(done->kind))
      transfers.push_back({Direction::Send, +1, v_.output_tensor.buffer()});
    else
      transfers.push_back({Direction::Send, -1, v_.input_tensor_grad.buffer()});
    if (together) label += fmt::format("_{}", receive_names[is_forward(next->kind) ? 0 : 1]);
    w_.process.at(step_, done->micro_batch);
    w_.process.mark(Phase::Communication, label);
    if (together) receive();
    exchange();
    if (is_forward(done->kind)) {
      Tensor output = v_.output_tensor;
      if (w_.runtime.deallocates_outputs) stage_.deallocate_output(output);
      v_.output_tensor = {};
      v_.output_tensors[done->micro_batch] = std::move(output);
    }
  }
  if (receiving && !together) {
    w_.process.at(step_, next->micro_batch);
    w_.process.mark(Phase::Communication, receive_names[is_forward(next->kind) ? 0 : 1]);
    receive();
    exchange();
  }
  if (input) v_.input_tensor = std::move(input);
  if (output_gradient.defined()) v_.output_tensor_grad = std::move(output_gradient);
}

void Pipeline::run(std::int32_t step, const Schedule& schedule) {
  step_ = step;
  const Action* done = nullptr;
  for (const Action& next : schedule) {
    hand_over(done, &next);
    if (is_forward(next.kind))
      forward_step(next.micro_batch);
    else
      backward_step(next.micro_batch);
    done = &next;
  }
  hand_over(done, nullptr);
  v_ = {};
  w_.process.at(step, -1);
}

}  // namespace tidemark::parallel::megatron
