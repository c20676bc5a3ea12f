#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parallel/namespace.hpp"

// A layer of a model as a value: a mixer of tokens and an MLP, each of a closed set of kinds. Each kind says here what
// other code needs to know of all kinds, and does not compile without.
//
//   bounded         `plan` has bounds that are shown to hold; it runs layers without in full
//   megatron_alone  no other framework here has it
//   letter          in a hybrid's pattern (Megatron-LM, Nemotron-H)
//   word()          in a scenario's `layers`
//   text(model)     in answers
//   cached(…)       of mixers: elements of a token in an engine's cache, on a rank with so many heads of keys

namespace tidemark::parallel {

struct Model;

/// Multi-head attention, whose heads may share keys and values.
struct Attention {
  static constexpr bool bounded = true, megatron_alone = false;
  static constexpr char letter = '*';
  [[nodiscard]] std::string_view word() const { return window > 0 ? "window" : "attention"; }
  [[nodiscard]] std::string text(const Model& model) const;
  [[nodiscard]] static std::int64_t cached(std::int64_t heads, std::int64_t width) { return 2 * heads * width; }

  std::int64_t window = 0;  ///< keys that a token sees, its own included; 0: all before it
  bool operator==(const Attention&) const = default;
};

/// Multi-head latent attention (DeepSeek-V2): queries, keys and values are projected up from narrow latents that are
/// normalized; a head's queries and keys have dimensions with rotary positions and dimensions without, and keys
/// share the former.
struct MultiLatentAttention {
  static constexpr bool bounded = true, megatron_alone = false;
  static constexpr char letter = '*';
  [[nodiscard]] static std::string_view word() { return "latent"; }
  [[nodiscard]] std::string text(const Model& model) const;
  [[nodiscard]] std::int64_t cached(std::int64_t, std::int64_t) const { return kv_rank + qk_rope_head_dim; }

  std::int64_t query_rank = 0;        ///< q_lora_rank; 0: queries have no latent
  std::int64_t kv_rank = 0;           ///< kv_lora_rank
  std::int64_t qk_nope_head_dim = 0;  ///< qk_nope_head_dim: dimensions without rotary positions
  std::int64_t qk_rope_head_dim = 0;  ///< qk_rope_head_dim
  std::int64_t value_head = 0;        ///< v_head_dim
  bool normalized = true;             ///< latents are, before they are projected up (Megatron's qk-layernorm)

  [[nodiscard]] std::int64_t query_head() const { return qk_nope_head_dim + qk_rope_head_dim; }
  bool operator==(const MultiLatentAttention&) const = default;
};

/// Mamba-2's mixer (Dao and Gu, arXiv 2405.21060): a short convolution over time, and a state of each head that each
/// token decays and adds to. Megatron-LM's convolution has exactly the width given here.
struct Mamba2 {
  static constexpr bool bounded = false, megatron_alone = true;
  static constexpr char letter = 'M';
  [[nodiscard]] static std::string_view word() { return "mamba"; }
  [[nodiscard]] std::string text(const Model& model) const;
  [[nodiscard]] static std::int64_t cached(std::int64_t, std::int64_t) { return 0; }  // its state is of a sequence

  static constexpr std::int64_t conv_kernel = 4;
  std::int64_t heads = 0;     ///< mamba_num_heads
  std::int64_t head_dim = 0;  ///< mamba_head_dim
  std::int64_t groups = 0;    ///< n_groups: heads of a group share how they write to states and read them
  std::int64_t state = 0;     ///< ssm_state_size: of each dimension of a head

  [[nodiscard]] std::int64_t inner() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t shared() const { return groups * state; }
  /// Channels of the convolution: x, B and C.
  [[nodiscard]] std::int64_t channels() const { return inner() + 2 * shared(); }
  bool operator==(const Mamba2&) const = default;
};

/// For a layer that is only an MLP: it does not mix tokens.
struct NoMixer {
  // Which layers do alike is restated of whole ones.
  static constexpr bool bounded = false, megatron_alone = true;
  [[nodiscard]] static std::string_view word() { return "unmixed"; }
  [[nodiscard]] static std::string text(const Model&) { return "no mixer"; }
  [[nodiscard]] static std::int64_t cached(std::int64_t, std::int64_t) { return 0; }
  bool operator==(const NoMixer&) const = default;
};

/// How a router computes probabilities: softmax over the chosen experts, or over all before it chooses, or
/// each expert's sigmoid, normalized over the chosen ones.
enum class RouterScore : std::uint8_t { Softmax, SoftmaxBefore, Sigmoid };

/// The MLPs of a mixture of experts; each token goes through a few of them.
struct Experts {
  static constexpr bool bounded = true, megatron_alone = false;
  static constexpr char letter = 'E';
  [[nodiscard]] static std::string_view word() { return "experts"; }
  [[nodiscard]] std::string text(const Model& model) const;

  std::int64_t count = 0;       ///< of a layer
  std::int64_t chosen = 0;      ///< num_experts_per_tok
  std::int64_t ffn = 0;         ///< moe_intermediate_size: of one branch
  std::int64_t shared_ffn = 0;  ///< of all experts together that every token goes through; 0: there is none
  bool shared_gate = false;     ///< their output is multiplied by a sigmoid of the token (Qwen2)
  bool biases = false;          ///< of the experts' linears and of the router (gpt-oss)
  bool clamped_gate = false;    ///< SwiGLU of values within limits: (up + 1) * gate * sigmoid(1.702 * gate) (gpt-oss)
  RouterScore score = RouterScore::Softmax;
  std::int64_t groups = 0;       ///< n_group: experts are chosen from the best of so many groups; 0: from all
  std::int64_t topk_group = 0;   ///< topk_group
  bool correction_bias = false;  ///< added to scores for the choice only, moved by loads (DeepSeek-V3)
  double scale = 1;              ///< routed_scaling_factor, of probabilities

  bool operator==(const Experts&) const = default;
};

/// One MLP, which every token goes through.
struct DenseMlp {
  static constexpr bool bounded = true, megatron_alone = false;
  static constexpr char letter = '-';
  static constexpr std::string_view usual_word = "dense";
  [[nodiscard]] std::string word() const;  ///< "dense", or "dense=4096"
  [[nodiscard]] std::string text(const Model& model) const;
  [[nodiscard]] std::int64_t width(const Model& model) const;

  std::int64_t ffn = 0;  ///< of one branch where it is gated, other than the model's own; 0: that
  bool operator==(const DenseMlp&) const = default;
};

/// For a layer that is only a mixer.
struct NoMlp {
  static constexpr bool bounded = false, megatron_alone = true;
  [[nodiscard]] static std::string_view word() { return "alone"; }
  [[nodiscard]] static std::string text(const Model&) { return "no MLP"; }
  bool operator==(const NoMlp&) const = default;
};

using Mixer = std::variant<Attention, MultiLatentAttention, Mamba2, NoMixer>;
using FeedForward = std::variant<DenseMlp, Experts, NoMlp>;

/// Kinds that other frameworks do not handle.
template <class Kind>
concept MegatronAlone = Kind::megatron_alone;

[[nodiscard]] std::string word_of(const Mixer& mixer);
[[nodiscard]] std::string word_of(const FeedForward& mlp);
[[nodiscard]] std::string text_of(const Mixer& mixer, const Model& model);
[[nodiscard]] std::string text_of(const FeedForward& mlp, const Model& model);

struct Layer {
  Mixer mixer = {};
  FeedForward mlp = {};

  /// Nothing where it has none.
  [[nodiscard]] const Experts* experts() const { return std::get_if<Experts>(&mlp); }
  /// Keys that a token sees, its own included; 0: all before it.
  [[nodiscard]] std::int64_t window() const {
    const auto* its = std::get_if<Attention>(&mixer);
    return its != nullptr ? its->window : 0;
  }
  /// Lacks a mixer, an MLP or both.
  [[nodiscard]] bool lacks_branch() const {
    return std::holds_alternative<NoMixer>(mixer) || std::holds_alternative<NoMlp>(mlp);
  }
  /// Has sizes that are not the model's.
  [[nodiscard]] bool own_sizes() const {
    const auto* dense = std::get_if<DenseMlp>(&mlp);
    return dense != nullptr && dense->ffn > 0;
  }
  [[nodiscard]] bool bounded() const {
    const auto both = [](const auto& its, const auto& also) { return its.bounded && also.bounded; };
    return !own_sizes() && std::visit(both, mixer, mlp);
  }
  [[nodiscard]] bool megatron_alone() const {
    const auto either = [](const auto& its, const auto& also) { return its.megatron_alone || also.megatron_alone; };
    return own_sizes() || std::visit(either, mixer, mlp);
  }
  bool operator==(const Layer&) const = default;
};

/// Layers that are equal are of one kind. Kinds have numbers in the order in which the list first has them.
using LayerKind = std::int32_t;

/// A model's layers in order. It stores each kind once, so that whether layers are equal costs nothing to ask.
class LayerList {
 public:
  LayerList() = default;
  explicit LayerList(std::int64_t count, const Layer& layer = {}) { append(count, layer); }

  [[nodiscard]] std::int64_t size() const { return std::ssize(order_); }
  [[nodiscard]] bool empty() const { return order_.empty(); }
  [[nodiscard]] const Layer& operator[](std::int64_t layer) const {
    return kinds_[static_cast<std::size_t>(kind(layer))];
  }
  [[nodiscard]] LayerKind kind(std::int64_t layer) const { return order_[static_cast<std::size_t>(layer)]; }
  /// By layer.
  [[nodiscard]] std::span<const LayerKind> order() const { return order_; }
  /// By kind.
  [[nodiscard]] std::span<const Layer> kinds() const { return kinds_; }

  [[nodiscard]] LayerList one_of_each_kind() const {
    LayerList list;
    for (const Layer& its : kinds_) list.append(1, its);
    return list;
  }

  void append(std::int64_t count, const Layer& layer) {
    if (count <= 0) return;
    const auto known = std::ranges::find(kinds_, layer);
    const auto kind = static_cast<LayerKind>(known - kinds_.begin());
    if (known == kinds_.end()) kinds_.push_back(layer);
    order_.insert(order_.end(), static_cast<std::size_t>(count), kind);
  }
  /// Drops the last ones, or repeats the last one.
  void resize(std::int64_t count) {
    if (count > size()) return append(count - size(), empty() ? Layer{} : (*this)[size() - 1]);
    LayerList shorter;
    for (std::int64_t i = 0; i < count; ++i) shorter.append(1, (*this)[i]);
    *this = std::move(shorter);
  }
  /// Of each layer what `change(Layer&)` makes of it.
  template <class Change>
  void change_each(Change change) {
    LayerList changed;
    for (std::int64_t i = 0; i < size(); ++i) {
      Layer layer = (*this)[i];
      change(layer);
      changed.append(1, layer);
    }
    *this = std::move(changed);
  }
  void replace(std::int64_t at, const Layer& layer) {
    std::int64_t i = 0;
    change_each([&](Layer& its) {
      if (i++ == at) its = layer;
    });
  }

  bool operator==(const LayerList&) const = default;

 private:
  std::vector<Layer> kinds_;
  std::vector<LayerKind> order_;
};

/// Runs of equal layers, as a scenario's `layers` says them: "3 attention dense=4096".
[[nodiscard]] std::vector<std::string> runs_of(const LayerList& list);

}  // namespace tidemark::parallel
