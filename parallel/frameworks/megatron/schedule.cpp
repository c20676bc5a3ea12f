#include "parallel/frameworks/megatron/schedule.hpp"

#include <string>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/module_offload.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::megatron {
namespace {

bool of_outputs(const P2pExchange& its) { return (its.send ? its.send : its.receive)->payload == Payload::Output; }

template <class List>
typename List::mapped_type popped(List& list, const Action& action) {
  auto node = list.extract({action.chunk, action.micro_batch});
  return node.empty() ? typename List::mapped_type{} : std::move(node.mapped());
}

P2pMode behavior_of(const Worker& w) {
  const P2pMode mode = traits_of(w.layout.schedule).p2p;
  return mode == P2pMode::Overlapped && w.runtime.overlaps_flush ? P2pMode::OverlappedWithFlush : mode;
}

}  // namespace

Pipeline::Pipeline(Worker& w, std::int32_t rank, OverlappedBuckets* buckets)
    : w_(w), rank_(rank), mode_(behavior_of(w)), buckets_(buckets) {
  ensure(mode_ != P2pMode::Free, "Megatron hands over in pairs or in step");
  w.process.record_sent(w.runtime.records_sent);
  for (std::size_t chunk = 0; chunk < w.chunks.size(); ++chunk)
    stages_.push_back(std::make_unique<ModelStage>(w, static_cast<std::int32_t>(chunk)));
  if (w.runtime.module_offload.any())
    module_offload_ = std::make_unique<ModuleOffload>(w.session, w.runtime.module_offload, stages_.size());
  w.module_offload = module_offload_.get();
}

Pipeline::~Pipeline() { w_.module_offload = nullptr; }

bool Pipeline::steady(const Action& action) const {
  if (!interleaved()) return false;
  return is_forward(action.kind) ? forward_.passes >= warmup_ : backward_.passes < total_ - warmup_;
}

Steps Pipeline::steps_of(std::int32_t micro_batches) {
  // What comes to a rank is read from the schedules of its neighbours.
  const std::int32_t ranks = w_.layout.pipeline;
  std::vector<Schedule> schedules(static_cast<std::size_t>(ranks));
  for (const std::int32_t rank : {(rank_ + ranks - 1) % ranks, rank_, (rank_ + 1) % ranks})
    schedules[static_cast<std::size_t>(rank)] = schedule_of(w_.layout, rank, micro_batches);
  const Schedule& own = schedules[static_cast<std::size_t>(rank_)];
  warmup_ = interleaved_warmup(rank_, ranks, micro_batches, w_.layout.chunks, w_.layout.group());
  total_ = static_cast<std::int32_t>(own.size()) / 2;
  return std::move(with_messages(schedules, w_.layout.placement(), mode_)[static_cast<std::size_t>(rank_)]);
}

// ---- passes --------------------------------------------------------------------------------------------------------

void Pipeline::wait_for_first(Direction& direction) {
  if (direction.awaited.empty()) return;
  w_.process.join(direction.awaited.front());
  direction.awaited.pop_front();
}

void Pipeline::forward_step(const Action& action) {
  gather_beside_forward();
  ModelStage& its = stage(action.chunk);
  const InFlight place{action.chunk, action.micro_batch};
  // What the first pass reads was received alone.
  if (beside(action) && !its.first() && forward_.passes > 0) wait_for_first(forward_);
  if (steady(action)) deallocate_output();
  const std::shared_ptr<AutogradInput> input = its.first() ? nullptr : v_.input_tensors.at(place);
  if (module_offload_) module_offload_->begin_forward(static_cast<std::size_t>(action.chunk));
  v_.output_tensors[place] = its.forward(step_, action.micro_batch, input);
  v_.output_tensor = {};
  if (!its.last()) whole_output_ = place;
  if (!steady(action)) v_.input_tensor = nullptr;
  if (!interleaved()) v_.graph_of_output = input;
}

void Pipeline::backward_step(const Action& action) {
  ModelStage& its = stage(action.chunk);
  if (interleaved()) {
    if (!steady(action)) deallocate_output();
    if (!its.last()) wait_for_first(backward_);
  }
  // Popped from the lists into the frame of the backward step, and without interleaving into the function's variables.
  const std::shared_ptr<AutogradInput> input = popped(v_.input_tensors, action);
  const Tensor output_gradient = popped(v_.output_tensor_grads, action);
  if (!interleaved()) v_.input_tensor = v_.graph_of_output = input;
  const Tensor output = popped(v_.output_tensors, action);
  if (!interleaved()) v_.output_tensor = output.detached();
  if (action.kind == ActionKind::InputGradient)
    w_.weight_gradients_later = &v_.weight_gradients[{action.chunk, action.micro_batch}];
  reduce_beside_backward(action);
  its.backward(step_, action.micro_batch, output, output_gradient);
  reduce_after_backward();
  w_.weight_gradients_later = nullptr;
  v_.input_tensor_grad = input ? input->gradient : Tensor{};
}

void Pipeline::weight_gradient_step(const Action& action) {
  w_.process.at(step_, action.micro_batch);
  for (const std::function<void()>& compute : popped(v_.weight_gradients, action)) compute();
}

// ---- buckets of parameters and gradients ----------------------------------------------------------------------------

namespace {

bool is_first(const Action& pass) { return pass.micro_batch == 0; }

}  // namespace

// param_sync_func: of the first two chunks parameters are asked for when the step begins, of another one by all ranks
// when the first of them, so many passes ahead, begins the chunk before it.
void Pipeline::gather_beside_forward() {
  if (buckets_ == nullptr || !buckets_->aligns_parameters()) return;
  const auto ahead = static_cast<std::size_t>(forward_.passes + rank_);
  if (ahead >= forwards_.size() || !is_first(forwards_[ahead])) return;
  const auto chunk = static_cast<std::size_t>(forwards_[ahead].chunk) + 1;
  if (chunk > 1 && chunk < stages_.size()) buckets_->gather(chunk);
}

// enable_grad_sync. Without interleaving, stages that wait for earlier ones at the end reduce all of theirs then.
void Pipeline::reduce_beside_backward(const Action& action) {
  if (buckets_ == nullptr) return;
  const bool together = buckets_->aligns_gradients() && (interleaved() || rank_ > 0);
  buckets_->reduce_as_they_come(is_last(action) && !together);
}

// grad_sync_func: when the first rank's last backward pass through a chunk is over, every rank reduces that chunk.
void Pipeline::reduce_after_backward() {
  if (buckets_ == nullptr) return;
  buckets_->reduce_as_they_come(false);
  if (!interleaved() || !buckets_->aligns_gradients() || backward_.passes < rank_) return;
  const Action& first_ranks = backwards_[static_cast<std::size_t>(backward_.passes - rank_)];
  if (is_last(first_ranks)) buckets_->reduce(static_cast<std::size_t>(first_ranks.chunk));
}

// ---- hand-overs ----------------------------------------------------------------------------------------------------

// Only the graph of an output is needed once it is sent.
void Pipeline::deallocate_output() {
  if (!whole_output_) return;
  if (w_.runtime.deallocates_outputs) stage(whole_output_->first).deallocate_output(v_.output_tensors[*whole_output_]);
  whole_output_.reset();
}

Pipeline::Received Pipeline::expect(const Message& message) {
  ModelStage& its = stage(message.to.chunk);
  const InFlight place{message.to.chunk, message.micro_batch};
  if (message.payload == Payload::Output) return {v_.input_tensors[place] = its.receive_input(), {}};
  return {nullptr, v_.output_tensor_grads[place] = its.receive_output_gradient()};
}

std::vector<Transfer> Pipeline::sends(const P2pExchange& its) const {
  std::vector<Transfer> transfers;
  if (!its.send) return transfers;
  if (its.send->payload == Payload::Output)
    transfers.push_back(
        {sim::Direction::Send, +1, v_.output_tensors.at({its.send->from.chunk, its.send->micro_batch}).buffer()});
  else
    transfers.push_back({sim::Direction::Send, -1, v_.input_tensor_grad.buffer()});
  return transfers;
}

namespace {

Transfer receive(const Message& message, const Tensor& into) {
  return {sim::Direction::Receive, message.payload == Payload::Output ? -1 : +1, into.buffer()};
}

}  // namespace

// Megatron's p2p calls, by name. What comes before any pass of its direction is received alone.
void Pipeline::mark(const P2pExchange& its) {
  static constexpr std::string_view send_names[] = {"send_backward", "send_forward"};
  static constexpr std::string_view receive_names[] = {"recv_backward", "recv_forward"};
  const bool first = !its.send && (of_outputs(its) ? forward_ : backward_).passes == 0;
  if (first || (!interleaved() && !its.send)) {
    if (!its.beside) w_.process.at(step_, its.receive->micro_batch);
    w_.process.mark(Phase::Communication, receive_names[of_outputs(its) ? 1 : 0]);
    return;
  }
  std::string label(send_names[of_outputs(its) ? 1 : 0]);
  if (interleaved())
    label += fmt::format("_{}", receive_names[of_outputs(its) ? 1 : 0]);
  else if (its.receive)
    label += fmt::format("_{}", receive_names[of_outputs(its) ? 0 : 1]);
  w_.process.mark(Phase::Communication, label);
}

void Pipeline::p2p(const P2pExchange& its) {
  // Room is made by the caller of a p2p call with interleaving, else by the call; the first mark of a step's passes
  // tells what follows apart from the step before.
  const bool marked = !interleaved() || (!its.send && of_outputs(its) && forward_.passes == 0);
  if (marked) mark(its);
  std::vector<Transfer> transfers = sends(its);
  Received received;
  if (its.receive) {
    received = expect(*its.receive);
    transfers.push_back(receive(*its.receive, received.tensor()));
  }
  if (!marked) mark(its);
  w_.process.exchange(w_.comms.pipeline, transfers);
  if (!interleaved()) w_.process.synchronize();  // p2p_communication.py: batch_p2p_sync
  if (its.send && of_outputs(its)) deallocate_output();
  if (received.input) v_.input_tensor = std::move(received.input);
  const bool first_gradient = interleaved() && backward_.passes == 0;  // which no variable but the list refers to
  if (received.gradient.defined() && !first_gradient) v_.output_tensor_grad = std::move(received.gradient);
}

void Pipeline::receive_first_gradient(const P2pExchange& its) {
  Tensor& last = backward_.recv_buffers.back();
  last = expect(*its.receive).gradient;
  mark(its);
  const Transfer transfer = receive(*its.receive, last);
  backward_.awaited.push_back(w_.process.exchange_aside(w_.comms.pipeline, backward_.stream, std::span(&transfer, 1)));
}

void Pipeline::receive_ahead(Direction& direction, const P2pExchange& its) {
  Tensor& slot = direction.recv_buffers.front();
  slot = expect(*its.receive).tensor().detached();
  w_.process.mark(Phase::Communication, of_outputs(its) ? "send_forward_recv_forward" : "send_backward_recv_backward");
  const Transfer transfer = receive(*its.receive, slot);
  direction.awaited.push_back(w_.process.exchange_aside(w_.comms.pipeline, direction.ahead, std::span(&transfer, 1)));
}

void Pipeline::wait_for_sent(Direction& direction) { w_.process.join(std::exchange(direction.sent, {})); }

void Pipeline::overlapped_p2p(Direction& direction, const P2pExchange& its, std::string_view label) {
  const std::size_t slots = direction.recv_buffers.size(), pass = static_cast<std::size_t>(direction.passes) - 1;
  Tensor& slot = direction.recv_buffers[pass % slots];
  slot = {};
  std::vector<Transfer> transfers = sends(its);
  if (its.receive) {
    slot = expect(*its.receive).tensor().detached();
    transfers.push_back(receive(*its.receive, slot));
  }
  EventId event;
  if (!transfers.empty()) {
    w_.process.mark(Phase::Communication, label);
    event = w_.process.exchange_aside(w_.comms.pipeline, direction.stream, transfers);
  }
  wait_for_sent(direction);
  if (its.send) {
    direction.sent = event;
    if (of_outputs(its) && w_.runtime.waits_before_deallocating) wait_for_sent(direction);
  }
  if (!its.receive) return;
  direction.awaited.push_back(event);
  direction.recv_buffers[(pass + 1) % slots] = {};
}

void Pipeline::run(std::int32_t step, std::int32_t micro_batches) { run(step, steps_of(micro_batches)); }

void Pipeline::run(std::int32_t step, const Steps& steps) {
  step_ = step;
  // Lists of receive buffers; the rank that leads a direction has more, when groups are larger than the pipeline.
  const auto slots = static_cast<std::size_t>(w_.layout.group() - w_.layout.pipeline + 1);
  forward_ = {
      .stream = StreamId{2}, .ahead = StreamId{10}, .recv_buffers = std::vector<Tensor>(rank_ == 0 ? slots : 1)};
  backward_ = {.stream = StreamId{3},
               .ahead = StreamId{11},
               .recv_buffers = std::vector<Tensor>(rank_ == w_.layout.pipeline - 1 ? slots : 1)};
  const auto p2p_after = [&](std::size_t i) {
    return i + 1 < steps.size() ? std::get_if<P2pExchange>(&steps[i + 1]) : nullptr;
  };
  forwards_.clear();
  backwards_.clear();
  for (const auto& its : steps)
    if (const auto* action = std::get_if<Action>(&its))
      if (action->kind != ActionKind::WeightGradient)
        (is_forward(action->kind) ? forwards_ : backwards_).push_back(*action);
  if (buckets_ != nullptr && buckets_->aligns_parameters()) {
    w_.process.at(step, 0);
    for (const std::size_t chunk : {std::size_t{0}, std::size_t{1}}) buckets_->gather(chunk);
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (const auto* its = std::get_if<P2pExchange>(&steps[i])) {
      if (its->ahead)
        receive_ahead(of_outputs(*its) ? forward_ : backward_, *its);
      else if (its->beside)
        receive_first_gradient(*its);
      else
        p2p(*its);
      continue;
    }
    const Action& action = std::get<Action>(steps[i]);
    const bool forward = is_forward(action.kind), beside = this->beside(action), steady_pass = steady(action);
    switch (action.kind) {
      case ActionKind::Forward:
        forward_step(action);
        break;
      case ActionKind::InputGradient:
      case ActionKind::Backward:
        backward_step(action);
        break;
      case ActionKind::WeightGradient:
        weight_gradient_step(action);
        continue;
    }
    ++direction_of(action).passes;
    const P2pExchange* const next = p2p_after(i);
    if (beside) {
      const bool with_pass = next != nullptr && next->beside && !next->ahead && of_outputs(*next) == forward;
      overlapped_p2p(direction_of(action), with_pass ? *next : P2pExchange{},
                     forward ? "send_forward_recv_forward" : "send_backward_recv_backward");
      i += with_pass ? 1 : 0;
      if (forward && !steady_pass) deallocate_output();
    } else if (interleaved() && !forward && (next == nullptr || !next->receive)) {
      v_.output_tensor_grad = {};
    }
  }
  deallocate_output();
  for (Direction* direction : {&backward_, &forward_}) wait_for_sent(*direction);
  if (buckets_ != nullptr) buckets_->finish();
  w_.process.at(step, -1);
  stages_.back()->finish_head_gradient();
  if (module_offload_) module_offload_->end_step();
  v_ = {};
  w_.losses.tokens = {};
  w_.losses.of_passes.clear();
  forward_.recv_buffers.clear();
  backward_.recv_buffers.clear();
}

}  // namespace tidemark::parallel::megatron
