#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "parallel/model/model.hpp"
#include "scenarios/model_config/detail/config_values.hpp"
#include "scenarios/model_config/detail/experts_format.hpp"
#include "scenarios/namespace.hpp"

// What the keys of a config.json are called, family by family, what they are where they are left out, and which of them
// are not modelled or do not matter.

namespace tidemark::scenarios::config_format {

/// How a family's config.json calls what all of them have.
struct Keys {
  std::string_view hidden, layers, heads, ffn, positions, activation;
};
inline constexpr Keys usual_keys{"hidden_size",       "num_hidden_layers",       "num_attention_heads",
                                 "intermediate_size", "max_position_embeddings", "hidden_act"};
inline constexpr Keys gemma_keys{"hidden_size",       "num_hidden_layers",       "num_attention_heads",
                                 "intermediate_size", "max_position_embeddings", "hidden_activation"};
inline constexpr Keys nemotron_keys{"hidden_size",       "num_hidden_layers",       "num_attention_heads",
                                    "intermediate_size", "max_position_embeddings", "mlp_hidden_act"};
inline constexpr Keys gpt2_keys{"n_embd", "n_layer", "n_head", "n_inner", "n_positions", "activation_function"};

/// Which linears have biases, and which keys say so.
enum class Biases : std::uint8_t {
  None,           ///< and a key that asks for one is refused
  Qkv,            ///< on Q, K and V, where qkv_bias does not say false (Qwen2Attention, Qwen2MoeConfig)
  QkvFlag,        ///< the same where attention_bias says so (Glm4MoeAttention)
  Projections,    ///< attention_bias, of all four; none in the MLP (Qwen3MoeConfig; GptOssConfig: true where left out)
  Flags,          ///< attention_bias and mlp_bias (LlamaConfig)
  AttentionFlag,  ///< attention_bias, which no published model sets; none in the MLP
  NeoX,           ///< attention_bias, true where it is left out; always in the MLP
  All,
  LinearFlag,  ///< add_bias_linear, true where it is left out
};

/// Whether layers may attend to a window of keys only.
enum class Window : std::uint8_t {
  Never,
  Key,          ///< sliding_window
  Flag,         ///< sliding_window, where use_sliding_window is true, from layer max_window_layers on
  FlagRefused,  ///< use_sliding_window, which no published model sets
};

/// What transformers takes where a family's config.json leaves a key out: LlamaConfig, Qwen2Config, MistralConfig,
/// Phi3Config (whose joint projections are those that Megatron makes of the others), GemmaConfig, Gemma2Config,
/// Gemma3TextConfig, Olmo2Config, GPTNeoXConfig, GPT2Config, GPTBigCodeConfig, MixtralConfig, Qwen2MoeConfig,
/// Qwen3MoeConfig, DeepseekV2Config, DeepseekV3Config (which Kimi K2 is too), Glm4MoeConfig, GptOssConfig,
/// NemotronHConfig, DeciLMConfig (which the checkpoints bring along).
struct Family {
  std::string_view name;
  std::int64_t kv_heads;  ///< 0: as many as attention heads
  std::int64_t max_positions;
  Biases biases = Biases::None;
  std::string_view activation = "silu";
  Keys keys = usual_keys;
  bool tied = false;
  std::int64_t head_dim = 0;    ///< 0: hidden_size / heads
  std::int64_t vocabulary = 0;  ///< 0: has to be said
  Window window = Window::Never;
  std::int64_t usual_window = 0;    ///< 0: none
  std::int64_t window_pattern = 0;  ///< one layer in so many sees all keys; 0: none does
  const ExpertsFormat* experts = nullptr;
  bool latent = false;      ///< multi-head latent attention
  bool mtp_layers = false;  ///< num_nextn_predict_layers means something
  bool hybrid = false;      ///< hybrid_override_pattern says what each layer is
  bool blocks = false;      ///< block_configs does
};
inline constexpr std::string_view qwen2 = "qwen2", qwen3 = "qwen3", gemma1 = "gemma", gemma2 = "gemma2",
                                  gemma3 = "gemma3_text", olmo2 = "olmo2", gpt_neox = "gpt_neox", gpt2 = "gpt2",
                                  gpt_bigcode = "gpt_bigcode", qwen3_moe = "qwen3_moe", glm4_moe = "glm4_moe",
                                  gpt_oss = "gpt_oss", nemotron_h = "nemotron_h";
inline constexpr std::string_view tanh_gelu = "gelu_pytorch_tanh";
/// DeepSeek-V3, and what its architecture is called elsewhere.
constexpr Family deepseek3(std::string_view name) {
  return {.name = name,
          .kv_heads = 0,
          .max_positions = 4096,
          .biases = Biases::AttentionFlag,
          .experts = &deepseek3_experts,
          .latent = true,
          .mtp_layers = true};
}
/// What tells the generations of Gemma apart.
struct Gemma {
  std::string_view name;
  std::int64_t max_positions, vocabulary, window_pattern;
};
constexpr Family gemma(const Gemma& its) {
  return {.name = its.name,
          .kv_heads = 4,
          .max_positions = its.max_positions,
          .biases = Biases::AttentionFlag,
          .activation = tanh_gelu,
          .keys = gemma_keys,
          .tied = true,
          .head_dim = 256,
          .vocabulary = its.vocabulary,
          .window = Window::Key,
          .usual_window = 4096,
          .window_pattern = its.window_pattern};
}
inline constexpr std::array families{
    Family{.name = "llama", .kv_heads = 0, .max_positions = 2048, .biases = Biases::Flags},
    Family{.name = qwen2, .kv_heads = 32, .max_positions = 32768, .biases = Biases::Qkv, .window = Window::Flag},
    Family{.name = "mistral", .kv_heads = 8, .max_positions = 131072, .window = Window::Key, .usual_window = 4096},
    Family{.name = "phi3", .kv_heads = 0, .max_positions = 4096, .window = Window::Key},
    Family{.name = qwen3, .kv_heads = 32, .max_positions = 32768, .window = Window::Flag},
    Family{.name = gemma1,
           .kv_heads = 16,
           .max_positions = 8192,
           .biases = Biases::AttentionFlag,
           .activation = tanh_gelu,
           .keys = gemma_keys,
           .tied = true,
           .head_dim = 256,
           .vocabulary = 256000},
    gemma({.name = gemma2, .max_positions = 8192, .vocabulary = 0, .window_pattern = 2}),
    gemma({.name = gemma3, .max_positions = 131072, .vocabulary = 262208, .window_pattern = 6}),
    Family{.name = olmo2, .kv_heads = 0, .max_positions = 2048, .biases = Biases::AttentionFlag},
    Family{.name = gpt_neox, .kv_heads = 0, .max_positions = 2048, .biases = Biases::NeoX, .activation = "gelu"},
    Family{.name = gpt2,
           .kv_heads = 0,
           .max_positions = 1024,
           .biases = Biases::LinearFlag,
           .activation = "gelu_new",
           .keys = gpt2_keys,
           .tied = true,
           .experts = &gpt2_experts},
    Family{.name = gpt_bigcode,
           .kv_heads = 0,
           .max_positions = 1024,
           .biases = Biases::All,
           .activation = tanh_gelu,
           .keys = gpt2_keys,
           .tied = true},
    Family{
        .name = "mixtral", .kv_heads = 8, .max_positions = 131072, .window = Window::Key, .experts = &mixtral_experts},
    Family{.name = "qwen2_moe",
           .kv_heads = 16,
           .max_positions = 32768,
           .biases = Biases::Qkv,
           .window = Window::FlagRefused,
           .experts = &qwen2_experts},
    Family{.name = qwen3_moe,
           .kv_heads = 4,
           .max_positions = 32768,
           .biases = Biases::Projections,
           .window = Window::FlagRefused,
           .experts = &qwen3_experts},
    Family{.name = "deepseek_v2",
           .kv_heads = 0,
           .max_positions = 2048,
           .biases = Biases::AttentionFlag,
           .experts = &deepseek2_experts,
           .latent = true},
    deepseek3("deepseek_v3"),
    deepseek3("kimi_k2"),
    Family{.name = glm4_moe,
           .kv_heads = 8,
           .max_positions = 131072,
           .biases = Biases::QkvFlag,
           .experts = &glm4_experts,
           .mtp_layers = true},
    Family{.name = gpt_oss,
           .kv_heads = 8,
           .max_positions = 131072,
           .biases = Biases::Projections,
           .head_dim = 64,
           .window = Window::Key,
           .usual_window = 128,
           .window_pattern = 2,
           .experts = &gpt_oss_experts},
    Family{.name = nemotron_h,
           .kv_heads = 8,
           .max_positions = 4096,
           .activation = "relu2",
           .keys = nemotron_keys,
           .head_dim = 128,
           .hybrid = true},
    Family{.name = "nemotron-nas", .kv_heads = 0, .max_positions = 2048, .biases = Biases::Flags, .blocks = true}};
/// Families that are asked for, and why they are none of these.
struct OtherFamily {
  std::string_view name, why;
};
inline constexpr std::array other_families{
    OtherFamily{"falcon_h1", "its layers have attention and Mamba-2 side by side, and Megatron-LM has no such layer"},
    OtherFamily{"falcon_mamba", "its mixer is Mamba's first, and Megatron-LM has the second"}};
inline constexpr double gemma2_attention_softcap = 50, gemma2_logit_softcap = 30;
inline constexpr double neox_rotary_fraction = 0.25, glm4_rotary_fraction = 0.5;

// Beyond what GPT2Config knows, models of its family that Megatron trains have rotary positions, no biases, a gated
// MLP, latent attention or experts: said as other configurations on the hub say it (BERT's, ChatGLM's, DeepSeek's,
// Qwen2's).
inline constexpr std::string_view position_kind = "position_embedding_type";
inline constexpr std::string_view linear_bias = "add_bias_linear";
inline constexpr std::string_view query_key_norms = "qk_layernorm";

inline constexpr std::string_view attention_bias = "attention_bias", mlp_bias = "mlp_bias", multi_query = "multi_query",
                                  parallel_residual = "use_parallel_residual",
                                  attention_softcap = "attn_logit_softcapping",
                                  logit_softcap = "final_logit_softcapping", sliding_window = "sliding_window",
                                  use_sliding_window = "use_sliding_window", window_pattern = "sliding_window_pattern",
                                  first_window = "max_window_layers", rotary_percent = "rotary_pct",
                                  partial_rotary = "partial_rotary_factor", rope_parameters = "rope_parameters",
                                  qkv_bias = "qkv_bias", use_qk_norm = "use_qk_norm", quantized = "quantization_config",
                                  compressed = "compression_config", block_configs = "block_configs";

/// An activation by the name that configurations give it. Most families gate their MLP whatever it is.
struct NamedActivation {
  std::string_view name;
  Activation activation;
  bool gate;
};
inline constexpr std::array activations{
    NamedActivation{"silu", Activation::SwiGlu, true},   NamedActivation{"gelu", Activation::GeGlu, true},
    NamedActivation{tanh_gelu, Activation::GeGlu, true}, NamedActivation{"gelu_new", Activation::Gelu, false},
    NamedActivation{"gelu", Activation::Gelu, false},    NamedActivation{"gelu_fast", Activation::Gelu, false},
    NamedActivation{tanh_gelu, Activation::Gelu, false}, NamedActivation{"relu2", Activation::SquaredRelu, false},
};
/// Megatron's gated MLP of the family that has none otherwise.
inline constexpr std::string_view gated_gpt2 = "swiglu";

/// Keys whose presence with a value that says something changes what is allocated in a way that is not modelled. Those
/// that a family reads are its own, and not asked about.
struct Unmodelled {
  std::string_view key;
  std::string_view what;
};
inline constexpr std::array unmodelled_keys{
    Unmodelled{quantized, "a quantized base is"},
    Unmodelled{compressed, "a quantized base is"},
    Unmodelled{"qk_norm", "normalization of Q and K is"},
    Unmodelled{query_key_norms, "normalization of Q and K is"},
    Unmodelled{"use_bidirectional_attention", "attention to what comes after is"},
    Unmodelled{"mtp_num_layers", "multi-token prediction by this name is"},
    Unmodelled{"cross_attention_layers", "cross-attention is"},
    Unmodelled{"add_cross_attention", "cross-attention is"},
    Unmodelled{"is_encoder_decoder", "an encoder is"},
    Unmodelled{"encoder_layers", "an encoder is"},
    Unmodelled{"vision_config", "a vision tower is"},
    Unmodelled{"audio_config", "an audio tower is"},
    Unmodelled{"text_config", "a model of several parts is"},
    Unmodelled{block_configs, "layers that differ from each other are"},
    Unmodelled{"lm_head_bias", "bias on the LM head is"},
    Unmodelled{"reorder_and_upcast_attn", "attention in fp32 is"},
    Unmodelled{"chunk_size_feed_forward", "a chunked MLP is"},
    Unmodelled{"clip_qkv", "limiting of Q, K and V is"},
    Unmodelled{"output_router_logits", "the loss of routers that transformers adds is"},
};
/// The same of keys that some families have.
inline constexpr std::array foreign_keys{
    Unmodelled{"num_local_experts", "mixture of experts is"},
    Unmodelled{"num_experts", "mixture of experts is"},
    Unmodelled{"n_routed_experts", "mixture of experts is"},
    Unmodelled{"n_shared_experts", "mixture of experts is"},
    Unmodelled{"moe_intermediate_size", "mixture of experts is"},
    Unmodelled{"shared_expert_intermediate_size", "mixture of experts is"},
    Unmodelled{"q_lora_rank", "multi-head latent attention is"},
    Unmodelled{"kv_lora_rank", "multi-head latent attention is"},
    Unmodelled{"qk_nope_head_dim", "multi-head latent attention is"},
    Unmodelled{"qk_rope_head_dim", "multi-head latent attention is"},
    Unmodelled{"v_head_dim", "a head size of V's own is"},
    Unmodelled{"use_qk_norm", "normalization of Q and K is"},
    Unmodelled{"num_nextn_predict_layers", "multi-token prediction is"},
};

/// Keys that say nothing about memory here, so that an override of one of them is not a slip of the pen.
inline constexpr auto harmless_keys = std::to_array<std::string_view>({"_name_or_path",
                                                                       "architectures",
                                                                       "attention_dropout",
                                                                       "bos_token_id",
                                                                       "dtype",
                                                                       "eos_token_id",
                                                                       "hidden_dropout",
                                                                       "initializer_range",
                                                                       "layer_types",
                                                                       "original_name",
                                                                       "pad_token_id",
                                                                       "pretraining_tp",
                                                                       "rms_norm_eps",
                                                                       "rope_scaling",
                                                                       "rope_theta",
                                                                       "torch_dtype",
                                                                       "transformers_version",
                                                                       "use_cache",
                                                                       "use_mrope",
                                                                       "unk_token_id",
                                                                       "auto_map",
                                                                       "name",
                                                                       "attn_pdrop",
                                                                       "embd_pdrop",
                                                                       "resid_pdrop",
                                                                       "layer_norm_epsilon",
                                                                       "n_ctx",
                                                                       "attention_softmax_in_fp32",
                                                                       "scale_attention_softmax_in_fp32",
                                                                       "query_pre_attn_scalar",
                                                                       "cache_implementation",
                                                                       "rope_local_base_freq",
                                                                       "rotary_emb_base",
                                                                       "layer_norm_eps",
                                                                       "classifier_dropout",
                                                                       "scale_attn_weights",
                                                                       "original_max_position_embeddings",
                                                                       "qk_head_dim",
                                                                       "rope_interleave",
                                                                       "router_aux_loss_coef",
                                                                       "router_jitter_noise",
                                                                       "aux_loss_alpha",
                                                                       "seq_aux",
                                                                       "ep_size",
                                                                       "swiglu_limit",
                                                                       "swiglu_alpha",
                                                                       "initial_context_length",
                                                                       "experts_per_token",
                                                                       "chunk_size",
                                                                       "expand",
                                                                       "mamba_ssm_cache_dtype",
                                                                       "num_logits_to_keep",
                                                                       "rescale_prenorm_residual",
                                                                       "time_step_floor",
                                                                       "time_step_limit",
                                                                       "time_step_max",
                                                                       "time_step_min",
                                                                       "time_step_rank",
                                                                       "embedding_multiplier",
                                                                       "residual_multiplier",
                                                                       "attention_multiplier",
                                                                       "logits_scaling",
                                                                       "logit_scale",
                                                                       "norm_epsilon",
                                                                       "embedding_dropout",
                                                                       "use_mamba_kernels"});

// Bounds far above any model, so that no product of a few of them leaves 64 bits.
inline constexpr std::int64_t most_hidden = 1 << 18, most_layers = 1 << 12, most_heads = 1 << 12, most_ffn = 1 << 20;
inline constexpr std::int64_t most_positions = std::int64_t{1} << 40;
inline constexpr std::int64_t most_learned_positions = std::int64_t{1} << 24;  // each has a vector of its own
inline constexpr CountRule kv_heads_rule{"num_key_value_heads", 1 << 12};
inline constexpr CountRule head_dim_rule{"head_dim", 256};  // the most that FlashAttention and cuDNN take
inline constexpr CountRule vocabulary_rule{"vocab_size", 1 << 22};
inline constexpr double most_softcap = 1e6;
inline constexpr CountRule mamba_heads_rule{"mamba_num_heads", 1 << 12}, mamba_head_dim_rule{"mamba_head_dim", 1 << 10},
    mamba_groups_rule{"n_groups", 1 << 12}, mamba_state_rule{"ssm_state_size", 1 << 12};
inline constexpr std::string_view pattern_key = "hybrid_override_pattern";

}  // namespace tidemark::scenarios::config_format
