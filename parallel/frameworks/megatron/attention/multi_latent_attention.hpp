#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "parallel/frameworks/megatron/optimizer/parameters.hpp"
#include "parallel/frameworks/megatron/recompute.hpp"

namespace tidemark::parallel::megatron {

class OffloadedRegion;

/// core/transformer/multi_latent_attention.py MLASelfAttention, with the norm before it: queries, keys and values are
/// projected up from latents.
class MlaSelfAttention {
 public:
  MlaSelfAttention(Worker& worker, Parameters& parameters, std::int32_t layer);
  /// `norm`: the norm before, where it is offloaded.
  [[nodiscard]] Tensor operator()(Tensor hidden, OffloadedRegion* norm);
  [[nodiscard]] const Weight* output_bias() const { return output_bias_; }
  /// Core attention runs again instead of saving.
  bool recompute_core = false;

 private:
  /// Each [sequence, batch, heads, width].
  struct Heads {
    Tensor query, key, value;
  };
  /// Of keys: their latent, and what positions turn, which is there of all tokens.
  struct Down {
    Tensor latent, positions;
  };
  enum class Requested : std::uint8_t { AtFirst, Later };

  [[nodiscard]] bool remembered(Requested requested, bool others) const;
  void make_tables();
  [[nodiscard]] Shape by_head(std::int64_t heads, std::int64_t width) const;
  [[nodiscard]] Down down(const Tensor& hidden);
  [[nodiscard]] Tensor gathered(Tensor positions);
  [[nodiscard]] Tensor up(const std::optional<Norm>& its_norm, const Linear& projection, const Tensor& latent);
  [[nodiscard]] Tensor side_by_side(const Tensor& latent);
  [[nodiscard]] Heads up_and_turned(const Tensor& q_latent, const Tensor& kv_latent, const Tensor& positions);
  [[nodiscard]] Tensor contiguous(std::string_view label, Tensor x);
  [[nodiscard]] Tensor turned_in_place(Tensor query);
  [[nodiscard]] Heads assembled(Tensor query, const Tensor& joint, const Tensor& positions);
  [[nodiscard]] Tensor in_halves(Tensor x, const Shape& shape);
  [[nodiscard]] Heads turned_and_joined(const Tensor& query, const Tensor& joint, const Tensor& positions);
  [[nodiscard]] Tensor core(const Heads& of);
  /// `again`: what makes them a second time, where something does.
  [[nodiscard]] Heads heads(Tensor normed, std::optional<CheckpointWithoutOutput>& again);
  [[nodiscard]] Heads heads_of(const Tensor& normed, std::optional<CheckpointWithoutOutput>& again);

  Worker& w_;
  const MultiLatentAttention& latent_;
  std::int32_t layer_;
  Name name_, positions_;
  Norm norm_;
  Linear proj_;
  const Weight* output_bias_ = nullptr;
  std::optional<Linear> q_down_;
  std::optional<Norm> q_norm_, kv_norm_;  ///< of latents
  Linear q_up_;                           ///< from their latent, or from the residual stream
  Linear kv_down_, kv_up_;
  CoreAttention core_;
  Rotary query_rotary_, key_rotary_;  ///< where no kernel does it all
  std::vector<Tensor> kept_;          ///< tables, from the first tokens on
  Tensor angles_;                     ///< for the two
  Tensor cosines_, sines_;            ///< [sequence, 1, 1, dimensions that are turned]
};

}  // namespace tidemark::parallel::megatron
