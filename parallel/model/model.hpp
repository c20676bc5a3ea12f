#pragma once

#include <cstdint>
#include <string>

#include "parallel/model/layer.hpp"

namespace tidemark::parallel {

/// How the residual stream is normalized: RMSNorm keeps 1/rms of each token, LayerNorm mean and 1/deviation.
enum class Normalization : std::uint8_t { Rms, Layer };

/// Where a layer's norms are: before attention and MLP (pre-norm), on their outputs to the residual stream and
/// nowhere else (OLMo 2), or both (Gemma 2 and 3).
enum class NormPlacement : std::uint8_t { Before, After, Around };

/// Normalization of queries and keys before rotary positions: none, each head on its own (Qwen3, Gemma 3), or
/// all heads of a token together (OLMo 2).
enum class QkNorm : std::uint8_t { None, PerHead, AllHeads };

/// The MLP's function between its two linears. SwiGLU and GeGLU gate one half of fc1's output with the other.
enum class Activation : std::uint8_t { SwiGlu, GeGlu, Gelu, SquaredRelu };
[[nodiscard]] constexpr bool gated(Activation activation) {
  return activation == Activation::SwiGlu || activation == Activation::GeGlu;
}

/// How GELU is computed: by the error function, by the hyperbolic tangent ("gelu_pytorch_tanh"), or by the latter's
/// formula, one operation after the other ("gelu_new").
enum class GeluForm : std::uint8_t { Exact, Tanh, Composite };

/// How a token's position reaches attention: by rotating queries and keys, as a learned vector added to its embedding,
/// or not at all, if other mixers encode the order of tokens (Nemotron-H).
enum class Positions : std::uint8_t { Rotary, Learned, None };

/// A decoder-only transformer before sharding: the facts of a Hugging Face config.json.
/// Counts are elements of the whole model; `head_dim` is per head.
struct Model {
  std::string name;          ///< of the file it came from, without folder and ending
  std::string architecture;  ///< model_type: "llama", "gemma2", "gpt_neox", …
  std::int64_t hidden = 0;   ///< hidden_size
  std::int64_t heads = 0;    ///< num_attention_heads
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;         ///< intermediate_size: of one branch where the MLP is gated; a layer may have its own
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
  double rotary_fraction = 1;    ///< part of each head, from its beginning, that rotary positions rotate (rotary_pct)
  bool window_rotary = false;    ///< layers with a sliding window rotate by angles of their own (Gemma 3)
  double attention_softcap = 0;  ///< scores become cap * tanh(score / cap) (attn_logit_softcapping); 0: they do not
  double logit_softcap = 0;      ///< the same of the logits (final_logit_softcapping)
  bool attention_sinks = false;  ///< a learned logit of each head takes part in the softmax (gpt-oss)
  // What its own configuration drops out, where that is read: transformers trains with it unless told.
  double hidden_dropout = 0;  ///< residual_dropout, resid_pdrop, hidden_dropout, dropout
  double attention_dropout = 0;
  double qkv_clip = 0;  ///< queries, keys and values are limited to it in place (clip_qkv); 0: they are not
  LayerList layers = {};
  LayerList further = {};  ///< of modules that predict tokens after the next one (num_nextn_predict_layers)

  /// Tokens that a tokenizer adds before the vocabulary is padded (Megatron's NullTokenizer: 1).
  std::int64_t vocabulary_extra = 0;
  /// Padding quantum of the vocabulary per tensor-parallel rank; 0: the runtime's default.
  std::int64_t vocabulary_multiple = 0;

  /// Its layers are as transformers builds them, and no other framework here does.
  [[nodiscard]] bool transformers_alone() const;

  /// Layers of modules that predict further tokens follow the others.
  [[nodiscard]] std::int64_t all_layers() const { return layers.size() + further.size(); }
  [[nodiscard]] const Layer& layer(std::int64_t number) const {
    return number < layers.size() ? layers[number] : further[number - layers.size()];
  }
  [[nodiscard]] bool has_experts(std::int64_t number) const { return layer(number).experts() != nullptr; }

  /// How many of the layers before one have experts.
  [[nodiscard]] std::int64_t with_experts_before(std::int64_t number) const {
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < number; ++i) found += has_experts(i) ? 1 : 0;
    return found;
  }

  /// The sizes shared by all layers that have such a part: each framework here has one set of them, and readers
  /// make no other. Nothing where no layer has it. Code that builds a layer asks that layer.
  [[nodiscard]] const Experts* experts() const {
    for (const Layer& its : layers.kinds())
      if (its.experts() != nullptr) return its.experts();
    return nullptr;
  }
  [[nodiscard]] const MultiLatentAttention* latent() const {
    for (const Layer& its : layers.kinds())
      if (const auto* found = std::get_if<MultiLatentAttention>(&its.mixer)) return found;
    return nullptr;
  }
  [[nodiscard]] const Mamba2* mamba() const {
    for (const Layer& its : layers.kinds())
      if (const auto* found = std::get_if<Mamba2>(&its.mixer)) return found;
    return nullptr;
  }
  /// A stack of layers of one branch each (Megatron's MambaStack).
  [[nodiscard]] bool hybrid() const {
    const auto one = [](const Layer& its) {
      return std::holds_alternative<NoMixer>(its.mixer) != std::holds_alternative<NoMlp>(its.mlp);
    };
    return !layers.empty() && std::ranges::all_of(layers.kinds(), one);
  }
  /// Layers that differ as a search for an architecture left them: some lack a branch, others have an MLP of a width of
  /// their own (Megatron's heterogeneous block specs).
  [[nodiscard]] bool heterogeneous() const {
    const auto differs = [](const Layer& its) { return its.lacks_branch() || its.own_sizes(); };
    return !hybrid() && std::ranges::any_of(layers.kinds(), differs);
  }
  /// Of one branch, of the layers' widest MLP: experts aside.
  [[nodiscard]] std::int64_t widest_mlp() const {
    std::int64_t widest = ffn;
    for (const Layer& its : layers.kinds())
      if (const auto* dense = std::get_if<DenseMlp>(&its.mlp)) widest = std::max(widest, dense->width(*this));
    return widest;
  }
  /// Keys that layers with a sliding window see; 0: no layer has one.
  [[nodiscard]] std::int64_t window() const {
    for (const Layer& its : layers.kinds())
      if (its.window() > 0) return its.window();
    return 0;
  }

  /// Of a head: queries and keys are `head_dim` wide.
  [[nodiscard]] std::int64_t value_dim() const {
    const MultiLatentAttention* its = latent();
    return its != nullptr ? its->value_head : head_dim;
  }

  /// Whether the last stage needs the embedding's weight too: as its head, or for modules that predict further tokens.
  [[nodiscard]] bool embeds_at_both_ends() const { return tied_embeddings || !further.empty(); }

  /// Dimensions of a head that rotary positions turn, as transformers and Megatron round them.
  [[nodiscard]] std::int64_t rotary_dim() const {
    if (const MultiLatentAttention* its = latent()) return its->qk_rope_head_dim;
    return static_cast<std::int64_t>(static_cast<double>(head_dim) * rotary_fraction);
  }

  bool operator==(const Model&) const = default;
};

}  // namespace tidemark::parallel
