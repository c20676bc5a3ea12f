#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/formats/suggestion.hpp"

// GPT-NeoX's configuration (ea7aefd8, megatron/neox_arguments/): Megatron's tensors and stages, DeepSpeed's engine.

namespace tidemark::scenarios {
namespace {

// What is logged, saved, read and drawn, how ranks are started, and fused kernels, which GPT-NeoX's bound is without.
constexpr auto neox_keys_of_no_matter = std::to_array<std::string_view>({"bias_gelu_fusion",
                                                                         "bias_dropout_fusion",
                                                                         "rope_fusion",
                                                                         "layernorm_fusion",
                                                                         "output_layer_parallelism",
                                                                         "init_method",
                                                                         "output_layer_init_method",
                                                                         "init_method_std",
                                                                         "min_lr",
                                                                         "lr",
                                                                         "warmup",
                                                                         "lr_decay_iters",
                                                                         "lr_decay_style",
                                                                         "data_impl",
                                                                         "num_workers",
                                                                         "synchronize_each_layer",
                                                                         "contiguous_checkpointing",
                                                                         "profile_backward",
                                                                         "gradient_clipping",
                                                                         "weight_decay",
                                                                         "distributed_backend",
                                                                         "checkpoint_factor",
                                                                         "extra_save_iters",
                                                                         "save",
                                                                         "load",
                                                                         "eval_interval",
                                                                         "eval_iters",
                                                                         "log_interval",
                                                                         "steps_per_print",
                                                                         "keep_last_n_checkpoints",
                                                                         "wall_clock_breakdown",
                                                                         "train_data_paths",
                                                                         "valid_data_paths",
                                                                         "test_data_paths",
                                                                         "data_path",
                                                                         "merge_file",
                                                                         "launcher",
                                                                         "deepspeed_slurm",
                                                                         "hostfile",
                                                                         "checkpoint",
                                                                         "tensorboard_dir",
                                                                         "log_dir",
                                                                         "use_wandb",
                                                                         "wandb_host",
                                                                         "wandb_project",
                                                                         "wandb_group",
                                                                         "wandb_team",
                                                                         "rotary_emb_base",
                                                                         "layernorm_epsilon",
                                                                         "rms_norm_epsilon",
                                                                         "seed",
                                                                         "no_load_optim",
                                                                         "no_load_rng",
                                                                         "no_save_optim",
                                                                         "finetune",
                                                                         "deepspeed_mpi",
                                                                         "deepspeed_extra_args",
                                                                         "master_port",
                                                                         "num_nodes",
                                                                         "num_gpus",
                                                                         "global_num_gpus",
                                                                         "make_vocab_size_divisible_by",
                                                                         "train_data_weights",
                                                                         "valid_data_weights",
                                                                         "test_data_weights",
                                                                         "weight_by_num_documents",
                                                                         "s3_path",
                                                                         "checkpoint_scale",
                                                                         "do_train",
                                                                         "do_valid",
                                                                         "do_test",
                                                                         "attention_softmax_in_fp32",
                                                                         "pipe_partition_method",
                                                                         "gpt_j_tied",
                                                                         "text_gen_type",
                                                                         "save_base_shapes",
                                                                         "pack_impl",
                                                                         "iteration",
                                                                         "comment",
                                                                         "loss_scale",
                                                                         "git_hash",
                                                                         "bf16",
                                                                         "data_types",
                                                                         "communication_data_type",
                                                                         "clip_grad",
                                                                         "dump_state",
                                                                         "split",
                                                                         "log_grad_norm",
                                                                         "checkpoint_validation_with_forward_pass",
                                                                         "override_lr_scheduler",
                                                                         "use_comet",
                                                                         "comet_project",
                                                                         "comet_experiment_name",
                                                                         "comet_tags",
                                                                         "comet_others",
                                                                         "profile",
                                                                         "profile_step_start",
                                                                         "profile_step_stop",
                                                                         "use_bias_in_norms",
                                                                         "vocab_file",
                                                                         "tokenizer_type"});

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
  std::int64_t number(std::string_view name, std::int64_t usual) {
    const TomlKey* const key = find(name);
    const auto* const its = key == nullptr ? nullptr : std::get_if<std::int64_t>(&key->value.value);
    return its == nullptr ? usual : *its;
  }
  bool on(std::string_view name, bool usual = false) {
    const TomlKey* const key = find(name);
    const auto* const its = key == nullptr ? nullptr : std::get_if<bool>(&key->value.value);
    return its == nullptr ? usual : *its;
  }
  std::string text(std::string_view name, std::string usual) {
    const TomlKey* const key = find(name);
    const auto* const its = key == nullptr ? nullptr : std::get_if<std::string>(&key->value.value);
    return its == nullptr ? usual : *its;
  }
  const TomlTable* table(std::string_view name) {
    const TomlKey* const key = find(name);
    return key == nullptr ? nullptr : std::get_if<TomlTable>(&key->value.value);
  }
  static const TomlValue* value_in(const TomlTable* its, std::string_view name) {
    if (its == nullptr) return nullptr;
    const auto found = std::ranges::find(its->keys, name, &TomlKey::name);
    return found == its->keys.end() ? nullptr : &found->value;
  }
  static bool is_on(const TomlTable* its, std::string_view name) {
    const TomlValue* const value = value_in(its, name);
    const auto* const flag = value == nullptr ? nullptr : std::get_if<bool>(&value->value);
    return flag != nullptr && *flag;
  }
  void add(std::string_view flag, Content content, std::string_view of = "num_layers") {
    const Place its = place(of);
    flags_.push_back({std::string(flag), its, {std::move(content), its}});
  }
  void copy(std::string_view name, std::string_view flag) {
    if (const TomlKey* key = find(name)) flags_.push_back({std::string(flag), key->place, key->value});
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
    if (draft_.find("model") != nullptr) return;
    const std::string norm = text("norm", "layernorm"), activation = text("activation", "gelu");
    const std::string positions = text("pos_emb", "learned");
    const bool gated = activation == "swiglu";
    if (positions == "rotary" && norm == "layernorm" && activation == "gelu" && number("num_kv_heads", 0) == 0)
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
    if (find("rotary_pct") != nullptr && positions == "rotary") copy("rotary_pct", "rotary-percent");
    if (positions != "rotary" && positions != "learned")
      not_judged("pos_emb", "is not modelled: rotary and learned are");
    if (on("no_weight_tying")) add("untie-embeddings-and-output-weights", true, "no_weight_tying");
    if (!on("use_bias_in_attn_linear", true) && !on("use_bias_in_mlp", true))
      add("disable-bias-linear", true, "use_bias_in_mlp");
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
      change("rotary_pct", part->value.value);
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
    draft_.remark_bounded(fmt::format("tokenizer_type = {}", in_quotes(type)),
                          fmt::format("the vocabulary is its own, which is not read: the figures are of {}", of_20b),
                          "vocabulary", place("tokenizer_type"));
    return of_20b;
  }

  void read_precision() {
    const std::string said = text("precision", "");
    const TomlTable* const half = table("fp16");
    const auto* const type = value_in(half, "type");
    if (said == "bfloat16" || is_on(table("bf16"), "enabled") ||
        (type != nullptr && scenarios::text(*type) == "\"bfloat16\""))
      add("bf16", true, "fp16");
    else if (said == "fp16" || is_on(half, "enabled") || is_on(half, "fp16"))
      add("fp16", true, "fp16");
    const std::string attention =
        find("attention_config") == nullptr ? std::string() : scenarios::text(keys_.at("attention_config").value);
    const bool flash = attention.find("flash") != std::string::npos;
    if (flash) add("use-flash-attn", true, "attention_config");
    if (!attention.empty() && attention.find("global") == std::string::npos && !flash)
      not_judged("attention_config", "is not modelled: global and flash are");
    const bool fused = on("scaled_upper_triang_masked_softmax_fusion") || on("scaled_masked_softmax_fusion");
    separate_softmax_ = !flash && !fused;
  }

  void read_recomputation() {
    if (!on("checkpoint_activations")) return;
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
    copy("train_micro_batch_size_per_gpu", "micro-batch-size");
    copy("train_iters", "train-iters");
    const std::int64_t micro = number("train_micro_batch_size_per_gpu", 1);
    const std::int64_t times = number("gradient_accumulation_steps", number("gas", 1));
    const std::int64_t ranks = std::max<std::int64_t>(
        product({number("model_parallel_size", 1), std::max<std::int64_t>(number("pipe_parallel_size", 0), 1)}), 1);
    const std::int64_t all = number("train_batch_size", 0);
    const auto gpus = draft_.integer("gpus");
    if (all > 0)
      add("global-batch-size", all, "train_batch_size");
    else if (gpus && *gpus % ranks == 0)
      add("global-batch-size", product({micro, times, *gpus / ranks}), "train_micro_batch_size_per_gpu");
    if (const std::int64_t step = product({micro, times}); !gpus && all > 0 && all % step == 0)
      draft_.set("gpus", product({all / step, ranks}), place("train_batch_size"));
    for (const auto& [name, flag] : std::map<std::string, std::string>{{"hidden_dropout", "hidden-dropout"},
                                                                       {"attention_dropout", "attention-dropout"}})
      if (find(name) != nullptr)
        copy(name, flag);
      else
        add(flag, 0.0);
  }

  void read_zero() {
    const TomlTable* const zero = table("zero_optimization");
    if (const TomlValue* stage = value_in(zero, "stage")) {
      const Place its = place("zero_optimization");
      flags_.push_back({"zero-stage", its, *stage});
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
      if (std::ranges::find(neox_keys_of_no_matter, std::string_view(name)) != neox_keys_of_no_matter.end() ||
          (flag != nullptr && !*flag))
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
