#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "scenarios/convert/megatron/model.hpp"
#include "scenarios/convert/megatron/nearest.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/model_config/hybrid_layers.hpp"

namespace tidemark::scenarios {
namespace {

// "[0]+[1]*26" is "([0]*1+[1]*26)": as the scenario's reader writes such lists.
std::string layers_text(const std::string& given) {
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

}  // namespace

Wanted::Wanted(Given& flags, const ShippedModels& models, bool hybrid_program) : flags_(flags) {
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

std::optional<std::string> Wanted::tokenizer() const {
  const TomlValue* value = flags_.look_at("tokenizer-model");
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(&value->value);
  return text == nullptr ? std::nullopt : std::optional(*text);
}

std::optional<std::string> Wanted::text(std::string_view flag) {
  const bool experts = number("num-experts", 0) > 0, latent = on("multi-latent-attention");
  const auto its = std::ranges::find(model_flags(), flag, &ModelFlag::flag);
  if (its != model_flags().end() &&
      ((its->of_experts && !experts) || (its->of_latent && !latent) || (its->of_hybrid && !hybrid_)))
    return std::nullopt;
  if (flag == "hybrid-override-pattern") return in_quotes(pattern());
  if (flag == "mamba-num-heads" && !says(flag))  // MambaMixer's expand
    return std::to_string(2 * number("hidden-size", 0) / std::max<std::int64_t>(number("mamba-head-dim", 64), 1));
  if (flag == "rotary-percent" && hybrid_ && text("position-embedding-type") != in_quotes("rope")) return std::nullopt;
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

// As it is given, or as core/ssm/mamba_hybrid_layer_allocation.py makes it of shares.
std::string Wanted::pattern() {
  if (says("hybrid-override-pattern")) return flags_.text("hybrid-override-pattern").value_or("");
  const double attention = flags_.number("hybrid-attention-ratio").value_or(0);
  const double mlp = flags_.number("hybrid-mlp-ratio").value_or(0);
  return spread_pattern(number("num-layers", 0), attention, mlp).value_or("");
}

std::optional<std::string> Wanted::vocabulary() {
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
  // llm-jp's models say 99,487 of theirs (model specifications of llm-jp-3); swiss-ai's is that of Apertus, of which
  // transformers has 131,072 (models/apertus/configuration_apertus.py).
  constexpr std::array tokenizers{Tokenizer{"t5-small", "32100"},
                                  Tokenizer{"t5-base", "32100"},
                                  Tokenizer{"t5-large", "32100"},
                                  Tokenizer{"gpt2", of_gpt2},
                                  Tokenizer{"llm-jp-tokenizer-100k.ver3.0b1.model", "99487"},
                                  Tokenizer{"alehc/swissai-tokenizer", "131072"}};
  std::string name = flags_.text("tokenizer-model").value_or("");
  if (name.ends_with(".model")) name.erase(0, name.rfind('/') + 1);
  const auto* const its = std::ranges::find(tokenizers, std::string_view(name), &Tokenizer::name);
  return its == tokenizers.end() ? std::nullopt : std::optional<std::string>(its->size);
}

}  // namespace tidemark::scenarios
