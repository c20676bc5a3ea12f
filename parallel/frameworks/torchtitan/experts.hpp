#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/frameworks/torchtitan/feed_forward.hpp"
#include "parallel/frameworks/torchtitan/tensor_parallel.hpp"
#include "parallel/frameworks/transformers/modules.hpp"

// torchtitan's mixture of experts (torchtitan/models/moe, distributed/expert_parallel.py, 0.2.2).

namespace tidemark::parallel::torchtitan {

/// Ranks that share out a layer's experts.
struct ExpertGroup {
  CommSlot comm;
  std::int32_t ranks = 1, rank = 0;
  TensorGroup parts = {};  ///< those who have a part of each expert that is here
};

class MixtureOfExperts {
 public:
  /// Of a layer of the model. Weights are [experts of this rank, outputs, inputs].
  MixtureOfExperts(Session& session, const Model& model, const Train& train, std::int32_t layer,
                   const ExpertGroup& group, const TensorGroup& tensor);

  struct Weights {
    std::shared_ptr<Leaf> gate, down, up;  ///< w1, w2, w3
    Linear router;
    std::optional<FeedForward> shared = {};  ///< which every token goes through
  };
  void set(Weights weights) { weights_ = std::move(weights); }
  /// init_weights: what follows how often experts are chosen.
  void make_buffers(const std::string& at);

  Tensor operator()(const Tensor& hidden);

  /// Of the module with the experts' weights.
  void hook(ForwardHooks hooks) { hooks_ = std::move(hooks); }

  [[nodiscard]] const Tensor& expert_bias() const { return expert_bias_; }
  [[nodiscard]] const Tensor& tokens_per_expert() const { return tokens_per_expert_; }

 private:
  struct Choice {
    Tensor scores, experts, counts;
  };
  struct Order {
    Tensor counts, places, scores;
  };
  struct Permuted {
    Tensor rows, places, ends;
  };
  Tensor of_whole(const Tensor& hidden);
  Choice route(const Tensor& x);
  Order sorted(const Choice& choice);
  Tensor of_best_groups(const Tensor& scores);
  Tensor experts(const Tensor& routed, const Tensor& counts);
  Tensor in_groups(const Tensor& routed, const Tensor& counts);
  Tensor counted_by_ranks(const Tensor& counts);
  Tensor of_all_ranks(const Tensor& routed, const Tensor& counts);
  Tensor exchanged(const Tensor& rows, bool back);
  void exchange(const Tensor& from, const Tensor& to, bool back);
  Permuted permuted(const Tensor& x, const Tensor& counts);
  void number_rows(const Tensor& places);
  Tensor products(const Permuted& input);
  Tensor unpermuted(const Tensor& out, const Tensor& places);

  Session& s_;
  const Experts& experts_;
  const std::int32_t layer_;
  const ExpertGroup group_;
  const TensorGroup tensor_;        ///< ranks with the same tokens
  std::vector<std::int64_t> sent_;  ///< rows to each rank of the group
  /// From each rank of the group, one after the other, those of each expert here.
  std::vector<std::int64_t> arriving_;
  std::vector<std::int64_t> padded_;  ///< of each expert here, with those that make them groups as kernels take them
  std::int64_t chosen_rows_ = 0;      ///< of all tokens
  std::int64_t own_rows_ = 0;         ///< of those that this rank sends to experts
  std::int64_t arriving_rows_ = 0, padded_rows_ = 0;  ///< to experts here; room for these with any padding
  ForwardHooks hooks_;
  Tensor permuted_indices_;  ///< an attribute of ExpertParallel
  Weights weights_;
  Tensor expert_bias_, tokens_per_expert_;
};

struct CountedExperts {
  const MixtureOfExperts* its = nullptr;
  bool twice = false;  ///< its layer's forward passes ran again
};
/// optimizer.py _update_expert_bias: before the optimizer's step, of all layers here; `ranks` have other tokens.
void update_expert_biases(Session& s, const std::vector<CountedExperts>& all, CommSlot ranks);

}  // namespace tidemark::parallel::torchtitan
