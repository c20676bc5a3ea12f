#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/frameworks/megatron/layers.hpp"

// Megatron-LM core 0.14's mixture of experts: core/transformer/moe/. What its functions call variables are variables
// here, and attributes of its objects live from one call to the next.

namespace tidemark::parallel::megatron {

/// router.py TopKRouter: written in PyTorch's own operations.
class Router {
 public:
  Router(Worker& worker, Parameters& parameters, const Experts& experts, const std::string& path);

  struct Choice {
    Tensor probabilities;  ///< [tokens, experts]; of an expert that is not chosen, 0
    Tensor map;            ///< [tokens, experts], true where one is
  };
  [[nodiscard]] Choice operator()(const Tensor& hidden);

 private:
  [[nodiscard]] Tensor gating(const Tensor& hidden);
  [[nodiscard]] Choice choose(const Tensor& logits);
  [[nodiscard]] Choice choose_by_sinkhorn(const Tensor& logits);
  void drop_tokens(Choice& choice);
  /// The same, whose gradient the loss's joins.
  [[nodiscard]] Tensor with_loss(Tensor activation, const Tensor& loss);
  [[nodiscard]] Tensor with_z_loss(Tensor logits);
  /// What each token's scores say, for auxiliary losses.
  struct Scores {
    Tensor scores, map;
  };
  [[nodiscard]] Scores scores_for_loss(const Tensor& logits) const;
  /// `counts`: how often `total` tokens chose each expert.
  [[nodiscard]] Tensor balancing_loss(const Tensor& scores, const Tensor& counts, std::int64_t total,
                                      std::int64_t sequences) const;
  [[nodiscard]] Tensor balanced(Tensor probabilities, const Tensor& logits);
  [[nodiscard]] Tensor by_own_tokens(const Scores& its, std::int64_t sequences) const;
  [[nodiscard]] Tensor by_all_tokens(const Scores& its);

  Worker& w_;
  const Experts& experts_;
  std::string path_;
  Name name_;
  const Weight *weight_ = nullptr, *bias_ = nullptr;
  RouterBuffers buffers_;
};

/// What the routers of a stage keep from one micro-batch to the next.
void build_routers(Worker& worker, const Stage& stage);
/// finalize_model_grads.py: what routers counted over a step moves their biases, and counts begin anew.
void finish_routing(Worker& worker);

/// Rows of tokens on their way, and the probabilities that go with them.
struct Rows {
  Tensor tokens, probabilities;
};

/// moe_utils.py permute: rows of tokens in the order of experts, and how they came to lie there. `probabilities` may be
/// undefined.
struct Permuted {
  Rows rows;
  Tensor order;  ///< of TransformerEngine's kernels or, of PyTorch's, each row's token
};
[[nodiscard]] Permuted permute(Worker& w, const Tensor& hidden, const Tensor& map, const Tensor& probabilities,
                               std::int64_t rows);
/// moe_utils.py unpermute: of each token the sum of its rows.
[[nodiscard]] Tensor unpermute(Worker& w, const Tensor& rows, const Tensor& order, std::int64_t tokens);

/// token_dispatcher.py MoETokenDispatcher: brings tokens to the ranks of their experts, and what these make of them
/// back. Called once each, in this order.
class TokenDispatcher {
 public:
  TokenDispatcher() = default;
  TokenDispatcher(const TokenDispatcher&) = delete;
  TokenDispatcher& operator=(const TokenDispatcher&) = delete;
  virtual ~TokenDispatcher() = default;

  [[nodiscard]] virtual Rows preprocess(const Tensor& hidden, const Router::Choice& choice) = 0;
  [[nodiscard]] virtual Rows dispatch(const Rows& rows) = 0;
  [[nodiscard]] virtual Rows postprocess(Rows dispatched) = 0;
  /// How many rows of what postprocess gives each of the rank's experts gets.
  [[nodiscard]] virtual const std::vector<std::int64_t>& rows_of_experts() const = 0;
  [[nodiscard]] virtual Tensor combine_preprocess(Tensor rows) = 0;
  [[nodiscard]] virtual Tensor combine(const Tensor& rows) = 0;
  [[nodiscard]] virtual Tensor combine_postprocess(const Tensor& rows) = 0;
};
/// Of a layer's `path`: "layers.3.mlp".
[[nodiscard]] std::unique_ptr<TokenDispatcher> all_to_all_dispatcher(Worker& w, const std::string& path,
                                                                     std::int32_t layer);
[[nodiscard]] std::unique_ptr<TokenDispatcher> all_gather_dispatcher(Worker& w, const std::string& path,
                                                                     std::int32_t layer);
[[nodiscard]] std::unique_ptr<TokenDispatcher> deep_ep_dispatcher(Worker& w, const std::string& path,
                                                                  std::int32_t layer);

/// What an expert does between its linears, and how much its row counts: in one kernel, or PyTorch's operation by
/// operation.
class ExpertActivation {
 public:
  ExpertActivation(Worker& worker, const Experts& experts, const std::string& path)
      : w_(worker), experts_(experts), name_(worker.name(path)) {}
  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& probabilities);

 private:
  [[nodiscard]] Tensor in_one_kernel(const Tensor& fc1_out, const Tensor& probabilities);

  Worker& w_;
  const Experts& experts_;
  Name name_;
};

/// experts.py TEGroupedMLP: TransformerEngine's GroupedLinear, of whose experts each has rows of its own.
class GroupedMlp {
 public:
  GroupedMlp(Worker& worker, Parameters& parameters, const Experts& experts, const std::string& path);
  [[nodiscard]] Tensor operator()(const Rows& rows, const std::vector<std::int64_t>& rows_of_experts);

 private:
  struct Linear {
    Name name;
    std::vector<const Weight*> weights;
    std::vector<const Weight*> biases;  ///< of none, or of each expert
  };
  /// Whether the GEMMs add the biases.
  enum class Biases : std::uint8_t { Added, Left };
  [[nodiscard]] Tensor linear(const Linear& linear, Biases biases, const Tensor& x,
                              const std::vector<std::int64_t>& rows);

  Worker& w_;
  std::string path_;
  ExpertActivation activation_;
  Linear fc1_, fc2_;
};

/// experts.py SequentialMLP: one expert's MLP after another.
class SequentialMlp {
 public:
  SequentialMlp(Worker& worker, Parameters& parameters, const Experts& experts, const std::string& path);
  [[nodiscard]] Tensor operator()(const Rows& rows, const std::vector<std::int64_t>& rows_of_experts);

 private:
  struct Expert {
    megatron::Linear fc1, fc2;
  };
  [[nodiscard]] Tensor run(const Expert& expert, const Rows& rows);

  Worker& w_;
  Name name_;
  ExpertActivation activation_;
  std::vector<Expert> experts_;
};

/// moe_layer.py MoELayer, with the norm before it.
class MoELayer {
 public:
  /// `path`: "layers.3.mlp".
  MoELayer(Worker& worker, Parameters& parameters, const std::string& path, std::int32_t layer);
  /// `norm`: the norm before, where it is offloaded.
  [[nodiscard]] Tensor operator()(Tensor hidden, OffloadedRegion* norm);

 private:
  [[nodiscard]] Tensor forward(const Tensor& residual);
  [[nodiscard]] Tensor shared(const Tensor& hidden);

  Worker& w_;
  Name name_;
  Norm norm_;
  Router router_;
  std::unique_ptr<TokenDispatcher> dispatcher_;
  std::optional<GroupedMlp> grouped_;
  std::optional<SequentialMlp> sequential_;  ///< in its place
  std::optional<Mlp> shared_;
  const Weight* shared_gate_ = nullptr;
};

}  // namespace tidemark::parallel::megatron
