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
  Router(Worker& worker, Parameters& parameters, const std::string& path);

  struct Choice {
    Tensor probabilities;  ///< [tokens, experts]; of an expert that is not chosen, 0
    Tensor map;            ///< [tokens, experts], true where one is
  };
  [[nodiscard]] Choice operator()(const Tensor& hidden);

 private:
  [[nodiscard]] Tensor gating(const Tensor& hidden);
  [[nodiscard]] Choice choose(const Tensor& logits);
  void drop_tokens(Choice& choice);
  [[nodiscard]] Tensor balanced(Tensor probabilities, const Tensor& logits);

  Worker& w_;
  const Experts& experts_;
  std::string path_;
  Name name_;
  const Weight *weight_ = nullptr, *bias_ = nullptr;
  Tensor expert_bias_, tokens_per_expert_;  ///< buffers of the module
};

/// Rows of tokens on their way, and the probabilities that go with them.
struct Rows {
  Tensor tokens, probabilities;
};

/// token_dispatcher.py MoEAlltoAllTokenDispatcher.
class TokenDispatcher {
 public:
  TokenDispatcher(Worker& worker, const std::string& path, std::int32_t layer);

  [[nodiscard]] Rows preprocess(const Tensor& hidden, const Router::Choice& choice);
  [[nodiscard]] Rows dispatch(const Rows& permuted);
  [[nodiscard]] Rows postprocess(Rows dispatched);
  [[nodiscard]] Tensor combine_preprocess(Tensor rows);
  [[nodiscard]] Tensor combine(const Tensor& rows);
  [[nodiscard]] Tensor combine_postprocess(const Tensor& rows);

  /// That each of the rank's experts gets.
  [[nodiscard]] const std::vector<std::int64_t>& rows_of_experts() const { return rows_of_own_; }

 private:
  [[nodiscard]] Rows permute(const Tensor& hidden, const Router::Choice& choice);
  [[nodiscard]] Rows exchanged(const Rows& rows, bool back);
  [[nodiscard]] Rows sorted(const Rows& rows, bool back);
  [[nodiscard]] bool fused() const { return w_.runtime.experts.fused_permutation; }

  Worker& w_;
  Name name_;
  std::string path_;
  std::int32_t layer_;
  std::int32_t ranks_, rank_;                          ///< of the expert group
  std::int64_t tokens_;                                ///< of this rank
  std::vector<std::int64_t> rows_, rows_of_own_;       ///< that this rank sends to each expert; that its own get
  Tensor probabilities_, map_, row_map_, sorted_ids_;  ///< attributes
};

/// experts.py TEGroupedMLP: TransformerEngine's GroupedLinear, of whose experts each has rows of its own.
class GroupedMlp {
 public:
  GroupedMlp(Worker& worker, Parameters& parameters, const std::string& path);
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
  [[nodiscard]] Tensor activation(const Tensor& fc1_out, const Tensor& probabilities);

  Worker& w_;
  std::string path_;
  Name activation_;
  Linear fc1_, fc2_;
};

/// moe_layer.py MoELayer, with the norm before it.
class MoELayer {
 public:
  /// `path`: "layers.3.mlp".
  MoELayer(Worker& worker, Parameters& parameters, const std::string& path, std::int32_t layer);
  [[nodiscard]] Tensor operator()(Tensor hidden);

 private:
  [[nodiscard]] Tensor forward(const Tensor& residual);
  [[nodiscard]] Tensor shared(const Tensor& hidden);

  Worker& w_;
  Name name_;
  Norm norm_;
  Router router_;
  TokenDispatcher dispatcher_;
  GroupedMlp experts_;
  std::optional<Mlp> shared_;
  const Weight* shared_gate_ = nullptr;
};

}  // namespace tidemark::parallel::megatron
