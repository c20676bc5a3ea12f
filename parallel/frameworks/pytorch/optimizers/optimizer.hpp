#pragma once

#include <cstdint>
#include <vector>

#include "parallel/frameworks/pytorch/optimizers/update_rule.hpp"

namespace tidemark::parallel::pytorch {

/// torch.nn.utils.clip_grad_norm_ of all of them; over `shards` norms are summed, in type `kept` by a rank whose shards
/// have no row of any parameter. Gives the norm, where there is one.
Tensor clip_grad_norm(Session& session, const Parameters& parameters, const std::vector<CommSlot>& shards, DType kept);

/// An optimizer as a training loop calls it.
class TorchOptimizer {
 public:
  /// Of all parameters, or of this rank's shards of them: over `shards` norms of gradients are summed.
  TorchOptimizer(Session& session, const Train& train, const EagerBehavior& behavior, const Parameters& parameters,
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
  Session& s_;
  const EagerBehavior& behavior_;
  Parameters parameters_;
  std::vector<CommSlot> shards_;
  DType kept_;                        ///< of gradients
  bool in_backward_;                  ///< each parameter is updated once its gradient is there
  std::vector<UpdateRulePtr> rules_;  ///< of all parameters, or else one of each
  std::int32_t steps_ = 0;            ///< begun so far
};

}  // namespace tidemark::parallel::pytorch
