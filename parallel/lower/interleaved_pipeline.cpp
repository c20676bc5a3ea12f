#include "parallel/lower/interleaved_pipeline.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tidemark::parallel {
namespace {

constexpr StreamId forward_stream{2}, backward_stream{3};

std::string slot(std::string_view list, std::int32_t chunk, std::int32_t micro_batch) {
  return fmt::format("schedule.{}[{}][{}]", list, chunk, micro_batch);
}

}  // namespace

InterleavedPipeline::InterleavedPipeline(Emitter& emit, std::int32_t pipeline)
    : emit_(emit), variables_(emit), pipeline_(pipeline) {
  chunks_.reserve(emit.chunks.size());
  for (std::int32_t c = 0; c < emit.layout.chunks; ++c) chunks_.emplace_back(emit, variables_, c);
}

std::int32_t InterleavedPipeline::chunk_of(std::int32_t k, ActionKind kind) const {
  const std::int32_t c = table(k % total_).chunk;
  return is_forward(kind) ? c : emit_.layout.chunks - 1 - c;
}

// The leading rank of a direction is ahead of the ending one, which sends to it, by the number of stages less one.
InterleavedPipeline::Arrival InterleavedPipeline::arrival(std::int32_t k, ActionKind kind, bool leads) const {
  const std::int32_t last = is_forward(kind) ? emit_.layout.chunks - 1 : 0;
  const std::int32_t on = is_forward(kind) ? 1 : -1;
  if (!leads) return {true, chunk_of(k + 1, kind)};
  const std::int32_t ahead = emit_.layout.pipeline - 1;
  const std::int32_t from = k < ahead ? chunk_of(k + 1, kind) : chunk_of(k - ahead, kind);
  return {k >= ahead && from != last, from + on};
}
InterleavedPipeline::Arrival InterleavedPipeline::next_input(std::int32_t k) const {
  return arrival(k, ActionKind::Forward, first_rank());
}
InterleavedPipeline::Arrival InterleavedPipeline::next_output_gradient(std::int32_t k) const {
  return arrival(k, ActionKind::Backward, last_rank());
}

BufferId InterleavedPipeline::expect_input(const Arrival& arrival) {
  const std::int32_t micro_batch = inputs_[static_cast<std::size_t>(arrival.chunk)]++;
  const BufferId buffer = chunk(arrival.chunk).receive_input();
  chunk(arrival.chunk).in_flight(micro_batch).input = buffer;
  variables_.bind(slot("input_tensors", arrival.chunk, micro_batch), buffer);
  return buffer;
}

BufferId InterleavedPipeline::expect_output_gradient(const Arrival& arrival) {
  const std::int32_t micro_batch = gradients_[static_cast<std::size_t>(arrival.chunk)]++;
  const BufferId buffer = chunk(arrival.chunk).receive_output_gradient();
  chunk(arrival.chunk).in_flight(micro_batch).output_gradient = buffer;
  variables_.bind(slot("output_tensor_grads", arrival.chunk, micro_batch), buffer);
  return buffer;
}

void InterleavedPipeline::exchange(std::string_view label, const std::vector<Transfer>& transfers) {
  if (transfers.empty()) return;
  emit_.mark(Phase::Communication, label);
  emit_.exchange(emit_.comms.pipeline, transfers);
}

std::optional<EventId> InterleavedPipeline::exchange_aside(std::string_view label, StreamId stream,
                                                           const std::vector<Transfer>& transfers) {
  if (transfers.empty()) return std::nullopt;
  emit_.mark(Phase::Communication, label);
  return emit_.exchange_aside(emit_.comms.pipeline, stream, transfers);
}

void InterleavedPipeline::forward(std::int32_t k) {
  const Action& its = table(k);
  chunk(its.chunk).forward_pass(step_, its.micro_batch);
  output_ = {};
  if (chunk(its.chunk).last()) return;
  output_ = chunk(its.chunk).in_flight(its.micro_batch).output;
  output_of_ = its;
  variables_.bind(slot("output_tensors", its.chunk, its.micro_batch), output_);
}

// Only the autograd graph of an output is needed once it is sent: its data becomes one element.
void InterleavedPipeline::deallocate_output() {
  if (!output_of_) return;
  const Action its = *std::exchange(output_of_, std::nullopt);
  if (!emit_.runtime.deallocates_outputs) return;
  variables_.bind(slot("output_tensors", its.chunk, its.micro_batch),
                  emit_.alloc(size_of(emit_.train.precision), Category::Temporaries, "output.deallocated"));
}

void InterleavedPipeline::backward(std::int32_t k) {
  const std::int32_t c = chunk_of(k, ActionKind::Backward), micro_batch = table(k).micro_batch;
  ChunkPasses& passes = chunk(c);
  const InFlight& batch = passes.in_flight(micro_batch);
  emit_.at(step_, micro_batch);
  // Popped from the lists into the frame of the backward step.
  if (!passes.first()) variables_.bind("backward.input_tensor", batch.input);
  if (!passes.last()) variables_.bind("backward.output_tensor_grad", batch.output_gradient);
  variables_.unbind(slot("input_tensors", c, micro_batch));
  variables_.unbind(slot("output_tensors", c, micro_batch));
  variables_.unbind(slot("output_tensor_grads", c, micro_batch));
  passes.backward_pass(step_, micro_batch);
  input_gradient_ = passes.first() ? BufferId{} : batch.input_gradient;
  variables_.unbind_all("backward.");
  if (input_gradient_.valid())
    variables_.bind("schedule.input_tensor_grad", input_gradient_);
  else
    variables_.unbind("schedule.input_tensor_grad");
  // A tensor keeps its gradient: `input_tensor` may still be the one that came last in the warm-up.
  if (input_gradient_.valid() && warmup_input_ == batch.input)
    variables_.bind("schedule.input_tensor.grad", input_gradient_);
  passes.retire(micro_batch);
}

void InterleavedPipeline::warm_up() {
  const auto keep_input = [&](BufferId buffer) {
    warmup_input_ = buffer;
    variables_.unbind("schedule.input_tensor.grad");
    if (buffer.valid())
      variables_.bind("schedule.input_tensor", buffer);
    else
      variables_.unbind("schedule.input_tensor");
  };
  warmup_input_ = {};
  if (!first_rank()) {
    emit_.at(step_, 0);
    emit_.mark(Phase::Communication, "recv_forward");  // the first of this step's passes: what follows is theirs
    const BufferId input = expect_input({true, 0});
    exchange("recv_forward", {{Direction::Receive, -1, input}});
  }
  for (std::int32_t k = 0; k < warmup_; ++k) {
    Arrival arrival = next_input(k);
    if (k == total_ - 1) arrival.comes = false;
    forward(k);
    std::vector<Transfer> transfers;
    if (output_.valid()) transfers.push_back({Direction::Send, +1, output_});
    BufferId input;
    if (arrival.comes) transfers.push_back({Direction::Receive, -1, input = expect_input(arrival)});
    exchange("send_forward_recv_forward", transfers);
    keep_input(input);
    deallocate_output();
    if (k != warmup_ - 1 || warmup_ == total_ || last_rank()) continue;
    const BufferId gradient = expect_output_gradient({true, emit_.layout.chunks - 1});
    // The last slot of the list of receive buffers.
    variables_.bind(fmt::format("schedule.bwd_recv_buffer[{}]", gradient_slots() - 1), gradient);
    if (const auto event = exchange_aside("recv_backward", backward_stream, {{Direction::Receive, +1, gradient}}))
      awaited_gradients_.push_back(*event);
  }
}

void InterleavedPipeline::steady() {
  for (std::int32_t k = 0; k + warmup_ < total_; ++k) {
    const std::int32_t forward_k = k + warmup_;
    emit_.at(step_, table(forward_k).micro_batch);
    if (!chunk(table(forward_k).chunk).first() && !awaited_inputs_.empty()) {
      emit_.join(awaited_inputs_.front());
      awaited_inputs_.pop_front();
    }
    deallocate_output();
    forward(forward_k);

    Arrival input = next_input(forward_k);
    if (forward_k == total_ - 1) input.comes = false;
    std::vector<Transfer> transfers;
    if (output_.valid()) transfers.push_back({Direction::Send, +1, output_});
    const std::string input_slot = fmt::format("schedule.fwd_recv_buffer[{}]", forward_k % input_slots());
    variables_.unbind(input_slot);
    if (input.comes) {
      const BufferId buffer = expect_input(input);
      transfers.push_back({Direction::Receive, -1, buffer});
      variables_.bind(input_slot, buffer);
    }
    const std::optional<EventId> forward_event = exchange_aside("send_forward_recv_forward", forward_stream, transfers);
    if (sent_output_) emit_.join(*sent_output_);
    sent_output_ = output_.valid() ? forward_event : std::nullopt;
    if (input.comes) {
      awaited_inputs_.push_back(*forward_event);
      variables_.unbind(fmt::format("schedule.fwd_recv_buffer[{}]", (forward_k + 1) % input_slots()));
    }

    emit_.at(step_, table(k).micro_batch);
    if (!chunk(chunk_of(k, ActionKind::Backward)).last() && !awaited_gradients_.empty()) {
      emit_.join(awaited_gradients_.front());
      awaited_gradients_.pop_front();
    }
    backward(k);
    const Arrival gradient = next_output_gradient(k);
    transfers.clear();
    if (input_gradient_.valid()) transfers.push_back({Direction::Send, -1, input_gradient_});
    const std::string gradient_slot = fmt::format("schedule.bwd_recv_buffer[{}]", k % gradient_slots());
    variables_.unbind(gradient_slot);
    if (gradient.comes) {
      const BufferId buffer = expect_output_gradient(gradient);
      transfers.push_back({Direction::Receive, +1, buffer});
      variables_.bind(gradient_slot, buffer);
    }
    const std::optional<EventId> backward_event =
        exchange_aside("send_backward_recv_backward", backward_stream, transfers);
    if (sent_gradient_) emit_.join(*sent_gradient_);
    sent_gradient_ = input_gradient_.valid() ? backward_event : std::nullopt;
    if (gradient.comes) {
      awaited_gradients_.push_back(*backward_event);
      variables_.unbind(fmt::format("schedule.bwd_recv_buffer[{}]", (k + 1) % gradient_slots()));
    }
  }
  deallocate_output();
}

void InterleavedPipeline::cool_down() {
  if (warmup_ == total_ && !last_rank()) {
    emit_.at(step_, 0);
    const BufferId gradient = expect_output_gradient({true, emit_.layout.chunks - 1});
    exchange("recv_backward", {{Direction::Receive, +1, gradient}});
  }
  for (std::int32_t k = total_ - warmup_; k < total_; ++k) {
    emit_.at(step_, table(k).micro_batch);
    if (!chunk(chunk_of(k, ActionKind::Backward)).last() && !awaited_gradients_.empty()) {
      emit_.join(awaited_gradients_.front());
      awaited_gradients_.pop_front();
    }
    Arrival gradient = next_output_gradient(k);
    if (k == total_ - 1) gradient.comes = false;
    backward(k);
    std::vector<Transfer> transfers;
    if (input_gradient_.valid()) transfers.push_back({Direction::Send, -1, input_gradient_});
    if (gradient.comes) {
      const BufferId buffer = expect_output_gradient(gradient);
      transfers.push_back({Direction::Receive, +1, buffer});
      variables_.bind("schedule.output_tensor_grad", buffer);
    } else {
      variables_.unbind("schedule.output_tensor_grad");
    }
    exchange("send_backward_recv_backward", transfers);
  }
  if (sent_gradient_) emit_.join(*std::exchange(sent_gradient_, std::nullopt));
  if (sent_output_) emit_.join(*std::exchange(sent_output_, std::nullopt));
}

void InterleavedPipeline::run(std::int32_t step, std::int32_t micro_batches) {
  const Layout& layout = emit_.layout;
  step_ = step;
  total_ = micro_batches * layout.chunks;
  warmup_ = interleaved_warmup(pipeline_, layout.pipeline, micro_batches, layout.chunks, layout.group());
  table_.clear();
  for (const Action& action : interleaved(pipeline_, layout.pipeline, micro_batches, layout.chunks, layout.group()))
    if (is_forward(action.kind)) table_.push_back(action);
  inputs_.assign(chunks_.size(), 0);
  gradients_.assign(chunks_.size(), 0);
  warm_up();
  steady();
  cool_down();
  variables_.unbind_all("schedule.");
  emit_.at(step, -1);
}

}  // namespace tidemark::parallel
