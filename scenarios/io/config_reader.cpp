#include "scenarios/io/config_reader.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/io/detail/config_document.hpp"
#include "scenarios/io/detail/config_format.hpp"
#include "scenarios/io/problems.hpp"
#include "scenarios/io/suggestion.hpp"
#include "scenarios/io/text_file.hpp"

namespace tidemark::scenarios {
namespace {

using namespace config_format;
using nlohmann::json;

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
    model.hidden = count({keys_.hidden, most_hidden});
    model.layers = count({keys_.layers, most_layers});
    model.heads = count({keys_.heads, most_heads});
    model.kv_heads = read_kv_heads(*family, model);
    model.head_dim = read_head_dim(*family, model);
    const std::int64_t usual_ffn = 4 * model.hidden;
    model.ffn = count({keys_.ffn, most_ffn}, keys_.ffn == gpt2_keys.ffn ? std::optional(usual_ffn) : std::nullopt);
    model.vocabulary =
        count(vocabulary_rule, family->vocabulary > 0 ? std::optional(family->vocabulary) : std::nullopt);
    read_traits(*family, model);
    const bool learned = model.positions == Positions::Learned;
    model.max_positions =
        count({keys_.positions, learned ? most_learned_positions : most_positions}, family->max_positions);
    model.tied_embeddings = flag("tie_word_embeddings", family->tied);
    read_biases(*family, model);
    check_heads(model);
    read_activation(*family, model);
    refuse_unmodelled();
    return model;
  }

 private:
  void apply(const ConfigOverride& o) {
    overridden_.push_back(o);
    if (!document_.contains(o.key) && !known(o.key)) {
      const std::string meant = nearest(o.key, all_keys());
      problem(o.key, "is neither in the file nor known",
              meant.empty() ? "leave it out" : fmt::format("did you mean {}?", meant));
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
    std::vector<std::string_view> keys{
        "model_type",      kv_heads_rule.key, head_dim_rule.key, vocabulary_rule.key, "tie_word_embeddings",
        attention_bias,    mlp_bias,          position_kind,     linear_bias,         multi_query,
        parallel_residual, attention_softcap, logit_softcap,     sliding_window,      use_sliding_window,
        rotary_percent,    partial_rotary,    rope_parameters,   window_pattern,      first_window};
    for (const Keys& k : {usual_keys, gemma_keys, gpt2_keys})
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
      if (!fallback) problem(rule.key, "is missing", fmt::format("1 to {} would do", rule.high));
      return fallback.value_or(0);
    }
    // transformers itself writes whole numbers as floats here and there.
    const bool whole = value->is_number_integer() || (value->is_number_float() && is_whole(value->get<double>()));
    if (!whole) {
      problem(rule.key, fmt::format("takes a whole number, not {}", shown(*value)),
              fmt::format("1 to {} would do", rule.high));
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
    problem(key, fmt::format("takes true or false, not {}", shown(*value)), "true or false, without quotes");
    return false;
  }

  std::optional<std::string> text(std::string_view key) {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_string()) return value->get<std::string>();
    problem(key, fmt::format("takes a text, not {}", shown(*value)), "a text between quotes");
    return std::nullopt;
  }

  void refuse_family(const std::string& type) {
    std::vector<std::string> names;
    for (const Family& f : families) names.emplace_back(f.name);
    const json* value = find("model_type");
    if (value != nullptr && !value->is_string()) return;  // reported already
    if (const json* part = find("text_config"); part != nullptr && part->is_object()) {
      problem("text_config",
              fmt::format("{} is a model of several parts, of which only text is modelled", in_quotes(type)),
              "its text_config in a file of its own would do, where its model_type is known");
      return;
    }
    problem("model_type", value == nullptr ? "is missing" : fmt::format("{} is not modelled yet", in_quotes(type)),
            one_of(names) + " would do");
  }

  std::int64_t read_kv_heads(const Family& family, const Model& model) {
    if (family.name == gpt_bigcode) {
      const std::int64_t told = flag(multi_query, true) ? 1 : model.heads;
      if (model.heads > 0 && count(kv_heads_rule, told) != told)
        problem(kv_heads_rule.key, fmt::format("{} is what {} says", told, multi_query));
      return told;
    }
    const bool as_heads = given(kv_heads_rule.key) || family.kv_heads == 0;
    return count(kv_heads_rule, as_heads ? model.heads : family.kv_heads);
  }

  std::int64_t read_head_dim(const Family& family, const Model& model) {
    if (find(head_dim_rule.key) != nullptr) return count(head_dim_rule);
    if (family.head_dim > 0) return family.head_dim;
    if (model.hidden == 0 || model.heads == 0) return 0;
    if (model.hidden % model.heads != 0) {
      problem(keys_.heads, fmt::format("{} does not divide {} = {}, and head_dim is left out", model.heads,
                                       keys_.hidden, model.hidden));
      return 0;
    }
    return model.hidden / model.heads;
  }

  /// What a family's layers are made of: its modelling code says it, its file seldom.
  void read_traits(const Family& family, Model& model) {
    const bool gemma = family.name == gemma2 || family.name == gemma3;
    const bool gpt = family.name == gpt2 || family.name == gpt_bigcode;
    if (gpt || family.name == gpt_neox) model.normalization = Normalization::Layer;
    if (gpt) model.positions = Positions::Learned;
    if (family.name == gpt2) read_position_kind(model);
    if (family.name == qwen3 || family.name == gemma3) model.qk_norm = QkNorm::PerHead;
    if (family.name == olmo2) {
      model.qk_norm = QkNorm::AllHeads;
      model.norms = NormPlacement::After;
    }
    if (gemma) {
      model.norms = NormPlacement::Around;
      model.zero_centered_norms = model.scaled_embedding = true;
    }
    if (family.name == gpt_neox)
      model.parallel_residual = flag(parallel_residual, true);
    else if (flag(parallel_residual))
      problem(parallel_residual, fmt::format("true is not modelled: {} has no such switch", family.name));
    model.attention_softcap =
        read_softcap(attention_softcap, family.name == gemma2 ? Asked::Understood : Asked::Refused,
                     "capping of attention scores", family.name == gemma2 ? gemma2_attention_softcap : 0);
    model.logit_softcap = read_softcap(logit_softcap, gemma ? Asked::Understood : Asked::Refused, "capping of logits",
                                       family.name == gemma2 ? gemma2_logit_softcap : 0);
    if (model.positions == Positions::Rotary)
      model.rotary_fraction = read_rotary_fraction(family.name == gpt_neox ? neox_rotary_fraction : 1);
    read_sliding_window(family, model);
    model.window_rotary = family.name == gemma3;
  }

  void read_position_kind(Model& model) {
    const std::string kind = text(position_kind).value_or("absolute");
    if (kind == "rope")
      model.positions = Positions::Rotary;
    else if (kind != "absolute")
      problem(position_kind, fmt::format("{} is not modelled yet", in_quotes(kind)),
              R"("absolute" (learned vectors) or "rope" would do)");
  }

  enum class Asked : std::uint8_t { Understood, Refused };

  /// `usual` stands for a cap that is left out; null is none.
  double read_softcap(std::string_view key, Asked asked, std::string_view what, double usual) {
    if (!given(key)) return usual;
    const json* value = find(key);
    if (value == nullptr || says_nothing(*value)) return 0;
    if (asked == Asked::Refused) {
      problem(key, fmt::format("{} is not modelled in this family", what));
      return 0;
    }
    return number(key, *value, 0, most_softcap);
  }

  /// GPT-NeoX calls it rotary_pct, others partial_rotary_factor, transformers 5 says it in rope_parameters.
  double read_rotary_fraction(double usual) {
    for (const std::string_view key : {rotary_percent, partial_rotary})
      if (const json* value = find(key)) return number(key, *value, 0, 1);
    if (const json* parameters = find(rope_parameters); parameters != nullptr && parameters->is_object()) {
      const auto said = parameters->find(partial_rotary);
      if (said != parameters->end() && !said->is_null()) return number(rope_parameters, *said, 0, 1);
    }
    return usual;
  }

  void read_sliding_window(const Family& family, Model& model) {
    if (family.window == Window::Never || (family.window == Window::Flag && !flag(use_sliding_window))) return;
    if (given(sliding_window) && find(sliding_window) == nullptr) return;  // null is none
    if (given(sliding_window) || family.usual_window > 0)
      model.sliding_window = count({sliding_window, most_positions}, family.usual_window);
    if (model.sliding_window > 0) read_whole_layers(family, model);
  }

  /// Which layers have no window: as layer_types says, else as a family's configuration does (transformers 5.23:
  /// Qwen2Config, Qwen3Config, Gemma2Config, Gemma3TextConfig; where it has only windows, nothing is said).
  void read_whole_layers(const Family& family, Model& model) {
    const json* types = find("layer_types");
    if (types != nullptr && types->is_array()) {
      for (const json& type : *types) model.whole_layers.push_back(type != "sliding_attention");
      return;
    }
    constexpr std::int64_t usual_first = 28;
    const json* none = find(first_window);
    const bool from_the_first = family.window != Window::Flag || (none != nullptr && *none == 0);
    const std::int64_t first = from_the_first ? 0 : count({first_window, most_layers}, usual_first);
    const std::int64_t pattern =
        family.name == gemma3 ? count({window_pattern, most_layers}, family.window_pattern) : family.window_pattern;
    if (first == 0 && pattern == 0) return;
    for (std::int64_t i = 0; i < model.layers; ++i)
      model.whole_layers.push_back(i < first || (pattern > 0 && (i + 1) % pattern == 0));
  }

  /// A number above `low` and up to `high`.
  double number(std::string_view key, const json& value, double low, double high) {
    if (!value.is_number()) {
      problem(key, fmt::format("takes a number, not {}", shown(value)),
              fmt::format("above {} and up to {} would do", low, high));
      return 0;
    }
    const double x = value.get<double>();
    if (x > low && x <= high) return x;
    problem(key, fmt::format("{} is out of range", shown(value)),
            fmt::format("above {} and up to {} would do", low, high));
    return 0;
  }

  void read_biases(const Family& family, Model& model) {
    switch (family.biases) {
      case Biases::Flags:
        model.qkv_bias = model.output_bias = flag(attention_bias);
        model.mlp_bias = flag(mlp_bias);
        return;
      case Biases::AttentionFlag:
        if (flag(attention_bias))
          problem(attention_bias, "true is not modelled where a norm follows the output projection");
        refuse_bias(family, mlp_bias);
        return;
      case Biases::NeoX:
        model.qkv_bias = model.output_bias = flag(attention_bias, true);
        model.mlp_bias = true;
        return;
      case Biases::LinearFlag:
        model.qkv_bias = model.output_bias = model.mlp_bias = flag(linear_bias, true);
        return;
      case Biases::All:
        model.qkv_bias = model.output_bias = model.mlp_bias = true;
        return;
      case Biases::Qkv:
      case Biases::None:
        model.qkv_bias = family.biases == Biases::Qkv;
        refuse_bias(family, attention_bias);
        refuse_bias(family, mlp_bias);
        return;
    }
  }
  void refuse_bias(const Family& family, std::string_view key) {
    if (flag(key)) problem(key, fmt::format("true is not modelled: {} has no such switch", family.name));
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

  void read_activation(const Family& family, Model& model) {
    const bool gate = family.name != gpt2 && family.name != gpt_bigcode && family.name != gpt_neox;
    const std::string name = text(keys_.activation).value_or(std::string(family.activation));
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
    problem(keys_.activation, fmt::format("{} is not modelled yet", in_quotes(name)), one_of(names) + " would do");
  }

  void refuse_unmodelled() {
    for (const Unmodelled& u : unmodelled_keys) {
      const json* value = find(u.key);
      if (value != nullptr && !says_nothing(*value)) problem(u.key, fmt::format("{} not modelled yet", u.what));
    }
    const json* types = find("layer_types");
    if (types == nullptr) return;
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
  json document = parse_config(text, problems);
  Model model = ConfigReader(std::move(document), overrides, problems).read();
  model.name = name_of(file);
  problems.raise_if_any();
  return model;
}

Model read_model(const std::filesystem::path& path, const std::vector<ConfigOverride>& overrides) {
  return parse_model(read_text(path), path, overrides);
}

}  // namespace tidemark::scenarios
