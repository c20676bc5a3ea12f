#pragma once

#include <optional>
#include <string>

#include "parallel/frameworks/megatron/parameters.hpp"

namespace tidemark::parallel::megatron {

/// core/transformer/multi_latent_attention.py MLASelfAttention, with the norm before it: queries, keys and values are
/// projected up from latents.
class LatentSelfAttention {
 public:
  LatentSelfAttention(Worker& worker, Parameters& parameters, const std::string& layer);

 private:
  Worker& w_;
  Name name_;
  Norm norm_;
  Linear proj_;
  std::optional<Norm> q_norm_, kv_norm_;  ///< of latents
  std::optional<Linear> q_down_;
  Linear q_up_;  ///< from their latent, or from the residual stream
  Linear kv_down_, kv_up_;
};

}  // namespace tidemark::parallel::megatron
