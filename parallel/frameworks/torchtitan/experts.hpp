#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/frameworks/transformers/modules.hpp"

// torchtitan's mixture of experts without expert parallelism (torchtitan/models/moe, 0.2.2).

namespace tidemark::parallel::torchtitan {

class MixtureOfExperts {
 public:
  /// Of a layer of the model. Weights are [experts, outputs, inputs].
  MixtureOfExperts(Session& session, const Model& model, const Train& train, std::int32_t layer);

  struct Weights {
    std::shared_ptr<Leaf> gate, down, up;  ///< w1, w2, w3
    Linear router;
  };
  void set(Weights weights) { weights_ = std::move(weights); }
  /// init_weights: what follows how often experts are chosen.
  void make_buffers(const std::string& at);

  Tensor operator()(const Tensor& hidden);

  [[nodiscard]] const Tensor& expert_bias() const { return expert_bias_; }
  [[nodiscard]] const Tensor& tokens_per_expert() const { return tokens_per_expert_; }

 private:
  struct Choice {
    Tensor scores, experts, counts;
  };
  struct Permuted {
    Tensor rows, places, ends;
  };
  Choice route(const Tensor& x);
  Tensor experts(const Tensor& routed, const Tensor& counts);
  Permuted permuted(const Tensor& x, const Tensor& counts);
  Tensor products(const Permuted& input);

  Session& s_;
  const Experts& experts_;
  std::vector<std::int64_t> rows_;    ///< that each expert gets
  std::vector<std::int64_t> padded_;  ///< … with those that make them groups of a size that kernels take
  std::int64_t chosen_rows_ = 0, padded_rows_ = 0;  ///< of all experts; room for all with any padding
  Weights weights_;
  Tensor expert_bias_, tokens_per_expert_;
};

/// optimizer.py _update_expert_bias: before the optimizer's step. `twice`: of which layers forward passes ran again.
void update_expert_biases(Session& s, const std::vector<const MixtureOfExperts*>& all, const std::vector<bool>& twice,
                          CommSlot ranks);

}  // namespace tidemark::parallel::torchtitan
