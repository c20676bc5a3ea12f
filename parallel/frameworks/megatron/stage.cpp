#include "parallel/frameworks/megatron/stage.hpp"

#include <utility>

#include "parallel/frameworks/megatron/result_checks.hpp"

namespace tidemark::parallel::megatron {
namespace {

constexpr std::size_t loss_mask_place = 2;  // of batch_tensors()

// Sum and tokens.
Tensor loss_report(const Worker& w) { return w.temporary(w.process.label("loss.report"), {2}, DType::FP32); }

}  // namespace

void make_step_losses(Worker& w) {
  if (w.head())
    for (std::int64_t other = 1; other < micro_batches_of(w.train, w.layout); ++other)
      w.losses.reports.push_back(loss_report(w));
  w.losses.total_tokens = w.temporary(w.process.label("loss.total_tokens"), {1}, DType::INT32);
}

void keep_last_report(Worker& w) {
  if (w.head()) w.losses.reports.push_back(loss_report(w));
}

ModelStage::ModelStage(Worker& w, std::int32_t chunk)
    : w_(w),
      chunk_(chunk),
      stage_(w.chunks[static_cast<std::size_t>(chunk)]),
      parameters_(w),
      model_(w, stage_, parameters_) {}

std::shared_ptr<AutogradInput> ModelStage::receive_input() const {
  return autograd_input(w_.session, w_.make(w_.process.label("received.input"), w_.residual(w_.model.hidden),
                                            w_.train.precision, Category::SavedActivations));
}

Tensor ModelStage::receive_output_gradient() const {
  return w_.make(w_.process.label("received.output_gradient"), w_.residual(w_.model.hidden), w_.train.precision,
                 Category::CommPp);
}

void ModelStage::deallocate_output(Tensor& output) const {
  const Tensor one = w_.temporary(w_.process.label("output.deallocated"), {1});
  output.storage = one.storage;
}

Tensor ModelStage::own_part(const BatchTensor& item, Tensor whole) const {
  // One value for each token, or with the attention mask a row of them.
  const std::int64_t sequence = w_.train.sequence_length, batch = w_.sizes.micro_batch;
  const Shape rows{batch, sequence, whole.elements() / (batch * sequence)};
  const Shape own_rows{batch, w_.sizes.sequence, rows[2]};
  const Name name = w_.name(std::string(item.name));
  Tensor own = w_.temporary(name("own"), {elements_of(own_rows)}, item.dtype);
  w_.own_tokens(name, sized(std::move(whole), rows), sized(own, own_rows), 1);
  return own;
}

// Megatron-LM core 0.14, training/utils.py, get_batch_on_this_tp_rank: ranks of the first and the last stage make room
// for all five tensors, whichever chunk runs. The first tensor-parallel rank keeps what its stage does not need until
// the pass returns, until core 0.18; the others drop it, and receive the rest from it. One tensor-parallel rank is that
// first one.
ModelStage::Loaded ModelStage::load_batch() const {
  Loaded loaded;
  if (w_.runtime.core.batches_by_chunk ? !first() && !last() : !w_.embedding() && !w_.head()) return loaded;
  const bool by_chunk = w_.runtime.core.batches_by_chunk, at_first = by_chunk ? first() : w_.embedding(),
             at_last = by_chunk ? last() : w_.head();
  const bool embeds = at_first || (at_last && !w_.model.further.empty());
  const std::vector<BatchTensor> items = batch_tensors(w_.train, w_.runtime, {embeds, at_last});
  w_.process.mark(Phase::Forward, "load_batch");
  for (const BatchTensor& item : items) {
    loaded.all.push_back(w_.temporary(w_.process.label(item.name), {item.size / size_of(item.dtype)}, item.dtype));
    w_.launch(Operation::Initialize, {}, {loaded.all.back()});
  }
  for (std::size_t i = 0; i < items.size(); ++i)
    if (!items[i].needed && (w_.tensor_parallel() || w_.runtime.core.drops_batches)) loaded.all[i] = {};
  for (std::size_t i = 0; i < items.size(); ++i)
    if (items[i].needed)
      w_.session.unchecked_collective(w_.comms.tensor, CollectiveKind::Broadcast, loaded.all[i], loaded.all[i]);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (w_.layout.context > 1 && loaded.all[i].defined()) loaded.all[i] = own_part(items[i], std::move(loaded.all[i]));
    const Tensor& tensor = loaded.all[i];
    if (!items[i].needed) continue;
    if (items[i].name == "batch.tokens") loaded.batch.tokens = tensor;
    if (items[i].name == "batch.labels") loaded.batch.labels = tensor;
    if (items[i].name == "batch.loss_mask" && !w_.model.further.empty()) loaded.batch.loss_mask = tensor;
    if (items[i].name == "batch.attention_mask") loaded.attention_mask = tensor;
    if (items[i].name == "batch.position_ids") loaded.batch.position_ids = tensor;
  }
  return loaded;
}

// pretrain_gpt.py loss_func, core/pipeline_parallel/schedules.py forward_step_calc_loss. The functions of schedules
// refer to a pass's loss and tokens until the next one has its own, interleaved ones to the loss until it has been
// back.
void ModelStage::sum_losses() const {
  const Name name = w_.name("loss");
  const auto numbers = [&](std::string_view use, DType dtype, std::int64_t count = 1) {
    return w_.temporary(w_.process.label(use), {count}, dtype);
  };
  Tensor masked = w_.temporary(name("masked"), w_.per_token(), DType::FP32);
  Tensor loss = numbers("loss.sum", DType::FP32);
  masked = {};
  Tensor counted = numbers("loss.mask_sum", DType::FP32), copied = numbers("loss.mask_sum", DType::FP32);
  Tensor tokens = numbers("loss.tokens", DType::INT32);
  counted = copied = {};
  copied = numbers("loss.sum_copy", DType::FP32);
  StepLosses& its = w_.losses;
  const bool interleaved = w_.layout.chunks > 1;
  its.of_running.push_back(loss_report(w_));
  if (!interleaved) its.of_passes.clear();
  its.of_passes.push_back(std::move(loss));
  its.tokens = interleaved ? Tensor{} : std::move(tokens);
}

Tensor ModelStage::forward(std::int32_t step, std::int32_t micro_batch, const std::shared_ptr<AutogradInput>& input) {
  w_.process.at(step, micro_batch);
  w_.running_chunk = chunk_;
  if (!first()) input_tensor_ = input;
  Loaded loaded = load_batch();
  w_.attention_mask = loaded.attention_mask;
  Tensor output = model_(input, loaded.batch);
  w_.attention_mask = {};
  if (!last()) return output;
  // pretrain_gpt.py forward_step hands loss_func the mask alone.
  const Tensor loss_mask = std::move(loaded.all.at(loss_mask_place));
  loaded = {};
  if (micro_batch >= 0) sum_losses();
  if (micro_batch >= 0) check_loss(w_, step);
  output.storage = {};
  return output;
}

void ModelStage::backward(std::int32_t step, std::int32_t micro_batch, const Tensor& output,
                          const Tensor& output_gradient) {
  w_.process.at(step, micro_batch);
  w_.running_chunk = chunk_;
  Tensor scaled, one;
  const bool of_loss = last();
  if (of_loss) {  // backward_step, custom_backward
    scaled = w_.temporary(w_.process.label("loss.scaled"), {1}, DType::FP32);
    // In the list that a pipeline's schedule hands over it takes the loss's place.
    if (w_.layout.pipeline > 1 && w_.layout.chunks == 1) w_.losses.of_passes.front() = std::exchange(scaled, {});
    one = w_.temporary(w_.process.label("loss.gradient"), {1}, DType::FP32);
  }
  torch::backward(w_.session, output, output_gradient);
  model_.finish_backward();
  const bool drops = w_.layout.chunks > 1 || (w_.runtime.core.drops_losses && w_.layout.pipeline == 1);
  if (of_loss && drops) w_.losses.of_passes.pop_front();
  if (of_loss) w_.losses.of_running.pop_front();
}

}  // namespace tidemark::parallel::megatron
