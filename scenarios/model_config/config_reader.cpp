#include "scenarios/model_config/config_reader.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/detail/config_document.hpp"
#include "scenarios/formats/problems.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/model_config/detail/block_configs.hpp"
#include "scenarios/model_config/detail/config_experts.hpp"
#include "scenarios/model_config/detail/config_format.hpp"
#include "scenarios/model_config/detail/transformers_families.hpp"
#include "scenarios/model_config/hybrid_layers.hpp"

namespace tidemark::scenarios {
namespace {

using namespace config_format;
using nlohmann::json;

/// Reads one config.json after its overrides. A problem is reported where its key was written.
class ConfigReader {
 public:
  explicit ConfigReader(ConfigValues& config) : config_(config) {}

  Model read() {
    Model model;
    model.architecture = config_.text("model_type").value_or("");
    alone_ = alone_family(model.architecture);
    const auto of_all = std::ranges::find(families, model.architecture, &Family::name);
    const Family* const family = alone_ != nullptr ? &alone_->family : of_all != families.end() ? &*of_all : nullptr;
    if (family == nullptr) {
      refuse_family(model.architecture);
      return model;
    }
    keys_ = family->keys;
    if (keys_.hidden == gpt2_keys.hidden) {
      config_.also_called(keys_.hidden, usual_keys.hidden);
      config_.also_called(keys_.layers, usual_keys.layers);
      config_.also_called(keys_.heads, usual_keys.heads);
      config_.also_called(keys_.positions, usual_keys.positions);
    }
    model.hidden = config_.count({keys_.hidden, most_hidden});
    layers_ = config_.count({keys_.layers, most_layers});
    model.heads = config_.count({keys_.heads, most_heads});
    const bool requested = family->name == gpt2 && config_.find(kv_rank_rule.key) != nullptr;
    if (family->latent || requested) latent_ = read_multi_latent_attention(config_);
    if (requested) latent_->normalized = config_.flag(query_key_norms);
    std::optional<Blocks> blocks;
    if (family->blocks) blocks = read_block_configs(config_, layers_, model);
    model.kv_heads = blocks ? blocks->kv_heads : read_kv_heads(*family, model);
    model.head_dim = read_head_dim(*family, model);
    const std::int64_t usual_ffn = 4 * model.hidden;
    if (blocks)
      model.ffn = blocks->ffn;
    else if (!family->blocks)
      model.ffn =
          config_.count({keys_.ffn, most_ffn}, keys_.ffn == gpt2_keys.ffn ? std::optional(usual_ffn) : std::nullopt);
    model.vocabulary =
        config_.count(vocabulary_rule, family->vocabulary > 0 ? std::optional(family->vocabulary) : std::nullopt);
    read_traits(*family, model);
    const bool learned = model.positions == Positions::Learned;
    model.max_positions =
        config_.count({keys_.positions, learned ? most_learned_positions : most_positions}, family->max_positions);
    model.tied_embeddings = config_.flag("tie_word_embeddings", family->tied);
    if (alone_ == nullptr) read_biases(*family, model);
    check_heads(model);
    read_activation(*family, model);
    if (family->experts != nullptr && (!family->experts->requested_for || config_.given(family->experts->count_key)))
      experts_ = read_experts(config_, *family->experts, model, layers_);
    if (family->hybrid)
      model.layers = read_hybrid_layers();
    else if (blocks)
      model.layers = std::move(blocks->layers);
    else
      for (std::int64_t i = 0; i < layers_; ++i) model.layers.append(1, layer(static_cast<std::size_t>(i)));
    if (family->mtp_layers)
      model.further.append(config_.count(mtp_layers_rule, 0), layer(static_cast<std::size_t>(layers_)));
    refuse_unmodelled(*family);
    config_.refuse_unread_overrides(family->name);
    config_.refuse_slips();
    return model;
  }

 private:
  void refuse_family(const std::string& type) {
    std::vector<std::string> names;
    for (const Family& f : families) names.emplace_back(f.name);
    for (const AloneFamily& f : alone_families) names.emplace_back(f.family.name);
    const json* value = config_.find("model_type");
    if (value != nullptr && !value->is_string()) return;  // reported already
    if (const json* part = config_.find("text_config"); part != nullptr && part->is_object()) {
      config_.problem(
          "text_config",
          fmt::format("{} is a multimodal model, of which only the text model is modelled", in_quotes(type)),
          "put its text_config into a file of its own, if its model_type is known");
      return;
    }
    const auto other = std::ranges::find(other_families, type, &OtherFamily::name);
    if (other != other_families.end())
      return config_.problem("model_type",
                             not_modelled(fmt::format("{} is not modelled: {}", in_quotes(type), other->why)),
                             one_of(names) + " would do");
    config_.problem(
        "model_type",
        value == nullptr ? "is missing" : not_modelled(fmt::format("{} is not modelled yet", in_quotes(type))),
        one_of(names) + " would do");
  }

  std::int64_t read_kv_heads(const Family& family, const Model& model) {
    if (family.name == gpt_bigcode) {
      const std::int64_t reported = config_.flag(multi_query, true) ? 1 : model.heads;
      if (model.heads > 0 && config_.count(kv_heads_rule, reported) != reported)
        config_.problem(kv_heads_rule.key, fmt::format("{} is what {} says", reported, multi_query));
      return reported;
    }
    if (latent_ && model.heads > 0 && config_.count(kv_heads_rule, model.heads) != model.heads)
      config_.problem(kv_heads_rule.key, "with latent attention every head has its own keys and values",
                      fmt::format("{} would do, or leave it out", model.heads));
    if (latent_) return model.heads;
    const bool as_heads = config_.given(kv_heads_rule.key) || family.kv_heads == 0;
    return config_.count(kv_heads_rule, as_heads ? model.heads : family.kv_heads);
  }

  std::int64_t read_head_dim(const Family& family, const Model& model) {
    if (latent_) return latent_->query_head();
    if (family.hybrid) config_.also_called(head_dim_rule.key, "attention_head_dim");
    if (config_.find(head_dim_rule.key) != nullptr) return config_.count(head_dim_rule);
    if (family.head_dim > 0) return family.head_dim;
    if (model.hidden == 0 || model.heads == 0) return 0;
    if (model.hidden % model.heads != 0) {
      config_.problem(keys_.heads, fmt::format("{} does not divide {} = {}, and head_dim is left out", model.heads,
                                               keys_.hidden, model.hidden));
      return 0;
    }
    return model.hidden / model.heads;
  }

  /// What a family's layers are made of: its modelling code says it, its file seldom.
  void read_traits(const Family& family, Model& model) {
    if (alone_ != nullptr) {
      read_alone_traits(config_, *alone_, layers_, model);
      model.rotary_fraction = read_rotary_fraction(alone_->rotary_fraction);
      read_sliding_window(family);
      for (const std::string_view key : {attention_softcap, logit_softcap})
        (void)read_softcap(key, Requested::Refused, "capping", 0);
      return;
    }
    const bool gemma = family.name == gemma2 || family.name == gemma3;
    const bool gpt = family.name == gpt2 || family.name == gpt_bigcode;
    if (gpt || family.name == gpt_neox) model.normalization = Normalization::Layer;
    if (gpt) model.positions = Positions::Learned;
    if (family.hybrid) model.positions = Positions::None;
    if (family.name == gpt2 || family.hybrid) read_position_kind(model);
    const bool requested = family.name == glm4_moe && config_.flag(use_qk_norm);
    const bool requested_of_gpt = family.name == gpt2 && !latent_ && config_.flag(query_key_norms);
    if (family.name == qwen3 || family.name == qwen3_moe || family.name == gemma3 || requested || requested_of_gpt)
      model.qk_norm = QkNorm::PerHead;
    model.attention_sinks = family.name == gpt_oss;
    if (family.name == olmo2) {
      model.qk_norm = QkNorm::AllHeads;
      model.norms = NormPlacement::After;
    }
    if (gemma) model.norms = NormPlacement::Around;
    model.zero_centered_norms = model.scaled_embedding = gemma || family.name == gemma1;
    if (family.name == gpt_neox)
      model.parallel_residual = config_.flag(parallel_residual, true);
    else if (config_.flag(parallel_residual))
      config_.problem(parallel_residual,
                      not_modelled(fmt::format("true is not modelled: {} has no such switch", family.name)));
    model.attention_softcap =
        read_softcap(attention_softcap, family.name == gemma2 ? Requested::Understood : Requested::Refused,
                     "capping of attention scores", family.name == gemma2 ? gemma2_attention_softcap : 0);
    model.logit_softcap = read_softcap(logit_softcap, gemma ? Requested::Understood : Requested::Refused,
                                       "capping of logits", family.name == gemma2 ? gemma2_logit_softcap : 0);
    if (model.positions == Positions::Rotary && !latent_)
      model.rotary_fraction = read_rotary_fraction(family.name == gpt_neox   ? neox_rotary_fraction
                                                   : family.name == glm4_moe ? glm4_rotary_fraction
                                                                             : 1);
    read_sliding_window(family);
    model.window_rotary = family.name == gemma3;
  }

  void read_position_kind(Model& model) {
    const bool none = model.positions == Positions::None;
    const std::string kind = config_.text(position_kind).value_or(none ? "none" : "absolute");
    if (kind == "rope")
      model.positions = Positions::Rotary;
    else if (kind == "absolute")
      model.positions = Positions::Learned;
    else if (kind != "none" || !none)
      config_.problem(position_kind, not_modelled(fmt::format("{} is not modelled yet", in_quotes(kind))),
                      none ? R"("none", "absolute" (learned vectors) or "rope" would do)"
                           : R"("absolute" (learned vectors) or "rope" would do)");
  }

  Mamba2 read_mamba() {
    const Mamba2 its{.heads = config_.count(mamba_heads_rule, 128),
                     .head_dim = config_.count(mamba_head_dim_rule, 64),
                     .groups = config_.count(mamba_groups_rule, 8),
                     .state = config_.count(mamba_state_rule, 128)};
    if (its.groups > 0 && its.heads % its.groups != 0)
      config_.problem(mamba_groups_rule.key,
                      fmt::format("{} groups do not divide {} heads of Mamba", its.groups, its.heads),
                      fmt::format("a divisor of {} would do", its.heads));
    if (config_.count({"conv_kernel", 64}, Mamba2::conv_kernel) != Mamba2::conv_kernel)
      config_.problem("conv_kernel", "Megatron-LM's mixer convolves over 4 tokens, and over no other number",
                      "4 would do");
    if (!config_.flag("use_conv_bias", true))
      config_.problem("use_conv_bias", not_modelled("false is not modelled: Megatron-LM's mixer has biases there"),
                      "leave it out");
    for (const std::string_view key : {"use_bias", "mamba_proj_bias", "residual_in_fp32"})
      if (config_.flag(key))
        config_.problem(key, not_modelled("true is not modelled: Megatron-LM's mixer has no such"), "leave it out");
    if (config_.text("mamba_hidden_act").value_or("silu") != "silu")
      config_.problem("mamba_hidden_act", "Megatron-LM's mixer has \"silu\"", "leave it out");
    return its;
  }

  LayerList read_hybrid_layers() {
    const Mamba2 mamba = read_mamba();
    const std::string pattern = config_.text(pattern_key).value_or("");
    LayerList layers;
    if (std::ssize(pattern) != layers_)
      config_.problem(pattern_key,
                      fmt::format("{} letters do not give one for each of {} layers", pattern.size(), layers_),
                      "M (Mamba), * (attention) and - (MLP), layer by layer");
    for (const char letter : pattern) {
      const std::optional<Layer> its = layer_of_letter(letter, mamba);
      if (its) {
        layers.append(1, *its);
        continue;
      }
      config_.problem(pattern_key,
                      letter == 'E' ? not_modelled("E, a layer of experts, is not modelled yet in a hybrid")
                                    : fmt::format("{} is the letter of no layer", in_quotes(std::string(1, letter))),
                      "M (Mamba), * (attention) and - (MLP) would do");
      break;
    }
    if (!layers.empty() && layers.kinds().size() == 1 && !std::holds_alternative<Mamba2>(layers[0].mixer))
      config_.problem(pattern_key, "a hybrid has layers of Mamba",
                      "M (Mamba), * (attention) and - (MLP), layer by layer");
    return layers;
  }

  enum class Requested : std::uint8_t { Understood, Refused };

  /// `usual` stands for a cap that is left out; null is none.
  double read_softcap(std::string_view key, Requested requested, std::string_view what, double usual) {
    if (!config_.given(key)) return usual;
    const json* value = config_.find(key);
    if (value == nullptr || says_nothing(*value)) return 0;
    if (requested == Requested::Refused) {
      config_.problem(key, not_modelled(fmt::format("{} is not modelled in this family", what)));
      return 0;
    }
    return config_.number(key, *value, 0, most_softcap);
  }

  /// GPT-NeoX calls it rotary_pct, others partial_rotary_factor, transformers 5 says it in rope_parameters.
  double read_rotary_fraction(double usual) {
    for (const std::string_view key : {rotary_percent, partial_rotary})
      if (const json* value = config_.find(key)) return config_.number(key, *value, 0, 1);
    if (const json* parameters = config_.find(rope_parameters); parameters != nullptr && parameters->is_object()) {
      const auto said = parameters->find(partial_rotary);
      if (said != parameters->end() && !said->is_null()) return config_.number(rope_parameters, *said, 0, 1);
    }
    return usual;
  }

  void read_sliding_window(const Family& family) {
    if (family.window == Window::FlagRefused) {
      if (config_.flag(use_sliding_window))
        config_.problem(use_sliding_window, not_modelled("a window of keys is not modelled in this family"));
      return;
    }
    if (family.window == Window::Flag)  // without the flag they are there, and do nothing
      for (const std::string_view key : {sliding_window, first_window}) (void)config_.find(key);
    if (family.window == Window::Never || (family.window == Window::Flag && !config_.flag(use_sliding_window))) return;
    if (config_.given(sliding_window) && config_.find(sliding_window) == nullptr) return;  // null is none
    if (config_.given(sliding_window) || family.usual_window > 0)
      window_ = config_.count({sliding_window, most_positions}, family.usual_window);
    if (window_ > 0) read_full_attention_layers(family);
  }

  /// Which layers have no window: as layer_types says, else as a family's configuration does (transformers 5.23:
  /// Qwen2Config, Qwen3Config, Gemma2Config, Gemma3TextConfig; where it has only windows, nothing is said).
  void read_full_attention_layers(const Family& family) {
    const json* types = config_.find("layer_types");
    if (types != nullptr && types->is_array()) {
      for (const json& type : *types) full_attention_.push_back(type != "sliding_attention");
      return;
    }
    constexpr std::int64_t usual_first = 28;
    const json* none = config_.find(first_window);
    const bool from_the_first = family.window != Window::Flag || (none != nullptr && *none == 0);
    const std::int64_t first = from_the_first ? 0 : config_.count({first_window, most_layers}, usual_first);
    const std::int64_t pattern = read_window_pattern(family);
    if (first == 0 && pattern == 0) return;
    for (std::int64_t i = 0; i < layers_; ++i)
      full_attention_.push_back(i < first || (pattern > 0 && (i + 1) % pattern == 0));
  }

  /// EXAONE 4 writes it as letters, "LLLG".
  std::int64_t read_window_pattern(const Family& family) {
    if (family.name != gemma3 && (alone_ == nullptr || family.window_pattern == 0)) return family.window_pattern;
    const json* value = config_.find(window_pattern);
    if (value != nullptr && value->is_string()) return std::ssize(value->get<std::string>());
    return config_.count({window_pattern, most_layers}, family.window_pattern);
  }

  // Where lists of layers end, and beyond them, layers have what most have.
  [[nodiscard]] Layer layer(std::size_t number) const {
    const auto is_in = [&](const std::vector<bool>& layers) { return number < layers.size() && layers[number]; };
    Layer its;
    if (latent_)
      its.mixer = *latent_;
    else
      its.mixer = Attention{.window = is_in(full_attention_) ? 0 : window_};
    if (experts_ && !is_in(experts_->dense_layers)) its.mlp = experts_->experts;
    return its;
  }

  void read_biases(const Family& family, Model& model) {
    switch (family.biases) {
      case Biases::Flags:
        model.qkv_bias = model.output_bias = config_.flag(attention_bias);
        model.mlp_bias = config_.flag(mlp_bias);
        return;
      case Biases::AttentionFlag:
        if (config_.flag(attention_bias))
          config_.problem(attention_bias,
                          latent_ ? not_modelled("true is not modelled with latent attention")
                                  : not_modelled("true is not modelled where a norm follows the output projection"));
        refuse_bias(family, mlp_bias);
        return;
      case Biases::Projections:
        model.qkv_bias = model.output_bias = config_.flag(attention_bias, family.name == gpt_oss);
        refuse_bias(family, mlp_bias);
        return;
      case Biases::QkvFlag:
        model.qkv_bias = config_.flag(attention_bias);
        refuse_bias(family, mlp_bias);
        return;
      case Biases::NeoX:
        model.qkv_bias = model.output_bias = config_.flag(attention_bias, true);
        model.mlp_bias = true;
        return;
      case Biases::LinearFlag:
        model.qkv_bias = model.output_bias = model.mlp_bias = config_.flag(linear_bias, true);
        return;
      case Biases::All:
        model.qkv_bias = model.output_bias = model.mlp_bias = true;
        return;
      case Biases::Qkv:
      case Biases::None:
        model.qkv_bias = family.biases == Biases::Qkv && config_.flag(qkv_bias, true);
        refuse_bias(family, attention_bias);
        refuse_bias(family, mlp_bias);
        return;
    }
  }
  void refuse_bias(const Family& family, std::string_view key) {
    if (config_.flag(key))
      config_.problem(key, not_modelled(fmt::format("true is not modelled: {} has no such switch", family.name)));
  }

  void check_heads(const Model& model) {
    if (model.heads > 0 && model.kv_heads > 0 && model.heads % model.kv_heads != 0) {
      config_.problem(kv_heads_rule.key,
                      fmt::format("{} does not divide {} attention heads", model.kv_heads, model.heads));
    }
    // Of latent attention nothing is padded.
    if (model.head_dim > head_dim_rule.high || (latent_ && model.head_dim % 8 != 0))
      config_.problem(
          config_.find(head_dim_rule.key) != nullptr ? head_dim_rule.key : keys_.heads,
          fmt::format("{} per head: FlashAttention and cuDNN take multiples of 8 up to 256", model.head_dim));
  }

  void read_activation(const Family& family, Model& model) {
    const bool gate = (alone_ == nullptr || alone_->gate) && family.name != gpt2 && family.name != gpt_bigcode &&
                      family.name != gpt_neox && !family.hybrid;
    const std::string name = config_.text(keys_.activation).value_or(std::string(family.activation));
    if (family.name == gpt2 && name == gated_gpt2) {
      model.activation = Activation::SwiGlu;
      return;
    }
    std::vector<std::string> names;
    for (const NamedActivation& a : activations) {
      if (a.gate != gate) continue;
      if (a.name == name) {
        model.activation = a.activation;
        if (name == "gelu_new" || name == "gelu_fast") model.gelu = GeluForm::Composite;
        if (name == tanh_gelu) model.gelu = GeluForm::Tanh;
        return;
      }
      names.push_back(in_quotes(a.name));
    }
    if (family.name == gpt2) names.push_back(in_quotes(gated_gpt2));
    config_.problem(keys_.activation, not_modelled(fmt::format("{} is not modelled yet", in_quotes(name))),
                    one_of(names) + " would do");
  }

  // DeepSeek, Kimi and gpt-oss publish weights in FP8 and MXFP4. The frameworks that train them here, Megatron-LM and
  // torchtitan, have weights of their own type, and transformers' modules of these families are not modelled.
  [[nodiscard]] bool is_how_weights_are_published(const Family& family, const json& value) const {
    if (!experts_ || !(latent_ || family.name == gpt_oss) || !value.is_object()) return false;
    const auto method = value.find("quant_method");
    return method != value.end() && (*method == "fp8" || *method == "mxfp4");
  }

  void refuse_unmodelled(const Family& family) {
    const auto refuse = [&](const Unmodelled& u, std::string_view where) {
      if (config_.read(u.key)) return;
      const json* value = config_.find(u.key);
      if (value == nullptr || says_nothing(*value)) return;
      if (u.key == quantized && is_how_weights_are_published(family, *value)) return;
      const bool published = u.key == quantized || u.key == compressed;
      config_.problem(u.key, not_modelled(fmt::format("{} not modelled {}", u.what, where)),
                      published ? "leave it out: it describes published weights, not training" : "");
    };
    for (const Unmodelled& u : foreign_keys) refuse(u, "in this family");
    for (const Unmodelled& u : unmodelled_keys) refuse(u, "yet");
    const json* types = config_.find("layer_types");
    if (types == nullptr) return;
    const auto modelled = [](const json& type) { return type == "full_attention" || type == "sliding_attention"; };
    if (!types->is_array() || !std::all_of(types->begin(), types->end(), modelled)) {
      config_.problem(
          "layer_types",
          not_modelled("layers other than \"full_attention\" and \"sliding_attention\" are not modelled yet"));
    }
  }

  ConfigValues& config_;
  const AloneFamily* alone_ = nullptr;
  Keys keys_ = usual_keys;
  std::int64_t layers_ = 0, window_ = 0;
  std::vector<bool> full_attention_;  ///< by layer: sees all keys, though others have a window
  std::optional<MultiLatentAttention> latent_;
  std::optional<ExpertLayers> experts_;
};

/// A checkpoint's own file is always called config.json; then the folder says which model it is.
std::string name_of(const std::filesystem::path& file) {
  const std::string stem = file.stem().string();
  const std::string folder = file.parent_path().filename().string();
  return stem == "config" && !folder.empty() ? folder : stem;
}

}  // namespace

Model parse_model(std::string_view text, const std::filesystem::path& file,
                  const std::vector<ConfigOverride>& overrides) {
  Problems problems(file.string());
  ConfigValues config(parse_config(text, problems), overrides, problems);
  Model model = ConfigReader(config).read();
  model.name = name_of(file);
  problems.raise_if_any();
  return model;
}

Model read_model(const std::filesystem::path& path, const std::vector<ConfigOverride>& overrides) {
  return parse_model(read_text(path), path, overrides);
}

}  // namespace tidemark::scenarios
