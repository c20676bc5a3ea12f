#pragma once

#include "parallel/frameworks/torchtitan/tensor_parallel.hpp"
#include "parallel/frameworks/transformers/modules.hpp"

namespace tidemark::parallel::torchtitan {

/// Multi-head latent attention of torchtitan's DeepSeek-V3 (models/deepseek_v3/model/model.py, 0.2.2), by
/// flex_attention. Tensor-parallel ranks have parts of the projections from latents to heads, and of the last one; what
/// projects to latents, and latents' norms, they have whole (NoParallel).
struct MultiLatentAttention {
  Linear query;                   ///< wq, or wq_b, which projects up
  Linear query_down;              ///< wq_a, where there is a rank
  Linear kv_down, kv_up, output;  ///< wkv_a, wkv_b, wo
  Norm query_norm, kv_norm;
  bool fused_norms = true;
  TensorGroup tensor = {};

  /// Of this rank's part of the sequence; `table` are cosines and sines of all positions, [1, sequence, 1, pairs, 2].
  Tensor operator()(Session& s, const Model& model, const Tensor& part, const Tensor& table) const;

 private:
  [[nodiscard]] Tensor normed(Session& s, const Norm& norm, const Tensor& x) const;
  [[nodiscard]] Tensor queries(Session& s, const Tensor& x) const;
};

}  // namespace tidemark::parallel::torchtitan
