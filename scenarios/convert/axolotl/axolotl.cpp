#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/hugging_face/rewritten.hpp"
#include "scenarios/formats/suggestion.hpp"

// axolotl: src/axolotl/utils/schemas, utils/config (resolve_dtype, normalize_config), core/builders, loaders/model.py.

namespace tidemark::scenarios {
namespace {

constexpr auto axolotl_aside = std::to_array<std::string_view>({"model_type",
                                                                "tokenizer_type",
                                                                "tokenizer_config",
                                                                "tokenizer_use_fast",
                                                                "tokenizer_legacy",
                                                                "base_model_config",
                                                                "base_model_ignore_patterns",
                                                                "is_llama_derived_model",
                                                                "is_mistral_derived_model",
                                                                "is_falcon_derived_model",
                                                                "is_qwen_derived_model",
                                                                "trust_remote_code",
                                                                "chat_template",
                                                                "chat_template_jinja",
                                                                "default_system_message",
                                                                "special_tokens",
                                                                "tokens",
                                                                "added_tokens_overrides",
                                                                "eot_tokens",
                                                                "strict",
                                                                "num_epochs",
                                                                "evals_per_epoch",
                                                                "saves_per_epoch",
                                                                "val_set_size",
                                                                "group_by_length",
                                                                "train_on_inputs",
                                                                "pad_to_sequence_len",
                                                                "resume_from_checkpoint",
                                                                "auto_resume_from_checkpoints",
                                                                "local_rank",
                                                                "logging_steps",
                                                                "early_stopping_patience",
                                                                "loss_watchdog_threshold",
                                                                "loss_watchdog_patience",
                                                                "tf32",
                                                                "adam_epsilon",
                                                                "adam_beta1",
                                                                "adam_beta2",
                                                                "debug",
                                                                "save_safetensors",
                                                                "shuffle_merged_datasets",
                                                                "streaming",
                                                                "streaming_multipack_buffer_size",
                                                                "curriculum_sampling",
                                                                "dataset_exact_deduplication",
                                                                "tokenizer_use_mistral_common",
                                                                "chat_template_kwargs",
                                                                "save_only_model",
                                                                "eval_table_size",
                                                                "eval_max_new_tokens",
                                                                "eval_causal_lm_metrics",
                                                                "trackio_project_name",
                                                                "trackio_run_name",
                                                                "trackio_space_id",
                                                                "use_otel_metrics",
                                                                "otel_metrics_host",
                                                                "otel_metrics_port",
                                                                "excess_length_strategy",
                                                                "min_sample_len",
                                                                "remove_unused_columns",
                                                                "experimental_skip_move_to_device",
                                                                "processor_type",
                                                                "skip_prepare_dataset",
                                                                "warmup_steps",
                                                                "warmup_ratio",
                                                                "learning_rate",
                                                                "save_first_step",
                                                                "use_tensorboard",
                                                                "ddp_timeout",
                                                                "torch_dtype_",
                                                                "low_cpu_mem_usage",
                                                                "load_best_model_at_end",
                                                                "overrides_of_model_config",
                                                                "rope_scaling",
                                                                "device_map",
                                                                "gpu_memory_limit",
                                                                "seed"});

// A table that asks for the routers' loss, and for nothing else of a model.
void take_router_loss(Rewritten& its, std::string_view name) {
  const TomlKey* const given = its.find(name);
  const auto* const table = given == nullptr ? nullptr : std::get_if<TomlTable>(&given->value.value);
  if (table == nullptr || table->keys.size() != 1 || table->keys.front().name != "output_router_logits") return;
  const auto* const requested = std::get_if<bool>(&table->keys.front().value.value);
  if (requested == nullptr) return;
  const bool computes = *requested;
  const TomlKey taken = *its.take(name);
  if (computes) its.bound(taken, "the figures are without the routers' loss", "router-loss");
}

// core/builders/base.py, utils/trainer.py: a configuration of FSDP asks for it by itself. schemas/validation.py: its
// version stands beside it, or in it. True with fully_shard.
bool settle_fsdp(Rewritten& its) {
  const std::optional<TomlKey> version = its.take("fsdp_version");
  const TomlKey* const given = its.find("fsdp_config");
  const auto* const table = given == nullptr ? nullptr : std::get_if<TomlTable>(&given->value.value);
  if (table == nullptr || table->keys.empty()) {
    if (version) its.tell(RemarkKind::NoMatter, *version, "there is no fsdp_config");
    return false;
  }
  TomlTable config = *table;
  const Place place = given->place;
  const auto own = std::ranges::find_if(
      config.keys, [](const TomlKey& key) { return key.name == "fsdp_version" || key.name == "version"; });
  const bool says_its_own = own != config.keys.end();
  const bool second = Rewritten::word(says_its_own ? std::optional<TomlKey>(*own) : version) == "2";
  if (version && !says_its_own) config.keys.push_back({"fsdp_version", version->place, version->value});
  its.set("fsdp_config", std::move(config), place);
  const TomlKey* const words = its.find("fsdp");
  const bool unsaid = words == nullptr || Rewritten::word(*words).empty() || Rewritten::word(*words) == "[]";
  if (unsaid && its.find("deepspeed") == nullptr) its.set("fsdp", std::string("full_shard auto_wrap"), place);
  return second;
}

// utils/schemas/config.py check_auto_enable_lora_kernels: axolotl takes its kernels for LoRA where nothing says
// otherwise.
void take_lora_kernels(Rewritten& its, Draft& draft, bool second) {
  constexpr std::string_view bound = "lora-kernels";
  constexpr auto kernels =
      std::to_array<std::string_view>({"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel"});
  const bool said = std::ranges::any_of(kernels, [&](std::string_view name) { return its.find(name) != nullptr; });
  for (const std::string_view name : kernels)
    if (const std::optional<TomlKey> key = its.take(name); key && Rewritten::word(key) == "true")
      its.bound(*key, "the figures are of PEFT's own linears, which save as much; weights at work are two more", bound);
  const bool first = its.find("fsdp") != nullptr && !second;
  if (said || !its.on("use_peft") || its.on("load_in_8bit") || its.on("trust_remote_code") || first ||
      draft.learns_from != LearnsFrom::Rows)
    return;
  draft.remark_bounded(
      std::string(kernels.front()),
      "is not said, and axolotl then takes its kernels for LoRA: the figures are of PEFT's own linears, "
      "which save as much; weights at work are two more",
      std::string(bound));
}

// core/builders/base.py: axolotl evaluates unless it has no rows to.
void settle_evaluation(Rewritten& its) {
  const std::optional<TomlKey> part = its.take("val_set_size"), strategy = its.take("eval_strategy"),
                               rows = its.take("eval_batch_size");
  const bool none = !part || Rewritten::word(part) == "0" || Rewritten::word(part) == "0.0";
  const bool tests = its.find("test_datasets") != nullptr;
  its.no_matter_of({"eval_", "evals_"}, of_data);
  if ((none && !tests) || Rewritten::word(strategy) == "no") return;
  its.set("eval_strategy", std::string("steps"));
  its.set("per_device_eval_batch_size", rows ? rows->value.value : its.find("per_device_train_batch_size")->value.value,
          rows ? rows->place : Place{});
}

// loaders/model.py: without an adapter embeddings, the head and norms become fp32, and stay so unless FlashAttention,
// FSDP, DeepSpeed or the loss of a plug-in wants them narrow. With them is what flows between layers.
void keep_embeddings_wide(Rewritten& its, bool flash) {
  const TomlKey* const type = its.find("torch_dtype");
  if (flash || its.find("fsdp") != nullptr || its.find("deepspeed") != nullptr || Rewritten::word(*type) == "float32")
    return;
  const TomlKey* const plugins = its.find("plugins");
  if (its.on("cut_cross_entropy") ||
      (plugins != nullptr && scenarios::text(plugins->value).find("cut_cross_entropy") != std::string::npos))
    return;
  const TomlKey* const attention = its.find("attn_implementation");
  const TomlKey without{"attn_implementation", {}, {std::string("sdpa"), {}}};
  its.tell(
      RemarkKind::NotJudged, attention == nullptr ? without : *attention,
      "axolotl then keeps embeddings, the head, norms and what flows between layers in fp32, which is not modelled: "
      "the figures are of bf16, as with flash_attention_2");
}

class Axolotl {
 public:
  Axolotl(std::vector<TomlKey> given, Draft& draft) : its_(std::move(given), draft), draft_(draft) {}

  std::vector<TomlKey> arguments() && {
    draft_.own_defaults = true;
    draft_.starts_all = "axolotl train";
    read_names();
    read_types();
    second_ = settle_fsdp(its_);
    read_optimizer();
    read_checkpoints();
    read_attention();
    read_adapter();
    read_plugins();
    read_parallelism();
    settle_evaluation(its_);
    pass_over();
    return std::move(its_).done();
  }

 private:
  void read_names() {
    if (draft_.learns_from != LearnsFrom::Rows)
      its_.no_matter(
          {"rl", "rl_beta", "orpo_alpha", "trl", "dpo_use_weighting", "dpo_use_logits_to_keep", "dpo_label_smoothing",
           "dpo_norm_loss", "dpo_padding_free", "kto_desirable_weight", "kto_undesirable_weight", "simpo_gamma",
           "cpo_alpha", "reward_model", "num_labels", "precompute_ref_log_probs"},
          "of how answers are judged");
    its_.rename("base_model", "model_name_or_path");
    its_.rename("micro_batch_size", "per_device_train_batch_size");
    its_.usual("per_device_train_batch_size", std::int64_t{1});
    its_.rename("sequence_len", "max_length");
    its_.usual("max_length", std::int64_t{512});
    its_.usual("gradient_accumulation_steps", std::int64_t{1});
  }

  // What is loaded, and whether autocast is around it.
  void read_types() {
    const std::optional<TomlKey> bf16 = its_.take("bf16");
    const std::string narrow = Rewritten::word(bf16);
    const bool fp16 = its_.on("fp16");
    const bool whole_bf16 = narrow == "full" || its_.take_on("bfloat16"), whole_fp16 = its_.take_on("float16");
    // src/axolotl/utils/schemas/config.py: "auto" where nobody says it.
    const bool unsaid = !bf16 && !whole_bf16 && !whole_fp16;
    const bool left_open = (narrow == "auto" || unsaid) && !fp16, bf16_mixed = narrow == "true" || left_open;
    if (left_open)
      draft_.remark(RemarkKind::Assumed, bf16 ? its_.written(*bf16) : "bf16",
                    bf16 ? "true, as on devices of Ampere and later"
                         : "true: axolotl's default is auto, as on devices of Ampere and later",
                    bf16 ? bf16->place : Place{});
    its_.set("bf16", bf16_mixed, bf16 ? bf16->place : Place{});
    its_.set("torch_dtype", std::string(bf16_mixed || whole_bf16                        ? "bfloat16"
                                        : fp16 || whole_fp16 || its_.on("load_in_8bit") ? "float16"
                                                                                        : "float32"));
  }

  void read_optimizer() {
    // utils/schemas/config.py: on PyTorch 2.5.1 and later.
    if (const TomlKey* const compiled = its_.find("torch_compile");
        compiled != nullptr && Rewritten::word(*compiled) == "auto")
      its_.set("torch_compile", true, compiled->place);
    its_.rename("optimizer", "optim");
    if (const TomlKey* const optim = its_.find("optim"); second_ && optim != nullptr &&
                                                         Rewritten::word(*optim).starts_with("adamw_torch_") &&
                                                         Rewritten::word(*optim).ends_with("bit")) {
      its_.bound(*optim, "the figures are of AdamW, whose moments are fp32; torchao's are of 8 or 4 bits",
                 "torchao-adam-of-shards");
      its_.set("optim", std::string("adamw_torch"), optim->place);
    } else if (optim != nullptr && Rewritten::word(*optim) == "adamw_torch_8bit") {
      its_.bound(*optim, "the figures are of bitsandbytes' AdamW in 8 bits, which keeps embeddings' state in 32",
                 "torchao-adam");
      its_.set("optim", std::string("adamw_8bit"), optim->place);
    } else if (optim != nullptr && Rewritten::word(*optim) == "adamw_torch_4bit") {
      its_.bound(*optim, "the figures are of bitsandbytes' AdamW in 8 bits; torchao's has 4", "torchao-adam:4");
      its_.set("optim", std::string("adamw_8bit"), optim->place);
    }
  }

  // Checkpoints: with reentrance unless the file says otherwise (normalize_config), and never so under fully_shard.
  void read_checkpoints() {
    const std::optional<TomlKey> checkpoints = its_.take("gradient_checkpointing");
    const std::string how = Rewritten::word(checkpoints);
    if (checkpoints && how != "false") {
      its_.set("gradient_checkpointing", true, checkpoints->place);
      if (how == "offload" || how == "offload_disk")
        its_.bound(*checkpoints, "saved inputs of layers are on the host; the figures are of the device",
                   "saved-on-hosts");
      else if (how != "true")
        its_.tell(RemarkKind::NotJudged, *checkpoints, "is not modelled");
      if (its_.find("gradient_checkpointing_kwargs") == nullptr) draft_.set("runtime.switches.use_reentrant", !second_);
    }
    if (const std::optional<TomlKey> offload = its_.take("activation_offloading");
        offload && Rewritten::word(offload) != "false")
      its_.bound(*offload, "what is saved for the backward pass is on the host; the figures are of the device",
                 "saved-on-hosts");
  }

  void read_attention() {
    for (const auto& [name, kernel] : {std::pair{"flash_attention", "flash_attention_2"},
                                       {"sdp_attention", "sdpa"},
                                       {"eager_attention", "eager"},
                                       {"flex_attention", "flex_attention"},
                                       {"xformers_attention", "xformers"}})
      if (const std::optional<TomlKey> key = its_.take(name); key && Rewritten::word(key) == "true")
        set_attention(its_, *key, kernel);
    const TomlKey* const attention = its_.find("attn_implementation");
    flash_ = attention != nullptr && Rewritten::word(*attention).find("flash") != std::string::npos;
    if (its_.on("flash_attn_fuse_mlp") || its_.on("flash_attn_fuse_qkv"))
      its_.refuse({"flash_attn_fuse_mlp", "flash_attn_fuse_qkv"}, "FlashAttention's own modules are");
    its_.no_matter({"flash_attn_fuse_mlp", "flash_attn_fuse_qkv", "flash_attn_rms_norm", "flash_attn_cross_entropy"},
                   "asks for nothing");
    if (const std::optional<TomlKey> packs = its_.take("sample_packing"); packs && Rewritten::word(packs) == "true")
      pack(its_, *packs);
  }

  void read_adapter() {
    const std::optional<TomlKey> adapter = its_.take("adapter");
    const std::string kind = Rewritten::word(adapter);
    if (kind == "qlora" && !its_.on("load_in_4bit"))
      its_.fail(*adapter, "adapter = qlora: axolotl does not start without load_in_4bit (utils/schemas/peft.py)",
                "set load_in_4bit: true, or adapter: lora");
    if (kind == "lora" || kind == "qlora") {
      its_.set("use_peft", true, adapter->place);
      if (its_.find("lora_target_modules") == nullptr || its_.on("lora_target_linear"))
        if (its_.on("lora_target_linear")) its_.set("lora_target_modules", std::string("all-linear"));
      if (its_.on("load_in_4bit")) {
        its_.usual("bnb_4bit_use_double_quant", true);
        its_.usual("bnb_4bit_quant_storage", its_.find("torch_dtype")->value.value);
      }
      // loaders/model.py _configure_embedding_dtypes: whatever was made wide is narrow again beside an adapter.
      if (its_.on("load_in_4bit") || its_.on("load_in_8bit")) draft_.set("quantization.prepare", std::string("none"));
    } else if (adapter && !kind.empty() && kind != "null") {
      its_.fail(*adapter, not_modelled(fmt::format("adapter = {}: is not modelled", in_quotes(kind))),
                "lora and qlora are");
    } else {
      keep_embeddings_wide(its_, flash_);
    }
    read_rest_of_adapter();
  }

  void read_rest_of_adapter() {
    (void)its_.take("lora_target_linear");
    its_.no_matter({"lora_model_dir", "lora_fan_in_fan_out", "peft_init_lora_weights", "merge_lora", "reinit_weights"},
                   "of how weights begin");
    take_lora_kernels(its_, draft_, second_);
    for (const std::string_view name : {"model_config", "overrides_of_model_config"}) take_router_loss(its_, name);
    its_.rename("peft_use_dora", "use_dora");
    its_.rename("peft_use_rslora", "use_rslora");
  }

  void take_liger(Place place) {
    TomlTable config;
    const auto part = [&](const char* theirs, const char* ours) {
      const bool is_on = its_.take_on(theirs);
      config.keys.push_back({ours, place, {is_on, place}});
    };
    part("liger_cross_entropy", "cross_entropy");
    part("liger_fused_linear_cross_entropy", "fused_linear_cross_entropy");
    part("liger_rms_norm", "rms_norm");
    part("liger_rope", "rope");
    part("liger_glu_activation", "swiglu");
    its_.set("use_liger_kernel", true, place);
    its_.set("liger_kernel_config", std::move(config), place);
    its_.no_matter({"liger_layer_norm"}, "families that Liger's kernels are modelled in have no LayerNorm");
    its_.refuse({"liger_use_token_scaling"}, "this part of Liger's is");
  }

  void read_plugins() {
    if (const std::optional<TomlKey> plugins = its_.take("plugins")) {
      const auto* const list = std::get_if<std::vector<TomlValue>>(&plugins->value.value);
      for (const TomlValue& plugin : list == nullptr ? std::vector<TomlValue>{} : *list) {
        const std::string name = scenarios::text(plugin);
        const TomlKey key{"plugins", plugin.place, plugin};
        if (name.find("liger") != std::string::npos) {
          take_liger(plugin.place);
        } else if (name.find("cut_cross_entropy") != std::string::npos) {
          its_.bound(key, "the figures are of whole logits, which it never has", "chunked-loss");
          (void)its_.take("cut_cross_entropy");
        } else if (name.find("swanlab") != std::string::npos) {
          its_.tell(RemarkKind::NoMatter, key, "writes logs");
        } else {
          its_.tell(RemarkKind::NotJudged, key, "is a plug-in that is not modelled");
        }
      }
    }
  }

  void read_parallelism() {
    for (const std::string_view name : {"context_parallel_size", "sequence_parallel_degree"})
      if (const std::optional<TomlKey> key = its_.take(name)) part_rows(its_, *key, draft_);
    if (const std::optional<TomlKey> key = its_.take("tensor_parallel_size"); key && Rewritten::word(key) != "1")
      its_.fail(*key,
                not_modelled(fmt::format("{}: transformers' tensor parallelism is not modelled", its_.written(*key))),
                "FSDP, DeepSpeed and plain data parallelism are: leave it out");
    its_.refuse({"dp_replicate_size"}, "replicas of shards are");
    its_.no_matter({"dp_shard_size", "heads_k_stride", "ring_attn_func"}, "of all ranks, as FSDP shares out by itself");
    its_.no_matter({"use_wandb", "use_swanlab"}, of_data);
    its_.refuse({"tiled_mlp", "unfrozen_parameters", "relora", "relora_steps", "torch_compile_backend", "lisa_n_layers",
                 "model_quantization_config", "reinforcement_learning", "use_kernels", "chunked_cross_entropy", "fp8",
                 "qat", "quantization", "lora_on_cpu", "noisy_embedding_alpha", "multipack_real_batches"},
                "it is");
  }

  void pass_over() {
    its_.no_matter_of(
        {"wandb_", "trackio_", "mlflow_", "comet_", "dataset", "hub_", "dataloader_", "plot_", "sample_packing_",
         "test_datasets", "pretraining_", "lr_", "swanlab_", "cosine_", "model_quantization_config_"},
        of_data);
    its_.no_matter(axolotl_aside, of_data);
  }

  Rewritten its_;
  Draft& draft_;
  bool second_ = false;  // fully_shard
  bool flash_ = false;   // FlashAttention
};

}  // namespace

std::vector<TomlKey> axolotl_arguments(std::vector<TomlKey> given, Draft& draft) {
  return Axolotl(std::move(given), draft).arguments();
}

}  // namespace tidemark::scenarios
