#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/interpolation.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

// OLMo's configuration (allenai/OLMo 0.6, olmo/config.py) for its scripts/train.py: a model of its own under
// FullyShardedDataParallel or DistributedDataParallel. transformers' OLMo, OLMo 2 and Llama have its parameters.

namespace tidemark::scenarios {
namespace {

constexpr auto olmo_aside = std::to_array<std::string_view>({"run_name",
                                                             "seed",
                                                             "epoch",
                                                             "dry_run",
                                                             "wandb",
                                                             "scheduler",
                                                             "data",
                                                             "restore_dataloader",
                                                             "fast_forward_batches",
                                                             "evaluators",
                                                             "eval_interval",
                                                             "eval_subset_num_batches",
                                                             "eval_on_load",
                                                             "tokenizer",
                                                             "save_folder",
                                                             "remote_save_folder",
                                                             "canceled_check_interval",
                                                             "save_interval",
                                                             "save_interval_unsharded",
                                                             "save_interval_ephemeral",
                                                             "save_num_checkpoints_to_keep",
                                                             "save_num_unsharded_checkpoints_to_keep",
                                                             "save_overwrite",
                                                             "force_save_unsharded",
                                                             "no_pre_train_checkpoint",
                                                             "load_path",
                                                             "load_path_sharded_checkpointer",
                                                             "try_load_latest_save",
                                                             "reset_optimizer_state",
                                                             "reset_trainer_state",
                                                             "sharded_checkpointer",
                                                             "new_style_checkpoints",
                                                             "max_duration",
                                                             "extra_steps_after_cancel",
                                                             "stop_at",
                                                             "stop_after",
                                                             "early_stopping_factor",
                                                             "time_limit",
                                                             "python_profiling",
                                                             "torch_profiling",
                                                             "speed_monitor",
                                                             "console_log_interval",
                                                             "gen1_gc_interval",
                                                             "module_outputs_save_steps",
                                                             "auxiliary_loss_multiplier",
                                                             "hf_datasets_cache_dir",
                                                             "save_data_indices",
                                                             "max_grad_norm_ratio"});

class OlmoReader {
 public:
  OlmoReader(const TomlTable& whole, const ShippedModels& models, Draft& draft)
      : given_(whole.keys, "", draft), models_(models), draft_(draft) {}

  void read() {
    draft_.starts_all = "torchrun";
    read_model();
    read_precision();
    read_sharding();
    read_batch();
    read_optimizer();
    read_rest();
    given_.no_matter(olmo_aside, "of data, checkpoints and logs");
    given_.refuse_the_rest("is no key of OLMo's that is known here");
  }

 private:
  // Of what is left out, too, where a default asks for it.
  void open(const Given& of, std::string_view key, std::string why) {
    draft_.remark(RemarkKind::NotExpressed, std::string(key), not_modelled(std::move(why)), of.place(key));
  }
  void leave_unjudged(const Given& of, std::string_view key, std::string why) {
    draft_.remark(RemarkKind::NotJudged, std::string(key), std::move(why), of.place(key));
  }

  // olmo/model.py: which of transformers' models has these layers. Their shapes are set one by one.
  std::string base(Given& its) {
    const std::string norm = its.text("layer_norm_type").value_or("default");
    const bool of_queries = its.flag("attention_layer_norm").value_or(false);
    const bool after = its.flag("norm_after").value_or(false);
    if (norm == "rms" && of_queries && after) return "models/olmo-2-7b.json";
    if (norm == "rms" && !of_queries && !after) return "models/llama-2-7b.json";
    const auto plain = shipped_model(models_, "allenai/OLMo-7B-hf");
    if (norm != "rms" && !of_queries && !after && plain) return plain->file;
    open(its, "layer_norm_type",
         fmt::format("layer_norm_type = {} with such norms of queries and placement is not modelled", in_quotes(norm)));
    return "models/olmo-2-7b.json";
  }

  void read_model() {
    Given its = given_.table("model");
    const std::int64_t hidden = its.integer("d_model").value_or(768), heads = its.integer("n_heads").value_or(12);
    const bool one_group = its.flag("multi_query_attention").value_or(false);
    const std::string activation = its.text("activation_type").value_or("swiglu");
    if (activation != "swiglu") open(its, "activation_type", "another activation than swiglu is not modelled in OLMo");
    if (its.flag("include_bias").value_or(true))
      open(its, "include_bias", "OLMo's linears with biases are not modelled");
    if (!its.flag("rope").value_or(false)) open(its, "rope", "OLMo without rotary positions is not modelled");
    // A half of what the first linear gives is the gate (SwiGLU).
    const std::int64_t joint =
        its.integer("mlp_hidden_size").value_or(product({its.integer("mlp_ratio").value_or(4), hidden}));
    std::int64_t vocabulary = its.integer("vocab_size").value_or(50'257);
    if (const auto rows = its.integer("embedding_size")) vocabulary = *rows;
    const std::string model = base(its);
    if (draft_.find("model") == nullptr) draft_.set("model", model, its.place("d_model"));
    for (const auto& [key, value] : {std::pair<std::string_view, std::int64_t>{"hidden_size", hidden},
                                     {"num_attention_heads", heads},
                                     {"num_key_value_heads", its.integer("n_kv_heads").value_or(one_group ? 1 : heads)},
                                     {"num_hidden_layers", its.integer("n_layers").value_or(12)},
                                     {"intermediate_size", joint / 2},
                                     {"vocab_size", vocabulary},
                                     {"max_position_embeddings", its.integer("max_sequence_length").value_or(1024)}})
      draft_.set(fmt::format("model_override.{}", key), value, its.place("d_model"));
    draft_.set("model_override.tie_word_embeddings", its.flag("weight_tying").value_or(true),
               its.place("weight_tying"));
    read_rest_of_model(its);
  }

  void read_rest_of_model(Given& its) {
    draft_.set("train.sequence_length", its.integer("max_sequence_length").value_or(1024),
               its.place("max_sequence_length"));
    const bool flash = its.flag("flash_attention").value_or(false);
    draft_.set("train.attention", std::string(flash ? "flash" : "fused"), its.place("flash_attention"));
    if (its.has("clip_qkv") && its.take("clip_qkv") != nullptr)
      its.tell_bounded("clip_qkv", "is done in place, behind a copy that its gradient asks for", "olmo-clips");
    for (const std::string_view key : {"attention_dropout", "residual_dropout", "embedding_dropout"})
      if (its.number(key).value_or(0.1) > 0) leave_unjudged(its, key, "the figures are without dropout");
    if (its.integer("block_group_size").value_or(1) > 1)
      leave_unjudged(its, "block_group_size", "the figures are of a unit for each block");
    its.refuse("alibi", "ALiBi in OLMo is", {"false"});
    its.refuse("embedding_layer_norm", "a norm behind the embedding is", {"false"});
    its.no_matter(std::array<std::string_view, 23>{"block_type",
                                                   "alibi_bias_max",
                                                   "rope_full_precision",
                                                   "rope_theta",
                                                   "layer_norm_with_affine",
                                                   "layer_norm_eps",
                                                   "attention_layer_norm_with_affine",
                                                   "bias_for_layer_norm",
                                                   "scale_logits",
                                                   "eos_token_id",
                                                   "pad_token_id",
                                                   "init_device",
                                                   "init_fn",
                                                   "init_std",
                                                   "init_cutoff_factor",
                                                   "precision",
                                                   "scale_emb_init",
                                                   "emb_init_std",
                                                   "mlp_hidden_size",
                                                   "mlp_ratio",
                                                   "n_kv_heads",
                                                   "max_sequence_length",
                                                   "embedding_size"},
                  "of how weights begin, or within what OLMo's own bound covers");
    its.refuse_the_rest("is no key of OLMo's models that is known here");
  }

  // olmo/config.py TrainConfig.autocast_precision; weights are fp32.
  void read_precision() {
    const std::string precision = given_.text("precision").value_or("");
    draft_.type_said = true;
    if (precision == "amp_bf16" || precision == "amp_fp16") {
      half_ = precision.substr(4);
      draft_.set("train.precision", half_, given_.place("precision"));
      draft_.set("runtime.switches.autocast", true);
    } else {
      if (precision != "fp32" && !precision.empty())
        open(given_, "precision", fmt::format("precision = {}: is not modelled here", in_quotes(precision)));
      draft_.set("train.precision", std::string("fp32"), given_.place("precision"));
    }
  }

  void read_sharding() {
    const std::string strategy = given_.text("distributed_strategy").value_or(given_.has("ddp") ? "ddp" : "fsdp");
    if (strategy == "single" || strategy == "ddp" || !given_.has("fsdp")) {
      draft_.set("runtime.name", std::string("pytorch"), given_.place("distributed_strategy"));
      if (given_.has("ddp")) {
        Given its = given_.table("ddp");
        its.refuse("find_unused_params", "a search for unused parameters is", {"false"});
        its.no_matter(std::array<std::string_view, 1>{"grad_sync_mode"}, "when gradients are summed");
        its.refuse_the_rest("is no key of OLMo's ddp that is known here");
      }
      (void)given_.take("fsdp");
      return;
    }
    Given its = given_.table("fsdp");
    draft_.set("runtime.name", std::string("fsdp"), given_.place("fsdp"));
    const std::string kind = its.text("sharding_strategy").value_or("FULL_SHARD");
    draft_.set("layout.sharding",
               std::string(kind == "SHARD_GRAD_OP" ? "zero2"
                           : kind == "NO_SHARD"    ? "none"
                                                   : "zero3"),
               its.place("sharding_strategy"));
    if (kind != "FULL_SHARD" && kind != "SHARD_GRAD_OP" && kind != "NO_SHARD")
      leave_unjudged(its, "sharding_strategy", "the figures are of FULL_SHARD over all devices");
    const std::string units = its.text("wrapping_strategy").value_or("");
    if (units != "by_block" && units != "by_block_and_size")
      leave_unjudged(its, "wrapping_strategy", "the figures are of a unit for each block");
    const std::string mixed = its.text("precision").value_or("pure");
    if (!half_.empty()) {
      draft_.set("runtime.switches.buffer_dtype", half_, its.place("precision"));
      if (mixed == "mixed")
        draft_.set("runtime.switches.reduce_dtype", std::string("fp32"), its.place("precision"));
      else if (mixed != "pure")
        leave_unjudged(its, "precision", "the figures are of pure");
    }
    draft_.set("runtime.switches.use_orig_params", its.flag("use_orig_params").value_or(true),
               its.place("use_orig_params"));
    draft_.set("runtime.switches.limit_all_gathers", true);
    its.no_matter(std::array<std::string_view, 1>{"hybrid_sharding_num_model_replicas"}, "of hybrid sharding alone");
    its.refuse_the_rest("is no key of OLMo's fsdp that is known here");
  }

  void read_batch() {
    const std::int64_t micro = given_.integer("device_train_microbatch_size").value_or(16);
    draft_.set("train.micro_batch", micro, given_.place("device_train_microbatch_size"));
    draft_.set("train.global_batch", given_.integer("global_train_batch_size").value_or(512),
               given_.place("global_train_batch_size"));
    const std::int64_t judged = given_.integer("device_eval_batch_size").value_or(micro);
    if (given_.has("evaluators") && judged > micro)
      given_.tell_bounded("device_eval_batch_size",
                          "evaluation is not simulated, and has more sequences at once than are trained",
                          fmt::format("evaluation:{}", judged));
    const std::string again = given_.text("activation_checkpointing").value_or("");
    if (again == "whole_layer") {
      draft_.set("train.recompute", std::string("full"), given_.place("activation_checkpointing"));
      draft_.set("runtime.switches.use_reentrant", false);
    } else if (!again.empty()) {
      leave_unjudged(given_, "activation_checkpointing", "the figures are without it: whole_layer alone is modelled");
    }
  }

  void read_optimizer() {
    Given its = given_.table("optimizer");
    if (const std::string name = its.text("name").value_or("lionw"); name != "adamw")
      leave_unjudged(its, "name", "is an optimizer that is not modelled here: the figures are of AdamW");
    if (const auto decay = its.number("weight_decay"))
      draft_.set("runtime.switches.weight_decay", *decay, its.place("weight_decay"));
    its.no_matter(
        std::array<std::string_view, 12>{"learning_rate", "betas", "eps", "decay_norm_and_bias", "decay_embeddings",
                                         "no_decay_norm_and_bias", "metrics_log_interval", "record_update_metrics",
                                         "selective_updates", "lr", "amsgrad", "max_grad_norm"},
        "how far a step goes, and its metrics");
    its.refuse_the_rest("is no key of OLMo's optimizer that is known here");
    draft_.set("runtime.switches.max_grad_norm", given_.number("max_grad_norm").value_or(0.0),
               given_.place("max_grad_norm"));
  }

  void read_rest() {
    const bool fused = given_.flag("fused_loss").value_or(false);
    const bool squares = given_.flag("softmax_auxiliary_loss").value_or(false);
    draft_.remark_bounded("OLMo",
                          "the figures are of transformers' modules with this model, layout and batch; OLMo's have one "
                          "projection of queries, keys and values, and copy logits",
                          fused     ? "olmo:1"
                          : squares ? "olmo:2"
                                    : "olmo",
                          given_.place("model"));
    if (given_.has("compile") && given_.take("compile") != nullptr)
      given_.tell_bounded("compile", "the figures are of layers that are not compiled", "compiled-layers");
  }

  Given given_;
  const ShippedModels& models_;
  Draft& draft_;
  std::string half_;  // in what is computed, where that is narrow
};

}  // namespace

void read_olmo(const TomlTable& document, const ShippedModels& models, Draft& draft) {
  TomlTable whole = document;
  interpolate(whole);
  draft.own_defaults = true;
  OlmoReader(whole, models, draft).read();
}

}  // namespace tidemark::scenarios
