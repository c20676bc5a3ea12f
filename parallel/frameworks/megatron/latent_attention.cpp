#include "parallel/frameworks/megatron/latent_attention.hpp"

namespace tidemark::parallel::megatron {

// The spec of core/models/gpt/gpt_layer_specs.py: a norm by itself before attention, down projections whole on every
// rank, and the norms of latents within the projections up.
LatentSelfAttention::LatentSelfAttention(Worker& w, Parameters& parameters, const std::string& layer)
    : w_(w), name_(w.name(layer + ".attention")) {
  const Model& m = w.model;
  const LatentAttention& latent = *m.latent;
  const std::string at = layer + ".attention";
  const auto down = [&](const char* name, std::int64_t rank) {
    return make_linear(w, parameters, at + name, rank, m.hidden, WeightCut::None, GemmBias::None);
  };
  const auto up = [&](const char* name, std::int64_t width, std::int64_t rank) {
    return make_linear(w, parameters, at + name, m.heads * width, rank, WeightCut::Rows, GemmBias::None);
  };
  norm_ = make_norm(w, parameters, at + ".norm");
  proj_ = make_linear(w, parameters, at + ".proj", m.hidden, m.heads * latent.value_head, WeightCut::Columns,
                      GemmBias::None);
  if (latent.query_rank > 0) {
    q_down_ = down(".q_down", latent.query_rank);
    if (latent.normalized) q_norm_ = make_norm(w, parameters, at + ".q_norm", latent.query_rank);
    q_up_ = up(".q_up", latent.query_head(), latent.query_rank);
  } else {
    q_up_ = up(".q", latent.query_head(), m.hidden);
  }
  kv_down_ = down(".kv_down", latent.kv_rank + latent.rotary_head);
  if (latent.normalized) kv_norm_ = make_norm(w, parameters, at + ".kv_norm", latent.kv_rank);
  kv_up_ = up(".kv_up", latent.plain_head + latent.value_head, latent.kv_rank);
}

}  // namespace tidemark::parallel::megatron
