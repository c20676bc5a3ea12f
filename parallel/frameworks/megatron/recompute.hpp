#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/frameworks/megatron/te.hpp"

namespace tidemark::parallel::megatron {

/// core/tensor_parallel/random.py CheckpointFunction: runs without saving anything but what comes in, and once more
/// when the backward pass is due.
enum class SavedInputs : std::uint8_t {
  Whole,
  SharedOut,  ///< distribute-saved-activations: each tensor-parallel rank keeps its part of the first
};
/// Of layers.
[[nodiscard]] inline SavedInputs saved_inputs(const Worker& w) {
  return w.runtime.shares_out_checkpoints ? SavedInputs::SharedOut : SavedInputs::Whole;
}
[[nodiscard]] Tensor checkpoint(Worker& w, std::function<Tensor(Tensors)> run, Tensors inputs,
                                SavedInputs saved_inputs = SavedInputs::Whole);

/// The attention mask is among what layers are given, and so among what a checkpoint keeps of them, behind `before`
/// others: while they run again it is theirs.
class GivenMask {
 public:
  GivenMask(Worker& w, Tensors& inputs, std::size_t before = 1)
      : w_(w), again_(w.session.engine != nullptr && inputs.size() > before) {
    if (again_) w_.attention_mask = std::move(inputs.back());
  }
  ~GivenMask() {
    if (again_) w_.attention_mask = {};
  }
  GivenMask(const GivenMask&) = delete;
  GivenMask& operator=(const GivenMask&) = delete;

 private:
  Worker& w_;
  const bool again_;
};

/// CheckpointWithoutOutput of the same file: what runs keeps its inputs only, and not even its outputs once others have
/// read them. They are made again when a gradient is there of what was made of them.
class CheckpointWithoutOutput {
 public:
  explicit CheckpointWithoutOutput(Worker& worker);
  [[nodiscard]] Tensors operator()(std::function<Tensors(Tensors)> run, Tensors inputs);
  /// The outputs are read no more in the forward pass; before the backward pass of what made `hook` they are needed.
  void discard_outputs(const Tensor& hook);

 private:
  struct State;
  Worker& w_;
  std::shared_ptr<State> state_;
};

/// core/transformer/transformer_layer.py: a norm by itself, whose output is discarded if norms run again.
class RecomputedNorm {
 public:
  explicit RecomputedNorm(Worker& worker) : w_(worker) {}
  [[nodiscard]] Tensor operator()(const Norm& norm, Tensor x);
  /// `hook`: what the norm's branch gives.
  void discard_output(const Tensor& hook);

 private:
  Worker& w_;
  std::optional<CheckpointWithoutOutput> checkpoint_;
};

}  // namespace tidemark::parallel::megatron
