#pragma once

#include <vector>

#include "parallel/frameworks/transformers/modules.hpp"

namespace tidemark::parallel::pytorch {

/// torch.optim's AdamW and SGD, as they call tensor operations; torch/optim/adamw.py, adam.py, sgd.py.
class TorchOptimizer {
 public:
  TorchOptimizer(Session& session, const Train& train, const EagerHabits& habits, const Parameters& parameters);

  /// torch.nn.utils.clip_grad_norm_.
  void clip();
  /// Makes its state at the first call.
  void step();
  /// Gradients are given up.
  void zero_grad();

 private:
  struct State {
    std::shared_ptr<Leaf> parameter;
    std::vector<Tensor> moments;
    Tensor step;  ///< on the device where the fused kernel counts there
  };
  void make_state(State& state);
  [[nodiscard]] Tensor decayed(const State& state);
  [[nodiscard]] bool decays_gradients() const;
  void update(State& state, Tensor& gradient, Tensor& denominator);
  void update_all_at_once();
  void update_fused();

  Session& s_;
  const Train& train_;
  const EagerHabits& habits_;
  std::vector<State> states_;
};

}  // namespace tidemark::parallel::pytorch
