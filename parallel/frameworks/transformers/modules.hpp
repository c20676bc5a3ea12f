#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/frameworks/transformers/families.hpp"
#include "parallel/job/train.hpp"
#include "parallel/model/model.hpp"
#include "parallel/runtime/runtime.hpp"
#include "parallel/torch/compiled.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/ops/indexing.hpp"

// Hugging Face transformers' decoder models, module by module as their forward functions run: a local variable here is
// one of theirs, and lives as long.

namespace tidemark::parallel::transformers {

/// A tensor's parameters in the order of registration, which optimizers and DistributedDataParallel follow.
using Parameters = std::vector<std::shared_ptr<Leaf>>;

/// register_forward_pre_hook and register_forward_hook: what a module takes, and what it gives, goes through them.
struct ForwardHooks {
  std::function<Tensor(const Tensor&)> before, after;
  std::optional<DType> inputs = {};  ///< to which a wrapper casts all that the module is handed
  bool around_checkpoint = false;    ///< they are a wrapper's: what is checkpointed is within, and runs again without
};

// torch.nn.Module.__call__, which runs hooks.
template <class Forward>
Tensor hooked(const ForwardHooks& hooks, const Tensor& given, const Forward& forward) {
  if (!hooks.before) return forward(given);
  const Tensor input = hooks.before(given);
  return hooks.after(forward(input));
}

/// What PEFT's LoRA adds to a linear: two products, by way of few dimensions.
struct Lora {
  std::shared_ptr<Leaf> down, up;   ///< lora_A, lora_B
  std::shared_ptr<Leaf> magnitude;  ///< DoRA's, one number for each output: lora_magnitude_vector
  ForwardHooks of_dropout, of_down, of_up;
  ForwardHooks of_base;        ///< of the linear by itself; the linear's own are around all of it
  std::optional<DType> shown;  ///< while it is sharded, as what x is cast to; none: its own
  double dropout = 0, scale = 1;
};

/// Of codes: bytes.
inline constexpr DType byte_type = DType::BOOL;

/// bitsandbytes' weight of a few bits, in place of a linear's own, with what undoes the quantization.
struct QuantizedWeight {
  QuantizedFormat format = QuantizedFormat::Nf4;
  Shape sizes;                    ///< of the weight: outputs, inputs
  DType dtype = DType::BF16;      ///< that it had, and has where it is dequantized
  std::optional<DType> computed;  ///< in which type products are; none: not known before the first input
  bool converts_once = true;
  bool keeps_biases = true;     ///< in a type they were converted to: sharded ones come anew
  bool finds_outliers = false;  ///< of 8 bits: inputs are searched for them (llm_int8_threshold)
  Tensor codes;                 ///< of 8 bits: the weight as it was made (MatmulLtState.CB)
  Tensor scales;                ///< of blocks, or of outputs; themselves quantized where there are more:
  Tensor scales_of_scales, offset, table, table_of_scales;
};

struct Linear {
  std::string name;
  std::shared_ptr<Leaf> weight, bias;
  bool inputs_first = false;  ///< transformers' Conv1D
  bool adds_apart = false;    ///< the bias is added to the product (deepspeed/runtime/zero/linear.py)
  ForwardHooks hooks = {};
  std::optional<Lora> lora = {};
  std::shared_ptr<QuantizedWeight> quantized = {};
  /// Of its weight.
  [[nodiscard]] std::int64_t outputs() const;
  [[nodiscard]] std::int64_t inputs() const;
  Tensor operator()(Session& s, const Tensor& x) const;

 private:
  [[nodiscard]] Tensor product(Session& s, const Tensor& x) const;
  [[nodiscard]] Tensor times(Session& s, const Tensor& x, const Tensor& its, const Tensor& added) const;
  [[nodiscard]] Tensor quantized_product(Session& s, const Tensor& x) const;
  [[nodiscard]] Tensor int8_product(Session& s, const Tensor& x) const;
  [[nodiscard]] Tensor adapted(Session& s, const Tensor& x) const;
  /// What DoRA adds to `result`, which the linear itself made of x.
  [[nodiscard]] Tensor decomposed(Session& s, const Tensor& x, const Tensor& result) const;
};

enum class NormKind : std::uint8_t {
  Rms,
  WideRms,
  WidenedRms,  ///< the same, of a weight that is converted to fp32
  ZeroCenteredRms,
  Layer,
  LayerWithoutWeights,
  CohereLayer,
  // Fused ones (fused.hpp).
  LigerRms,
  LigerRmsApart,  ///< whose gradient is a tensor of its own
  LigerZeroCenteredRms,
  LigerZeroCenteredRmsApart,
  FoakRms,
};

struct Norm {
  std::string name;
  std::shared_ptr<Leaf> weight, bias;
  NormKind kind = NormKind::Rms;
  ForwardHooks hooks = {};
  Tensor operator()(Session& s, const Tensor& x) const;
  [[nodiscard]] bool exists() const { return weight != nullptr || kind == NormKind::LayerWithoutWeights; }

 private:
  [[nodiscard]] Tensor normalized(Session& s, const Tensor& x) const;
};

/// x * cosine + rotate_half(x) * sine: rotary positions, the two of a pair half a head apart.
[[nodiscard]] Tensor turned(Session& s, const Tensor& x, const Tensor& cosine, const Tensor& sine);

/// What all layers of one forward pass share.
struct Context {
  struct View {
    Tensor cosine, sine;  ///< of rotary positions
    Tensor mask;          ///< added to scores where they are stored, else of places that are seen; may be undefined
  };
  View whole, window;   ///< of layers that see all keys, and of those with a sliding window
  Tensor position_ids;  ///< handed to every layer, and so kept by what runs layers again
};

/// How a family's attention makes queries, keys and values, and what its layers look like.
enum class Family : std::uint8_t { Llama, Phi3, Gpt2, BigCode, NeoX };
[[nodiscard]] Family family_of(const Model& model);
/// GPT-2's, and GPTBigCode's.
[[nodiscard]] bool gpt_style(const Model& model);

/// A module that can be hooked, and the parameters that are its own.
struct ModuleSite {
  Parameters own;
  Parameters viewed = {};  ///< of its own, what it saves views of, which keep the memory that it has then
  bool whole = false;      ///< with all that is within: gradients are reduced when its input's is there
  ForwardHooks* hooks = nullptr;
};

/// A language model with its loss.
class CausalLM {
 public:
  /// `vocabulary` is the model's, padded; its parameters are of type `dtype`, and made by `make`, or else at once.
  CausalLM(Session& session, const Model& model, std::int64_t vocabulary, const Train& train,
           const EagerBehavior& behavior, DType dtype, MakeParameter make = {});

  struct Outputs {
    Tensor loss, logits;
    std::vector<Tensor> cache;  ///< keys and values of each layer
  };
  /// A forward pass over a batch of sequences, all [batch, sequence]; `positions` within sequences that are packed,
  /// else undefined.
  Outputs operator()(const Tensor& ids, const Tensor& labels, const Tensor& positions = {});

  [[nodiscard]] const Parameters& parameters() const { return parameters_; }
  /// Of those, what requires gradients.
  [[nodiscard]] Parameters trained() const;

  [[nodiscard]] std::size_t layers() const { return layers_.size(); }
  [[nodiscard]] const std::string& name_of_layer(std::size_t layer) const { return layers_[layer].name; }
  /// Places in `parameters`.
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  [[nodiscard]] Range parameters_of_layer(std::size_t layer) const { return layers_[layer].parameters; }
  /// Buffers of floating-point numbers are given another type.
  void cast_buffers(DType dtype);
  void hook_layer(std::size_t layer, ForwardHooks hooks) { layers_[layer].hooks = std::move(hooks); }
  /// The model itself first, or what is around it.
  [[nodiscard]] std::vector<ModuleSite> modules();

  /// A module with parameters of its own, by the name that transformers has for it.
  struct NamedModule {
    std::string path, name;
    std::shared_ptr<Leaf>*weight = nullptr, *bias = nullptr;
    Linear* linear = nullptr;
    std::size_t last = 0;  ///< place of its last parameter in `parameters`
  };
  /// In the order of `parameters`.
  [[nodiscard]] std::vector<NamedModule> named_modules();

 private:
  struct Attention {
    Linear query, key, value;  ///< `query` is the joint projection where there is one
    Linear output;
    Norm query_norm, key_norm;
    ForwardHooks hooks;
  };
  struct Mlp {
    Linear gate, up, down;  ///< `gate` is the joint projection where there is one; `up` the only one of a plain MLP
    ForwardHooks hooks, of_activation;
  };
  /// Of a layer with experts; its block has the hooks of `Layer::mlp`.
  struct Mixture {
    Linear router;                        ///< a module of its own, and before 5.0 a linear
    std::shared_ptr<Leaf> gate_up, down;  ///< of all experts, in one module
    ForwardHooks of_experts, of_activation;
    std::vector<Mlp> each;  ///< or experts that are modules by themselves
    Mlp shared;
    Linear shared_gate;
    std::vector<std::int64_t> rows;                                           ///< that each expert gets
    std::int64_t chosen = 0;                                                  ///< experts of a token
    bool normalizes = true;                                                   ///< their scores' sum is made one
    std::optional<Lora> router_lora = {}, gate_up_lora = {}, down_lora = {};  ///< beside parameters
  };
  struct Layer {
    std::string name;
    bool windowed = false;  ///< sees a sliding window of keys
    bool turns = true;      ///< queries and keys, by rotary positions
    Range parameters;
    ForwardHooks hooks, of_attention_dropout, of_mlp_dropout;
    Norm attention_norm, after_attention, mlp_norm, after_mlp;
    Attention attention;
    Mlp mlp;
    std::optional<Mixture> mixture = {};
  };
  struct States {
    Tensor query, key, value;  ///< batch, heads, sequence, width of a head
    Tensor joint;              ///< projection that a variable holds until attention is over; undefined where none does
    Tensor pair;               ///< keys and values as one; undefined where they are apart
    std::vector<Tensor> held;  ///< by variables, until attention is over
  };

  std::shared_ptr<Leaf> parameter(const std::string& name, Shape sizes);
  Linear make_linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias);
  Norm make_norm(const std::string& name, std::int64_t width);
  void make_layer(std::int32_t index);
  [[nodiscard]] bool has_layers(bool windowed) const;
  void make_attention(const std::string& at, Layer& layer);
  void make_mlp(const std::string& at, Layer& layer);
  Mlp make_gated(const std::string& at, std::int64_t width, bool bias);
  void make_frequencies();
  void make_causal_table();
  void make_layer_norms(const std::string& at, Layer& layer);

  Outputs run(const Tensor& ids, const Tensor& labels, const Tensor& positions);
  Tensor compiled_logits(const Tensor& ids);
  [[nodiscard]] bool has_own_loss() const;
  Tensor logits_of(const Tensor& hidden);
  Tensor last_normed(const Tensor& hidden);
  Tensor compiled_layer(const Layer& layer, const Tensor& hidden, const Context& context, bool checkpointed);
  Tensor decoder(const Tensor& ids, const Tensor& given_positions, std::vector<Tensor>& cache);
  Tensor run_layer(const Layer& layer, const Tensor& hidden, const Context& context, std::vector<Tensor>* cache);
  static Context handed_to(const Layer& layer, const Context& context);
  Context cast(Context context, DType dtype);
  Tensor checkpointed(const Layer& layer, const Tensor& hidden, const Context& context, std::vector<Tensor>* cache);
  Tensor call(const Layer& layer, const Tensor& hidden, const Context& context, std::vector<Tensor>* cache);
  Tensor forward(const Layer& layer, const Tensor& hidden, const Context& context, std::vector<Tensor>* cache);
  Tensor one_norm_forward(const Layer& layer, const Tensor& hidden, const Context& context, std::vector<Tensor>* cache);
  Tensor neox_forward(const Layer& layer, const Tensor& hidden, const Context& context, std::vector<Tensor>* cache);
  Tensor gpt_forward(const Layer& layer, const Tensor& hidden, const Context& context, std::vector<Tensor>* cache);
  Tensor attend(const Layer& layer, const Tensor& hidden, const Context& context, std::vector<Tensor>* cache,
                Tensor& weights);
  Tensor attention(const Layer& layer, const Tensor& hidden, const Context& context, std::vector<Tensor>* cache,
                   Tensor& weights);
  Tensor run_mlp(const Layer& layer, const Tensor& x);
  Tensor mlp(const Layer& layer, const Tensor& x);
  Tensor activate(const Mlp& mlp, const Tensor& x);
  Tensor activated(const Tensor& x);
  Tensor dropped(std::string_view module, const ForwardHooks& hooks, const Tensor& x);
  States project(const Attention& attention, const Tensor& hidden);
  States separate(const Attention& attention, const Tensor& hidden);
  States of_slices(const Attention& attention, const Tensor& hidden);
  std::vector<Tensor> parted(const Tensor& joint, std::int64_t query, std::int64_t key, Tensor& pair);
  States of_split(const Attention& attention, const Tensor& hidden);
  States of_heads(const Attention& attention, const Tensor& hidden);

  // Mixtures of experts: experts.cpp, experts_in_turn.cpp.
  struct Choice {
    Tensor logits, experts, scores;  ///< of each token
  };
  [[nodiscard]] bool mixtral() const { return model_.architecture == "mixtral"; }
  [[nodiscard]] std::string block_name(const std::string& at) const;
  [[nodiscard]] bool router_first() const;
  static Parameters parameters_of(const Mixture& mixture);
  void make_mixture(const std::string& at, std::int32_t index, Layer& layer);
  void make_experts(const std::string& at, const Experts& experts, Mixture& made);
  Tensor gated_mlp(const Mlp& mlp, const Tensor& x);
  Tensor mixture_of(const Layer& layer, const Tensor& x);
  Choice choose(const Mixture& mixture, const Tensor& hidden);
  Tensor router_scores(const Mixture& mixture, const TopK& top, DType dtype);
  /// The two parameters of experts, as their module reads them.
  struct ExpertWeights {
    std::function<Tensor()> gate_up, down;
  };
  Tensor grouped_experts(const Mixture& mixture, const Tensor& hidden, const Choice& choice,
                         const ExpertWeights& weights);
  Tensor rows_of_tokens(const Tensor& hidden, const Tensor& places, std::int64_t each, Tensor& copies);
  Tensor products_of_groups(const Mixture& mixture, const Tensor& rows, const Tensor& ends,
                            const ExpertWeights& weights);
  Tensor filled(const Tensor& x, const Tensor& mask);
  Tensor chosen_by(const Tensor& mask, std::int64_t expert);
  Tensor experts_in_turn(const Mixture& mixture, const Tensor& hidden, const Choice& choice);
  Tensor with_shared(const Mixture& mixture, const Tensor& hidden, const Tensor& routed, const Tensor& shared);

  // PEFT's: adapters.cpp, and of experts' parameters adapted_parameters.cpp.
  struct AdapterSite {
    std::string name;
    std::size_t last = 0;  ///< place of the parameter that it comes after
    Shape down, up;
    DType base = DType::BF16;
    std::optional<Lora>* place = nullptr;
    std::array<Tensor, 3> moved = {};  ///< in that type
  };
  Tensor first_magnitudes(const AdapterSite& site);
  struct Factors {
    Tensor left, right;
  };
  std::vector<AdapterSite> parameter_sites(const Adapter& adapter);
  Factors factors_of(const Lora& lora, const Tensor& base);
  Tensor folded(const Lora& lora, const Tensor& base, const Factors& factors);
  Tensor adapted_experts(const Mixture& mixture, const Tensor& hidden, const Choice& choice);
  Tensor adapted_router(const Mixture& mixture, const std::function<Tensor(const Tensor&)>& run);
  void adapt();
  void ask_for_gradient(Tensor& embedded);
  std::shared_ptr<Leaf> adapter(const std::string& name, const Shape& sizes, DType dtype);

  // bitsandbytes': quantized.cpp.
  [[nodiscard]] bool quantizes(const std::string& name) const;
  Linear make_quantized(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias);
  void make_codes_of_4_bits(Linear& made);
  void make_codes_of_8_bits(Linear& made);
  void prepare_for_training();

  // LitGPT's.
  [[nodiscard]] bool litgpt() const { return behavior_.modules == ModuleLibrary::LitGpt; }
  void make_litgpt(std::int64_t vocabulary);
  void make_rope_cache();
  States of_groups(const Attention& attention, const Tensor& hidden);
  void turn_part(States& states, const Context::View& view);
  Tensor litgpt_forward(const Layer& layer, const Tensor& hidden, const Context& context);
  void turn(States& states, const Context::View& view);
  void turn_parts(States& states, const Tensor& cosine, const Tensor& sine);
  void scale_queries(States& states, const Tensor& places);
  Tensor scored(const States& states, const Tensor& mask, Tensor& weights);
  [[nodiscard]] bool repeats_keys_for_flash() const;
  Tensor fused(const Layer& layer, const States& states, const Context& context);
  void rotary_tables(Context::View& view, const Tensor& positions, const Tensor& hidden);
  Tensor position_ids(std::int64_t sequence);
  Tensor find_packed_sequences(const Tensor& positions, std::int64_t batch);
  void make_masks(Context& context, const Tensor& positions, const Tensor& hidden, bool caching);
  /// `packed` numbers the sequences that tokens belong to; undefined where rows have one.
  Tensor mask_of(bool windowed, const Tensor& hidden, const Tensor& positions, const Tensor& packed);

  // Packed sequences: packed.cpp.
  void ask_whether_packed(const Tensor& positions);
  Tensor ends_of_sequences(const Tensor& positions);
  Tensor attend_packed(const Tensor& query, const Tensor& keys, const Tensor& values, const Tensor& positions,
                       std::int64_t window);
  Tensor loss_of(const Tensor& logits, const Tensor& labels);
  Tensor rows_loss(const Tensor& logits, const Tensor& labels);

  // By fused kernels.
  [[nodiscard]] NormKind fused_norm(NormKind kind) const;
  [[nodiscard]] bool fuses_rope() const;
  void turn_fused(States& states, const Context::View& view);
  [[nodiscard]] bool fuses_head() const;
  Tensor fused_loss_of(const Tensor& hidden, const Tensor& labels);

  Session& s_;
  const Model& model_;
  const Train& train_;
  const EagerBehavior& behavior_;
  Traits traits_;
  DType dtype_;  ///< of parameters
  MakeParameter make_;
  Parameters parameters_;
  std::shared_ptr<Leaf> tokens_, positions_;
  std::vector<Tensor> frequencies_;  ///< of rotary positions, and copies; LitGPT's cosines and sines
  Tensor embedding_scale_, causal_table_, table_of_scales_;
  std::vector<Layer> layers_;
  Norm last_norm_;
  Linear head_;
  CompiledRegion compiled_, compiled_layer_, compiled_norm_;  ///< layers are alike
  std::array<ForwardHooks, 2> around_;                        ///< of PEFT's model, and of its tuner
  ForwardHooks hooks_, of_decoder_, of_tokens_, of_positions_, of_rotary_, of_dropout_;
};

}  // namespace tidemark::parallel::transformers
