#include "parallel/frameworks/pytorch/pipeline/pipeline_schedule.hpp"

#include <ranges>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "parallel/torch/operation.hpp"

namespace tidemark::parallel::pytorch {
namespace {

Transfer sends(const Tensor& tensor, std::int32_t step) { return {sim::Direction::Send, step, tensor.buffer()}; }

Transfer receives(const Tensor& buffer, std::int32_t step) { return {sim::Direction::Receive, step, buffer.buffer()}; }

std::string_view name_of(const P2pExchange& its) {
  const bool forward = (its.send ? its.send : its.receive)->payload == Payload::Output;
  if (!its.receive) return forward ? "send_forward" : "send_backward";
  if (!its.send) return forward ? "receive_forward" : "receive_backward";
  return forward ? "send_forward_receive_backward" : "send_backward_receive_forward";
}

}  // namespace

// NCCL's kernels run on a stream of the communicator, after what the compute stream has been given.
EventId PipelineSchedule::exchange(std::span<const Transfer> transfers, StreamId stream) {
  s_.process.wait(stream, s_.process.record(Process::compute_stream));
  s_.process.exchange(pipeline_, transfers, stream);
  return s_.process.record(stream);
}

// _initialize_pp_stages
void PipelineSchedule::prepare(std::int32_t micro_batches) {
  at(-1);
  const Session::UnderOneMark probe(s_, Phase::Forward, "probe");
  for (const auto& its : stages_) its->prepare_forward(micro_batches);
  for (const auto& its : std::views::reverse(stages_)) its->prepare_backward(micro_batches);
  for (const auto& its : stages_) its->clean_up_probe();
}

PipelineStage::Losses PipelineSchedule::step(std::int32_t step, std::int32_t micro_batches) {
  step_ = step;
  for (const auto& its : stages_) its->clear_runtime_states();
  if (!std::exchange(prepared_, true)) prepare(micro_batches);
  layout_.chunks == 1 ? run_single(micro_batches) : run_several(micro_batches);
  stages_.back()->merge_outputs();
  return stages_.back()->take_losses();
}

// ---- one stage on each rank ----------------------------------------------------------------------------------------

// Variables of Schedule1F1B._step_microbatches and ScheduleGPipe's.
struct PipelineSchedule::Variables {
  Tensor received_input, received_gradient, sent_gradient;
  std::vector<PendingSend> outputs, gradients;  ///< on their way
};

void PipelineSchedule::wait(std::vector<PendingSend>& sends) {
  for (PendingSend& its : sends) {
    s_.process.join(its.sent);
    its.tensor = {};
    if (its.micro_batch >= 0) stage(0).release_sent_output(its.micro_batch);
  }
  sends.clear();
}

void PipelineSchedule::pass(const Action& action, Variables& v) {
  PipelineStage& its = stage(0);
  const bool at_once = layout_.schedule == ScheduleKind::OneFOneB;  // what was sent last is waited for
  at(action.micro_batch);
  if (is_forward(action.kind)) {
    its.forward_one_chunk(action.micro_batch);
    if (at_once) wait(v.outputs);
    its.compute_loss(action.micro_batch);
    return;
  }
  its.backward_one_chunk(action.micro_batch);
  if (at_once) wait(v.gradients);
  v.sent_gradient = its.sent_backward(action.micro_batch);
}

void PipelineSchedule::p2p(const P2pExchange& its, Variables& v) {
  std::vector<Transfer> transfers;
  PendingSend goes;
  bool output = false;
  s_.mark(Phase::Communication, name_of(its));
  if (its.send) {
    output = its.send->payload == Payload::Output;
    goes.tensor = output ? stage(0).sent_forward(its.send->micro_batch) : v.sent_gradient;
    if (output) goes.micro_batch = its.send->micro_batch;
    transfers.push_back(sends(goes.tensor, output ? +1 : -1));
  }
  if (its.receive) {
    const bool forward = its.receive->payload == Payload::Output;
    Tensor& variable = forward ? v.received_input : v.received_gradient;
    variable =
        forward ? stage(0).input_buffer(its.receive->micro_batch) : stage(0).gradient_buffer(its.receive->micro_batch);
    transfers.push_back(receives(variable, forward ? -1 : +1));
  }
  goes.sent = exchange(transfers, Process::communication_stream);
  std::vector<PendingSend>& pending = output ? v.outputs : v.gradients;
  const EventId over = goes.sent;
  if (its.send) pending.push_back(std::move(goes));
  if (!its.receive) return;
  if (its.send)
    wait(pending);
  else
    s_.process.join(over);
  if (its.send && output) v.received_gradient = {};  // bwd_recvs.clear()
}

// GPipe waits for what it sends once all passes of a direction are over, and puts nothing together.
void PipelineSchedule::run_single(std::int32_t micro_batches) {
  const std::vector<Steps> all =
      with_messages(schedules_of(layout_, micro_batches), layout_.placement(), P2pMode::Batched);
  Variables v;
  for (const Step& its : all[static_cast<std::size_t>(rank_)]) {
    if (const auto* const action = std::get_if<Action>(&its)) {
      pass(*action, v);
      continue;
    }
    const P2pExchange& both = std::get<P2pExchange>(its);
    if (layout_.schedule == ScheduleKind::OneFOneB || !both.send) {
      p2p(both, v);
      continue;
    }
    p2p({both.send, {}}, v);
    if (!both.receive) continue;
    wait(v.outputs);
    p2p({{}, both.receive}, v);
  }
  wait(v.outputs);
  wait(v.gradients);
  stage(0).start_gradient_reduction();
  stage(0).wait_for_gradient_reduction();
}

// ---- several stages on each rank -----------------------------------------------------------------------------------

std::optional<Place> PipelineSchedule::neighbour(std::int32_t chunk, bool next) const {
  const StagePlacement placement = layout_.placement();
  return next ? placement.next({rank_, chunk}) : placement.previous({rank_, chunk});
}

// To the next stage's rank, or to that of the one before: the second chunks of a V run back.
std::int32_t PipelineSchedule::step_towards(std::int32_t chunk, bool next) const {
  const bool back = layout_.placement().shape == PlacementShape::V && chunk % 2 == 1;
  return next != back ? +1 : -1;
}

// Messages of each pair of ranks have a communicator of their own, and a stream.
StreamId PipelineSchedule::stream_towards(std::int32_t step) const {
  const std::int32_t first = CommContext::streams_of(layout_.chunks);
  return StreamId{step > 0 || layout_.pipeline == 2 ? first : first + 1};
}

void PipelineSchedule::send(const PipelineAction& action, Tensor tensor, bool forward) {
  s_.mark(Phase::Communication, forward ? "send_forward" : "send_backward");
  const Transfer transfer = sends(tensor, step_towards(action.chunk, forward));
  const EventId sent = exchange(std::span(&transfer, 1), stream_towards(transfer.step));
  (forward ? forward_sends_ : backward_sends_)[{action.chunk, action.micro_batch}] = {
      sent, std::move(tensor), forward ? action.micro_batch : -1};
}

void PipelineSchedule::receive(const PipelineAction& action, const Tensor& buffer, bool forward) {
  s_.mark(Phase::Communication, forward ? "receive_forward" : "receive_backward");
  const Transfer transfer = receives(buffer, step_towards(action.chunk, !forward));
  (forward ? forward_receives_ : backward_receives_)[{action.chunk, action.micro_batch}] =
      exchange(std::span(&transfer, 1), stream_towards(transfer.step));
}

void PipelineSchedule::wait_for(std::map<Key, PendingSend>& sends, const PipelineAction& action) {
  const PendingSend its = std::move(sends.extract({action.chunk, action.micro_batch}).mapped());
  s_.process.join(its.sent);
  if (its.micro_batch >= 0) stage(action.chunk).release_sent_output(its.micro_batch);
}

// _assert_unsharded, and the wait for what comes.
void PipelineSchedule::begin_pass(std::map<Key, EventId>& receives, const PipelineAction& action) {
  at(action.micro_batch);
  if (std::erase(unsharding_, action.chunk) > 0) stage(action.chunk).shards()->end_unshard();
  if (auto come = receives.extract({action.chunk, action.micro_batch}); !come.empty()) s_.process.join(come.mapped());
}

// _perform_action
void PipelineSchedule::perform(const PipelineAction& action) {
  PipelineStage& its = stage(action.chunk);
  switch (action.kind) {
    case PipelineActionKind::Forward:
      begin_pass(forward_receives_, action);
      its.forward_one_chunk(action.micro_batch);
      its.compute_loss(action.micro_batch);
      if (const auto next = neighbour(action.chunk, true); next && next->rank == rank_)
        stage(next->chunk).set_local_forward_input(action.micro_batch, its.sent_forward(action.micro_batch));
      return;
    case PipelineActionKind::Backward:
    case PipelineActionKind::BackwardInput:
      begin_pass(backward_receives_, action);
      if (action.kind == PipelineActionKind::Backward)
        its.backward_one_chunk(action.micro_batch);
      else
        its.backward_input_one_chunk(action.micro_batch);
      if (const auto previous = neighbour(action.chunk, false); previous && previous->rank == rank_)
        stage(previous->chunk).set_local_backward_input(action.micro_batch, its.sent_backward(action.micro_batch));
      return;
    case PipelineActionKind::BackwardWeight:
      at(action.micro_batch);
      its.backward_weight_one_chunk(action.micro_batch);
      return;
    case PipelineActionKind::Unshard:
      if (its.shards() == nullptr) return;
      its.shards()->begin_unshard();
      unsharding_.push_back(action.chunk);
      return;
    case PipelineActionKind::Reshard:
      if (its.shards() != nullptr) its.shards()->reshard();
      return;
    case PipelineActionKind::ReduceGrad:
      its.start_gradient_reduction();
      if (!behavior_.waits_for_reductions) its.wait_for_gradient_reduction();
      return;
    case PipelineActionKind::WaitReduceGrad:
      return its.wait_for_gradient_reduction();
    case PipelineActionKind::SendForward:
      return send(action, its.sent_forward(action.micro_batch), true);
    case PipelineActionKind::SendBackward:
      return send(action, its.sent_backward(action.micro_batch), false);
    case PipelineActionKind::ReceiveForward:
      return receive(action, its.input_buffer(action.micro_batch), true);
    case PipelineActionKind::ReceiveBackward:
      return receive(action, its.gradient_buffer(action.micro_batch), false);
    case PipelineActionKind::WaitSendForward:
      return wait_for(forward_sends_, action);
    case PipelineActionKind::WaitSendBackward:
      return wait_for(backward_sends_, action);
  }
}

void PipelineSchedule::run_several(std::int32_t micro_batches) {
  const std::vector<PipelineActions> all =
      pipeline_actions(schedules_of(layout_, micro_batches), layout_.placement(), behavior_);
  for (const PipelineAction& action : all[static_cast<std::size_t>(rank_)]) perform(action);
}

}  // namespace tidemark::parallel::pytorch
