#pragma once

#include <cstdint>
#include <string>

namespace tidemark {

/// How the residual stream is normalized: RMSNorm keeps 1/rms of each token, LayerNorm mean and 1/deviation.
enum class Normalization : std::uint8_t { Rms, Layer };

/// What the MLP does between its two linears. SwiGLU gates one half of fc1's output with the other.
enum class Activation : std::uint8_t { SwiGlu, Gelu, SquaredRelu };

/// How a token's place reaches attention: by turning queries and keys, or as a learned vector added to its embedding.
enum class Positions : std::uint8_t { Rotary, Learned };

/// What a decoder-only transformer is, before anyone shards it: the facts of a Hugging Face config.json.
/// Counts are elements of the whole model; `head_dim` is per head.
struct Model {
  std::string name;          ///< of the file it came from, without folder and ending
  std::string architecture;  ///< model_type: "llama", "qwen2", "mistral", "phi3", "qwen3", "gpt2"
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
  bool qk_norm = false;  ///< an RMSNorm over each head of queries and keys, before they are turned (Qwen3)
  Normalization normalization = Normalization::Rms;
  Activation activation = Activation::SwiGlu;
  Positions positions = Positions::Rotary;

  /// Tokens that a tokenizer adds before the vocabulary is padded (Megatron's NullTokenizer: 1).
  std::int64_t vocabulary_extra = 0;
  /// Padding quantum of the vocabulary per tensor-parallel rank; 0: the runtime's default.
  std::int64_t vocabulary_multiple = 0;

  bool operator==(const Model&) const = default;
};

}  // namespace tidemark
