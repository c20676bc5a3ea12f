#include "scenarios/convert/megatron/model.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/convert/megatron/nearest.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/json_table.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/model_config/hybrid_layers.hpp"

// Megatron-LM core_v0.14.0, megatron/training/arguments.py, core_transformer_config_from_args.

namespace tidemark::scenarios {

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

// Models of one shape with other vocabularies: the figures are of the largest.
void take_largest_vocabulary(std::vector<Candidate>& found, Wanted& wanted, Place place, Draft& draft) {
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
}

// Where the vocabulary's size comes from, of which no flag says anything.
void tell_vocabulary(const Candidate& best, Wanted& wanted, const Given& flags, Place place, Draft& draft) {
  if (flags.has("vocab-size") || flags.has("padded-vocab-size")) return;
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
  const bool reported = std::ranges::any_of(draft.remarks, [](const Remark& its) { return its.bound == "vocabulary"; });
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
  // Families whose MLPs have no gate have layer norms, which keep as much and a mean of each row beside. Where nobody
  // says an activation, the gate may be what has no flag (Gemma's).
  constexpr std::string_view norms = "normalization";
  const bool says_activation = flags.has("xielu") || flags.has("squared-relu");
  if (found.empty() && says_activation && wanted.text(norms) == in_quotes("RMSNorm") &&
      !(found = nearest_models(models, wanted, flags, norms)).empty())
    draft.remark_bounded(fmt::format("--{} RMSNorm", norms),
                         fmt::format("the figures are of layer norms, as {} has them", found.front().base->file),
                         "norms-of-another-kind", flags.place(norms));
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
  take_largest_vocabulary(found, wanted, place, draft);
  const Candidate& best = found.front();
  tell_vocabulary(best, wanted, flags, place, draft);
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
