#pragma once

#include "parallel/frameworks/megatron/layers.hpp"

// Modules that predict tokens after the next one, one after the other: core/transformer/multi_token_prediction.py.

namespace tidemark::parallel::megatron {

/// MultiTokenPredictionLayer.
class NextTokenLayer {
 public:
  /// `further` tokens after the next one.
  NextTokenLayer(Worker& worker, Parameters& parameters, std::int32_t further);
  /// From what the module before made of tokens, and the embeddings of those that follow them.
  [[nodiscard]] Tensor operator()(const Tensor& hidden, const Tensor& embedded);

  const Name tokens, embedding, head, loss;

 private:
  [[nodiscard]] Tensor joined(Tensor hidden, const Tensor& embedded);
  [[nodiscard]] Tensor projected(Tensor both);
  [[nodiscard]] Tensor through_layer(const Tensor& hidden, const Tensor& embedded);

  Worker& w_;
  Name name_;
  Norm embedding_norm_, hidden_norm_;
  Linear projection_;
  TransformerLayer layer_;
  Norm final_norm_;
};

/// roll_tensor: one value for each token of a micro-batch, each in place of the one before it; the last is 0.
/// Context-parallel ranks hand their first values to their neighbours.
[[nodiscard]] Tensor rolled(Worker& w, const Name& name, const Tensor& x);

}  // namespace tidemark::parallel::megatron
