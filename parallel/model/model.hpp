#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/namespace.hpp"

namespace tidemark::parallel {

/// How the residual stream is normalized: RMSNorm keeps 1/rms of each token, LayerNorm mean and 1/deviation.
enum class Normalization : std::uint8_t { Rms, Layer };

/// Where a layer's norms stand: before attention and MLP (pre-norm), on what they give to the residual stream and
/// nowhere else (OLMo 2), or both (Gemma 2 and 3).
enum class NormPlacement : std::uint8_t { Before, After, Around };

/// What of queries and keys is normalized before they are turned: nothing, each head on its own (Qwen3, Gemma 3), or
/// all heads of a token together (OLMo 2).
enum class QkNorm : std::uint8_t { None, PerHead, AllHeads };

/// What the MLP does between its two linears. SwiGLU and GeGLU gate one half of fc1's output with the other.
enum class Activation : std::uint8_t { SwiGlu, GeGlu, Gelu, SquaredRelu };
[[nodiscard]] constexpr bool gated(Activation activation) {
  return activation == Activation::SwiGlu || activation == Activation::GeGlu;
}

/// How GELU is computed: by the error function, by the hyperbolic tangent ("gelu_pytorch_tanh"), or by the latter's
/// formula, one operation after the other ("gelu_new").
enum class GeluForm : std::uint8_t { Exact, Tanh, Composite };

/// How a token's place reaches attention: by turning queries and keys, or as a learned vector added to its embedding.
enum class Positions : std::uint8_t { Rotary, Learned };

/// Multi-head latent attention (DeepSeek-V2): queries, keys and values are projected up from narrow latents that are
/// normalized; a head's queries and keys have dimensions that positions turn beside those that they do not, and keys
/// share the former.
struct MultiLatentAttention {
  std::int64_t query_rank = 0;        ///< q_lora_rank; 0: queries have no latent
  std::int64_t kv_rank = 0;           ///< kv_lora_rank
  std::int64_t qk_nope_head_dim = 0;  ///< qk_nope_head_dim: what positions leave alone
  std::int64_t qk_rope_head_dim = 0;  ///< qk_rope_head_dim
  std::int64_t value_head = 0;        ///< v_head_dim
  bool normalized = true;             ///< latents are, before they are projected up (Megatron's qk-layernorm)

  [[nodiscard]] std::int64_t query_head() const { return qk_nope_head_dim + qk_rope_head_dim; }
  bool operator==(const MultiLatentAttention&) const = default;
};

/// How a router makes probabilities of its logits: softmax over the chosen experts, or over all before it chooses, or
/// each expert's sigmoid, whose sum over the chosen ones is made one.
enum class RouterScore : std::uint8_t { Softmax, SoftmaxBefore, Sigmoid };

/// The MLPs of a mixture of experts, of which each token goes through a few.
struct Experts {
  std::int64_t count = 0;       ///< of a layer
  std::int64_t chosen = 0;      ///< num_experts_per_tok
  std::int64_t ffn = 0;         ///< moe_intermediate_size: of one branch
  std::int64_t shared_ffn = 0;  ///< of all experts together that every token goes through; 0: there is none
  bool shared_gate = false;     ///< what these give is multiplied by a sigmoid of the token (Qwen2)
  bool biases = false;          ///< of the experts' linears and of the router (gpt-oss)
  bool clamped_gate = false;    ///< SwiGLU of values within limits: (up + 1) * gate * sigmoid(1.702 * gate) (gpt-oss)
  RouterScore score = RouterScore::Softmax;
  std::int64_t groups = 0;              ///< n_group: experts are chosen from the best of so many groups; 0: from all
  std::int64_t topk_group = 0;          ///< topk_group
  bool correction_bias = false;         ///< added to scores for the choice only, moved by loads (DeepSeek-V3)
  double scale = 1;                     ///< routed_scaling_factor, of probabilities
  std::vector<bool> dense_layers = {};  ///< those that have a plain MLP instead; empty, or beyond its end: none

  bool operator==(const Experts&) const = default;
};

/// What a decoder-only transformer is, before anyone shards it: the facts of a Hugging Face config.json.
/// Counts are elements of the whole model; `head_dim` is per head.
struct Model {
  std::string name;          ///< of the file it came from, without folder and ending
  std::string architecture;  ///< model_type: "llama", "gemma2", "gpt_neox", …
  std::int64_t hidden = 0;   ///< hidden_size
  std::int64_t layers = 0;   ///< num_hidden_layers
  std::int64_t heads = 0;    ///< num_attention_heads
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;         ///< intermediate_size: of one branch where the MLP is gated
  std::int64_t vocabulary = 0;  ///< vocab_size, before any padding
  std::int64_t max_positions = 0;
  bool tied_embeddings = false;  ///< tie_word_embeddings
  bool qkv_bias = false;         ///< bias on the Q, K and V projections (Qwen2; Llama's attention_bias)
  bool output_bias = false;      ///< bias on the attention output projection (Llama's attention_bias)
  bool mlp_bias = false;
  QkNorm qk_norm = QkNorm::None;  ///< of a head as the layers' norms are; of all heads an RMSNorm
  Normalization normalization = Normalization::Rms;
  NormPlacement norms = NormPlacement::Before;
  bool zero_centered_norms = false;  ///< norms multiply by 1 + weight (Gemma)
  bool parallel_residual = false;    ///< MLP and attention read the same input, and both are added to it (GPT-NeoX)
  bool scaled_embedding = false;     ///< embeddings are multiplied by sqrt(hidden) (Gemma)
  Activation activation = Activation::SwiGlu;
  GeluForm gelu = GeluForm::Exact;  ///< in plain PyTorch
  Positions positions = Positions::Rotary;
  double rotary_fraction = 1;       ///< of each head, from its beginning on: what rotary positions turn (rotary_pct)
  bool window_rotary = false;       ///< layers with a sliding window turn by angles of their own (Gemma 3)
  std::int64_t sliding_window = 0;  ///< keys that layers with such a window see; 0: no layer has one
  std::vector<bool> full_attention_layers =
      {};                        ///< those that see all keys nevertheless; empty, or beyond its end: none
  double attention_softcap = 0;  ///< scores become cap * tanh(score / cap) (attn_logit_softcapping); 0: they do not
  double logit_softcap = 0;      ///< the same of the logits (final_logit_softcapping)
  bool attention_sinks = false;  ///< a learned logit of each head takes part in the softmax (gpt-oss)
  std::optional<MultiLatentAttention> latent = {};  ///< in place of plain attention
  std::optional<Experts> experts = {};
  std::int64_t mtp_layers = 0;  ///< num_nextn_predict_layers: modules that predict tokens after the next one

  /// Tokens that a tokenizer adds before the vocabulary is padded (Megatron's NullTokenizer: 1).
  std::int64_t vocabulary_extra = 0;
  /// Padding quantum of the vocabulary per tensor-parallel rank; 0: the runtime's default.
  std::int64_t vocabulary_multiple = 0;

  /// Whether a layer sees a window of keys only.
  [[nodiscard]] bool has_window(std::size_t layer) const {
    return sliding_window > 0 && (layer >= full_attention_layers.size() || !full_attention_layers[layer]);
  }

  /// Of a head: queries and keys are `head_dim` wide.
  [[nodiscard]] std::int64_t value_dim() const { return latent ? latent->value_head : head_dim; }

  /// Whether the last stage needs the embedding's weight too: as its head, or for modules that predict further tokens.
  [[nodiscard]] bool embeds_at_both_ends() const { return tied_embeddings || mtp_layers > 0; }

  /// Whether a layer's MLP is a mixture of experts; modules that predict further tokens come after the last.
  [[nodiscard]] bool has_experts(std::size_t layer) const {
    return experts && (layer >= experts->dense_layers.size() || !experts->dense_layers[layer]);
  }

  /// Dimensions of a head that rotary positions turn, as transformers and Megatron round them.
  [[nodiscard]] std::int64_t rotary_dim() const {
    if (latent) return latent->qk_rope_head_dim;
    return static_cast<std::int64_t>(static_cast<double>(head_dim) * rotary_fraction);
  }

  bool operator==(const Model&) const = default;
};

}  // namespace tidemark::parallel
