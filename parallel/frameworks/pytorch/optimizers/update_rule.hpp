#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/frameworks/transformers/modules.hpp"

// What optimizers do with parameters and their gradients: a file for each family.

namespace tidemark::parallel::pytorch {

/// Adam's, by default, in torch.optim.
inline constexpr double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;

/// How an optimizer updates its parameters, and what it keeps of each.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  /// The `number`th step, from 1 on; the first one makes the state.
  virtual void step(std::int32_t number) = 0;
  /// What is kept that is of parameters' sizes: of one parameter after the other.
  [[nodiscard]] virtual std::vector<Tensor*> kept() { return {}; }
};

using UpdateRulePtr = std::unique_ptr<UpdateRule>;

/// torch.optim's AdamW, Adam and SGD.
[[nodiscard]] UpdateRulePtr torch_rule(Session& session, Optimizer kind, const EagerBehavior& behavior,
                                       const Parameters& parameters);
/// transformers' Adafactor, and torch.optim's.
[[nodiscard]] UpdateRulePtr adafactor_rule(Session& session, const EagerBehavior& behavior,
                                           const Parameters& parameters);
/// torch.optim.Muon of hidden layers' matrices, and AdamW of the others.
[[nodiscard]] UpdateRulePtr muon_rule(Session& session, const EagerBehavior& behavior, const Parameters& parameters);
/// bitsandbytes' AdamW and Lion.
[[nodiscard]] UpdateRulePtr bitsandbytes_rule(Session& session, Optimizer kind, const EagerBehavior& behavior,
                                              const Parameters& parameters);

/// apollo_torch's APOLLOAdamW.
[[nodiscard]] UpdateRulePtr apollo_rule(Session& session, const EagerBehavior& behavior, const Parameters& parameters);
/// galore_torch's GaLoreAdamW.
[[nodiscard]] UpdateRulePtr galore_rule(Session& session, const EagerBehavior& behavior, const Parameters& parameters);

/// torch._foreach_*: one kernel for as many groups of operands as it makes tensors.
void foreach (Session& session, const Computation& what, std::initializer_list<const std::vector<Tensor>*> operands,
              const std::vector<Tensor>& made);
/// A Python list drops its last element first.
void drop(std::vector<Tensor>& list);

}  // namespace tidemark::parallel::pytorch
