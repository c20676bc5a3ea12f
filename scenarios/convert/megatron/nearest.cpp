#include "scenarios/convert/megatron/nearest.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "scenarios/convert/megatron/model.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/json_table.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"
#include "scenarios/model_config/config_reader.hpp"

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

}  // namespace

std::vector<Candidate> nearest_models(const ShippedModels& models, Wanted& wanted, Given& flags,
                                      std::string_view but_for) {
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

}  // namespace tidemark::scenarios
