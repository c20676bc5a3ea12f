#include "parallel/frameworks/pytorch/pipeline/pipeline_stage.hpp"

#include <utility>

#include "parallel/torch/operation.hpp"

namespace tidemark::parallel::pytorch {

Tensor PipelineStage::buffer(std::string_view what) {
  const NoGrad no_grad(s_);
  return s_.empty(handed_.sizes, handed_.dtype, what, Category::CommPp);
}

// ---- before the first step -----------------------------------------------------------------------------------------

// _forward_metadata_inference; up to PyTorch 2.11 _shape_inference, of zeros and without a graph.
void PipelineStage::prepare_forward(std::int32_t micro_batches) {
  const auto probe = [this] {
    const Tensor handed = is_first_ ? Tensor{} : buffer("probed_input");
    if (handed.defined()) s_.launch({Operation::Fill, {0}}, {}, {handed});
    if (behavior_.probes_backward) {
      probe_ = run(0, handed);
      return;
    }
    const NoGrad no_grad(s_);
    (void)run(0, handed);
  };
  probe();
  if (behavior_.receives_late || is_first_) return;
  for (std::int32_t m = 0; m < micro_batches; ++m) inputs_[m] = buffer("received_input");
}

// Input gradients of the probe, which are asked for alone, make nothing that the first backward pass does not make
// again beside more; they are left out.
void PipelineStage::prepare_backward(std::int32_t micro_batches) {
  if (behavior_.probes_backward && is_last_) (void)module_.loss(0, probe_->output);
  if (behavior_.receives_late || is_last_) return;
  for (std::int32_t m = 0; m < micro_batches; ++m) gradients_[m] = buffer("received_gradient");
}

// _post_metadata_inference_cleanup
void PipelineStage::clean_up_probe() {
  probe_.reset();
  if (behavior_.probes_backward && module_.shards != nullptr) module_.shards->reshard();
}

// ---- what comes and goes -------------------------------------------------------------------------------------------

Tensor PipelineStage::input_buffer(std::int32_t micro_batch) {
  if (behavior_.receives_late) inputs_[micro_batch] = buffer("received_input");
  return inputs_.at(micro_batch);
}

Tensor PipelineStage::gradient_buffer(std::int32_t micro_batch) {
  if (behavior_.receives_late) gradients_[micro_batch] = buffer("received_gradient");
  return gradients_.at(micro_batch);
}

Tensor PipelineStage::sent_forward(std::int32_t micro_batch) const {
  return is_last_ ? Tensor{} : chunks_.at(micro_batch).output.detached();
}

Tensor PipelineStage::sent_backward(std::int32_t micro_batch) {
  if (is_first_) return {};
  return std::move(input_gradients_.extract(micro_batch).mapped());
}

void PipelineStage::release_sent_output(std::int32_t micro_batch) {
  if (!behavior_.releases_sent) return;
  if (const auto its = chunks_.find(micro_batch); its != chunks_.end()) its->second.output = {};
}

// ---- passes --------------------------------------------------------------------------------------------------------

PipelineStage::Chunk PipelineStage::run(std::int32_t micro_batch, const Tensor& handed) {
  Chunk chunk;
  if (!is_first_) {
    s_.reclassify(handed, Category::SavedActivations);
    chunk.input = s_.grad_enabled ? leaf(s_, handed) : nullptr;
  }
  chunk.output = module_.forward(micro_batch, chunk.input ? chunk.input->value : handed);
  chunk.of_output = chunk.output.gradient;
  return chunk;
}

void PipelineStage::forward_one_chunk(std::int32_t micro_batch) {
  // _retrieve_recv_activations: what the buffer was made for is over, or else it stays.
  const Tensor handed = is_first_                 ? Tensor{}
                        : behavior_.receives_late ? std::move(inputs_.extract(micro_batch).mapped())
                                                  : inputs_.at(micro_batch);
  chunks_[micro_batch] = run(micro_batch, handed);
  if (is_last_ && behavior_.keeps_outputs) outputs_.push_back(chunks_[micro_batch].output.detached());
}

void PipelineStage::compute_loss(std::int32_t micro_batch) {
  if (is_last_) losses_.all.push_back(module_.loss(micro_batch, chunks_.at(micro_batch).output));
}

PipelineStage::BackwardState PipelineStage::begin_backward(std::int32_t micro_batch) {
  BackwardState state{std::move(chunks_.extract(micro_batch).mapped()), {}, {}};
  if (!is_last_)
    state.gradient =
        behavior_.receives_late ? std::move(gradients_.extract(micro_batch).mapped()) : gradients_.at(micro_batch);
  return state;
}

WaitingGradient PipelineStage::root_of(std::int32_t micro_batch, const BackwardState& state) {
  if (!is_last_) return {state.chunk.of_output, state.gradient};
  const Tensor& loss = losses_.all.at(static_cast<std::size_t>(micro_batch));
  WaitingGradient root{loss.gradient, s_.empty({}, loss.dtype, "loss_gradient")};
  s_.launch({Operation::Fill, {module_.loss_gradient}}, {}, {root.gradient});
  return root;
}

// backward_maybe_with_nosync
void PipelineStage::leave_gradients_unreduced() {
  if (module_.shards == nullptr) return;
  module_.shards->set_reshard_after_backward(false);
  module_.shards->set_requires_gradient_sync(false);
}

// stage_backward
void PipelineStage::backward_whole(std::int32_t micro_batch, BackwardState state) {
  WaitingGradient root = root_of(micro_batch, state);
  leave_gradients_unreduced();
  // Variables of functions refer to what the pass begins with until it is over.
  const Tensor gradient = root.gradient;
  std::vector<WaitingGradient> roots;
  roots.push_back(std::move(root));
  backward(s_, std::move(roots));
  if (module_.shards != nullptr) module_.shards->finish_backward();
  if (!state.chunk.input) return;
  input_gradients_[micro_batch] = std::exchange(state.chunk.input->gradient, {});
  if (is_last_) losses_.leaves.push_back(std::move(state.chunk.input));
}

void PipelineStage::backward_one_chunk(std::int32_t micro_batch) {
  backward_whole(micro_batch, begin_backward(micro_batch));
}

// backward_one_chunk with full_backward = False. The output and the loss are detached: of the graph those nodes stay
// that weights still need. The input holds its gradient, and all of this stays until these have theirs.
void PipelineStage::backward_input_one_chunk(std::int32_t micro_batch) {
  BackwardState state = begin_backward(micro_batch);
  if (!is_first_) {
    leave_gradients_unreduced();
    state.groups = stage_backward_input(s_, root_of(micro_batch, state), state.chunk.input, *module_.weights);
    if (module_.shards != nullptr) module_.shards->finish_backward();
    input_gradients_[micro_batch] = state.chunk.input->gradient;
    state.chunk.of_output = {};
    state.chunk.output = is_last_ ? Tensor{} : state.chunk.output.detached();
    if (is_last_) losses_.all.at(static_cast<std::size_t>(micro_batch)).gradient = {};
  }
  parted_[micro_batch] = std::move(state);
}

void PipelineStage::backward_weight_one_chunk(std::int32_t micro_batch) {
  BackwardState state = std::move(parted_.extract(micro_batch).mapped());
  if (is_first_) return backward_whole(micro_batch, std::move(state));
  leave_gradients_unreduced();
  stage_backward_weight(s_, std::move(state.groups));
}

void PipelineStage::start_gradient_reduction() {
  if (module_.shards == nullptr) return;
  s_.mark(Phase::Backward, "reduce_gradients");
  module_.shards->start_gradient_reduction(behavior_.reduces_last_first);
}

// _merge_outputs
void PipelineStage::merge_outputs() {
  if (outputs_.empty()) return;
  s_.mark(Phase::Forward, "merge_outputs");
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "output", Category::LogitsLoss);
  const Tensor merged =
      s_.empty(with_size(outputs_.front().sizes, 0, outputs_.front().sizes.front() * std::ssize(outputs_)),
               outputs_.front().dtype, "merged");
  std::vector<Tensor> places;
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    places.push_back(
        narrowed(merged, 0, static_cast<std::int64_t>(i) * outputs_[i].sizes.front(), outputs_[i].sizes.front()));
  s_.launch(Operation::Copy, outputs_, places);
}

}  // namespace tidemark::parallel::pytorch
