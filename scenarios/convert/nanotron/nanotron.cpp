#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/typed_value.hpp"
#include "scenarios/formats/suggestion.hpp"

// nanotron's configuration (src/nanotron/config): Llama and Qwen 2 in tensors and stages as Megatron-LM cuts them. It
// is made by dacite, which takes a value of the field's own type only, and no key that it does not know.

namespace tidemark::scenarios {
namespace {

// What is logged, saved, read and drawn, and fields of every size that shape nothing or are within nanotron's bound.
constexpr auto nanotron_aside = std::to_array<std::string_view>(
    {"model.init_method", "model.ddp_bucket_cap_mb", "parallelism.tp_linear_async_communication",
     "parallelism.moe_layer_recompute", "tokens.train_steps", "tokens.val_check_interval", "tokens.limit_val_batches",
     "tokens.limit_test_batches", "optimizer.weight_decay", "optimizer.weight_decay_exclude_named_params",
     "optimizer.clip_grad", "optimizer.learning_rate_scheduler", "optimizer.adam_eps", "optimizer.adam_beta1",
     "optimizer.adam_beta2", "optimizer.optimizer_factory.adam_eps", "optimizer.optimizer_factory.adam_beta1",
     "optimizer.optimizer_factory.adam_beta2"});
constexpr auto nanotron_tables_aside = std::to_array<std::string_view>(
    {"general", "checkpoints", "logging", "metrics_logging", "tokenizer", "data_stages", "data", "brrr_data",
     "profiler", "lighteval", "s3_upload", "experiment_logger", "kill_switch_path"});

std::string in_capitals(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

class NanotronReader {
 public:
  NanotronReader(const TomlTable& document, Draft& draft) : document_(document), draft_(draft) {}

  std::vector<TomlKey> flags() {
    read_model();
    read_layout();
    read_batch();
    read_precision();
    const bool fused = read_optimizer();
    read_recomputation();
    add("hidden-dropout", 0.0);
    add("attention-dropout", 0.0);
    add("attention-backend", std::string("flash"));
    judge_model();
    read_doremi();
    judge_the_rest();
    const TomlKey* const its = key("parallelism");
    draft_.remark_bounded(
        "nanotron",
        "the figures are of Megatron-LM with this model, layout and batch; nanotron has gradients in half "
        "precision and DDP's buckets beside those in fp32, and layers of more kernels",
        fused ? "nanotron" : "nanotron:1", its == nullptr ? Place{1, 1} : its->place);
    return std::move(flags_);
  }

 private:
  const TomlKey* key(std::string_view path) {
    read_.emplace(path);
    const TomlTable* table = &document_;
    std::string_view rest = path;
    for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      const auto found = std::ranges::find(table->keys, rest.substr(0, dot), &TomlKey::name);
      if (found == table->keys.end()) return nullptr;
      table = &TypedValue(found->value, std::string(path.substr(0, path.size() - rest.size() + dot)), draft_).table();
      rest.remove_prefix(dot + 1);
    }
    const auto found = std::ranges::find(table->keys, rest, &TomlKey::name);
    return found == table->keys.end() ? nullptr : &*found;
  }
  [[nodiscard]] TypedValue typed_of(const TomlKey& its, std::string_view path) const {
    return {its.value, std::string(path), draft_};
  }
  std::int64_t number(std::string_view path, std::int64_t usual) {
    const TomlKey* const its = key(path);
    return its == nullptr ? usual : typed_of(*its, path).whole_number();
  }
  bool on(std::string_view path, bool usual = false) {
    const TomlKey* const its = key(path);
    return its == nullptr ? usual : typed_of(*its, path).flag();
  }
  std::string text(std::string_view path, std::string usual) {
    const TomlKey* const its = key(path);
    return its == nullptr ? usual : typed_of(*its, path).text();
  }
  Place place(std::string_view path) {
    const TomlKey* const its = key(path);
    return its == nullptr ? Place{1, 1} : its->place;
  }
  void add(std::string_view flag, Content content, Place place = {}) {
    flags_.push_back({std::string(flag), place, {std::move(content), place}});
  }
  void copy_number(const std::string& path, std::string_view flag) {
    if (const TomlKey* its = key(path)) add(flag, typed_of(*its, path).whole_number(), its->place);
  }

  void read_model() {
    const std::string config = "model.model_config.";
    if (const TomlKey* const of_old = key("model.n_layer"); of_old != nullptr && key("model.model_config") == nullptr)
      throw InputError(Problem{draft_.file, of_old->place.line, of_old->place.column,
                               "model.n_layer: of brrr, from which nanotron was made, whose models are not modelled",
                               "Llama and Qwen 2 in model.model_config are", ProblemKind::NotModelled});
    copy_number(config + "num_hidden_layers", "num-layers");
    copy_number(config + "hidden_size", "hidden-size");
    copy_number(config + "intermediate_size", "ffn-hidden-size");
    copy_number(config + "num_attention_heads", "num-attention-heads");
    copy_number(config + "max_position_embeddings", "max-position-embeddings");
    // config.py make_vocab_size_divisible_by: what the vocabulary is padded to, times the tensor-parallel ranks.
    copy_number(config + "vocab_size", "vocab-size");
    add("make-vocab-size-divisible-by", number("model.make_vocab_size_divisible_by", 1));
    const std::int64_t heads = number(config + "num_attention_heads", 0);
    // flash_attn pads heads to a multiple of eight, with copies.
    constexpr std::int64_t multiple = 8;
    if (const std::int64_t hidden = number(config + "hidden_size", 0);
        heads > 0 && hidden % heads == 0 && hidden / heads % multiple != 0)
      draft_.remark(RemarkKind::NotExpressed, "model.model_config.num_attention_heads",
                    not_modelled(fmt::format("heads {} wide, which flash_attn pads, are not modelled", hidden / heads)),
                    place(config + "num_attention_heads"));
    if (const std::int64_t groups = number(config + "num_key_value_heads", heads); groups != heads) {
      add("group-query-attention", true);
      add("num-query-groups", groups);
    }
    for (const char* flag : {"swiglu", "disable-bias-linear"}) add(flag, true);
    add("normalization", std::string("RMSNorm"));
    add("position-embedding-type", std::string("rope"));
    if (!on(config + "tie_word_embeddings")) add("untie-embeddings-and-output-weights", true);
    if (on(config + "attention_bias")) add("add-qkv-bias", true);
  }

  void read_layout() {
    copy_number("parallelism.tp", "tensor-model-parallel-size");
    copy_number("parallelism.pp", "pipeline-model-parallel-size");
    copy_number("parallelism.context_parallel_size", "context-parallel-size");
    const std::string mode = in_capitals(text("parallelism.tp_mode", "ALL_REDUCE"));
    if (mode == "REDUCE_SCATTER")
      add("sequence-parallel", true, place("parallelism.tp_mode"));
    else if (mode != "ALL_REDUCE")
      typed_of(*key("parallelism.tp_mode"), "parallelism.tp_mode").wrong("ALL_REDUCE or REDUCE_SCATTER");
    if (number("parallelism.expert_parallel_size", 1) > 1)
      draft_.remark(RemarkKind::NotExpressed, "parallelism.expert_parallel_size",
                    not_modelled("nanotron's experts are not modelled"), place("parallelism.expert_parallel_size"));
    // parallelism_config.py: all forward passes first where nothing is said.
    const std::string engine = text("parallelism.pp_engine", "afab");
    if (engine != "1f1b" && engine != "afab")
      typed_of(*key("parallelism.pp_engine"), "parallelism.pp_engine").wrong("1f1b or afab");
    if (engine == "afab" && number("parallelism.pp", 1) > 1)
      draft_.remark(RemarkKind::NotJudged, "parallelism.pp_engine = \"afab\"",
                    "is not modelled: the figures are of 1f1b, which keeps fewer micro-batches",
                    place(key("parallelism.pp_engine") != nullptr ? "parallelism.pp_engine" : "parallelism.pp"));
  }

  void read_batch() {
    copy_number("tokens.sequence_length", "seq-length");
    copy_number("tokens.micro_batch_size", "micro-batch-size");
    const std::int64_t data = number("parallelism.dp", 1);
    add("global-batch-size",
        product({number("tokens.micro_batch_size", 1), data, number("tokens.batch_accumulation_per_replica", 1)}));
    if (draft_.find("gpus") == nullptr)
      draft_.set("gpus", product({data, number("parallelism.tp", 1), number("parallelism.pp", 1),
                                  number("parallelism.context_parallel_size", 1)}));
  }

  // ModelArgs.__post_init__: bfloat16 where nothing is said.
  void read_precision() {
    const std::string type = text("model.dtype", "bfloat16");
    const Place its = place("model.dtype");
    if (type == "bfloat16")
      add("bf16", true, its);
    else if (type == "float16")
      add("fp16", true, its);
    else if (type != "float32")
      draft_.remark(RemarkKind::NotExpressed, fmt::format("model.dtype = {}", in_quotes(type)),
                    "is no precision that is known here", its);
    if (key("model.dtype") == nullptr)
      draft_.remark(RemarkKind::Assumed, "model.dtype", "bfloat16, which nanotron takes where nothing is said");
    constexpr std::string_view wide = "optimizer.accumulate_grad_in_fp32";
    if (key(wide) != nullptr && !on(wide) && type == "bfloat16") add("grad-reduce-in-bf16", true, place(wide));
  }

  // helpers.py init_optimizer_and_grad_accumulator. Whether its step has no numbers of its own of all that it changes,
  // as PyTorch's fused AdamW has none.
  bool read_optimizer() {
    if (number("optimizer.zero_stage", 0) > 0) add("use-distributed-optimizer", true, place("optimizer.zero_stage"));
    constexpr std::string_view factory = "optimizer.optimizer_factory";
    const TomlKey* const its = key(factory);
    // dacite takes the first class of the union that has no other fields: SGD's has a name only.
    const bool bare = its != nullptr && typed_of(*its, factory).table().keys.empty();
    const std::string name = text("optimizer.optimizer_factory.name", bare ? "sgd" : "adamW");
    const TomlKey* const said = key("optimizer.optimizer_factory.name");
    const bool of_factory = on("optimizer.optimizer_factory.torch_adam_is_fused");
    const bool fused = of_factory || on("optimizer.torch_adam_is_fused");
    if (name == "adamW") return fused;
    if (name != "sgd") typed_of(*said, "optimizer.optimizer_factory.name").wrong("adamW or sgd");
    const Place at = said == nullptr ? its->place : said->place;
    add("optimizer", std::string("sgd"), at);
    add("sgd-momentum", 0.0, at);
    return false;
  }

  void read_recomputation() {
    if (on("parallelism.recompute_layer")) {
      add("recompute-granularity", std::string("full"));
      add("recompute-method", std::string("uniform"));
      add("recompute-num-layers", std::int64_t{1});
    }
    for (const char* path : {"parallelism.tp_recompute_allgather", "model.model_config._fused_rms_norm"})
      if (!on(path, true))
        draft_.remark(RemarkKind::NotJudged, fmt::format("{} = false", path),
                      not_modelled("what layers save then is not modelled"), place(path));
  }

  // models_config.py: what nobody reads here is not judged, unless it asks for nothing.
  void judge_model() {
    constexpr auto read = std::to_array<std::string_view>(
        {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
         "max_position_embeddings", "vocab_size", "tie_word_embeddings", "attention_bias", "is_llama_config",
         "is_qwen2_config"});
    // Which tokens are special, how weights begin, and numbers that shape nothing.
    constexpr auto of_no_matter = std::to_array<std::string_view>(
        {"bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "pretraining_tp", "rms_norm_eps",
         "rope_scaling", "rope_theta", "rope_interleaved", "rope_seq_len_interpolation_factor", "use_cache",
         "z_loss_coefficient", "z_loss_enabled", "_use_doc_masking", "_use_qkv_packed", "_fused_rotary_emb",
         "_fused_rms_norm", "no_rope_layer", "log_attn_probs"});  // the norm's switch is looked at where it is off
    constexpr std::string_view path = "model.model_config";
    const TomlKey* const config = key(path);
    if (config == nullptr) return;
    for (const TomlKey& key : typed_of(*config, path).table().keys) {
      if (std::ranges::find(read, std::string_view(key.name)) != read.end()) continue;
      const std::string name = "model.model_config." + key.name, value = scenarios::text(key.value);
      const auto* const on = std::get_if<bool>(&key.value.value);
      const bool nothing = on != nullptr && !*on;
      if (nothing || std::ranges::find(of_no_matter, std::string_view(key.name)) != of_no_matter.end() ||
          (key.name == "hidden_act" && value == "\"silu\"") ||
          (key.name == "_attn_implementation" && value.find("flash_attention_2") != std::string::npos))
        draft_.remark(RemarkKind::NoMatter, name, "within what nanotron's own bound covers, or shapes nothing",
                      key.place);
      else if (key.name.starts_with("is_"))
        draft_.remark(RemarkKind::NotExpressed, name,
                      not_modelled("is a model of nanotron's that is not modelled: Llama and Qwen 2 are"), key.place);
      else
        draft_.remark(RemarkKind::NotJudged, fmt::format("{} = {}", name, value), "is not read of nanotron's models",
                      key.place);
    }
  }

  // examples/doremi: weights of domains are drawn by; a proxy has its reference beside it, of the same shape.
  void read_doremi() {
    const TomlKey* const its = key("doremi");
    if (its == nullptr) return;
    const TomlKey* const reference = key("doremi.ref_model_resume_checkpoint_path");
    const bool judged = reference != nullptr && std::holds_alternative<std::string>(reference->value.value);
    draft_.remark_bounded("doremi",
                          judged ? "the figures are without the reference model that a proxy is trained beside "
                                   "(train_doremi.py; train_reference.py has none)"
                                 : "losses are taken apart by domains",
                          judged ? "doremi:2" : "doremi", its->place);
  }

  // dacite stops at a key that no class has; those of other releases are not judged.
  void judge_the_rest() {
    const auto has = [](const auto& names, std::string_view name) {
      return std::ranges::find(names, name) != names.end();
    };
    for (const TomlKey& top : document_.keys) {
      if (has(nanotron_tables_aside, top.name)) {
        draft_.remark(RemarkKind::NoMatter, top.name, "of data, checkpoints and logs", top.place);
        continue;
      }
      if (top.name == "doremi") continue;
      const auto* const table = std::get_if<TomlTable>(&top.value.value);
      if (table == nullptr ||
          !has(std::array<std::string_view, 4>{"model", "parallelism", "tokens", "optimizer"}, top.name)) {
        tell_unknown(top, top.name);
        continue;
      }
      judge_table(*table, top.name);
    }
  }
  void judge_table(const TomlTable& table, const std::string& path) {
    for (const TomlKey& its : table.keys) {
      const std::string name = fmt::format("{}.{}", path, its.name);
      if (name == "model.model_config") continue;
      if (name == "optimizer.optimizer_factory")
        judge_table(std::get<TomlTable>(its.value.value), name);
      else if (std::ranges::find(nanotron_aside, std::string_view(name)) != nanotron_aside.end())
        draft_.remark(RemarkKind::NoMatter, name, "changes neither memory nor time, or is within nanotron's bound",
                      its.place);
      else if (!read_.contains(name))
        tell_unknown(its, name);
    }
  }
  void tell_unknown(const TomlKey& its, const std::string& name) {
    draft_.remark(RemarkKind::NotJudged, fmt::format("{} = {}", name, scenarios::text(its.value)),
                  "is no key of nanotron's that is known here", its.place);
  }

  const TomlTable& document_;
  Draft& draft_;
  std::vector<TomlKey> flags_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace

std::vector<TomlKey> nanotron_flags(const TomlTable& document, Draft& draft) {
  return NanotronReader(document, draft).flags();
}

}  // namespace tidemark::scenarios
