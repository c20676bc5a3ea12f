#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/shell/launch_line.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

// Flags of forks of Megatron-LM, and older and newer names, as the flags that the reader of Megatron-LM's takes. What
// no flag says stays, and is looked up in scenarios/frameworks/megatron/megatron_forks.tsv.

namespace tidemark::scenarios {
namespace {

struct Alias {
  std::string_view name, flag;
};
constexpr std::array aliases{
    // Core 0.16 on makes two names of each switch that is on by default (megatron/training/argument_utils.py).
    Alias{"no-tp-comm-overlap-ag", "disable-tp-comm-overlap-ag"},
    Alias{"no-tp-comm-overlap-rs", "disable-tp-comm-overlap-rs"},
    Alias{"no-tp-comm-bulk-dgrad", "disable-tp-comm-bulk-dgrad"},
    Alias{"no-tp-comm-bulk-wgrad", "disable-tp-comm-bulk-wgrad"},
    // Megatron-LM before core 0.4, and Megatron-DeepSpeed, which began there.
    Alias{"activations-checkpoint-method", "recompute-method"},
    Alias{"activations-checkpoint-num-layers", "recompute-num-layers"},
    Alias{"checkpoint-num-layers", "recompute-num-layers"},
    Alias{"distribute-checkpointed-activations", "distribute-saved-activations"},
    Alias{"pad-vocab-size-to", "padded-vocab-size"},  // bigscience's Megatron-DeepSpeed
    // What forks call what Megatron-LM has under another name (megatron/arguments.py of each).
    Alias{"tokenizer-name-or-path", "tokenizer-model"},  // Megatron-DeepSpeed
    Alias{"use-flash-attn-v2", "use-flash-attn"},        // FlashAttention-2, which is what is simulated
    Alias{"layernorm-epsilon", "norm-epsilon"},
    Alias{"rotary-theta", "rotary-base"},                      // bigcode
    Alias{"rotary-position-embeddings-theta", "rotary-base"},  // Megatron-DeepSpeed
    Alias{"rope-theta", "rotary-base"},                        // Megatron-LLM
    Alias{"no-tie-embed-logits", "untie-embeddings-and-output-weights"},
    Alias{"num-attention-heads-kv", "num-key-value-heads"},
};

class Forks {
 public:
  Forks(std::vector<TomlKey> flags, Draft& draft) : flags_(std::move(flags)), draft_(draft) {}

  std::vector<TomlKey> read() {
    take_layers_of_old();
    join_placeholders();
    for (TomlKey& flag : flags_) {
      const auto* const alias = std::ranges::find(aliases, std::string_view(flag.name), &Alias::name);
      if (alias == aliases.end() || has(alias->flag)) continue;
      if (alias->flag == "recompute-method" && !has("recompute-granularity")) {
        add("recompute-granularity", std::string("full"), flag.place);
        if (!has("activations-checkpoint-num-layers")) add("recompute-num-layers", std::int64_t{1}, flag.place);
      }
      flag.name = alias->flag;
    }
    read_padded_layers();
    read_chunks();
    refuse_pyramids();
    read_groups();
    read_other_words();
    read_one_expert();
    read_deepspeed();
    read_pai();
    read_adam_of_host();
    read_older();
    for (TomlKey& flag : added_) flags_.push_back(std::move(flag));
    return std::move(flags_);
  }

 private:
  [[nodiscard]] const TomlKey* find(std::string_view name) const {
    const auto found =
        std::find_if(flags_.rbegin(), flags_.rend(), [&](const TomlKey& its) { return its.name == name; });
    return found == flags_.rend() ? nullptr : &*found;
  }
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name) const {
    const TomlKey* const key = find(name);
    const auto* const number = key == nullptr ? nullptr : std::get_if<std::int64_t>(&key->value.value);
    return number == nullptr ? std::nullopt : std::optional(*number);
  }
  void add(std::string name, Content content, Place place) {
    added_.push_back({std::move(name), place, {std::move(content), place}});
  }
  void erase(std::string_view name) {
    std::erase_if(flags_, [&](const TomlKey& its) { return its.name == name; });
  }
  void tell(RemarkKind kind, std::string_view name, std::string why) {
    const TomlKey* const key = find(name);
    if (key == nullptr) return;
    const auto* const on = std::get_if<bool>(&key->value.value);
    const auto* const text = std::get_if<std::string>(&key->value.value);
    const std::string value = text != nullptr && text->starts_with(unknown_value) ? text->substr(unknown_value.size())
                                                                                  : scenarios::text(key->value);
    draft_.remark(kind, on != nullptr ? fmt::format("--{}", name) : fmt::format("--{} = {}", name, value),
                  std::move(why), key->place);
    erase(name);
  }

  void tell_bounded(std::string_view name, std::string why, std::string bound) {
    const TomlKey* const key = find(name);
    if (key == nullptr) return;
    draft_.remark_bounded(fmt::format("--{}", name), std::move(why), std::move(bound), key->place);
    erase(name);
  }

  // "your tokenizer path", without quotes: a place to be filled in.
  void join_placeholders() {
    for (TomlKey& flag : flags_) {
      const auto* const words = std::get_if<std::vector<TomlValue>>(&flag.value.value);
      if (words == nullptr || words->empty() || flag.name != "tokenizer-model") continue;
      const auto* const first = std::get_if<std::string>(&words->front().value);
      if (first == nullptr || *first != "your") continue;
      draft_.remark(RemarkKind::Assumed, "--tokenizer-model", "is to be filled in: the tokenizer is not read",
                    flag.place);
      flag.value.value = std::string("your tokenizer");
    }
  }

  // megatron/arguments.py before core 0.2, and of the forks that began there: --transformer-impl is local, and
  // attention is unfused without --use-flash-attn. No later release starts with these flags.
  void take_layers_of_old() {
    constexpr auto of_old =
        std::to_array<std::string_view>({"data-impl", "DDP-impl", "checkpoint-activations",
                                         "activations-checkpoint-method", "mmap-warmup", "attention-head-type"});
    const auto is_old = [&](const TomlKey& flag) {
      return std::ranges::find(of_old, std::string_view(flag.name)) != of_old.end();
    };
    const auto its = std::ranges::find_if(flags_, is_old);
    if (its == flags_.end() || has("transformer-impl") || has("deepspeed")) return;
    if (has("use-flash-attn") || has("use-flash-attn-v2") || has("use-mcore-models")) return;
    draft_.remark(RemarkKind::Assumed, fmt::format("--{}", its->name),
                  "is of Megatron-LM before core 0.2, or of a fork that began there: layers are local, with unfused "
                  "attention, where no flag says otherwise",
                  its->place);
    add("transformer-impl", std::string("local"), its->place);
  }

  // zero-bubble's own: layers are padded so that the first stage has one less for the embedding, the last for the loss.
  void read_padded_layers() {
    const TomlKey* const key = find("allow-padding-num-layers");
    const std::int64_t layers = integer("num-layers").value_or(0);
    const std::int64_t stages = integer("pipeline-model-parallel-size").value_or(1);
    if (key == nullptr || stages < 2 || layers % stages == 0 || (layers + 2) % stages != 0) return;
    for (const char* flag : {"account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split"})
      if (!has(flag)) add(flag, true, key->place);
  }

  // What whoever runs the script is to say.
  void read_groups() {
    const TomlKey* const groups = find("num-query-groups");
    const auto* const text = groups == nullptr ? nullptr : std::get_if<std::string>(&groups->value.value);
    if (text == nullptr || !text->starts_with(unknown_value) || text->ends_with(')')) return;
    const std::string variable = variable_of(std::string_view(*text).substr(unknown_value.size()));
    if (variable.empty()) return;
    tell(RemarkKind::NotJudged, "num-query-groups",
         fmt::format("is assigned nowhere: the figures are of a group for each head; --set {}=N says how many",
                     variable));
    erase("group-query-attention");
  }

  // zero-bubble: layers run again by chunks of its schedules.
  void read_chunks() {
    const auto its = std::ranges::find(flags_, "recompute-method", &TomlKey::name);
    if (!says("recompute-method", "chunk")) return;
    draft_.remark(RemarkKind::NotJudged, "--recompute-method = \"chunk\"",
                  "is of zero-bubble's, and is not modelled: the figures are of uniform parts", its->place);
    its->value.value = std::string("uniform");
  }

  // Megatron-DeepSpeed's pyramids have another number of experts in each layer.
  void refuse_pyramids() {
    const TomlKey* const key = find("num-experts");
    if (key == nullptr || !std::holds_alternative<std::vector<TomlValue>>(key->value.value)) return;
    throw InputError(Problem{draft_.file, key->place.line, key->place.column,
                             fmt::format("--num-experts = {}: layers of different numbers of experts are not modelled",
                                         scenarios::text(key->value)),
                             "one number, of all layers, is", ProblemKind::NotModelled});
  }

  // What Megatron-LM says with other flags.
  void read_other_words() {
    for (const std::string_view name : {"RMSNorm", "use-rms-norm"})  // Megatron-LLaMA, Megatron-LLM
      if (const TomlKey* key = find(name); key != nullptr && !has("normalization")) {
        add("normalization", std::string("RMSNorm"), key->place);
        erase(name);
      }
    for (const std::string_view format : {"e4m3", "hybrid"})  // before core 0.2
      if (const TomlKey* key = find(fmt::format("fp8-{}", format)); key != nullptr && !has("fp8-format")) {
        add("fp8-format", std::string(format), key->place);
        erase(fmt::format("fp8-{}", format));
      }
    if (says("glu-activation", "swiglu") && !has("swiglu")) {
      add("swiglu", true, find("glu-activation")->place);
      erase("glu-activation");
    }
    // Of before core 0.4: gradients in one buffer, which is what there has been since.
    if (says("DDP-impl", "local")) tell(RemarkKind::NoMatter, "DDP-impl", "gradients are in one buffer, as here");
    // bigcode, megatron/model/transformer.py: keys and values of one head, which every tensor-parallel rank has whole.
    if (says("attention-head-type", "multihead"))
      tell(RemarkKind::NoMatter, "attention-head-type", "each head has keys and values");
    if (says("attention-head-type", "multiquery") && integer("tensor-model-parallel-size").value_or(1) == 1) {
      add("group-query-attention", true, find("attention-head-type")->place);
      add("num-query-groups", std::int64_t{1}, find("attention-head-type")->place);
      erase("attention-head-type");
    }
  }
  [[nodiscard]] bool says(std::string_view name, std::string_view word) const {
    const TomlKey* const key = find(name);
    const auto* const text = key == nullptr ? nullptr : std::get_if<std::string>(&key->value.value);
    return text != nullptr && *text == word;
  }

  // Megatron-DeepSpeed, megatron/model/transformer.py: with one expert an MLP is plain, and no flag of experts is read.
  void read_one_expert() {
    if (integer("num-experts") != 1 || !(has("deepspeed") || has("moe-expert-parallel-size"))) return;
    for (const char* name : {"num-experts", "moe-expert-parallel-size", "moe-loss-coeff", "moe-train-capacity-factor",
                             "moe-eval-capacity-factor", "moe-min-capacity", "topk", "disable-moe-token-dropping",
                             "disable-moe-top2-2nd-expert-sampling", "create-moe-param-group", "expert-interval"})
      tell(RemarkKind::NoMatter, name, "with one expert a layer's MLP is plain");
  }

  // Megatron-DeepSpeed, megatron/arguments.py: DeepSpeed's engine beneath Megatron's model and layout.
  void read_deepspeed() {
    if (const TomlKey* heads = find("num-key-value-heads"); heads != nullptr && !has("num-query-groups")) {
      add("group-query-attention", true, heads->place);
      add("num-query-groups", heads->value.value, heads->place);
      erase("num-key-value-heads");
    }
    tell(RemarkKind::NoMatter, "no-query-key-layer-scaling", "scores are not scaled by layer unless it is asked for");
    const bool again = has("checkpoint-activations") || has("deepspeed-activation-checkpointing");
    if (const TomlKey* key =
            find(has("checkpoint-activations") ? "checkpoint-activations" : "deepspeed-activation-checkpointing");
        again && !has("recompute-granularity")) {
      add("recompute-granularity", std::string("full"), key->place);
      if (!has("recompute-method")) add("recompute-method", std::string("uniform"), key->place);
      if (!has("recompute-num-layers")) add("recompute-num-layers", std::int64_t{1}, key->place);
    }
    for (const std::string_view name : {"checkpoint-activations", "deepspeed-activation-checkpointing"})
      tell(RemarkKind::Assumed, name, "every layer is computed again, as recompute-granularity full has it");
    if (!has("deepspeed")) return;
    if (!has("transformer-impl") && !has("use-flash-attn"))  // it has no other layers
      add("transformer-impl", std::string("local"), find("deepspeed")->place);
    const std::int64_t stage = integer("zero-stage").value_or(0);
    const bool known = !has("zero-stage") || integer("zero-stage").has_value();
    if (!known)
      return tell(RemarkKind::NotExpressed, "zero-stage", "is no stage of ZeRO's: it says how states are shared out");
    // runtime/engine.py, bf16_optimizer.py: of a PipelineModule in bf16, what is in fp32 is cut over replicas in any
    // stage.
    const bool shared_out = stage > 0 || (has("bf16") && !has("no-pipeline-parallel"));
    if (shared_out && !has("use-distributed-optimizer"))
      add("use-distributed-optimizer", true, find(stage > 0 ? "zero-stage" : "bf16")->place);
    const std::string instead =
        fmt::format("the figures are of Megatron-LM's own {}", shared_out ? "distributed optimizer" : "optimizer");
    if (stage < 3)
      tell_bounded("deepspeed",
                   fmt::format("{}; DeepSpeed's engine has gradients in half precision, buckets and what its pipeline "
                               "holds beside that{}",
                               instead, stage == 2 ? ", and shares gradients out" : ""),
                   stage < 2 ? "deepspeed-engine:1" : "deepspeed-engine:2");
    else
      tell(RemarkKind::NotJudged, "deepspeed",
           fmt::format("DeepSpeed's engine beneath Megatron-LM is not modelled: {}", instead));
    if (stage > 2)
      tell(RemarkKind::NotJudged, "zero-stage",
           "gradients and parameters are shared out too, which the figures are without");
    tell(RemarkKind::NoMatter, "zero-stage", "stands in the figures as the distributed optimizer");
    tell(RemarkKind::NoMatter, "deepspeed_config", "of DeepSpeed's engine, which --deepspeed asks for");
    tell(RemarkKind::NoMatter, "deepspeed-config", "of DeepSpeed's engine, which --deepspeed asks for");
    if (integer("pipeline-model-parallel-size").value_or(1) == 1)
      tell(RemarkKind::NoMatter, "no-pipeline-parallel", "there is one stage");
  }

  void read_older() {
    // DeepSpeed's PipelineModule counts what these name: layers, the embedding, and the tied one of the loss.
    if (const TomlKey* method = find("pp-partition-method");
        method != nullptr && scenarios::text(method->value) == "\"type:transformer|embedding\"") {
      add("account-for-embedding-in-pipeline-split", true, method->place);
      add("account-for-loss-in-pipeline-split", true, method->place);
      tell(RemarkKind::Assumed, "pp-partition-method", "embedding and loss count for a layer each");
    }
    if (says("pp-partition-method", "type:transformer") &&
        integer("num-layers").value_or(1) %
                std::max<std::int64_t>(integer("pipeline-model-parallel-size").value_or(1), 1) ==
            0)
      tell(RemarkKind::NoMatter, "pp-partition-method", "stages have equal numbers of layers, as here");
    for (TomlKey& flag : flags_) {
      const auto* const text = std::get_if<std::string>(&flag.value.value);
      if (text == nullptr) continue;
      if (flag.name == "normalization" && (*text == "rmsnorm" || *text == "layernorm"))
        flag.value.value = std::string(*text == "rmsnorm" ? "RMSNorm" : "LayerNorm");
    }
    take_alibi(flags_, draft_);
  }

  // PAI-Megatron-LM's --optimizer cpu-adam: states are on the host, and gradients and parameters go to and fro.
  void read_adam_of_host() {
    const TomlKey* const key = find("optimizer");
    const auto* const name = key == nullptr ? nullptr : std::get_if<std::string>(&key->value.value);
    if (name == nullptr || *name != "cpu-adam") return;
    draft_.remark_bounded("--optimizer = \"cpu-adam\"",
                          "the figures are of adam on devices; its states are on the host, and a share of gradients "
                          "and parameters in fp32 is on its way there and back",
                          "adam-on-hosts", key->place);
    erase("optimizer");
  }

  // Pai-Megatron-Patch, megatron_patch/tokenizer: the vocabulary is the tokenizer's and so many more, not padded.
  void read_pai() {
    const auto more = integer("extra-vocab-size");
    if (!more) return;
    const TomlKey* const type = find("patch-tokenizer-type");
    const auto* const name = type == nullptr ? nullptr : std::get_if<std::string>(&type->value.value);
    struct Tokenizer {
      std::string_view name;
      std::int64_t size;
    };
    // vocab_size of what transformers loads, which is without the tokens that are added to it.
    constexpr std::array tokenizers{Tokenizer{"LLamaTokenizer", 32'000},
                                    Tokenizer{"LLama2Tokenizer", 32'000},
                                    Tokenizer{"MixtralTokenizer", 32'000},
                                    Tokenizer{"LLama3Tokenizer", 128'000},
                                    Tokenizer{"DeepSeekV2Tokenizer", 100'000},
                                    Tokenizer{"QwenTokenizer", 151'851},  // 151643 merged, and 208 special ones
                                    Tokenizer{"Qwen2Tokenizer", 151'643},
                                    Tokenizer{"Qwen3Tokenizer", 151'643},
                                    Tokenizer{"FalconTokenizer", 65'024}};
    const auto* const its =
        name == nullptr ? tokenizers.end() : std::ranges::find(tokenizers, std::string_view(*name), &Tokenizer::name);
    if (has("padded-vocab-size") || has("vocab-size")) return;
    if (its == tokenizers.end()) {
      draft_.remark_bounded("--extra-vocab-size",
                            fmt::format("is beside the vocabulary of {}, whose size is not read: the figures are of "
                                        "a model of this shape; put --padded-vocab-size into the script",
                                        name == nullptr ? "a tokenizer" : *name),
                            "vocabulary", find("extra-vocab-size")->place);
      erase("extra-vocab-size");
      return tell(RemarkKind::NoMatter, "patch-tokenizer-type", "the vocabulary's size is what counts");
    }
    add("padded-vocab-size", its->size + *more, find("extra-vocab-size")->place);
    tell(RemarkKind::Assumed, "extra-vocab-size",
         fmt::format("a vocabulary of {} and so many more, as {} has it, and no padding", its->size, its->name));
    tell(RemarkKind::NoMatter, "patch-tokenizer-type", "the vocabulary's size is what counts");
  }

  std::vector<TomlKey> flags_, added_;
  Draft& draft_;
};

}  // namespace

void take_alibi(std::vector<TomlKey>& flags, Draft& draft) {
  for (TomlKey& flag : flags) {
    auto* const text = std::get_if<std::string>(&flag.value.value);
    if (flag.name != "position-embedding-type" || text == nullptr || (*text != "alibi" && *text != "ALiBi")) continue;
    draft.remark_bounded("--position-embedding-type = \"alibi\"",
                         "the figures are of rotary positions, which have no table either; ALiBi has a row of slopes "
                         "for each head",
                         "alibi", flag.place);
    *text = "rope";
  }
}

std::vector<TomlKey> megatron_flags_of_forks(std::vector<TomlKey> flags, Draft& draft) {
  return Forks(std::move(flags), draft).read();
}

}  // namespace tidemark::scenarios
