#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "parallel/frameworks/deepspeed/flat_layout.hpp"
#include "parallel/frameworks/deepspeed/zero_parameters.hpp"
#include "parallel/frameworks/pytorch/optimizers/optimizer.hpp"

// BF16_Optimizer of deepspeed/runtime/bf16_optimizer.py (0.19), which DeepSpeed takes for stage 1 in bf16 where
// gradients are added up in fp32 (engine.py _do_optimizer_sanity_check). Every rank holds all parameters, in one flat
// buffer, and all gradients in another one, and updates its part.

namespace tidemark::parallel::deepspeed {

class Bf16Optimizer {
 public:
  /// Gradients are clipped to that norm; 0: not at all. Parameters move to the flat buffer.
  Bf16Optimizer(Session& session, const DataGroup& group, const EagerBehavior& eager, const Train& train,
                double largest_norm, NamedParameters parameters);

  /// backward_prologue. Whether the pass that begins is the last one of a step.
  void begin_backward(bool is_boundary);
  /// backward_epilogue, and DeepSpeedEngine.allreduce_gradients.
  void finish_backward();
  /// `gradients_are_there` is called when they are whole, and not clipped yet.
  void step(const std::function<void()>& gradients_are_there);

  /// The rank's part of gradients, and whole parameters.
  [[nodiscard]] std::vector<StateTensor> gradients() const;
  [[nodiscard]] std::vector<StateTensor> parameters() const;

 private:
  [[nodiscard]] Tensor sum_of(std::size_t parameter) const;
  [[nodiscard]] Tensor part_of(const Tensor& flat) const;
  [[nodiscard]] Tensor norm() const;
  void clip(const Tensor& norm);

  Session& s_;
  const DataGroup group_;
  const double largest_norm_;
  NamedParameters parameters_;
  const DType dtype_;
  FlatLayout layout_;
  Tensor flat_;                   ///< bf16_groups_flat
  std::shared_ptr<Leaf> master_;  ///< the rank's part in fp32, which the optimizer updates
  Tensor gradients_;              ///< fp32_groups_gradients_flat
  std::optional<pytorch::TorchOptimizer> optimizer_;
  Tensor norm_;  ///< _global_grad_norm
  bool is_boundary_ = true;
};

}  // namespace tidemark::parallel::deepspeed
