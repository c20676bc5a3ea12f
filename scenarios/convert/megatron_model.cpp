#include "scenarios/convert/megatron_model.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/json_table.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/model_config/hybrid_layers.hpp"

// Megatron-LM core_v0.14.0, megatron/training/arguments.py, core_transformer_config_from_args.

namespace tidemark::scenarios {
namespace {

/// Which key of a config.json changes what a flag says: of most families, and of GPT-2's, which is Megatron's own GPT.
struct ModelKey {
  std::string_view flag, key, gpt2;
};
constexpr std::array keys{
    ModelKey{"num-layers", "num_hidden_layers", "n_layer"},
    ModelKey{"hidden-size", "hidden_size", "n_embd"},
    ModelKey{"ffn-hidden-size", "intermediate_size", "n_inner"},
    ModelKey{"num-attention-heads", "num_attention_heads", "n_head"},
    ModelKey{"num-query-groups", "num_key_value_heads", "num_key_value_heads"},
    ModelKey{"kv-channels", "head_dim", "head_dim"},
    ModelKey{"vocab-size", "vocab_size", "vocab_size"},
    ModelKey{"mtp-num-layers", "num_nextn_predict_layers", "num_nextn_predict_layers"},
    ModelKey{"moe-router-topk", "num_experts_per_tok", "num_experts_per_tok"},
    ModelKey{"moe-ffn-hidden-size", "moe_intermediate_size", "moe_intermediate_size"},
    ModelKey{"moe-router-num-groups", "n_group", ""},
    ModelKey{"moe-router-group-topk", "topk_group", ""},
    ModelKey{"moe-router-topk-scaling-factor", "routed_scaling_factor", ""},
    ModelKey{"q-lora-rank", "q_lora_rank", "q_lora_rank"},
    ModelKey{"kv-lora-rank", "kv_lora_rank", "kv_lora_rank"},
    ModelKey{"qk-head-dim", "qk_nope_head_dim", "qk_nope_head_dim"},
    ModelKey{"qk-pos-emb-head-dim", "qk_rope_head_dim", "qk_rope_head_dim"},
    ModelKey{"v-head-dim", "v_head_dim", "v_head_dim"},
    ModelKey{"hybrid-override-pattern", "hybrid_override_pattern", ""},
    ModelKey{"mamba-num-heads", "mamba_num_heads", ""},
    ModelKey{"mamba-head-dim", "mamba_head_dim", ""},
    ModelKey{"mamba-num-groups", "n_groups", ""},
    ModelKey{"mamba-state-dim", "ssm_state_size", ""},
    ModelKey{"moe-shared-expert-intermediate-size", "", "shared_expert_intermediate_size"},
};

// Of the model, what no flag of Megatron's says.
bool is_plain(const Model& m) {
  return m.norms == NormPlacement::Before && !m.parallel_residual && !m.scaled_embedding && m.attention_softcap == 0 &&
         m.logit_softcap == 0 && m.window() == 0 && !m.attention_sinks && !m.zero_centered_norms &&
         m.qk_norm != QkNorm::AllHeads && !m.heterogeneous() &&
         !(m.experts() && (m.experts()->clamped_gate || m.experts()->shared_gate));
}

/// What the flags say, given or by default, as TOML writes it; nothing where it is left to others.
class Wanted {
 public:
  Wanted(Given& flags, const ShippedModels& models, bool hybrid_program) : flags_(flags) {
    hybrid_ =
        hybrid_program || on("is-hybrid-model") || says("hybrid-override-pattern") || says("hybrid-attention-ratio");
    if (const std::optional<std::string> name = tokenizer()) {
      of_tokenizer_ = shipped_model(models, *name);
      // Llama 3.1 has Llama 3's tokenizer.
      if (const std::size_t at = name->find("Llama-3-"); at != std::string::npos)
        if (auto later = shipped_model(models, std::string(*name).replace(at, 8, "Llama-3.1-")))
          of_tokenizer_ = std::move(later);
    }
  }

  /// The model that the tokenizer is of, by its name; null: it says none.
  [[nodiscard]] const ShippedModel* of_tokenizer() const { return of_tokenizer_ ? &*of_tokenizer_ : nullptr; }
  [[nodiscard]] std::optional<std::string> tokenizer() const {
    const TomlValue* value = flags_.look_at("tokenizer-model");
    const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(&value->value);
    return text == nullptr ? std::nullopt : std::optional(*text);
  }

  [[nodiscard]] bool hybrid() const { return hybrid_; }
  [[nodiscard]] bool says(std::string_view flag) const { return flags_.has(flag); }
  [[nodiscard]] bool on(std::string_view flag) { return flags_.has(flag) && flags_.flag(flag).value_or(false); }
  std::int64_t number(std::string_view flag, std::int64_t usual) { return flags_.integer(flag).value_or(usual); }

  std::optional<std::string> text(std::string_view flag) {
    const bool experts = number("num-experts", 0) > 0, latent = on("multi-latent-attention");
    const auto its = std::ranges::find(model_flags(), flag, &ModelFlag::flag);
    if (its != model_flags().end() &&
        ((its->of_experts && !experts) || (its->of_latent && !latent) || (its->of_hybrid && !hybrid_)))
      return std::nullopt;
    if (flag == "hybrid-override-pattern") return in_quotes(pattern());
    if (flag == "mamba-num-heads" && !says(flag))  // MambaMixer's expand
      return std::to_string(2 * number("hidden-size", 0) / std::max<std::int64_t>(number("mamba-head-dim", 64), 1));
    if (flag == "rotary-percent" && hybrid_ && text("position-embedding-type") != in_quotes("rope"))
      return std::nullopt;
    if (flag == "num-query-groups") {
      if (latent) return std::nullopt;
      return std::to_string(on("group-query-attention") ? number(flag, 1) : number("num-attention-heads", 0));
    }
    if (flag == "moe-ffn-hidden-size" && !says(flag)) return text("ffn-hidden-size");
    if (flag == "ffn-hidden-size" && !says(flag)) {
      const std::int64_t hidden = number("hidden-size", 0);
      return std::to_string(on("swiglu") ? product({hidden, 8}) / 3 / 64 * 64 : product({4, hidden}));
    }
    if (flag == "kv-channels") {
      if (latent) {  // multi_latent_attention.py has sizes of its own for each part of a head
        flags_.no_matter(std::array{flag}, "heads of MLA have the sizes of qk-head-dim and v-head-dim");
        return std::nullopt;
      }
      if (!says(flag))
        return std::to_string(number("hidden-size", 0) / std::max<std::int64_t>(number("num-attention-heads", 1), 1));
    }
    if (flag == "vocab-size") return vocabulary();
    if (flag == "group-query-attention" || flag == "rope-type" || flag == "make-vocab-size-divisible-by")
      return std::nullopt;
    if (flag == "position-embedding-type" && on("use-rotary-position-embeddings")) return in_quotes("rope");
    // One group of experts is no grouping.
    if (flag == "moe-router-num-groups" || flag == "moe-router-group-topk")
      if (says("moe-router-num-groups") && number("moe-router-num-groups", 0) == 1) return std::string("0");
    if (const TomlValue* value = flags_.take(flag))
      return flag == "moe-layer-freq" ? layers_text(flag_text(*value)) : flag_text(*value);
    return its == model_flags().end() || its->usual.empty() ? std::nullopt : std::optional(std::string(its->usual));
  }

 private:
  // As it is given, or as core/ssm/mamba_hybrid_layer_allocation.py makes it of shares.
  std::string pattern() {
    if (says("hybrid-override-pattern")) return flags_.text("hybrid-override-pattern").value_or("");
    const double attention = flags_.number("hybrid-attention-ratio").value_or(0);
    const double mlp = flags_.number("hybrid-mlp-ratio").value_or(0);
    return spread_pattern(number("num-layers", 0), attention, mlp).value_or("");
  }
  // "[0]+[1]*26" is "([0]*1+[1]*26)": as the scenario's reader writes such lists.
  static std::string layers_text(const std::string& given) {
    std::string text, runs;
    for (const char c : given)
      if (std::string_view(" ()\"").find(c) == std::string_view::npos) text += c;
    if (!text.empty() && text.find_first_not_of("0123456789") == std::string::npos) return text;  // "1" of a YAML
    if (!text.starts_with('[') || text.find(',') != std::string::npos) return given;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('+', at), text.size());
      const std::string part = text.substr(at, end - at);
      if (part.size() < 3 || part[0] != '[' || part[2] != ']') return given;
      runs += fmt::format("{}{}", runs.empty() ? "" : "+", part.size() == 3 ? part + "*1" : part);
      at = end + 1;
    }
    return in_quotes(fmt::format("({})", runs));
  }
  std::optional<std::string> vocabulary() {
    if (says("padded-vocab-size")) return std::to_string(number("padded-vocab-size", 0));
    if (says("vocab-size")) return std::to_string(number("vocab-size", 0));
    constexpr std::string_view of_gpt2 = "50257";  // GPT2BPETokenizer's own files
    // pretrain_gpt.py takes it where no type is given (args_defaults); its files are these two.
    const bool by_default = !says("tokenizer-type") && (says("merge-file") || says("vocab-file"));
    if (by_default || (says("tokenizer-type") && flags_.text("tokenizer-type") == "GPT2BPETokenizer"))
      return std::string(of_gpt2);
    if (of_tokenizer_) return std::to_string(of_tokenizer_->model.vocabulary);
    if (!says("tokenizer-model")) return std::nullopt;
    // Tokenizers by name whose model is of no family here: T5's has 32,000 pieces and 100 sentinels (transformers,
    // models/t5/tokenization_t5.py), GPT-2's 50,257.
    struct Tokenizer {
      std::string_view name, size;
    };
    // llm-jp's models say 99,487 of theirs (model specifications of llm-jp-3).
    constexpr std::array tokenizers{Tokenizer{"t5-small", "32100"}, Tokenizer{"t5-base", "32100"},
                                    Tokenizer{"t5-large", "32100"}, Tokenizer{"gpt2", of_gpt2},
                                    Tokenizer{"llm-jp-tokenizer-100k.ver3.0b1.model", "99487"}};
    std::string name = flags_.text("tokenizer-model").value_or("");
    if (name.ends_with(".model")) name.erase(0, name.rfind('/') + 1);
    const auto* const its = std::ranges::find(tokenizers, std::string_view(name), &Tokenizer::name);
    return its == tokenizers.end() ? std::nullopt : std::optional<std::string>(its->size);
  }
  Given& flags_;
  std::optional<ShippedModel> of_tokenizer_;
  bool hybrid_ = false;
};

struct Candidate {
  const ShippedModel* base = nullptr;
  std::vector<ConfigOverride> overrides;
  Model model;  ///< with them
};

std::optional<double> as_number(const TomlValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value.value)) return static_cast<double>(*whole);
  const auto* real = std::get_if<double>(&value.value);
  return real == nullptr ? std::nullopt : std::optional(*real);
}

// The base of the angles that its positions turn by.
double rotary_base(const ShippedModel& its) {
  constexpr double usual = 10'000;  // transformers, LlamaConfig
  for (const TomlKey& key : parse_json_table(its.config, its.path.string(), Automatic::Kept).keys)
    if (key.name == "rope_theta") return as_number(key.value).value_or(usual);
  return usual;
}

// What memory and time depend on: not its name, nor how far rotary positions reach.
Model bare_model(Model model) {
  model.name = model.architecture = {};
  if (model.positions != Positions::Learned) model.max_positions = 0;
  return model;
}

bool agrees(std::string_view flag, const std::string& wanted, const Model& model) {
  Scenario scenario;
  scenario.model = model;
  const std::vector<std::string> values = agreeing_values(flag, scenario);
  return std::ranges::find(values, wanted) != values.end();
}

Content number_or_text(const std::string& text) {
  return text.starts_with('"') ? Content(text.substr(1, text.size() - 2)) : typed(text);
}

ConfigOverride changed(std::string key, const Content& content) {
  ConfigOverride made;
  made.key = std::move(key);
  if (const auto* whole = std::get_if<std::int64_t>(&content)) made.value = *whole;
  if (const auto* real = std::get_if<double>(&content)) made.value = *real;
  if (const auto* flag = std::get_if<bool>(&content)) made.value = *flag;
  if (const auto* text = std::get_if<std::string>(&content)) made.value = *text;
  return made;
}

// What has to change for the base to be what is wanted.
std::vector<ConfigOverride> changes(const ShippedModel& base, Wanted& wanted, Given& flags) {
  const Model& m = base.model;
  const bool gpt2 = m.architecture == "gpt2", llama = m.architecture == "llama";
  std::vector<ConfigOverride> made;
  const auto differs = [&](std::string_view flag) {
    const std::optional<std::string> text = wanted.text(flag);
    return text && !agrees(flag, *text, m);
  };
  for (const ModelKey& its : keys) {
    const std::string_view key = gpt2 ? its.gpt2 : its.key;
    if (!key.empty() && differs(its.flag))
      made.push_back(changed(std::string(key), number_or_text(*wanted.text(its.flag))));
  }
  // Sizes that are left out follow others in the base too, so they are said again where those changed.
  if (gpt2 && !made.empty() && !differs("ffn-hidden-size"))
    made.push_back(changed("n_inner", typed(*wanted.text("ffn-hidden-size"))));
  if (gpt2 && differs("num-experts")) made.push_back(changed("num_experts", typed(*wanted.text("num-experts"))));
  if (m.experts() && !gpt2 && differs("num-experts")) {
    const bool local = m.architecture == "mixtral";
    const bool routed = m.architecture.starts_with("deepseek") || m.architecture == "glm4_moe";
    made.push_back(changed(local    ? "num_local_experts"
                           : routed ? "n_routed_experts"
                                    : "num_experts",
                           typed(*wanted.text("num-experts"))));
  }
  // ([0]*3+[1]*58): the first three are dense.
  if (const std::optional<std::string> layers = wanted.text("moe-layer-freq");
      layers && (m.architecture.starts_with("deepseek") || m.architecture == "glm4_moe")) {
    const std::size_t zeros = layers->find("[0]*");
    const std::string count = zeros == std::string::npos ? "0" : layers->substr(zeros + 4);
    const Content dense = typed(count.substr(0, count.find_first_not_of("0123456789")));
    std::int64_t first = 0;
    while (first < m.layers.size() && !m.has_experts(first)) ++first;
    if (const auto* n = std::get_if<std::int64_t>(&dense); n != nullptr && *n != first)
      made.push_back(changed("first_k_dense_replace", dense));
  }
  if (m.architecture == "mixtral" && wanted.text("moe-ffn-hidden-size")) {
    // Its experts are as wide as its intermediate_size.
    std::erase_if(
        made, [](const ConfigOverride& o) { return o.key == "moe_intermediate_size" || o.key == "intermediate_size"; });
    if (differs("moe-ffn-hidden-size"))
      made.push_back(changed("intermediate_size", typed(*wanted.text("moe-ffn-hidden-size"))));
  }
  if (differs("untie-embeddings-and-output-weights"))
    made.push_back(changed("tie_word_embeddings", !wanted.on("untie-embeddings-and-output-weights")));
  if (llama && (differs("disable-bias-linear"))) {
    made.push_back(changed("attention_bias", true));
    made.push_back(changed("mlp_bias", true));
  }
  if (m.hybrid()) {
    const auto word = [](const std::string& quoted) { return quoted.substr(1, quoted.size() - 2); };
    if (differs("squared-relu"))
      made.push_back(changed("mlp_hidden_act", std::string(wanted.on("squared-relu") ? "relu2" : "gelu")));
    if (differs("position-embedding-type")) {
      const std::string kind = word(*wanted.text("position-embedding-type"));
      made.push_back(changed("position_embedding_type", kind == "learned_absolute" ? std::string("absolute") : kind));
    }
    if (differs("rotary-percent"))
      made.push_back(changed("partial_rotary_factor", number_or_text(*wanted.text("rotary-percent"))));
  }
  if (gpt2) {
    if (differs("disable-bias-linear")) made.push_back(changed("add_bias_linear", false));
    if (differs("swiglu")) made.push_back(changed("activation_function", std::string("swiglu")));
    if (differs("squared-relu")) made.push_back(changed("activation_function", std::string("relu2")));
    if (differs("qk-layernorm") || (wanted.on("qk-layernorm") && wanted.on("multi-latent-attention")))
      made.push_back(changed("qk_layernorm", true));
    if (differs("position-embedding-type")) made.push_back(changed("position_embedding_type", std::string("rope")));
    if (differs("rotary-percent"))
      made.push_back(changed("rotary_pct", number_or_text(*wanted.text("rotary-percent"))));
  }
  const std::int64_t positions = flags.integer("max-position-embeddings").value_or(0);
  if ((gpt2 || m.architecture == "gpt_bigcode") && positions > 0 && positions != m.max_positions)
    made.push_back(changed("n_positions", positions));
  return made;
}

bool is_it(const Model& model, Wanted& wanted, std::string_view but_for) {
  return is_plain(model) && model.hybrid() == wanted.hybrid() &&
         std::ranges::all_of(model_flags(), [&](const ModelFlag& its) {
           const std::optional<std::string> text = wanted.text(its.flag);
           return !text || its.flag == but_for || agrees(its.flag, *text, model);
         });
}

// Those that the flags are with the fewest changes, whatever the one says that they may differ in.
std::vector<Candidate> nearest_models(const ShippedModels& models, Wanted& wanted, Given& flags,
                                      std::string_view but_for = {}) {
  std::vector<const ShippedModel*> bases;
  for (const ShippedModel& its : models.files) bases.push_back(&its);
  const ShippedModel* of_tokenizer = wanted.of_tokenizer();
  if (of_tokenizer != nullptr && !of_tokenizer->file.starts_with("models/")) bases.push_back(of_tokenizer);
  std::vector<Candidate> best;
  for (const ShippedModel* its : bases) {
    const ShippedModel& base = *its;
    if (!is_plain(base.model) || base.model.hybrid() != wanted.hybrid()) continue;
    std::vector<ConfigOverride> overrides = changes(base, wanted, flags);
    if (!best.empty() && best.front().overrides.size() < overrides.size()) continue;
    try {
      Model made = parse_model(base.config, base.path, overrides);
      if (!is_it(made, wanted, but_for)) continue;
      if (!best.empty() && overrides.size() < best.front().overrides.size()) best.clear();
      best.push_back({&base, std::move(overrides), bare_model(std::move(made))});
    } catch (const InputError&) {
      continue;  // its family has no such thing
    }
  }
  return best;
}

// The flags of which any one, left out, would make it a model of a family that is known: "--normalization LayerNorm".
std::vector<std::string> at_fault(const ShippedModels& models, Wanted& wanted, Given& flags) {
  std::vector<std::string> found;
  for (const ModelFlag& its : model_flags()) {
    if (!flags.has(its.flag) || nearest_models(models, wanted, flags, its.flag).empty()) continue;
    const TomlValue* value = flags.look_at(its.flag);
    const bool on = value == nullptr || std::holds_alternative<bool>(value->value);
    const auto* text = on ? nullptr : std::get_if<std::string>(&value->value);
    found.push_back(on                ? fmt::format("--{}", its.flag)
                    : text != nullptr ? fmt::format("--{} {}", its.flag, printable(*text))
                                      : fmt::format("--{} {}", its.flag, scenarios::text(*value)));
  }
  return found;
}

// Of models of one shape, the one that the tokenizer or the base of rotary positions is of.
void prefer_alike(std::vector<Candidate>& found, const Wanted& wanted, const Given& flags) {
  const auto keep = [&](const auto& is_alike) {
    if (std::ranges::any_of(found, is_alike))
      std::erase_if(found, [&](const Candidate& its) { return !is_alike(its); });
  };
  keep([&](const Candidate& its) {
    return wanted.of_tokenizer() != nullptr && its.base->file == wanted.of_tokenizer()->file;
  });
  if (const TomlValue* type = flags.look_at("tokenizer-type"))
    // SentencePiece: of Llama's, the first two; the third's is tiktoken.
    if (const std::string name = scenarios::text(*type);
        name == in_quotes("Llama2Tokenizer") || name.find("SentencePiece") != std::string::npos)
      keep([](const Candidate& its) { return its.model.vocabulary == 32'000; });
  if (const TomlValue* base = flags.look_at("rotary-base"))
    if (const std::optional<double> its_base = as_number(*base))
      keep([&](const Candidate& its) { return rotary_base(*its.base) == *its_base; });
}

}  // namespace

const std::vector<ModelFlag>& model_flags() {
  static const std::vector<ModelFlag> flags{
      {"num-layers", ""},
      {"hidden-size", ""},
      {"ffn-hidden-size", ""},
      {"num-attention-heads", ""},
      {"group-query-attention", "false"},
      {"num-query-groups", ""},
      {"kv-channels", ""},
      {"vocab-size", ""},
      {"make-vocab-size-divisible-by", "128"},
      {"untie-embeddings-and-output-weights", "false"},
      {"add-qkv-bias", "false"},
      {"disable-bias-linear", "false"},
      {"swiglu", "false"},
      {"squared-relu", "false"},
      {"normalization", "\"LayerNorm\""},
      {"position-embedding-type", "\"learned_absolute\""},
      {"rotary-percent", "1"},
      {"qk-layernorm", "false"},
      {"multi-latent-attention", "false"},
      {"q-lora-rank", "0", false, true},
      {"kv-lora-rank", "32", false, true},
      {"qk-head-dim", "128", false, true},
      {"qk-pos-emb-head-dim", "64", false, true},
      {"v-head-dim", "128", false, true},
      {"mtp-num-layers", "0"},
      {"num-experts", "0"},
      {"moe-router-topk", "2", true},
      {"moe-ffn-hidden-size", "", true},
      {"moe-shared-expert-intermediate-size", "0", true},
      {"moe-layer-freq", "1", true},
      {"moe-router-score-function", "\"softmax\"", true},
      {"moe-router-pre-softmax", "false", true},
      {"moe-router-num-groups", "0", true},
      {"moe-router-group-topk", "0", true},
      {"moe-router-topk-scaling-factor", "1", true},
      {"moe-router-enable-expert-bias", "false", true},
      {"hybrid-override-pattern", "", false, false, true},
      {"mamba-num-heads", "", false, false, true},
      {"mamba-head-dim", "64", false, false, true},
      {"mamba-num-groups", "8", false, false, true},
      {"mamba-state-dim", "128", false, false, true},
  };
  return flags;
}

bool describes_model(std::string_view flag) {
  const std::optional<MegatronFlag> its = megatron_flag(flag);
  return its && its->kind == MegatronFlag::Kind::Repeats && its->table == "model";
}

namespace {

// Its layers are those of the stack that Megatron-LM has; that runs none of them again (core/ssm/mamba_block.py).
void take_stack(Given& flags, Draft& draft) {
  const TomlValue* const spec = flags.look_at("spec");
  if (spec != nullptr && scenarios::text(*spec).find("mamba_stack_spec") != std::string::npos)
    flags.tell(RemarkKind::NoMatter, "spec", "the layers of a hybrid"), (void)flags.take("spec");
  for (const std::string_view flag : {"is-hybrid-model", "hybrid-attention-ratio", "hybrid-mlp-ratio"})
    (void)flags.take(flag);
  if (draft.text("train.recompute") != "full") return;
  for (const std::string_view key : {"train.recompute", "train.recompute_method", "train.recompute_layers"})
    draft.erase(key);
  flags.tell(RemarkKind::NoMatter, "recompute-granularity", "Megatron-LM's stack of a hybrid runs no layer again");
}

}  // namespace

namespace {

// A window in a model of a family that may have one, and has none in what is shipped: --window-size (4096,0).
void take_window(Given& flags, const Model& model, std::string_view architecture, Draft& draft) {
  const TomlValue* const value = flags.look_at("window-size");
  if (value == nullptr || model.window() != 0 || (architecture != "mistral" && architecture != "mixtral")) return;
  std::string text = scenarios::text(*value);
  std::erase_if(text, [](char c) { return std::string_view("\"()[] ").find(c) != std::string_view::npos; });
  const std::size_t comma = text.find(',');
  const Content left = typed(text.substr(0, comma));
  const auto* const keys_before = std::get_if<std::int64_t>(&left);
  if (keys_before == nullptr || *keys_before < 1 || comma == std::string::npos || text.substr(comma) != ",0") return;
  draft.set("model_override.sliding_window", *keys_before, flags.place("window-size"));
}

// Whether the tokenizer, or the launch file where nothing is said of a tokenizer, is called after another family than
// the one whose shape it is.
bool is_of_another_family(std::string_view architecture, std::string_view tokenizer, std::string_view file) {
  struct Words {
    std::string_view architecture;
    std::vector<std::string_view> words;
  };
  static const std::vector<Words> families{{"llama", {"llama", "alpaca", "vicuna"}},
                                           {"mistral", {"mistral"}},
                                           {"mixtral", {"mixtral", "mistral"}},
                                           {"qwen2", {"qwen"}},
                                           {"qwen3", {"qwen"}},
                                           {"gemma", {"gemma"}},
                                           {"gemma2", {"gemma"}},
                                           {"gemma3_text", {"gemma"}},
                                           {"deepseek_v3", {"deepseek"}},
                                           {"gpt2", {"gpt"}},
                                           {"gpt_neox", {"neox", "pythia", "gpt"}}};
  constexpr auto others = std::to_array<std::string_view>({"baichuan", "internlm", "aquila", "yi-", "llm-jp", "swallow",
                                                           "chatglm", "codeshell", "skywork", "deepseek", "qwen",
                                                           "gemma", "falcon", "bloom", "telechat", "xverse"});
  const auto own = std::ranges::find(families, architecture, &Words::architecture);
  if (own == families.end()) return false;
  std::string text(tokenizer);  // what of a path is known without running the script
  if (tokenizer.empty() || tokenizer.starts_with(unknown_value)) text.append(" ").append(file);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto has = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  return std::ranges::none_of(own->words, has) && std::ranges::any_of(others, has);
}

}  // namespace

void describe_model(Given& flags, const ShippedModels& models, Draft& draft) {
  Wanted wanted(flags, models, draft.hybrid);
  if (wanted.hybrid()) take_stack(flags, draft);
  constexpr std::string_view letters = "hybrid-override-pattern";
  const std::string pattern = flags.has(letters) ? flags.text(letters).value_or("") : "";
  if (const std::size_t other = pattern.find_first_not_of("M*-"); other != std::string::npos) {
    const ProblemText why =
        not_modelled(fmt::format("layers of {} are not modelled yet in a hybrid", in_quotes(pattern.substr(other, 1))));
    return draft.remark(RemarkKind::NotExpressed, fmt::format("--{}", letters), why, flags.place(letters));
  }
  if (!flags.has("num-layers") || !flags.has("hidden-size") || !flags.has("num-attention-heads")) {
    const bool hidden = std::ranges::any_of(
        draft.remarks, [](const Remark& its) { return its.why.starts_with("is Python that is not read"); });
    const std::string_view why =
        "num-layers, hidden-size and num-attention-heads are not all given: name it with --model";
    draft.remark(RemarkKind::NotExpressed, "the model",
                 hidden ? not_modelled("is made by Python that is not read: name it with --model")
                        : ProblemText(std::string(why)));
    return;
  }
  const Place place = flags.place("num-layers");
  std::vector<Candidate> found = nearest_models(models, wanted, flags);
  // Families of experts choose by softmax in one order, and Megatron-LM's flags have both.
  constexpr std::string_view order = "moe-router-pre-softmax";
  if (found.empty() && flags.has("num-experts") && !(found = nearest_models(models, wanted, flags, order)).empty()) {
    draft.remark_bounded(fmt::format("--{}", order),
                         fmt::format("{} here, and the figures are of the other order, as {} has it",
                                     wanted.on(order) ? "on" : "off", found.front().base->file),
                         "router-scores", place);
  }
  if (found.empty()) {
    const std::vector<std::string> fault = at_fault(models, wanted, flags);
    draft.remark(
        RemarkKind::NotExpressed, "the model",
        not_modelled(fault.empty() ? "no family that is known has one like this: give a config.json with --model"
                                   : fmt::format("no family that is known has one like this, but for {}: give a "
                                                 "config.json with --model",
                                                 one_of(fault))),
        place);
    return;
  }
  prefer_alike(found, wanted, flags);
  const auto other =
      std::ranges::find_if(found, [&](const Candidate& its) { return its.model != found.front().model; });
  if (other != found.end() && !wanted.text("vocab-size")) {
    std::swap(found.front(),
              *std::ranges::max_element(found, {}, [](const Candidate& c) { return c.model.vocabulary; }));
    const auto smaller =
        std::ranges::find_if(found, [&](const Candidate& its) { return its.model != found.front().model; });
    draft.remark_bounded(
        "vocab-size",
        fmt::format("{} and {} have this shape, and vocabularies of {} and {} tokens; which of them is not "
                    "said, and the figures are of the former: put --vocab-size into the script, or name one "
                    "with --model",
                    found.front().base->file, smaller->base->file, found.front().model.vocabulary,
                    smaller->model.vocabulary),
        "vocabulary", place);
  }
  const Candidate& best = found.front();
  if (!flags.has("vocab-size") && !flags.has("padded-vocab-size")) {
    // A shape that is no shipped model's is of a model with a vocabulary of its own.
    // GPT's are, where the tokenizer is said to be other than GPT-2's.
    const TomlValue* const type = flags.look_at("tokenizer-type");
    const bool gpt2s = type == nullptr || scenarios::text(*type).find("GPT2") != std::string::npos;
    const bool own = std::ranges::any_of(best.overrides, [&](const ConfigOverride& its) {
      return its.key == "hidden_size" || its.key == "num_hidden_layers" || its.key == "intermediate_size" ||
             (!gpt2s && (its.key == "n_embd" || its.key == "n_layer"));
    });
    // Llama's own tokenizer is a file of this name.
    const std::string tokenizer = wanted.tokenizer().value_or("");
    const bool llamas = best.base->model.vocabulary == 32'000 && tokenizer.ends_with("/tokenizer.model");
    const bool foreign = !llamas && is_of_another_family(best.base->model.architecture, tokenizer, draft.file);
    const bool reported =
        std::ranges::any_of(draft.remarks, [](const Remark& its) { return its.bound == "vocabulary"; });
    if (!wanted.text("vocab-size") && (own || foreign) && !llamas && !reported &&
        draft.find("model_override.vocab_size") == nullptr)
      draft.remark_bounded("vocab-size",
                           fmt::format("is not said, and the tokenizer is not read: the figures are of {}, as {} has "
                                       "it; put --vocab-size into the script",
                                       best.base->model.vocabulary, best.base->file),
                           "vocabulary", place);
    else if (!wanted.text("vocab-size"))
      draft.remark(
          RemarkKind::Assumed, "vocab-size",
          fmt::format("{}, as {} has it: the tokenizer is not read", best.base->model.vocabulary, best.base->file));
    else if (wanted.of_tokenizer() != nullptr)
      draft.remark(RemarkKind::Assumed, "vocab-size",
                   fmt::format("{}, as {} has it, whose tokenizer is named", *wanted.text("vocab-size"),
                               wanted.of_tokenizer()->file));
  }
  if (best.base->model.positions == Positions::Rotary)
    flags.tell(RemarkKind::NoMatter, "max-position-embeddings", "rotary positions have no table");
  if (best.model.positions == Positions::None)
    flags.tell(RemarkKind::NoMatter, "max-position-embeddings", "there are no positions");
  draft.set("model", best.base->file, place);
  for (const ConfigOverride& its : best.overrides)
    std::visit([&](const auto& value) { draft.set("model_override." + its.key, value, place); }, its.value);
  take_window(flags, best.model, best.base->model.architecture, draft);
}

}  // namespace tidemark::scenarios
