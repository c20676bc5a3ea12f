#pragma once

#include <cstdint>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/model/model.hpp"
#include "parallel/torch/ops/aten.hpp"

// In which families' modules differ from Llama's.

namespace tidemark::parallel::transformers {

enum class MlpKind : std::uint8_t {
  Gated,  ///< two projections, and one back
  Joint,  ///< the two in one linear
  Plain,  ///< one projection, and one back
};

struct Traits {
  MlpKind mlp = MlpKind::Gated;
  bool one_norm = false;          ///< attention and MLP read what one norm gives, and both are added to the input
  bool keeps_branches = false;    ///< a layer's variables hold each branch's output until it returns
  bool drops_within = false;      ///< attention and MLP drop out of what they give
  bool drops_embedding = false;   ///< the same of the embedding
  bool drops_branches = false;    ///< layers drop out of both
  bool drops_mlp = false;         ///< of the MLP alone
  bool scales_residual = false;   ///< by a number, before it is added
  bool scales_embedding = false;  ///< outside of the embedding's module
  bool scales_logits = false;
  bool scales_queries = false;  ///< by their places
  bool norms_without_weights = false;
  bool cohere_norms = false;
  bool wide_tables = false;       ///< cosines and sines are in fp32, and so is what they turn
  bool widens_states = false;     ///< queries and keys are converted before they are turned
  bool tables_per_layer = false;  ///< each layer makes its cosines and sines of those that all share
  bool parts_in_caller = false;   ///< attention's own variables hold the parts of queries and keys
  bool head_bias = false;
  bool one_mask = false;         ///< for all layers, where they have a window
  bool norms_of_turned = false;  ///< queries and keys are normalized once heads come first
};
[[nodiscard]] Traits traits_of(const Model& model);

/// Whether a layer turns its queries and keys.
[[nodiscard]] bool turns_in(const Model& model, std::int64_t layer);

[[nodiscard]] torch::Tensor layer_norm_without_weights(torch::Session& s, const torch::Tensor& x);
[[nodiscard]] torch::Tensor cohere_layer_norm(torch::Session& s, const torch::Tensor& x, const torch::Tensor& weight);
/// torch.Tensor.clamp_ to `most` and its negative.
[[nodiscard]] torch::Tensor clipped(torch::Session& s, const torch::Tensor& x, double most);

}  // namespace tidemark::parallel::transformers
