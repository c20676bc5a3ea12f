#include "parallel/frameworks/megatron/interleaved.hpp"

#include <algorithm>

namespace tidemark::parallel::megatron {
namespace {

constexpr StreamId forward_stream{2}, backward_stream{3};

template <class List>
typename List::mapped_type popped(List& list, std::int32_t chunk, std::int32_t micro_batch) {
  auto node = list.extract({chunk, micro_batch});
  return node.empty() ? typename List::mapped_type{} : std::move(node.mapped());
}

}  // namespace

InterleavedPipeline::InterleavedPipeline(Worker& worker, std::int32_t pipeline) : w_(worker), pipeline_(pipeline) {
  for (std::int32_t c = 0; c < w_.layout.chunks; ++c) chunks_.push_back(std::make_unique<ModelStage>(w_, c));
}

std::int32_t InterleavedPipeline::chunk_of(std::int32_t k, ActionKind kind) const {
  const std::int32_t c = table(k % total_).chunk;
  return is_forward(kind) ? c : w_.layout.chunks - 1 - c;
}

// The leading rank of a direction is ahead of the ending one, which sends to it, by the number of stages less one.
InterleavedPipeline::Arrival InterleavedPipeline::arrival(std::int32_t k, ActionKind kind, bool leads) const {
  const std::int32_t last = is_forward(kind) ? w_.layout.chunks - 1 : 0;
  const std::int32_t on = is_forward(kind) ? 1 : -1;
  if (!leads) return {true, chunk_of(k + 1, kind)};
  const std::int32_t ahead = w_.layout.pipeline - 1;
  const std::int32_t from = k < ahead ? chunk_of(k + 1, kind) : chunk_of(k - ahead, kind);
  return {k >= ahead && from != last, from + on};
}
InterleavedPipeline::Arrival InterleavedPipeline::next_input(std::int32_t k) const {
  return arrival(k, ActionKind::Forward, first_rank());
}
InterleavedPipeline::Arrival InterleavedPipeline::next_output_gradient(std::int32_t k) const {
  return arrival(k, ActionKind::Backward, last_rank());
}

std::shared_ptr<GraphInput> InterleavedPipeline::expect_input(const Arrival& arrival) {
  const std::int32_t micro_batch = inputs_[static_cast<std::size_t>(arrival.chunk)]++;
  return v_.input_tensors[{arrival.chunk, micro_batch}] = chunk(arrival.chunk).receive_input();
}

Tensor InterleavedPipeline::expect_output_gradient(const Arrival& arrival) {
  const std::int32_t micro_batch = gradients_[static_cast<std::size_t>(arrival.chunk)]++;
  return v_.output_tensor_grads[{arrival.chunk, micro_batch}] = chunk(arrival.chunk).receive_output_gradient();
}

void InterleavedPipeline::exchange(std::string_view label, const std::vector<Transfer>& transfers) {
  if (transfers.empty()) return;
  w_.process.mark(Phase::Communication, label);
  w_.process.exchange(w_.comms.pipeline, transfers);
}

EventId InterleavedPipeline::exchange_aside(std::string_view label, StreamId stream,
                                            const std::vector<Transfer>& transfers) {
  if (transfers.empty()) return {};
  w_.process.mark(Phase::Communication, label);
  return w_.process.exchange_aside(w_.comms.pipeline, stream, transfers);
}

void InterleavedPipeline::join_first(std::deque<EventId>& awaited) {
  if (awaited.empty()) return;
  w_.process.join(awaited.front());
  awaited.pop_front();
}

void InterleavedPipeline::forward_step(std::int32_t k) {
  const Action& its = table(k);
  ModelStage& stage = chunk(its.chunk);
  const auto input = v_.input_tensors.find({its.chunk, its.micro_batch});
  Tensor output = stage.forward(step_, its.micro_batch, stage.first() ? nullptr : input->second);
  output_ = {};
  if (!stage.last()) {
    output_ = output.buffer();
    output_of_ = its;
  }
  v_.output_tensors[{its.chunk, its.micro_batch}] = std::move(output);
}

void InterleavedPipeline::deallocate_output() {
  if (!output_of_) return;
  const Action its = *std::exchange(output_of_, std::nullopt);
  if (w_.runtime.deallocates_outputs)
    chunk(its.chunk).deallocate_output(v_.output_tensors[{its.chunk, its.micro_batch}]);
}

void InterleavedPipeline::backward_step(std::int32_t k) {
  const std::int32_t c = chunk_of(k, ActionKind::Backward), micro_batch = table(k).micro_batch;
  ModelStage& stage = chunk(c);
  w_.process.at(step_, micro_batch);
  {  // popped from the lists into the frame of the backward step
    const std::shared_ptr<GraphInput> input = popped(v_.input_tensors, c, micro_batch);
    Tensor output = popped(v_.output_tensors, c, micro_batch);
    output.storage = {};
    const Tensor output_gradient = popped(v_.output_tensor_grads, c, micro_batch);
    stage.backward(step_, micro_batch, output, output_gradient);
    v_.input_tensor_grad = input ? input->gradient : Tensor{};
  }
  input_gradient_ = v_.input_tensor_grad.defined() ? v_.input_tensor_grad.buffer() : BufferId{};
}

void InterleavedPipeline::warm_up() {
  if (!first_rank()) {
    w_.process.at(step_, 0);
    w_.process.mark(Phase::Communication, "recv_forward");  // the first of this step's passes: what follows is theirs
    const auto input = expect_input({true, 0});
    exchange("recv_forward", {{Direction::Receive, -1, input->value.buffer()}});
  }
  for (std::int32_t k = 0; k < warmup_; ++k) {
    Arrival arrival = next_input(k);
    if (k == total_ - 1) arrival.comes = false;
    forward_step(k);
    std::vector<Transfer> transfers;
    if (output_.valid()) transfers.push_back({Direction::Send, +1, output_});
    std::shared_ptr<GraphInput> input;
    if (arrival.comes) {
      input = expect_input(arrival);
      transfers.push_back({Direction::Receive, -1, input->value.buffer()});
    }
    exchange("send_forward_recv_forward", transfers);
    v_.input_tensor = std::move(input);
    deallocate_output();
    if (k != warmup_ - 1 || warmup_ == total_ || last_rank()) continue;
    // Into the last slot of the list of receive buffers.
    Tensor& gradient = v_.bwd_recv_buffer[static_cast<std::size_t>(gradient_slots()) - 1];
    gradient = expect_output_gradient({true, w_.layout.chunks - 1});
    awaited_gradients_.push_back(
        exchange_aside("recv_backward", backward_stream, {{Direction::Receive, +1, gradient.buffer()}}));
  }
}

void InterleavedPipeline::steady() {
  const auto slot = [](std::vector<Tensor>& buffers, std::int32_t k) -> Tensor& {
    return buffers[static_cast<std::size_t>(k) % buffers.size()];
  };
  for (std::int32_t k = 0; k + warmup_ < total_; ++k) {
    const std::int32_t forward_k = k + warmup_;
    w_.process.at(step_, table(forward_k).micro_batch);
    if (!chunk(table(forward_k).chunk).first()) join_first(awaited_inputs_);
    deallocate_output();
    forward_step(forward_k);

    Arrival input = next_input(forward_k);
    if (forward_k == total_ - 1) input.comes = false;
    std::vector<Transfer> transfers;
    if (output_.valid()) transfers.push_back({Direction::Send, +1, output_});
    Tensor& received = slot(v_.fwd_recv_buffer, forward_k);
    received = {};
    if (input.comes) {
      received = expect_input(input)->value.detached();
      transfers.push_back({Direction::Receive, -1, received.buffer()});
    }
    const EventId forward_event = exchange_aside("send_forward_recv_forward", forward_stream, transfers);
    w_.process.join(sent_output_);
    sent_output_ = output_.valid() ? forward_event : EventId{};
    if (input.comes) {
      awaited_inputs_.push_back(forward_event);
      slot(v_.fwd_recv_buffer, forward_k + 1) = {};
    }

    w_.process.at(step_, table(k).micro_batch);
    if (!chunk(chunk_of(k, ActionKind::Backward)).last()) join_first(awaited_gradients_);
    backward_step(k);
    const Arrival gradient = next_output_gradient(k);
    transfers.clear();
    if (input_gradient_.valid()) transfers.push_back({Direction::Send, -1, input_gradient_});
    Tensor& received_gradient = slot(v_.bwd_recv_buffer, k);
    received_gradient = {};
    if (gradient.comes) {
      received_gradient = expect_output_gradient(gradient);
      transfers.push_back({Direction::Receive, +1, received_gradient.buffer()});
    }
    const EventId backward_event = exchange_aside("send_backward_recv_backward", backward_stream, transfers);
    w_.process.join(sent_gradient_);
    sent_gradient_ = input_gradient_.valid() ? backward_event : EventId{};
    if (gradient.comes) {
      awaited_gradients_.push_back(backward_event);
      slot(v_.bwd_recv_buffer, k + 1) = {};
    }
  }
  deallocate_output();
}

void InterleavedPipeline::cool_down() {
  if (warmup_ == total_ && !last_rank()) {
    w_.process.at(step_, 0);
    const Tensor gradient = expect_output_gradient({true, w_.layout.chunks - 1});
    exchange("recv_backward", {{Direction::Receive, +1, gradient.buffer()}});
  }
  for (std::int32_t k = total_ - warmup_; k < total_; ++k) {
    w_.process.at(step_, table(k).micro_batch);
    if (!chunk(chunk_of(k, ActionKind::Backward)).last()) join_first(awaited_gradients_);
    Arrival gradient = next_output_gradient(k);
    if (k == total_ - 1) gradient.comes = false;
    backward_step(k);
    std::vector<Transfer> transfers;
    if (input_gradient_.valid()) transfers.push_back({Direction::Send, -1, input_gradient_});
    v_.output_tensor_grad = gradient.comes ? expect_output_gradient(gradient) : Tensor{};
    if (gradient.comes) transfers.push_back({Direction::Receive, +1, v_.output_tensor_grad.buffer()});
    exchange("send_backward_recv_backward", transfers);
  }
  w_.process.join(std::exchange(sent_gradient_, {}));
  w_.process.join(std::exchange(sent_output_, {}));
}

void InterleavedPipeline::run(std::int32_t step, std::int32_t micro_batches) {
  const Layout& layout = w_.layout;
  step_ = step;
  total_ = micro_batches * layout.chunks;
  warmup_ = interleaved_warmup(pipeline_, layout.pipeline, micro_batches, layout.chunks, layout.group());
  table_.clear();
  for (const Action& pass : interleaved(pipeline_, layout.pipeline, micro_batches, layout.chunks, layout.group()))
    if (is_forward(pass.kind)) table_.push_back(pass);
  inputs_.assign(chunks_.size(), 0);
  gradients_.assign(chunks_.size(), 0);
  v_.fwd_recv_buffer.resize(static_cast<std::size_t>(input_slots()));
  v_.bwd_recv_buffer.resize(static_cast<std::size_t>(gradient_slots()));
  warm_up();
  steady();
  cool_down();
  v_ = {};
  w_.process.at(step, -1);
}

}  // namespace tidemark::parallel::megatron
