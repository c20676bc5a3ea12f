#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "scenarios/model_config/detail/config_values.hpp"

// How families say what their experts and their latent attention are.

namespace tidemark::scenarios::config_format {

/// How a family says what its mixture of experts is, and what transformers takes where its file leaves that out.
struct ExpertsFormat {
  enum class Shared : std::uint8_t {
    None,
    Counted,  ///< n_shared_experts, each as wide as one of the others
    Wide,     ///< shared_expert_intermediate_size, with a gate
  };
  /// Which layers have a plain MLP.
  enum class Dense : std::uint8_t {
    None,
    First,   ///< first_k_dense_replace; moe_layer_freq of the others do not
    Listed,  ///< mlp_only_layers; decoder_sparse_step of the others do not
  };
  enum class Router : std::uint8_t {
    OfChosen,  ///< softmax over the chosen experts
    OfAll,     ///< softmax over all; norm_topk_prob makes the sum over the chosen one again, which comes to the above
    Sigmoid,   ///< with a correction that loads move
  };
  std::string_view count_key;
  std::int64_t count = 0;
  std::int64_t chosen = 0;  ///< num_experts_per_tok; 0: has to be said
  std::int64_t ffn = 0;     ///< moe_intermediate_size; 0: intermediate_size is what experts have
  Shared shared = Shared::None;
  std::int64_t shared_size = 0;  ///< where there is one: how many, or how wide
  Router router = Router::OfChosen;
  std::int64_t groups = 0, topk_group = 0;  ///< n_group, topk_group; 0: there are none
  Dense dense = Dense::None;
  std::int64_t first_dense = 0;
  double scaling = 1;          ///< routed_scaling_factor
  bool as_gpt_oss = false;     ///< biases everywhere, and a gate within limits
  bool requested_for = false;  ///< there are none unless the file says how many, nor shared ones; these have no gate
};
inline constexpr ExpertsFormat gpt2_experts{.count_key = "num_experts", .requested_for = true};
inline constexpr ExpertsFormat mixtral_experts{.count_key = "num_local_experts", .count = 8, .chosen = 2};
inline constexpr ExpertsFormat gpt_oss_experts{
    .count_key = "num_local_experts", .count = 128, .chosen = 4, .as_gpt_oss = true};
inline constexpr ExpertsFormat qwen2_experts{.count_key = "num_experts",
                                             .count = 60,
                                             .chosen = 4,
                                             .ffn = 1408,
                                             .shared = ExpertsFormat::Shared::Wide,
                                             .shared_size = 5632,
                                             .router = ExpertsFormat::Router::OfAll,
                                             .dense = ExpertsFormat::Dense::Listed};
inline constexpr ExpertsFormat qwen3_experts{.count_key = "num_experts",
                                             .count = 128,
                                             .chosen = 8,
                                             .ffn = 768,
                                             .router = ExpertsFormat::Router::OfAll,
                                             .dense = ExpertsFormat::Dense::Listed};
inline constexpr ExpertsFormat deepseek2_experts{.count_key = "n_routed_experts",
                                                 .count = 64,
                                                 .ffn = 1407,
                                                 .shared = ExpertsFormat::Shared::Counted,
                                                 .shared_size = 2,
                                                 .router = ExpertsFormat::Router::OfAll,
                                                 .dense = ExpertsFormat::Dense::First};
inline constexpr ExpertsFormat deepseek3_experts{.count_key = "n_routed_experts",
                                                 .count = 256,
                                                 .chosen = 8,
                                                 .ffn = 2048,
                                                 .shared = ExpertsFormat::Shared::Counted,
                                                 .shared_size = 1,
                                                 .router = ExpertsFormat::Router::Sigmoid,
                                                 .groups = 8,
                                                 .topk_group = 4,
                                                 .dense = ExpertsFormat::Dense::First,
                                                 .first_dense = 3,
                                                 .scaling = 2.5};
inline constexpr ExpertsFormat glm4_experts{.count_key = "n_routed_experts",
                                            .count = 128,
                                            .chosen = 8,
                                            .ffn = 1408,
                                            .shared = ExpertsFormat::Shared::Counted,
                                            .shared_size = 1,
                                            .router = ExpertsFormat::Router::Sigmoid,
                                            .groups = 1,
                                            .topk_group = 1,
                                            .dense = ExpertsFormat::Dense::First,
                                            .first_dense = 1};

inline constexpr std::string_view normalized_weights = "norm_topk_prob", scoring = "scoring_func",
                                  choice = "topk_method", routed_scaling = "routed_scaling_factor",
                                  dense_listed = "mlp_only_layers", first_dense = "first_k_dense_replace",
                                  top_k_experts = "num_experts_per_tok";

inline constexpr std::int64_t most_experts = 1 << 12;
inline constexpr std::int64_t most_experts_of_all_layers = 1 << 17;  // each has parameters of its own
inline constexpr std::int64_t most_latent = 1 << 18, most_latent_head = 256;
inline constexpr CountRule query_rank_rule{"q_lora_rank", most_latent, 0}, kv_rank_rule{"kv_lora_rank", most_latent},
    qk_nope_head_dim_rule{"qk_nope_head_dim", most_latent_head},
    qk_rope_head_dim_rule{"qk_rope_head_dim", most_latent_head}, value_head_rule{"v_head_dim", most_latent_head};
inline constexpr CountRule top_k_experts_rule{top_k_experts, most_experts},
    expert_ffn_rule{"moe_intermediate_size", 1 << 20}, shared_count_rule{"n_shared_experts", most_experts, 0},
    shared_ffn_rule{"shared_expert_intermediate_size", 1 << 20, 0}, groups_rule{"n_group", most_experts, 0},
    topk_group_rule{"topk_group", most_experts, 0}, first_dense_rule{first_dense, 1 << 12, 0},
    sparse_step_rule{"decoder_sparse_step", 1 << 12}, expert_layers_rule{"moe_layer_freq", 1 << 12};
inline constexpr CountRule mtp_layers_rule{"num_nextn_predict_layers", 16, 0};

}  // namespace tidemark::scenarios::config_format
