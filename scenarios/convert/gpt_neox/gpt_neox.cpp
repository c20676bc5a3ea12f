#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/gpt_neox/names.hpp"
#include "scenarios/convert/typed_value.hpp"
#include "scenarios/formats/suggestion.hpp"

// GPT-NeoX's configuration (ea7aefd8, megatron/neox_arguments/): Megatron's tensors and stages, DeepSpeed's engine.

namespace tidemark::scenarios {
namespace {

/// Names with '_'; either spelling is GPT-NeoX's.
class NeoxReader {
 public:
  NeoxReader(const TomlTable& document, Draft& draft) : draft_(draft) {
    for (TomlKey key : document.keys) {
      std::ranges::replace(key.name, '-', '_');
      keys_.insert_or_assign(key.name, std::move(key));
    }
  }

  std::vector<TomlKey> flags() {
    read_layout();
    read_model();
    read_precision();
    read_recomputation();
    read_batch();
    read_zero();
    judge_the_rest();
    if (const std::int64_t stages = number("pipe_parallel_size", 0); stages == 0)
      add("no-pipeline-parallel", true, "pipe_parallel_size");
    add("deepspeed", true, "zero_optimization");
    draft_.remark_bounded(
        "GPT-NeoX",
        "the figures are of Megatron-LM with this model, layout and batch; GPT-NeoX's layers have "
        "a second norm, positions that are turned by PyTorch's operations, and logits once more in fp32",
        separate_softmax_ ? "gpt-neox:1" : "gpt-neox", place("num_layers"));
    return std::move(flags_);
  }

 private:
  const TomlKey* find(std::string_view name) {
    taken_.emplace(name);
    const auto found = keys_.find(std::string(name));
    return found == keys_.end() ? nullptr : &found->second;
  }
  Place place(std::string_view name) {
    const TomlKey* const key = find(name);
    return key == nullptr ? Place{1, 1} : key->place;
  }
  // arguments.py validate_types: a value of another type than the field's is none.
  [[nodiscard]] TypedValue typed_of(const TomlKey& key) const { return {key.value, key.name, draft_}; }
  std::int64_t number(std::string_view name, std::int64_t usual) {
    const TomlKey* const key = find(name);
    return key == nullptr ? usual : typed_of(*key).whole_number();
  }
  bool on(std::string_view name, bool usual = false) {
    const TomlKey* const key = find(name);
    return key == nullptr ? usual : typed_of(*key).flag();
  }
  std::string text(std::string_view name, std::string usual) {
    const TomlKey* const key = find(name);
    return key == nullptr ? usual : typed_of(*key).text();
  }
  const TomlTable* table(std::string_view name) {
    const TomlKey* const key = find(name);
    return key == nullptr ? nullptr : &typed_of(*key).table();
  }
  static const TomlValue* value_in(const TomlTable* its, std::string_view name) {
    if (its == nullptr) return nullptr;
    const auto found = std::ranges::find(its->keys, name, &TomlKey::name);
    return found == its->keys.end() ? nullptr : &found->value;
  }
  [[nodiscard]] bool is_on(const TomlTable* its, std::string_view name) const {
    const TomlValue* const value = value_in(its, name);
    return value != nullptr && TypedValue(*value, std::string(name), draft_).flag();
  }
  void add(std::string_view flag, Content content, std::string_view of = "num_layers") {
    const Place its = place(of);
    flags_.push_back({std::string(flag), its, {std::move(content), its}});
  }
  void copy(std::string_view name, std::string_view flag) {
    if (const TomlKey* key = find(name)) add(flag, typed_of(*key).whole_number(), name);
  }
  void copy_real(std::string_view name, std::string_view flag) {
    if (const TomlKey* key = find(name)) add(flag, typed_of(*key).number(), name);
  }
  // Keys of what another one turns off, or of what is said beside the file.
  void no_matter(std::initializer_list<std::string_view> names, const std::string& why) {
    for (const std::string_view name : names)
      if (!taken_.contains(name))
        if (const TomlKey* const key = find(name)) draft_.remark(RemarkKind::NoMatter, key->name, why, key->place);
  }
  [[noreturn]] void stops(std::string_view name, std::string message, std::string hint) {
    const Place its = place(name);
    throw InputError(Problem{draft_.file, its.line, its.column, std::move(message), std::move(hint)});
  }
  void not_judged(std::string_view name, std::string why) {
    if (const TomlKey* key = find(name))
      draft_.remark(RemarkKind::NotJudged, fmt::format("{} = {}", name, scenarios::text(key->value)), std::move(why),
                    key->place);
  }

  void read_layout() {
    copy("model_parallel_size", "tensor-model-parallel-size");
    if (number("pipe_parallel_size", 0) > 1) copy("pipe_parallel_size", "pipeline-model-parallel-size");
    if (on("sequence_parallel")) add("sequence-parallel", true, "sequence_parallel");
  }

  // megatron/model/transformer.py; its own family is that of the checkpoints that it made.
  void read_model() {
    if (draft_.find("model") != nullptr)
      return no_matter({"num_layers", "hidden_size", "num_attention_heads", "max_position_embeddings", "norm",
                        "activation", "pos_emb", "num_kv_heads", "rotary_pct", "no_weight_tying", "intermediate_size",
                        "mlp_multiple_of", "use_bias_in_attn_linear", "use_bias_in_mlp", "gpt_j_residual",
                        "padded_vocab_size", "tokenizer_type", "vocab_file"},
                       "--model says which one");
    const std::string norm = text("norm", "layernorm"), activation = text("activation", "gelu");
    const std::string positions = text("pos_emb", "learned");
    const bool gated = activation == "swiglu";
    const bool of_attention = on("use_bias_in_attn_linear", true), of_mlp = on("use_bias_in_mlp", true);
    const bool biases = of_attention && of_mlp;
    if (positions == "rotary" && norm == "layernorm" && activation == "gelu" && number("num_kv_heads", 0) == 0 &&
        biases)
      return read_own_family();
    for (const auto& [name, flag] :
         std::map<std::string, std::string>{{"num_layers", "num-layers"},
                                            {"hidden_size", "hidden-size"},
                                            {"num_attention_heads", "num-attention-heads"},
                                            {"max_position_embeddings", "max-position-embeddings"}})
      copy(name, flag);
    add("ffn-hidden-size", width_of_mlp(gated), "num_layers");
    if (const std::int64_t groups = number("num_kv_heads", 0); groups > 0) {
      add("group-query-attention", true, "num_kv_heads");
      copy("num_kv_heads", "num-query-groups");
    }
    if (gated) add("swiglu", true, "activation");
    if (!gated && activation != "gelu") not_judged("activation", "is not modelled: gelu and swiglu are");
    if (norm == "rmsnorm") add("normalization", std::string("RMSNorm"), "norm");
    if (norm != "rmsnorm" && norm != "layernorm") not_judged("norm", "is not modelled: layernorm and rmsnorm are");
    if (positions == "rotary") add("position-embedding-type", std::string("rope"), "pos_emb");
    if (positions == "rotary") copy_real("rotary_pct", "rotary-percent");
    no_matter({"rotary_pct"}, "positions are not rotary");
    if (positions != "rotary" && positions != "learned")
      not_judged("pos_emb", "is not modelled: rotary and learned are");
    if (on("no_weight_tying")) add("untie-embeddings-and-output-weights", true, "no_weight_tying");
    if (!of_attention && !of_mlp) add("disable-bias-linear", true, "use_bias_in_mlp");
    if (of_attention != of_mlp)
      draft_.remark(RemarkKind::Assumed, "use_bias_in_attn_linear",
                    "the figures have biases of attention and of the MLP, where the file has one of them",
                    place(of_mlp ? "use_bias_in_attn_linear" : "use_bias_in_mlp"));
    if (on("gpt_j_residual")) not_judged("gpt_j_residual", "is modelled with rotary positions and GELU only");
    if (const std::int64_t tokens = vocabulary(); tokens > 0) add("vocab-size", tokens, "tokenizer_type");
  }

  void read_own_family() {
    draft_.set("model", std::string("models/pythia-6.9b.json"), place("num_layers"));
    const auto change = [&](const char* key, Content content) {
      draft_.set(std::string("model_override.") + key, std::move(content), place("num_layers"));
    };
    const std::int64_t hidden = number("hidden_size", 0);
    change("num_hidden_layers", number("num_layers", 0));
    change("hidden_size", hidden);
    change("num_attention_heads", number("num_attention_heads", 0));
    change("intermediate_size", width_of_mlp(false));
    change("max_position_embeddings", number("max_position_embeddings", number("seq_length", 0)));
    change("use_parallel_residual", on("gpt_j_residual"));
    change("tie_word_embeddings", !on("no_weight_tying"));
    if (const TomlKey* part = find("rotary_pct"); part != nullptr)
      change("rotary_pct", typed_of(*part).number());
    else
      change("rotary_pct", 1.0);
    if (const std::int64_t tokens = vocabulary(); tokens > 0) change("vocab_size", tokens);
  }

  // ParallelMLP: of a gated MLP, what is said is scaled so that it has as many parameters, and all are rounded up.
  std::int64_t width_of_mlp(bool gated) {
    const std::int64_t said = number("intermediate_size", product({4, number("hidden_size", 0)}));
    const std::int64_t unit = std::clamp<std::int64_t>(number("mlp_multiple_of", 1), 1, 1 << 20);
    const std::int64_t width = gated ? product({2, said}) / 3 / 2 : said;
    return gated ? product({(width + unit - 1) / unit, unit})
                 : product({(width + 2 * unit - 1) / (2 * unit), 2 * unit});
  }

  // megatron/tokenizer/tokenizer.py: the vocabulary, before it is padded.
  std::int64_t vocabulary() {
    constexpr std::int64_t of_gpt2 = 50'257, of_20b = 50'277;
    if (const std::int64_t padded = number("padded_vocab_size", 0); padded > 0) return padded;
    const std::string type = text("tokenizer_type", "GPT2BPETokenizer"), file = text("vocab_file", "");
    if (type == "GPT2BPETokenizer" || file.ends_with("gpt2-vocab.json")) return of_gpt2;
    if (file.ends_with("20B_tokenizer.json")) return of_20b;
    // EleutherAI's own tokenizer by other names; 20B_tokenizer.json has as many tokens.
    if (type == "HFTokenizer" &&
        (file.find("gpt-neox-20b") != std::string::npos || file.find("neox_tokenizer") != std::string::npos)) {
      draft_.remark(RemarkKind::Assumed, fmt::format("vocab_file = {}", in_quotes(file)),
                    fmt::format("is GPT-NeoX 20B's tokenizer, as its name says: {} tokens", of_20b),
                    place("vocab_file"));
      return of_20b;
    }
    draft_.remark_bounded(fmt::format("tokenizer_type = {}", in_quotes(type)),
                          fmt::format("the vocabulary is its own, which is not read: the figures are of {}", of_20b),
                          "vocabulary", place("tokenizer_type"));
    return of_20b;
  }

  void read_precision() {
    const std::string said = text("precision", "");
    const TomlTable* const half = table("fp16");
    const auto* const type = value_in(half, "type");
    // arguments.py: "DeepSpeed fp16 field was set but precision conflicts".
    const bool of_half = is_on(half, "enabled") && !said.empty() && said != "fp16";
    if (of_half || (is_on(table("bf16"), "enabled") && !said.empty() && said != "bfloat16"))
      stops("precision",
            fmt::format("precision = {}: {} is enabled, too, at which GPT-NeoX stops", in_quotes(said),
                        of_half ? "fp16" : "bf16"),
            "leave one of them out");
    if (!said.empty() && said != "fp16" && said != "fp32" && said != "bfloat16")
      typed_of(*find("precision")).wrong("fp16, fp32 or bfloat16");
    if (said == "bfloat16" || is_on(table("bf16"), "enabled") ||
        (type != nullptr && scenarios::text(*type) == "\"bfloat16\""))
      add("bf16", true, "fp16");
    else if (said == "fp16" || is_on(half, "enabled") || is_on(half, "fp16"))
      add("fp16", true, "fp16");
    const bool flash = read_attention();
    const bool fused = on("scaled_upper_triang_masked_softmax_fusion") || on("scaled_masked_softmax_fusion");
    separate_softmax_ = !flash && !fused;
  }

  // megatron/utils.py expand_attention_types: [[["flash"], 12]], [[["global", "local"], "all"]], or a name for each
  // layer.
  std::vector<std::string> kinds_of_layers(const TomlKey& key) {
    const std::string wanted = "a list such as [[[\"flash\"], 12]]";
    const auto list_in = [&](const TomlValue& value) -> const std::vector<TomlValue>& {
      const auto* const list = std::get_if<std::vector<TomlValue>>(&value.value);
      if (list == nullptr) typed_of(key).wrong(wanted);
      return *list;
    };
    const auto name_in = [&](const TomlValue& value) {
      const auto* const name = std::get_if<std::string>(&value.value);
      if (name == nullptr) typed_of(key).wrong(wanted);
      return *name;
    };
    const std::vector<TomlValue>& given = list_in(key.value);
    const std::int64_t layers = number("num_layers", 0);
    std::vector<std::string> kinds;
    for (const TomlValue& part : given) {
      if (std::holds_alternative<std::string>(part.value)) {
        kinds.push_back(name_in(part));
        continue;
      }
      const std::vector<TomlValue>& pair = list_in(part);
      if (pair.size() != 2) typed_of(key).wrong(wanted);
      const std::vector<TomlValue>& pattern = list_in(pair.front());
      const auto* const said = std::get_if<std::int64_t>(&pair.back().value);
      const bool all = scenarios::text(pair.back()) == "\"all\"";
      if (pattern.empty() || (said == nullptr && !all)) typed_of(key).wrong(wanted);
      const auto length = static_cast<std::int64_t>(pattern.size());
      const std::int64_t times = said == nullptr ? layers / length : *said;
      for (std::int64_t i = 0; i < times && static_cast<std::int64_t>(kinds.size()) <= layers; ++i)
        for (const TomlValue& one : pattern) kinds.push_back(name_in(one));
      if (all) break;
    }
    if (static_cast<std::int64_t>(kinds.size()) != layers)
      stops("attention_config",
            fmt::format("attention_config = {} is not of {} layers", scenarios::text(key.value), layers),
            "GPT-NeoX wants one kind of attention for each of num_layers");
    return kinds;
  }

  // Whether it is FlashAttention.
  bool read_attention() {
    const TomlKey* const key = find("attention_config");
    if (key == nullptr) return false;
    constexpr auto known =
        std::to_array<std::string_view>({"global", "local", "sparse_fixed", "sparse_variable", "bigbird",
                                         "bslongformer", "gmlp", "amlp", "flash", "rwkv", "mamba"});
    const std::vector<std::string> kinds = kinds_of_layers(*key);
    const std::string said = fmt::format("attention_config = {}", scenarios::text(key->value));
    bool flash = false, other = false;
    for (const std::string& kind : kinds) {
      if (std::ranges::find(known, std::string_view(kind)) == known.end())
        stops("attention_config", fmt::format("attention_config: {} is no attention of GPT-NeoX's", in_quotes(kind)),
              "global and flash are modelled");
      if (kind == "gmlp" || kind == "amlp" || kind == "rwkv" || kind == "mamba")
        return draft_.remark(RemarkKind::NotExpressed, said,
                             not_modelled(fmt::format("layers of {} are not modelled: global and flash are", kind)),
                             key->place),
               false;
      flash |= kind == "flash";
      other |= kind != "flash" && kind != "global";
    }
    const bool mixed = flash && std::ranges::any_of(kinds, [](const std::string& kind) { return kind != "flash"; });
    if (other)
      not_judged("attention_config", "is not modelled: global and flash are");
    else if (mixed)
      not_judged("attention_config", "is not modelled: the figures are of FlashAttention in all layers");
    if (flash) add("use-flash-attn", true, "attention_config");
    return flash;
  }

  void read_recomputation() {
    if (!on("checkpoint_activations"))
      return no_matter({"checkpoint_num_layers", "partition_activations"}, "checkpoint_activations asks for nothing");
    add("recompute-granularity", std::string("full"), "checkpoint_activations");
    add("recompute-method", std::string("uniform"), "checkpoint_activations");
    add("recompute-num-layers", number("checkpoint_num_layers", 1), "checkpoint_num_layers");
    if (on("partition_activations") && number("model_parallel_size", 1) > 1)
      draft_.remark(
          RemarkKind::Assumed, "partition_activations",
          "inputs of layers are cut over tensor-parallel ranks, which the figures are without: no more memory "
          "than is told",
          place("partition_activations"));
  }

  void read_batch() {
    copy("seq_length", "seq-length");
    copy("train_iters", "train-iters");
    read_rows();
    for (const auto& [name, flag] : std::map<std::string, std::string>{{"hidden_dropout", "hidden-dropout"},
                                                                       {"attention_dropout", "attention-dropout"}})
      if (find(name) != nullptr)
        copy_real(name, flag);
      else
        add(flag, 0.0);
  }

  // arguments.py calculate_batch_parameters, check_batch_parameters: two of three say the third.
  void read_rows() {
    const bool says_micro = find("train_micro_batch_size_per_gpu") != nullptr;
    const bool says_times = find("gradient_accumulation_steps") != nullptr || find("gas") != nullptr;
    const std::int64_t micro = number("train_micro_batch_size_per_gpu", 1);
    const std::int64_t times = number("gradient_accumulation_steps", number("gas", 1));
    const std::int64_t ranks = std::max<std::int64_t>(
        product({number("model_parallel_size", 1), std::max<std::int64_t>(number("pipe_parallel_size", 0), 1)}), 1);
    const std::int64_t all = number("train_batch_size", 0), step = product({micro, times});
    if (says_micro) add("micro-batch-size", micro, "train_micro_batch_size_per_gpu");
    if (all > 0) add("global-batch-size", all, "train_batch_size");
    auto gpus = draft_.integer("gpus");
    if (!gpus && all > 0 && says_micro && says_times && step > 0 && all % step == 0) {
      gpus = product({all / step, ranks});
      draft_.set("gpus", *gpus, place("train_batch_size"));
    }
    if (!gpus || *gpus <= 0 || *gpus % ranks != 0) return;
    const std::int64_t replicas = *gpus / ranks;
    if (all == 0 && says_micro) add("global-batch-size", product({step, replicas}), "train_micro_batch_size_per_gpu");
    if (all == 0) return;
    const std::int64_t rows = says_micro ? micro : all / replicas / std::max<std::int64_t>(times, 1);
    const std::int64_t steps = says_times ? times : rows > 0 ? all / rows / replicas : 0;
    if (rows < 1 || steps < 1 || product({rows, steps, replicas}) != all)
      stops("train_batch_size",
            fmt::format("train_batch_size = {} is not {} sequences x {} micro-batches x {} replicas, at which GPT-NeoX "
                        "stops",
                        all, rows, steps, replicas),
            "leave one of the three out, or --gpus with another number");
    if (!says_micro) add("micro-batch-size", rows, "train_batch_size");
  }

  void read_zero() {
    const TomlTable* const zero = table("zero_optimization");
    if (const TomlValue* stage = value_in(zero, "stage")) {
      const Place its = place("zero_optimization");
      flags_.push_back(
          {"zero-stage", its, {TypedValue(*stage, "zero_optimization.stage", draft_).whole_number(), its}});
    }
    for (const char* name : {"cpu_offload", "offload_optimizer", "offload_param"})
      if (is_on(zero, name) || (value_in(zero, name) != nullptr && std::string_view(name) != "cpu_offload"))
        draft_.remark(RemarkKind::NotJudged, fmt::format("zero_optimization.{}", name),
                      "what is on the host beneath GPT-NeoX is not modelled", place("zero_optimization"));
    const TomlTable* const optimizer = table("optimizer");
    const TomlValue* const type = value_in(optimizer, "type");
    const std::string kind = type == nullptr ? "\"Adam\"" : scenarios::text(*type);
    if (kind != "\"Adam\"" && kind != "\"AdamW\"")
      draft_.remark(RemarkKind::NotJudged, fmt::format("optimizer.type = {}", kind),
                    "is not modelled beneath GPT-NeoX: the figures are of Adam", place("optimizer"));
  }

  void judge_the_rest() {
    for (const auto& [name, key] : keys_) {
      if (taken_.contains(name)) continue;
      const auto* const flag = std::get_if<bool>(&key.value.value);
      const auto is_of = [its = std::string_view(name)](const auto& names) {
        return std::ranges::find(names, its) != names.end();
      };
      if (is_of(neox_keys_of_no_matter) || is_of(neox_keys_of_gradient_ascent) ||
          is_of(neox_keys_of_transformer_engine) || (flag != nullptr && !*flag))
        draft_.remark(RemarkKind::NoMatter, name, "changes neither memory nor time, or is within GPT-NeoX's bound",
                      key.place);
      else
        draft_.remark(RemarkKind::NotJudged, fmt::format("{} = {}", name, scenarios::text(key.value)),
                      "is no key of GPT-NeoX's that is known here", key.place);
    }
  }

  Draft& draft_;
  std::map<std::string, TomlKey> keys_;
  std::set<std::string, std::less<>> taken_;
  std::vector<TomlKey> flags_;
  bool separate_softmax_ = false;  // scores are masked and made of their softmax one after the other
};

}  // namespace

std::vector<TomlKey> gpt_neox_flags(const TomlTable& document, Draft& draft) {
  return NeoxReader(document, draft).flags();
}

}  // namespace tidemark::scenarios
