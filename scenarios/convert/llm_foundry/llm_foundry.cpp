#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/interpolation.hpp"
#include "scenarios/convert/llm_foundry/mpt.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

// llm-foundry's scripts/train (8c8dd48f): Composer's Trainer around a model of transformers', whose layers are units of
// FullyShardedDataParallel (llmfoundry/models/hf/hf_fsdp.py, composer/distributed/mosaic_parallelism.py).

namespace tidemark::scenarios {
namespace {

constexpr auto foundry_aside = std::to_array<std::string_view>({"run_name",
                                                                "seed",
                                                                "global_seed",
                                                                "tokenizer",
                                                                "scheduler",
                                                                "max_duration",
                                                                "eval_interval",
                                                                "eval_first",
                                                                "eval_subset_num_batches",
                                                                "progress_bar",
                                                                "log_to_console",
                                                                "console_log_interval",
                                                                "python_log_level",
                                                                "loggers",
                                                                "save_folder",
                                                                "save_filename",
                                                                "save_interval",
                                                                "save_latest_filename",
                                                                "save_num_checkpoints_to_keep",
                                                                "save_overwrite",
                                                                "save_weights_only",
                                                                "save_ignore_keys",
                                                                "load_path",
                                                                "load_weights_only",
                                                                "load_strict_model_weights",
                                                                "load_ignore_keys",
                                                                "only_hf_checkpoint",
                                                                "only_composer_checkpoint",
                                                                "autoresume",
                                                                "dist_timeout",
                                                                "metadata",
                                                                "variables",
                                                                "icl_tasks",
                                                                "icl_tasks_str",
                                                                "icl_seq_len",
                                                                "icl_subset_num_batches",
                                                                "eval_gauntlet",
                                                                "eval_gauntlet_str",
                                                                "data_local",
                                                                "data_remote",
                                                                "tokenizer_name",
                                                                "model_name",
                                                                "model_name_or_path",
                                                                "log_config",
                                                                "code_paths",
                                                                "flatten_optimizer_wrapper"});

class LlmFoundry {
 public:
  LlmFoundry(const TomlTable& whole, const ShippedModels& models, Draft& draft)
      : given_(whole.keys, "", draft), models_(models), draft_(draft) {}

  void read() {
    draft_.starts_all = "composer";
    read_model();
    read_precision();
    read_sharding();
    read_batch();
    read_optimizer();
    read_rest();
    given_.no_matter(foundry_aside, "of data, checkpoints and logs");
    given_.refuse_the_rest("is no key of llm-foundry's that is known here");
  }

 private:
  void open(const Given& of, std::string_view key, std::string why) {
    draft_.remark(RemarkKind::NotExpressed, std::string(key), not_modelled(std::move(why)), of.place(key));
  }

  void read_model() {
    Given model = given_.table("model");
    const std::string kind = model.text("name").value_or("");
    if (kind == "mpt_causal_lm") {
      read_mpt(model, draft_);
      draft_.set("runtime.switches.use_cache", false);
      return;
    }
    if (kind != "hf_causal_lm") {
      open(model, "name",
           fmt::format("model.name = {}: is not modelled: hf_causal_lm and mpt_causal_lm are", in_quotes(kind)));
      return;
    }
    const std::string checkpoint = model.text("pretrained_model_name_or_path").value_or("");
    if (!checkpoint.empty() && draft_.find("model") == nullptr)
      name_checkpoint(models_, checkpoint, "model.pretrained_model_name_or_path",
                      model.place("pretrained_model_name_or_path"), draft_);
    // hf_base.py: "eager" where nothing is said.
    const bool flash = model.flag("use_flash_attention_2").value_or(false);
    const std::string attention = model.text("attn_implementation").value_or("eager");
    if (flash || attention.starts_with("flash_attention"))
      draft_.set("train.attention", std::string("flash"), model.place("use_flash_attention_2"));
    else if (attention == "eager")
      draft_.set("train.attention", std::string("unfused"), model.place("attn_implementation"));
    else if (attention != "sdpa")
      open(model, "attn_implementation", "an attention that is not modelled");
    if (model.has("peft_config")) read_adapter(model.table("peft_config"));
    if (model.has("config_overrides")) read_overrides(model.table("config_overrides"));
    model.refuse("load_in_8bit", "a quantized base beneath Composer is", {"false"});
    model.no_matter(std::array<std::string_view, 8>{"pretrained", "init_device", "use_auth_token", "trust_remote_code",
                                                    "use_train_metrics", "use_logits", "additional_train_metrics",
                                                    "tokenizer_name"},
                    "of how weights begin, and of metrics");
    model.refuse_the_rest("is no key of hf_causal_lm's that is known here");
    draft_.set("runtime.switches.use_cache", false);  // llmfoundry/models/hf/hf_base.py
  }

  // hf_base.py: keys of transformers' configuration. What only llm-foundry's own models have says nothing here.
  void read_overrides(Given its) {
    constexpr auto shapes = std::to_array<std::string_view>(
        {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
         "vocab_size", "n_layer", "n_embd", "n_head", "n_positions", "max_position_embeddings", "tie_word_embeddings"});
    for (const std::string_view key : shapes)
      if (const TomlValue* value = its.take(key))
        draft_.set(fmt::format("model_override.{}", key), value->value, value->place);
    its.no_matter(std::array<std::string_view, 4>{"max_seq_len", "attn_config", "use_cache", "rope_theta"},
                  "is no key of this model's, or leaves its sizes as they are");
    its.refuse_the_rest("is a key of a model's configuration that is not known here");
  }

  void read_adapter(Given its) {
    draft_.set("adapter.method", std::string("lora"), its.place("peft_type"));
    (void)its.text("peft_type");
    for (const auto& [name, path] : {std::pair{"r", "adapter.rank"},
                                     {"lora_alpha", "adapter.alpha"},
                                     {"lora_dropout", "adapter.dropout"},
                                     {"target_modules", "adapter.target_modules"}})
      if (const TomlValue* value = its.take(name)) draft_.set(path, value->value, value->place);
    its.no_matter(std::array<std::string_view, 2>{"task_type", "bias"}, "of how adapters begin");
    its.refuse_the_rest("is no key of a peft_config that is known here");
  }

  // composer/core/precision.py; weights are fp32 (hf_base.py _MASTER_WEIGHTS_PRECISION) unless master_weights_dtype
  // says otherwise.
  void read_precision() {
    const std::string precision = given_.text("precision").value_or("amp_bf16");
    draft_.type_said = true;
    if (precision == "amp_bf16" || precision == "amp_fp16") {
      half_ = precision.substr(4);
      draft_.set("train.precision", half_, given_.place("precision"));
      draft_.set("runtime.switches.autocast", true);
    } else if (precision == "fp32") {
      draft_.set("train.precision", std::string("fp32"), given_.place("precision"));
    } else {
      open(given_, "precision",
           fmt::format("precision = {} is not modelled: amp_bf16 and fp32 are", in_quotes(precision)));
    }
    if (given_.has("master_weights_dtype"))
      given_.tell(RemarkKind::NotJudged, "master_weights_dtype",
                  "weights of another type than fp32 are not modelled here");
  }

  void read_sharding() {
    if (!given_.has("fsdp_config") || scenarios::text(*given_.look_at("fsdp_config")) == "{}") {
      (void)given_.take("fsdp_config");
      draft_.set("runtime.name", std::string("pytorch"));
      return;
    }
    Given its = given_.table("fsdp_config");
    draft_.set("runtime.name", std::string("fsdp"), given_.place("fsdp_config"));
    const std::string strategy = its.text("sharding_strategy").value_or("FULL_SHARD");
    const bool full = strategy == "FULL_SHARD", steps = strategy == "SHARD_GRAD_OP", none = strategy == "NO_SHARD";
    draft_.set("layout.sharding",
               std::string(steps  ? "zero2"
                           : none ? "none"
                                  : "zero3"),
               its.place("sharding_strategy"));
    if (!full && !steps && !none)
      its.tell(RemarkKind::NotJudged, "sharding_strategy", "the figures are of FULL_SHARD over all devices");
    // get_mixed_precision: by default gradients are summed in fp32.
    const std::string mixed = its.text("mixed_precision").value_or("DEFAULT");
    if (!half_.empty() && (mixed == "DEFAULT" || mixed == "PURE")) {
      draft_.set("runtime.switches.buffer_dtype", half_, its.place("mixed_precision"));
      if (mixed == "DEFAULT")
        draft_.set("runtime.switches.reduce_dtype", std::string("fp32"), its.place("mixed_precision"));
    } else if (!half_.empty()) {
      open(its, "mixed_precision",
           fmt::format("mixed_precision = {} is not modelled: DEFAULT and PURE are", in_quotes(mixed)));
    }
    draft_.set("runtime.switches.use_orig_params", its.flag("use_orig_params").value_or(true),
               its.place("use_orig_params"));
    draft_.set("runtime.switches.limit_all_gathers", its.flag("limit_all_gathers").value_or(true),
               its.place("limit_all_gathers"));
    draft_.set("runtime.switches.forward_prefetch", its.flag("forward_prefetch").value_or(false),
               its.place("forward_prefetch"));
    const std::string prefetch = its.text("backward_prefetch").value_or("BACKWARD_POST");
    draft_.set("runtime.switches.backward_prefetch",
               std::string(prefetch == "BACKWARD_PRE"    ? "backward_pre"
                           : prefetch == "BACKWARD_POST" ? "backward_post"
                                                         : "none"),
               its.place("backward_prefetch"));
    if (its.flag("sync_module_states").value_or(false))
      draft_.set("runtime.switches.sync_module_states", true, its.place("sync_module_states"));
    if (its.flag("cpu_offload").value_or(false))
      draft_.set("offload.parameters", std::string("cpu"), its.place("cpu_offload"));
    if (its.flag("activation_checkpointing").value_or(false)) {
      draft_.set("train.recompute", std::string("full"), its.place("activation_checkpointing"));
      draft_.set("runtime.switches.use_reentrant", its.flag("activation_checkpointing_reentrant").value_or(true),
                 its.place("activation_checkpointing_reentrant"));
    }
    if (its.flag("activation_cpu_offload").value_or(false))
      its.tell_bounded("activation_cpu_offload",
                       "the figures are without it: what is saved goes to hosts, and comes back one by one",
                       "saved-on-hosts");
    its.no_matter(std::array<std::string_view, 9>{"activation_checkpointing_reentrant", "state_dict_type", "verbose",
                                                  "load_monolith_rank0_only", "sharded_ckpt_prefix_dir", "auto_wrap",
                                                  "backward_prefetch_limit", "forward_prefetch_limit",
                                                  "load_fsdp_monolith_rank0_only"},
                  "of checkpoints, or its default");
    its.refuse_the_rest("is no key of an fsdp_config of Composer's that is known here");
  }

  void read_batch() {
    if (const auto all = given_.integer("global_train_batch_size"))
      draft_.set("train.global_batch", *all, given_.place("global_train_batch_size"));
    constexpr std::string_view micro = "device_train_microbatch_size";
    const bool automatic = !given_.has(micro) || given_.left_to_others(micro);
    if (automatic) {
      draft_.set("train.micro_batch", std::int64_t{1}, given_.place(micro));
      (void)given_.take(micro);
      draft_.remark(RemarkKind::Assumed, std::string(micro),
                    "auto: Composer halves it until a step has room; the figures are of 1, the least that it comes to",
                    given_.place(micro));
    } else if (const auto size = given_.integer(micro)) {
      draft_.set("train.micro_batch", *size, given_.place(micro));
    }
    Given loader = given_.table("train_loader"), data = loader.table("dataset");
    std::optional<std::int64_t> length = data.integer("max_seq_len");
    if (const auto whole = given_.integer("max_seq_len")) length = length.value_or(*whole);
    if (length)
      draft_.set("train.sequence_length", *length, given_.place("max_seq_len"));
    else
      draft_.rows_of_data = "max_seq_len";
    if (const TomlValue* ratio = data.take("packing_ratio"); ratio != nullptr)
      data.tell_bounded("packing_ratio", "the figures are of whole sequences of that length, which packed ones fill",
                        "packed-rows");
    const std::int64_t trained = draft_.integer("train.micro_batch").value_or(1);
    const auto evaluated = given_.integer("device_eval_batch_size");
    const bool evaluates = given_.has("eval_loader") || given_.has("eval_loaders");
    for (const std::string_view key : {"eval_loader", "eval_loaders"}) (void)given_.take(key);
    if (evaluates && evaluated.value_or(1) > trained)
      given_.tell_bounded("device_eval_batch_size",
                          "evaluation is not simulated, and has more sequences at once than are trained",
                          fmt::format("evaluation:{}", *evaluated));
    else if (given_.has("device_eval_batch_size"))
      given_.tell(RemarkKind::Assumed, "device_eval_batch_size", "evaluation has no more sequences at once");
  }

  void read_optimizer() {
    Given its = given_.table("optimizer");
    const std::string name = its.text("name").value_or("");
    // composer/optim/decoupled_weight_decay.py: one parameter at a time.
    if (name == "decoupled_adamw")
      draft_.set("runtime.switches.foreach", false, its.place("name"));
    else if (name != "adamw")
      its.tell(RemarkKind::NotJudged, "name", "is an optimizer that is not modelled here: the figures are of AdamW");
    if (const auto decay = its.number("weight_decay"))
      draft_.set("runtime.switches.weight_decay", *decay, its.place("weight_decay"));
    its.no_matter(std::array<std::string_view, 3>{"lr", "betas", "eps"}, "how far a step goes");
    its.refuse_the_rest("is no key of an optimizer that is known here");
    Given clips = given_.table("algorithms");
    Given norm = clips.table("gradient_clipping");
    const std::string kind = norm.text("clipping_type").value_or("norm");
    const bool by_norm = clips.has("gradient_clipping") && kind == "norm";
    draft_.set("runtime.switches.max_grad_norm", by_norm ? norm.number("clipping_threshold").value_or(1.0) : 0.0,
               norm.place("clipping_threshold"));
    if (kind != "norm")
      norm.tell(RemarkKind::NotJudged, "clipping_type", "is not modelled: the figures are without it");
    clips.refuse_the_rest("is an algorithm of Composer's that is not modelled");
  }

  void read_rest() {
    if (given_.flag("expandable_segments").value_or(false))
      draft_.set("runtime.environment.PYTORCH_CUDA_ALLOC_CONF", std::string("expandable_segments:True"),
                 given_.place("expandable_segments"));
    if (given_.has("compile_config"))
      given_.tell(RemarkKind::NotJudged, "compile_config", "torch.compile beneath Composer is not modelled");
    Given callbacks = given_.table("callbacks");
    callbacks.no_matter(
        std::array<std::string_view, 10>{"speed_monitor", "lr_monitor", "memory_monitor", "runtime_estimator",
                                         "hf_checkpointer", "scheduled_gc", "eval_output_logging",
                                         "curriculum_learning", "mono_checkpoint_saver", "early_stopper"},
        "of logs and checkpoints");
    callbacks.refuse_the_rest("is a callback that is not known here");
  }

  Given given_;
  const ShippedModels& models_;
  Draft& draft_;
  std::string half_;  // in what is computed, where that is narrow
};

}  // namespace

void read_llm_foundry(const TomlTable& document, const ShippedModels& models, Draft& draft) {
  TomlTable whole = document;
  interpolate(whole);
  draft.own_defaults = true;
  LlmFoundry(whole, models, draft).read();
}

}  // namespace tidemark::scenarios
