#include "parallel/frameworks/transformers/fused.hpp"
#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/operation.hpp"

// Where fused kernels take the place of transformers' modules: what apply_liger_kernel_to_llama and its like
// (liger_kernel/transformers/monkey_patch.py) patch, and fms-acceleration's rules (fms_acceleration_foak/models).

namespace tidemark::parallel::transformers {

NormKind CausalLM::fused_norm(NormKind kind) const {
  if (behavior_.foak.has(FusedModule::RmsNorm) && kind == NormKind::Rms) return NormKind::FoakRms;
  if (!behavior_.liger.has(FusedModule::RmsNorm)) return kind;
  if (kind == NormKind::Rms) return NormKind::LigerRms;
  if (kind == NormKind::WideRms) return NormKind::LigerRmsApart;  // LigerRMSNormForOlmo2
  if (kind != NormKind::ZeroCenteredRms) return kind;
  // LigerRMSNormForGemma; of layers with norms behind attention and MLP LigerRMSNormForGemma3.
  return model_.norms == NormPlacement::Before ? NormKind::LigerZeroCenteredRms : NormKind::LigerZeroCenteredRmsApart;
}

bool CausalLM::fuses_rope() const {
  return behavior_.liger.has(FusedModule::Rope) || behavior_.foak.has(FusedModule::Rope);
}

void CausalLM::turn_fused(States& states, const Context::View& view) {
  const auto by = behavior_.liger.has(FusedModule::Rope) ? liger::rope : foak::rope;
  auto [query, key] = by(s_, states.query, states.key, view.cosine, view.sine);
  states.query = std::move(query);
  states.key = std::move(key);
}

// Over rows of logits.
Tensor CausalLM::rows_loss(const Tensor& logits, const Tensor& labels) {
  const std::int64_t counted = train_.micro_batch * (train_.sequence_length - 1);
  if (behavior_.liger.has(FusedModule::CrossEntropy)) return liger::cross_entropy(s_, logits, labels, counted);
  if (behavior_.foak.has(FusedModule::CrossEntropy)) return foak::cross_entropy(s_, logits, labels, counted);
  return torch::cross_entropy(s_, logits, labels);
}

bool CausalLM::fuses_head() const {
  return behavior_.liger.has(FusedModule::LinearCrossEntropy) || behavior_.foak.has(FusedModule::LinearCrossEntropy);
}

// liger_kernel/transformers/model/loss_utils.py LigerForCausalLMLoss, fms_acceleration_foak/fused_ops/liger_ce
// lce_forward: logits of all tokens are never there.
Tensor CausalLM::fused_loss_of(const Tensor& hidden, const Tensor& labels) {
  const Session::Scope scope(s_, "loss", Category::LogitsLoss);
  s_.mark(Phase::Forward, "loss");
  const std::int64_t batch = labels.sizes[0], sequence = labels.sizes[1], width = hidden.size(-1);
  const std::int64_t counted = batch * (sequence - 1);
  if (behavior_.foak.has(FusedModule::LinearCrossEntropy)) {
    const Tensor states = contiguous(s_, slice(s_, hidden, 1, 0, sequence - 1));
    const Tensor shifted = s_.empty({batch, sequence - 1}, DType::INT64, "shifted_labels");
    s_.launch(Operation::Copy, {narrowed(labels, 1, 1, sequence - 1)}, {shifted});
    return foak::linear_cross_entropy(s_, view(s_, states, {counted, width}), head_.weight->value,
                                      view(s_, shifted, {counted}), counted);
  }
  constexpr double no_label = -100;
  const Tensor padded = s_.empty({batch, sequence + 1}, DType::INT64, "padded_labels");
  s_.launch({Operation::Fill, {no_label}}, {}, {padded});
  s_.launch(Operation::Copy, {labels}, {narrowed(padded, 1, 0, sequence)});
  const Tensor shifted = contiguous(s_, slice(s_, padded, 1, 1, sequence + 1));
  return liger::linear_cross_entropy(s_, view(s_, hidden, {batch * sequence, width}), head_.weight->value,
                                     view(s_, shifted, {batch * sequence}), counted);
}

}  // namespace tidemark::parallel::transformers
