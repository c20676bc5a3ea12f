#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/frameworks/megatron/attention/multi_latent_attention.hpp"
#include "parallel/frameworks/megatron/layer_offload.hpp"
#include "parallel/frameworks/megatron/optimizer/parameters.hpp"

// Megatron-LM core 0.14's modules, as their forward functions are written: variables of a function are its variables
// there, and what they refer to lives as long.

namespace tidemark::parallel::megatron {

class OffloadedRegion;
class NextTokenLayer;

/// Adds a branch to the residual stream, after its linear's bias and dropout (core/fusions/fused_bias_dropout.py).
struct BiasDropoutAdd {
  Name name;
  const Weight* bias = nullptr;
};
[[nodiscard]] Tensor bias_dropout_add(Worker& w, const BiasDropoutAdd& add, Tensor residual, Tensor branch);

/// core/transformer/attention.py SelfAttention: the joint QKV projection cut into heads, which positions turn.
class SelfAttention {
 public:
  SelfAttention(Worker& worker, Parameters& parameters, std::int32_t layer);
  [[nodiscard]] Tensor operator()(Tensor hidden);
  [[nodiscard]] const Weight* output_bias() const { return output_bias_; }
  /// Core attention runs again instead of saving.
  bool recompute_core = false;

 private:
  /// Each [sequence, batch, heads, width].
  struct Heads {
    Tensor query, key, value;
    Tensor before_turning{};  ///< queries, where forward() holds them
  };
  struct Joint;
  [[nodiscard]] Joint parts_of(const Tensor& mixed) const;
  [[nodiscard]] Shape by_head(std::int64_t heads) const;
  [[nodiscard]] Tensor joined(Gradients& gradients, const Shape& shape);
  [[nodiscard]] Heads split(const Tensor& mixed);  // without positions to turn by
  [[nodiscard]] Heads split_and_turn(const Tensor& mixed);
  enum class Of : std::uint8_t { Query, Key };
  [[nodiscard]] Tensor head_norm(const Norm& norm, Of which, Tensor mixed);
  [[nodiscard]] Tensor joint(Tensor hidden);
  /// `held`: what views the memory of forward()'s query, key and value.
  [[nodiscard]] Tensor core(Tensor query, Tensor key, Tensor value, std::initializer_list<const Tensor*> held);

  Worker& w_;
  Name name_;
  std::optional<Norm> norm_, post_norm_;
  Linear qkv_, proj_;
  const Weight *output_bias_ = nullptr, *sinks_ = nullptr;
  Norm q_norm_, k_norm_;
  Rotary query_rotary_, key_rotary_;
  Name positions_;
  CoreAttention core_;
};

/// core/transformer/mlp.py MLP, with the norms at its ends where it is a layer's own.
class Mlp {
 public:
  enum class Norms : std::uint8_t { Own, None };
  /// `path`: "layers.0.mlp". `ffn`: of one branch.
  Mlp(Worker& worker, Parameters& parameters, const std::string& path, std::int64_t ffn, Norms norms);
  [[nodiscard]] Tensor operator()(Tensor hidden);
  [[nodiscard]] const Weight* output_bias() const { return output_bias_; }

 private:
  [[nodiscard]] Tensor activation(Tensor x);
  [[nodiscard]] Attributes in_one_kernel() const;  ///< how the activation's kernel computes it
  [[nodiscard]] const Tensor& fused_bias() const;  ///< that the activation's kernel adds
  /// `offset_up`: what multiplied the gate, where an offset was added.
  [[nodiscard]] Gradients activation_gradient(Tensor gradient, Tensor input, Tensor gate, Tensor offset_up);

  Worker& w_;
  Name name_, activation_, gate_;
  std::optional<Norm> norm_, post_norm_;
  Linear fc1_, fc2_;
  const Weight *bias_ = nullptr, *output_bias_ = nullptr;  ///< of fc1, which the activation adds; of fc2
};

/// One of a layer's branches beside the residual stream: a mixer or an MLP.
struct Branch {
  BiasDropoutAdd add;  ///< that ends it
  /// Begins with a norm by itself, whose region the layer ends.
  std::optional<OffloadedModule> norm;
  std::function<Tensor(Tensor hidden, OffloadedRegion* norm)> run;
};

/// core/transformer/transformer_layer.py TransformerLayer; in a hybrid (core/ssm/mamba_block.py MambaStack) a layer has
/// one branch.
class TransformerLayer {
 public:
  TransformerLayer(Worker& worker, Parameters& parameters, std::int32_t layer);
  [[nodiscard]] Tensor operator()(Tensor hidden);

 private:
  Worker& w_;
  std::optional<Branch> mixer_, mlp_;
};

/// core/models/gpt/gpt_model.py GPTModel: what a stage of the model holds.
class GPTModel {
 public:
  GPTModel(Worker& worker, const Stage& stage, Parameters& parameters);
  ~GPTModel();

  /// What came from the stage before, if there is one, and what the embedding and the loss read. Gives what the stage
  /// after receives, or the loss.
  struct Batch {
    Tensor tokens, position_ids, labels, loss_mask;
  };
  [[nodiscard]] Tensor operator()(const std::shared_ptr<AutogradInput>& input, const Batch& batch);
  /// Its backward pass is over.
  void finish_backward() {
    if (offload_) offload_->finish_backward();
  }
  /// Computes what passes left undone of the head's weight gradient.
  void finish_head_gradient();

 private:
  /// Names outlive the passes.
  [[nodiscard]] Tensor embedding(const Name& name, const Tensor& tokens, const Tensor& position_ids);
  [[nodiscard]] Tensor decoder(Tensor hidden);
  [[nodiscard]] Tensor head(const Name& name, Tensor hidden);
  [[nodiscard]] Gradients head_backward(const Name& name, Tensor gradient, Saved saved, Saved tangent);
  /// Where the gradients of tokens' losses come from: what reads these, or that their mean is the model's loss.
  enum class LossGradient : std::uint8_t { OfEachToken, OfTheirMean };
  [[nodiscard]] Tensor loss(const Name& name, Tensor logits, const Tensor& labels, LossGradient gradient);
  [[nodiscard]] Tensor further_states(const Tensor& hidden, Tensor tokens, const Tensor& position_ids);
  [[nodiscard]] Tensor with_further_losses(const Tensor& hidden, const Batch& batch, Tensor& logits);

  Worker& w_;
  Stage stage_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::unique_ptr<LayerOffload> offload_;
  Name embedding_, output_, loss_, further_;
  const Weight *words_ = nullptr, *positions_ = nullptr, *output_weight_ = nullptr;
  std::optional<Norm> final_norm_;
  std::vector<std::unique_ptr<NextTokenLayer>> mtp_layers_;
  /// A tensor that is kept keeps the graph that it came from, and so where that begins.
  struct InputOfHead {
    Tensor tensor;
    std::shared_ptr<AutogradInput> graph;
  };
  std::deque<InputOfHead> inputs_of_head_;  ///< whose product comes later
  std::deque<Tensor> gradients_of_logits_;
};

}  // namespace tidemark::parallel::megatron
