#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/frameworks/transformers/modules.hpp"

namespace tidemark::parallel::pytorch {

/// torch.optim's AdamW and SGD, as they call tensor operations; torch/optim/adamw.py, adam.py, sgd.py.
class TorchOptimizer {
 public:
  /// Of all parameters, or of this rank's shards of them: over `shards` norms of gradients are summed.
  TorchOptimizer(Session& session, const Train& train, const EagerHabits& habits, const Parameters& parameters,
                 std::vector<CommSlot> shards = {});

  /// torch.nn.utils.clip_grad_norm_.
  void clip();
  /// Makes its state at the first call.
  void step();
  /// What it keeps of its parameters that is of their sizes, to be put elsewhere: of one parameter after the other.
  [[nodiscard]] std::vector<Tensor*> kept();
  /// Gradients are given up.
  void zero_grad();

 private:
  struct State {
    std::shared_ptr<Leaf> parameter;
    std::vector<Tensor> moments;
    Tensor step;  ///< on the device where the fused kernel counts there
  };
  /// How far Adam goes in a step.
  struct AdamStep {
    double size;             ///< the learning rate over the first moments' bias correction
    double root_correction;  ///< by which roots of second moments are divided
  };
  [[nodiscard]] AdamStep adam_step() const;
  void make_state(State& state);
  [[nodiscard]] bool decays_gradients() const;
  [[nodiscard]] bool shrinks_weights() const;
  void update(State& state, Tensor& gradient, Tensor& denominator);
  void update_all_at_once();
  void update_by_adam(const std::vector<Tensor>& values, const std::vector<Tensor>& gradients);
  void update_by_sgd(const std::vector<Tensor>& values, const std::vector<Tensor>& gradients);
  [[nodiscard]] std::vector<Tensor> moments(std::size_t which) const;  ///< of all parameters
  void update_fused();

  Session& s_;
  const Train& train_;
  const EagerHabits& habits_;
  std::vector<CommSlot> shards_;
  std::vector<State> states_;
  std::int32_t steps_ = 0;  ///< begun so far
};

}  // namespace tidemark::parallel::pytorch
