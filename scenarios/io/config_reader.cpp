#include "scenarios/io/config_reader.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/io/problems.hpp"
#include "scenarios/io/suggestion.hpp"
#include "scenarios/io/text_file.hpp"

namespace tidemark {
namespace {

using nlohmann::json;

constexpr int deepest = 64;

/// How a family's config.json calls what all of them have.
struct Keys {
  std::string_view hidden, layers, heads, ffn, positions, activation;
};
constexpr Keys usual_keys{"hidden_size",       "num_hidden_layers",       "num_attention_heads",
                          "intermediate_size", "max_position_embeddings", "hidden_act"};
constexpr Keys gpt2_keys{"n_embd", "n_layer", "n_head", "n_inner", "n_positions", "activation_function"};

/// What transformers takes where a family's config.json leaves a key out: LlamaConfig, Qwen2Config, MistralConfig,
/// Phi3Config (whose joint projections are those that Megatron makes of the others), GPT2Config.
struct Family {
  std::string_view name;
  std::int64_t kv_heads;  ///< 0: as many as attention heads
  std::int64_t max_positions;
  bool bias_on_qkv;  ///< Qwen2Attention: bias on q, k and v, none on o, whatever the file says
  bool bias_flags;   ///< attention_bias and mlp_bias are understood; the other families have no such flags
  Keys keys = usual_keys;
};
constexpr std::string_view gpt2 = "gpt2", qwen3 = "qwen3";
constexpr std::array families{
    Family{"llama", 0, 2048, false, true},      Family{"qwen2", 32, 32768, true, false},
    Family{"mistral", 8, 131072, false, false}, Family{"phi3", 0, 4096, false, false},
    Family{qwen3, 32, 32768, false, false},     Family{gpt2, 0, 1024, true, false, gpt2_keys}};

// Beyond what GPT2Config knows, models of its family that Megatron trains have rotary positions, no biases, or a gated
// MLP: said as other configurations on the hub say it (BERT's, ChatGLM's).
constexpr std::string_view position_kind = "position_embedding_type";
constexpr std::string_view linear_bias = "add_bias_linear";

struct NamedActivation {
  std::string_view name;
  Activation activation;
};
constexpr std::array activations{
    NamedActivation{"silu", Activation::SwiGlu},       NamedActivation{"swiglu", Activation::SwiGlu},
    NamedActivation{"gelu", Activation::Gelu},         NamedActivation{"gelu_new", Activation::Gelu},
    NamedActivation{"gelu_fast", Activation::Gelu},    NamedActivation{"gelu_pytorch_tanh", Activation::Gelu},
    NamedActivation{"relu2", Activation::SquaredRelu},
};

/// Keys whose presence with a value that says something changes what is allocated in a way that is not modelled.
struct Unmodelled {
  std::string_view key;
  std::string_view what;
};
constexpr std::array unmodelled_keys{
    Unmodelled{"num_local_experts", "mixture of experts is"},
    Unmodelled{"num_experts", "mixture of experts is"},
    Unmodelled{"n_routed_experts", "mixture of experts is"},
    Unmodelled{"n_shared_experts", "mixture of experts is"},
    Unmodelled{"moe_intermediate_size", "mixture of experts is"},
    Unmodelled{"shared_expert_intermediate_size", "mixture of experts is"},
    Unmodelled{"quantization_config", "a quantized base is"},
    Unmodelled{"compression_config", "a quantized base is"},
    Unmodelled{"q_lora_rank", "multi-head latent attention is"},
    Unmodelled{"kv_lora_rank", "multi-head latent attention is"},
    Unmodelled{"qk_nope_head_dim", "multi-head latent attention is"},
    Unmodelled{"qk_rope_head_dim", "multi-head latent attention is"},
    Unmodelled{"v_head_dim", "a head size of V's own is"},
    Unmodelled{"qk_norm", "normalization of Q and K is"},
    Unmodelled{"use_qk_norm", "normalization of Q and K is"},
    Unmodelled{"qk_layernorm", "normalization of Q and K is"},
    Unmodelled{"attn_logit_softcapping", "capping of attention scores is"},
    Unmodelled{"final_logit_softcapping", "capping of logits is"},
    Unmodelled{"num_nextn_predict_layers", "multi-token prediction is"},
    Unmodelled{"mtp_num_layers", "multi-token prediction is"},
    Unmodelled{"cross_attention_layers", "cross-attention is"},
    Unmodelled{"add_cross_attention", "cross-attention is"},
    Unmodelled{"is_encoder_decoder", "an encoder is"},
    Unmodelled{"encoder_layers", "an encoder is"},
    Unmodelled{"vision_config", "a vision tower is"},
    Unmodelled{"audio_config", "an audio tower is"},
    Unmodelled{"text_config", "a model of several parts is"},
    Unmodelled{"block_configs", "layers that differ from each other are"},
    Unmodelled{"lm_head_bias", "bias on the LM head is"},
    Unmodelled{"chunk_size_feed_forward", "a chunked MLP is"},
};

/// Keys that say nothing about memory here, so that an override of one of them is not a slip of the pen.
constexpr auto harmless_keys = std::to_array<std::string_view>({"_name_or_path",
                                                                "architectures",
                                                                "attention_dropout",
                                                                "bos_token_id",
                                                                "dtype",
                                                                "eos_token_id",
                                                                "hidden_dropout",
                                                                "initializer_range",
                                                                "layer_types",
                                                                "max_window_layers",
                                                                "original_name",
                                                                "pad_token_id",
                                                                "pretraining_tp",
                                                                "rms_norm_eps",
                                                                "rope_parameters",
                                                                "rope_scaling",
                                                                "rope_theta",
                                                                "sliding_window",
                                                                "torch_dtype",
                                                                "transformers_version",
                                                                "use_cache",
                                                                "use_mrope",
                                                                "use_sliding_window",
                                                                "partial_rotary_factor",
                                                                "rotary_pct",
                                                                "unk_token_id",
                                                                "auto_map",
                                                                "name",
                                                                "attn_pdrop",
                                                                "embd_pdrop",
                                                                "resid_pdrop",
                                                                "layer_norm_epsilon",
                                                                "n_ctx",
                                                                "scale_attn_weights",
                                                                "original_max_position_embeddings"});

// Bounds far above any model, so that no product of a few of them leaves 64 bits.
struct CountRule {
  std::string_view key;
  std::int64_t high;
};
constexpr std::int64_t most_hidden = 1 << 18, most_layers = 1 << 12, most_heads = 1 << 12, most_ffn = 1 << 20;
constexpr std::int64_t most_positions = std::int64_t{1} << 40;
constexpr std::int64_t most_learned_positions = std::int64_t{1} << 24;  // each has a vector of its own
constexpr CountRule kv_heads_rule{"num_key_value_heads", 1 << 12};
constexpr CountRule head_dim_rule{"head_dim", 256};  // the most that FlashAttention and cuDNN take
constexpr CountRule vocabulary_rule{"vocab_size", 1 << 22};

/// Builds the document and refuses what the library lets pass: keys given twice, and absurd depth.
class Watch {
 public:
  explicit Watch(Problems& problems) : problems_(&problems) {}

  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (depth > deepest) throw InputError(Problem{problems_->file(), 0, 0, "is nested too deep", {}});
    if (event == json::parse_event_t::object_start) seen_.emplace_back();
    if (event == json::parse_event_t::object_end) seen_.pop_back();
    if (event == json::parse_event_t::key && !seen_.back().insert(parsed.get<std::string>()).second) {
      problems_->add({}, fmt::format("{}: is there twice", parsed.get<std::string>()));
    }
    return true;
  }

 private:
  Problems* problems_;
  std::vector<std::set<std::string>> seen_;
};

Place place_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte == 0 ? 0 : byte - 1, text.size()));
  const std::size_t newline = before.rfind('\n');
  const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
  return {static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          static_cast<int>(before.size() - line_start) + 1};
}

/// The library's words without its own name, number and place.
std::string reason(std::string_view what) {
  const std::size_t syntax = what.find("syntax error");
  if (syntax != std::string_view::npos) return std::string(what.substr(syntax));
  const std::size_t end = what.find("] ");
  return std::string(end == std::string_view::npos ? what : what.substr(end + 2));
}

json parse_json(std::string_view text, Problems& problems) {
  json document;
  try {
    document = json::parse(text.begin(), text.end(), Watch(problems));
  } catch (const json::parse_error& error) {
    const Place place = place_of(text, error.byte);
    throw InputError(Problem{problems.file(), place.line, place.column, reason(error.what()), {}});
  } catch (const json::exception& error) {
    throw InputError(Problem{problems.file(), 0, 0, reason(error.what()), {}});
  }
  problems.raise_if_any();
  if (!document.is_object()) throw InputError(Problem{problems.file(), 0, 0, "is not a JSON object", {}});
  return document;
}

std::string shown(const json& value) {
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  return value.dump();
}

/// null, false, 0, "" and empty lists say that a feature is not there.
bool says_nothing(const json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0.0;
  return value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty();
}

/// Reads one config.json after its overrides. A problem is reported where its key was written.
class ConfigReader {
 public:
  ConfigReader(json document, const std::vector<ConfigOverride>& overrides, Problems& problems)
      : document_(std::move(document)), problems_(&problems) {
    for (const ConfigOverride& o : overrides) apply(o);
  }

  Model read() {
    Model model;
    model.architecture = text("model_type").value_or("");
    const auto family =
        std::find_if(families.begin(), families.end(), [&](const Family& f) { return f.name == model.architecture; });
    if (family == families.end()) {
      refuse_family(model.architecture);
      return model;
    }
    keys_ = family->keys;
    const bool is_gpt2 = family->name == gpt2;
    if (is_gpt2) read_gpt2(model);
    model.hidden = count({keys_.hidden, most_hidden});
    model.layers = count({keys_.layers, most_layers});
    model.heads = count({keys_.heads, most_heads});
    model.kv_heads =
        count(kv_heads_rule, given("num_key_value_heads") || family->kv_heads == 0 ? model.heads : family->kv_heads);
    model.head_dim = read_head_dim(model);
    const std::int64_t usual_ffn = 4 * model.hidden;
    model.ffn = count({keys_.ffn, most_ffn}, is_gpt2 ? std::optional(usual_ffn) : std::nullopt);
    model.vocabulary = count(vocabulary_rule);
    const bool learned = model.positions == Positions::Learned;
    model.max_positions =
        count({keys_.positions, learned ? most_learned_positions : most_positions}, family->max_positions);
    model.tied_embeddings = flag("tie_word_embeddings", is_gpt2);
    if (!is_gpt2) read_biases(*family, model);
    model.qk_norm = family->name == qwen3;  // Qwen3Attention has q_norm and k_norm, whatever the file says
    check_heads(model);
    read_activation(model, is_gpt2 ? "gelu_new" : "silu", is_gpt2);
    refuse_unmodelled();
    return model;
  }

 private:
  void apply(const ConfigOverride& o) {
    overridden_.push_back(o);
    if (!document_.contains(o.key) && !known(o.key)) {
      const std::string meant = nearest(o.key, all_keys());
      problem(o.key, "is neither in the file nor known", meant.empty() ? "" : fmt::format("did you mean {}?", meant));
    }
    std::visit([&](const auto& value) { document_[o.key] = value; }, o.value);
  }

  static bool known(std::string_view key) {
    const auto names = own_keys();
    return std::find(names.begin(), names.end(), key) != names.end() ||
           std::find(harmless_keys.begin(), harmless_keys.end(), key) != harmless_keys.end() ||
           std::any_of(unmodelled_keys.begin(), unmodelled_keys.end(),
                       [&](const Unmodelled& u) { return u.key == key; });
  }
  static std::vector<std::string_view> own_keys() {
    std::vector<std::string_view> keys{"model_type",        kv_heads_rule.key,     head_dim_rule.key,
                                       vocabulary_rule.key, "tie_word_embeddings", "attention_bias",
                                       "mlp_bias",          position_kind,         linear_bias};
    for (const Keys& k : {usual_keys, gpt2_keys})
      keys.insert(keys.end(), {k.hidden, k.layers, k.heads, k.ffn, k.positions, k.activation});
    return keys;
  }
  [[nodiscard]] std::vector<std::string> all_keys() const {
    std::vector<std::string> keys{"vocabulary_extra", "vocabulary_multiple"};
    for (const std::string_view key : own_keys()) keys.emplace_back(key);
    for (const std::string_view key : harmless_keys) keys.emplace_back(key);
    for (const auto& [key, value] : document_.items()) keys.push_back(key);
    return keys;
  }

  /// The key's value; nothing when it is left out or null.
  [[nodiscard]] const json* find(std::string_view key) const {
    const auto found = document_.find(key);
    return found == document_.end() || found->is_null() ? nullptr : &*found;
  }
  /// The key is in the file, be it null.
  [[nodiscard]] bool given(std::string_view key) const { return document_.contains(key); }

  void problem(std::string_view key, std::string_view message, std::string hint = {}) {
    const auto overridden =
        std::find_if(overridden_.rbegin(), overridden_.rend(), [&](const ConfigOverride& o) { return o.key == key; });
    Problem found = overridden == overridden_.rend() ? Problem{problems_->file(), 0, 0, {}, {}} : overridden->place;
    found.message = fmt::format("{}: {}", key, message);
    found.hint = std::move(hint);
    problems_->add(InputError(std::move(found)));
  }

  /// A whole number from 1 on. `fallback` stands for one that is left out; without it that is a problem. 0 when wrong.
  std::int64_t count(const CountRule& rule, std::optional<std::int64_t> fallback = std::nullopt) {
    const json* value = find(rule.key);
    if (value == nullptr) {
      if (!fallback) problem(rule.key, "is missing");
      return fallback.value_or(0);
    }
    // transformers itself writes whole numbers as floats here and there.
    const bool whole = value->is_number_integer() || (value->is_number_float() && is_whole(value->get<double>()));
    if (!whole) {
      problem(rule.key, fmt::format("takes a whole number, not {}", shown(*value)));
      return 0;
    }
    const bool fits =
        !value->is_number_unsigned() || value->get<std::uint64_t>() <= static_cast<std::uint64_t>(rule.high);
    const std::int64_t number = fits ? value->get<std::int64_t>() : 0;
    if (!fits || number < 1 || number > rule.high) {
      problem(rule.key, fmt::format("{} is out of range", shown(*value)), fmt::format("1 to {} would do", rule.high));
      return 0;
    }
    return number;
  }
  static bool is_whole(double x) {
    constexpr double exact = 1e15;
    return x > -exact && x < exact && static_cast<double>(static_cast<std::int64_t>(x)) == x;
  }

  bool flag(std::string_view key, bool fallback = false) {
    const json* value = find(key);
    if (value == nullptr) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    problem(key, fmt::format("takes true or false, not {}", shown(*value)));
    return false;
  }

  std::optional<std::string> text(std::string_view key) {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_string()) return value->get<std::string>();
    problem(key, fmt::format("takes a text, not {}", shown(*value)));
    return std::nullopt;
  }

  void refuse_family(const std::string& type) {
    std::vector<std::string> names;
    for (const Family& f : families) names.emplace_back(f.name);
    const json* value = find("model_type");
    if (value != nullptr && !value->is_string()) return;  // reported already
    problem("model_type", value == nullptr ? "is missing" : fmt::format("{} is not modelled yet", in_quotes(type)),
            one_of(names) + " would do");
  }

  std::int64_t read_head_dim(const Model& model) {
    if (find(head_dim_rule.key) != nullptr) return count(head_dim_rule);
    if (model.hidden == 0 || model.heads == 0) return 0;
    if (model.hidden % model.heads != 0) {
      problem(keys_.heads, fmt::format("{} does not divide {} = {}, and head_dim is left out", model.heads,
                                       keys_.hidden, model.hidden));
      return 0;
    }
    return model.hidden / model.heads;
  }

  void read_gpt2(Model& model) {
    model.normalization = Normalization::Layer;
    model.positions = Positions::Learned;
    const std::string kind = text(position_kind).value_or("absolute");
    if (kind == "rope")
      model.positions = Positions::Rotary;
    else if (kind != "absolute")
      problem(position_kind, fmt::format("{} is not modelled yet", in_quotes(kind)),
              R"("absolute" (learned vectors) or "rope" would do)");
    model.qkv_bias = model.output_bias = model.mlp_bias = flag(linear_bias, true);
  }

  void read_biases(const Family& family, Model& model) {
    model.qkv_bias = family.bias_on_qkv;
    if (family.bias_flags) {
      model.qkv_bias = model.output_bias = flag("attention_bias");
      model.mlp_bias = flag("mlp_bias");
      return;
    }
    for (const std::string_view key : {"attention_bias", "mlp_bias"}) {
      if (flag(key)) problem(key, fmt::format("true is not modelled: {} has no such switch", family.name));
    }
  }

  void check_heads(const Model& model) {
    if (model.heads > 0 && model.kv_heads > 0 && model.heads % model.kv_heads != 0) {
      problem(kv_heads_rule.key, fmt::format("{} does not divide {} attention heads", model.kv_heads, model.heads));
    }
    // The 16-byte loads of both attention libraries.
    if (model.head_dim > 0 && (model.head_dim % 8 != 0 || model.head_dim > head_dim_rule.high)) {
      problem(find(head_dim_rule.key) != nullptr ? head_dim_rule.key : keys_.heads,
              fmt::format("{} per head: FlashAttention and cuDNN take multiples of 8 up to 256", model.head_dim));
    }
  }

  // The other families gate their MLP whatever the activation, and only SiLU's gate is modelled.
  void read_activation(Model& model, std::string_view usual, bool any) {
    const std::string name = text(keys_.activation).value_or(std::string(usual));
    const auto* const found =
        std::find_if(activations.begin(), activations.end(), [&](const NamedActivation& a) { return a.name == name; });
    if (found == activations.end() || (!any && name != usual)) {
      problem(keys_.activation, fmt::format("{} is not modelled yet", in_quotes(name)),
              any ? R"("gelu_new", "gelu", "relu2" or "swiglu" would do)" : fmt::format("\"{}\" would do", usual));
      return;
    }
    model.activation = found->activation;
  }

  void refuse_unmodelled() {
    for (const Unmodelled& u : unmodelled_keys) {
      const json* value = find(u.key);
      if (value != nullptr && !says_nothing(*value)) problem(u.key, fmt::format("{} not modelled yet", u.what));
    }
    const json* types = find("layer_types");
    if (types == nullptr) return;
    // A sliding window changes the time of attention, not what it keeps.
    const auto modelled = [](const json& type) { return type == "full_attention" || type == "sliding_attention"; };
    if (!types->is_array() || !std::all_of(types->begin(), types->end(), modelled)) {
      problem("layer_types", "layers other than \"full_attention\" and \"sliding_attention\" are not modelled yet");
    }
  }

  json document_;
  Keys keys_ = usual_keys;
  std::vector<ConfigOverride> overridden_;
  Problems* problems_;
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
  json document = parse_json(text, problems);
  Model model = ConfigReader(std::move(document), overrides, problems).read();
  model.name = name_of(file);
  problems.raise_if_any();
  return model;
}

Model read_model(const std::filesystem::path& path, const std::vector<ConfigOverride>& overrides) {
  return parse_model(read_text(path), path, overrides);
}

}  // namespace tidemark
