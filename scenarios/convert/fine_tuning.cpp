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
#include "scenarios/formats/json_table.hpp"
#include "scenarios/formats/suggestion.hpp"

// Tools that fine-tune with transformers' Trainer and PEFT, and say so in words of their own: LLaMA-Factory, axolotl,
// ms-swift. Each becomes TrainingArguments, with the defaults that the tool has where the Trainer has others.

namespace tidemark::scenarios {
namespace {

using Names = std::initializer_list<std::string_view>;

// The keys of such a tool, on their way to TrainingArguments. What nobody takes keeps its name.
class Rewritten {
 public:
  Rewritten(std::vector<TomlKey> keys, Draft& draft, std::string_view dashes = "")
      : keys_(std::move(keys)), draft_(&draft), dashes_(dashes) {}

  [[nodiscard]] const TomlKey* find(std::string_view name) const {
    const auto found = std::find_if(keys_.rbegin(), keys_.rend(), [&](const TomlKey& key) { return key.name == name; });
    return found == keys_.rend() ? nullptr : &*found;
  }
  std::optional<TomlKey> take(std::string_view name) {
    const TomlKey* const found = find(name);
    if (found == nullptr) return std::nullopt;
    TomlKey key = *found;
    std::erase_if(keys_, [&](const TomlKey& its) { return its.name == name; });
    return key;
  }
  [[nodiscard]] static std::string word(const std::optional<TomlKey>& key) {
    if (!key) return {};
    if (const auto* text = std::get_if<std::string>(&key->value.value)) return *text;
    return scenarios::text(key->value);
  }
  [[nodiscard]] bool on(std::string_view name) const {
    const TomlKey* const key = find(name);
    return key != nullptr && (word(*key) == "true" || word(*key) == "1");
  }
  [[nodiscard]] bool off(std::string_view name) const {
    const TomlKey* const key = find(name);
    return key != nullptr && (word(*key) == "false" || word(*key) == "0");
  }
  bool take_on(std::string_view name) {
    const bool its = on(name);
    (void)take(name);
    return its;
  }
  void set(std::string_view name, Content content, Place place = {}) {
    (void)take(name);
    keys_.push_back({std::string(name), place, {std::move(content), place}});
  }
  void usual(std::string_view name, Content content) {
    if (find(name) == nullptr) set(name, std::move(content));
  }
  void rename(std::string_view name, std::string_view as) {
    if (std::optional<TomlKey> key = take(name)) set(as, std::move(key->value.value), key->place);
  }
  void no_matter(Names names, std::string_view why) {
    for (const std::string_view name : names)
      if (const std::optional<TomlKey> key = take(name)) tell(RemarkKind::NoMatter, *key, why);
  }
  // Keys of another use ("wandb_project").
  void no_matter_of(Names beginnings, std::string_view why) {
    for (const TomlKey& key : std::vector<TomlKey>(keys_))
      if (std::ranges::any_of(beginnings, [&](std::string_view its) { return key.name.starts_with(its); })) {
        (void)take(key.name);
        tell(RemarkKind::NoMatter, key, why);
      }
  }
  // What is not modelled, unless it asks for nothing.
  void refuse(Names names, std::string_view what) {
    for (const std::string_view name : names)
      if (const std::optional<TomlKey> key = take(name)) {
        const std::string its = word(key);
        const bool asks = its != "false" && its != "0" && its != "1" && its != "none" && its != "None" && !its.empty();
        tell(asks || its == "1" ? RemarkKind::NotJudged : RemarkKind::NoMatter, *key,
             asks || its == "1" ? fmt::format("{} not modelled", what) : "asks for nothing");
      }
  }
  void tell(RemarkKind kind, const TomlKey& key, const ProblemText& why) {
    draft_->remark(kind, written(key), why, key.place);
  }
  void bound(const TomlKey& key, std::string_view why, std::string_view name) {
    draft_->remark_bounded(written(key), std::string(why), std::string(name), key.place);
  }
  [[noreturn]] void fail(const TomlKey& key, ProblemText message, std::string hint) const {
    throw InputError(Problem{draft_->file, key.place.line, key.place.column, std::move(message.text), std::move(hint),
                             message.kind});
  }
  [[nodiscard]] std::string written(const TomlKey& key) const {
    const auto* text = std::get_if<std::string>(&key.value.value);
    const bool unknown = text != nullptr && text->starts_with(unknown_value);
    return fmt::format("{}{} = {}", dashes_, key.name,
                       unknown ? text->substr(unknown_value.size()) : scenarios::text(key.value));
  }
  [[nodiscard]] std::vector<TomlKey> done() && { return std::move(keys_); }

 private:
  std::vector<TomlKey> keys_;
  Draft* draft_;
  std::string_view dashes_;
};

constexpr std::string_view of_data = "of data, checkpoints and logs";
constexpr std::string_view supervised = "supervised fine-tuning and pre-training are modelled";

// How many micro-batches and rows are packed is for the bound to say.
void pack(Rewritten& its, const TomlKey& key) {
  its.bound(key,
            "the figures are of whole sequences of that length, which packed ones of 128 tokens and more on average "
            "fill at most",
            "packed-rows");
}

// So many ranks on one row: no word for a number is none.
void part_rows(const Rewritten& its, const TomlKey& key, Draft& draft) {
  const auto* const parts = std::get_if<std::int64_t>(&key.value.value);
  draft.part_rows(parts == nullptr ? 1 : *parts, its.written(key), key.place);
}

// What is one of the tool's words for an attention.
void set_attention(Rewritten& its, const TomlKey& key, std::string_view kernel) {
  its.set("attn_implementation", std::string(kernel), key.place);
}

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

// axolotl's FSDP: `fsdp_config` alone asks for it, too (utils/trainer.py), and its version may stand beside it. True
// with fully_shard.
bool settle_fsdp(Rewritten& its) {
  const std::optional<TomlKey> beside = its.take("fsdp_version");
  const TomlKey* const given = its.find("fsdp_config");
  const auto* const table = given == nullptr ? nullptr : std::get_if<TomlTable>(&given->value.value);
  const bool sharded = its.find("fsdp") != nullptr || (table != nullptr && !table->keys.empty());
  if (!sharded) {
    if (beside) its.tell(RemarkKind::NoMatter, *beside, "nothing asks for FSDP");
    return false;
  }
  const Place place = given == nullptr ? its.find("fsdp")->place : given->place;
  TomlTable config = table == nullptr ? TomlTable{} : *table;
  const auto is_version = [](const TomlKey& key) { return key.name == "fsdp_version" || key.name == "version"; };
  if (beside) {
    std::erase_if(config.keys, is_version);
    config.keys.push_back({"fsdp_version", beside->place, beside->value});
  }
  const auto version = std::ranges::find_if(config.keys, is_version);
  const bool second = version != config.keys.end() && Rewritten::word(*version) == "2";
  its.set("fsdp_config", std::move(config), place);
  its.usual("fsdp", std::string("full_shard auto_wrap"));
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

void refuse_task(const Rewritten& its, std::string_view name, std::string_view task) {
  if (const TomlKey* const key = its.find(name))
    its.fail(*key, not_modelled(fmt::format("{}: trains by {}, a task that is not modelled", its.written(*key), task)),
             std::string(supervised));
}

}  // namespace

// src/llamafactory/hparams (finetuning_args, model_args, data_args), model/adapter.py, model/patcher.py.
std::vector<TomlKey> llama_factory_arguments(std::vector<TomlKey> given, Draft& draft) {
  Rewritten its(std::move(given), draft);
  draft.own_defaults = draft.judges_whole = true;
  draft.starts_all = "llamafactory-cli train";
  (void)its.take("stage");
  const std::optional<TomlKey> type = its.take("finetuning_type");
  const bool full = Rewritten::word(type) == "full";
  if (type && !full && Rewritten::word(type) != "lora")
    its.fail(*type, not_modelled(fmt::format("finetuning_type = {}: is not modelled", scenarios::text(type->value))),
             "full and lora are");
  // Which types weights are loaded and trained in (model/adapter.py init_adapter).
  const bool pure = its.take_on("pure_bf16");
  const std::string compute = its.on("bf16") || pure ? "bfloat16" : its.on("fp16") ? "float16" : "auto";
  if (pure || !full)
    its.set("torch_dtype", compute);
  else
    its.set("torch_dtype", std::string("float32"));
  if (!full) {
    its.set("use_peft", true);
    if (pure) draft.set("adapter.dtype", std::string("bf16"));
    its.usual("lora_rank", std::int64_t{8});
    const auto* const rank = std::get_if<std::int64_t>(&its.find("lora_rank")->value.value);
    if (rank != nullptr) its.usual("lora_alpha", product({2, *rank}));
    its.usual("lora_target", std::string("all"));
    const std::optional<TomlKey> target = its.take("lora_target");
    const std::string words = Rewritten::word(target);
    its.set("lora_target_modules", words == "all" ? Content(std::string("all-linear")) : target->value.value,
            target->place);
    its.rename("additional_target", "lora_modules_to_save");
  }
  if (const std::optional<TomlKey> bits = its.take("quantization_bit")) {
    const std::optional<TomlKey> method = its.take("quantization_method");
    if (const std::string by = Rewritten::word(method); !by.empty() && by != "bnb" && by != "bitsandbytes")
      its.fail(*method,
               not_modelled(fmt::format("quantization_method = {}: is not modelled", scenarios::text(method->value))),
               "bnb is, of 4 and 8 bits");
    const std::string many = Rewritten::word(bits);
    if (many != "4" && many != "8")
      its.fail(*bits, not_modelled(fmt::format("quantization_bit = {}: is not modelled", many)), "4 and 8 are");
    its.set(many == "4" ? "load_in_4bit" : "load_in_8bit", true, bits->place);
    if (many == "4") {
      its.set("bnb_4bit_use_double_quant", !its.off("double_quantization"));
      its.rename("quantization_type", "bnb_4bit_quant_type");
      its.set("bnb_4bit_quant_storage", compute == "auto" ? std::string("bfloat16") : compute);
    }
    draft.set("quantization.prepare", std::string(its.on("upcast_layernorm") ? "norms" : "none"));
  } else {
    its.refuse({"upcast_layernorm"}, "norms in fp32 are");
  }
  its.no_matter({"upcast_layernorm", "double_quantization", "quantization_method", "quantization_type"},
                "of a quantized base");
  // model/model_utils/checkpointing.py: on unless it is turned off, and with reentrance.
  if (!its.take_on("disable_gradient_checkpointing")) {
    its.set("gradient_checkpointing", true);
    if (its.find("gradient_checkpointing_kwargs") == nullptr)
      draft.set("runtime.switches.use_reentrant", !its.off("use_reentrant_gc"));
  } else {
    its.set("gradient_checkpointing", false);
  }
  (void)its.take("use_reentrant_gc");
  if (const std::optional<TomlKey> kernel = its.take("flash_attn")) {
    const std::string name = Rewritten::word(kernel);
    if (name == "fa2" || name == "fa3")
      set_attention(its, *kernel, name == "fa2" ? "flash_attention_2" : "flash_attention_3");
    else if (name == "disabled" || name == "off")
      set_attention(its, *kernel, "eager");
    else if (name != "auto" && name != "sdpa")
      its.tell(RemarkKind::NotJudged, *kernel, "is an attention that is not modelled");
  }
  its.rename("enable_liger_kernel", "use_liger_kernel");
  its.usual("cutoff_len", std::int64_t{2048});
  const std::optional<TomlKey> neat = its.take("neat_packing"), packing = its.take("packing");
  if (neat && Rewritten::word(neat) == "true")
    pack(its, *neat);
  else if (packing)
    its.tell(RemarkKind::NoMatter, *packing, "sequences that are put together are as long, and see each other");
  its.refuse({"use_unsloth", "use_unsloth_gc"}, "Unsloth's modules are");
  its.refuse({"use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon", "use_llama_pro"},
             "this way to train is");
  its.refuse({"shift_attn", "mixture_of_depths", "upcast_lmhead_output", "pissa_init", "resize_vocab", "use_kt",
              "add_tokens", "new_special_tokens_config"},
             "this change of the model is");
  // hparams/finetuning_args.py: a tower for images is frozen unless told.
  draft.trains_tower = its.off("freeze_vision_tower");
  its.no_matter_of({"wandb_", "swanlab_", "use_swanlab", "ray_",         "export_", "vllm_",  "sglang_",
                    "image_", "video_",   "audio_",      "galore_",      "apollo_", "badam_", "infer_",
                    "pref_",  "freeze_",  "ref_model",   "reward_model", "dpo_",    "kto_",   "simpo_"},
                   "is of something else than the step");
  its.no_matter({"dataset_dir",
                 "max_samples",
                 "plot_loss",
                 "template",
                 "dataset",
                 "eval_dataset",
                 "val_size",
                 "train_on_prompt",
                 "mask_history",
                 "mix_strategy",
                 "interleave_probs",
                 "buffer_size",
                 "preprocessing_batch_size",
                 "tokenized_path",
                 "default_system",
                 "enable_thinking",
                 "tool_format",
                 "ignore_pad_token_for_loss",
                 "media_dir",
                 "data_shared_file_system",
                 "adapter_name_or_path",
                 "adapter_folder",
                 "create_new_adapter",
                 "print_param_status",
                 "split_special_tokens",
                 "loraplus_lr_ratio",
                 "loraplus_lr_embedding",
                 "pissa_iter",
                 "pissa_convert",
                 "use_kv_cache",
                 "offload_folder",
                 "ms_hub_token",
                 "om_hub_token",
                 "hf_hub_token",
                 "predict_with_generate",
                 "compute_accuracy",
                 "rope_scaling",
                 "disable_shuffling",
                 "early_stopping_steps",
                 "eval_on_each_dataset",
                 "eval_num_beams",
                 "include_effective_tokens_per_second",
                 "moe_aux_loss_coef"},
                of_data);
  return std::move(its).done();
}

// The task of a configuration, where it is none that is modelled; checked before anything else is read.
void refuse_other_tasks_of_tools(const TomlTable& document, Draft& draft) {
  const Rewritten its(document.keys, draft);
  const TomlKey* const stage = its.find("stage");
  const auto learns = [&](std::string_view name) {
    const TomlKey* const key = its.find(name);
    return key != nullptr && learn_from(Rewritten::word(*key), its.written(*key), key->place, draft);
  };
  if (stage != nullptr) {
    const std::string word = Rewritten::word(*stage);
    if (word != "sft" && word != "pt" && !learns("stage"))
      refuse_task(its, "stage", word == "ppo" ? "PPO" : "something else");
  }
  if (!learns("rl")) refuse_task(its, "rl", "preferences or rewards");
  if (!learns("rlhf_type")) refuse_task(its, "rlhf_type", "preferences or rewards");
  // Of TRL's trainers for other tasks (trl/trainer/dpo_config.py, orpo_config.py, kto_config.py, grpo_config.py,
  // rloo_config.py, ppo_config.py).
  for (const std::string_view name : {"num_generations", "reward_funcs", "use_vllm", "max_completion_length",
                                      "reward_weights", "num_iterations", "kl_coef", "reward_model_path"})
    if (name != "max_completion_length" || draft.learns_from == LearnsFrom::Rows)
      refuse_task(its, name, "rewards (GRPO, RLOO, PPO)");
  // KTO's own, and those of TRL's others by pairs.
  for (const std::string_view name : {"desirable_weight", "beta", "max_prompt_length", "precompute_ref_log_probs",
                                      "rpo_alpha", "ref_model_init_kwargs"})
    if (const TomlKey* const key = its.find(name))
      draft.trl |= learn_from(name == "desirable_weight" ? "kto" : "dpo", its.written(*key), key->place, draft);
  if (its.on("process_reward_model")) refuse_task(its, "process_reward_model", "rewards");
  if (const TomlKey* const key = its.find("reward_model"); key != nullptr && its.on("reward_model"))
    (void)learn_from("reward", its.written(*key), key->place, draft);
}

// src/axolotl/utils/schemas, utils/config (resolve_dtype, normalize_config), core/builders, loaders/model.py.
std::vector<TomlKey> axolotl_arguments(std::vector<TomlKey> given, Draft& draft) {
  Rewritten its(std::move(given), draft);
  draft.own_defaults = true;
  draft.starts_all = "axolotl train";
  if (draft.learns_from != LearnsFrom::Rows)
    its.no_matter(
        {"rl", "rl_beta", "orpo_alpha", "trl", "dpo_use_weighting", "dpo_use_logits_to_keep", "dpo_label_smoothing",
         "dpo_norm_loss", "dpo_padding_free", "kto_desirable_weight", "kto_undesirable_weight", "simpo_gamma",
         "cpo_alpha", "reward_model", "num_labels", "precompute_ref_log_probs"},
        "of how answers are judged");
  its.rename("base_model", "model_name_or_path");
  its.rename("micro_batch_size", "per_device_train_batch_size");
  its.usual("per_device_train_batch_size", std::int64_t{1});
  its.rename("sequence_len", "max_length");
  its.usual("max_length", std::int64_t{512});
  its.usual("gradient_accumulation_steps", std::int64_t{1});
  // What is loaded, and whether autocast is around it.
  const std::optional<TomlKey> bf16 = its.take("bf16");
  const std::string narrow = Rewritten::word(bf16);
  const bool fp16 = its.on("fp16");
  const bool whole_bf16 = narrow == "full" || its.take_on("bfloat16"), whole_fp16 = its.take_on("float16");
  // src/axolotl/utils/schemas/config.py: "auto" where nobody says it.
  const bool unsaid = !bf16 && !whole_bf16 && !whole_fp16;
  const bool left_open = (narrow == "auto" || unsaid) && !fp16, bf16_mixed = narrow == "true" || left_open;
  if (left_open)
    draft.remark(RemarkKind::Assumed, bf16 ? its.written(*bf16) : "bf16",
                 bf16 ? "true, as on devices of Ampere and later"
                      : "true: axolotl's default is auto, as on devices of Ampere and later",
                 bf16 ? bf16->place : Place{});
  its.set("bf16", bf16_mixed, bf16 ? bf16->place : Place{});
  its.set("torch_dtype", std::string(bf16_mixed || whole_bf16                       ? "bfloat16"
                                     : fp16 || whole_fp16 || its.on("load_in_8bit") ? "float16"
                                                                                    : "float32"));
  // utils/schemas/config.py: on PyTorch 2.5.1 and later.
  if (const TomlKey* const compiled = its.find("torch_compile");
      compiled != nullptr && Rewritten::word(*compiled) == "auto")
    its.set("torch_compile", true, compiled->place);
  const bool second = settle_fsdp(its);
  its.rename("optimizer", "optim");
  if (const TomlKey* const optim = its.find("optim"); second && optim != nullptr &&
                                                      Rewritten::word(*optim).starts_with("adamw_torch_") &&
                                                      Rewritten::word(*optim).ends_with("bit")) {
    its.tell(
        RemarkKind::NotJudged, *optim,
        "torchao's AdamW of few bits under fully_shard is not modelled: the figures are of AdamW, which holds more");
    its.set("optim", std::string("adamw_torch"), optim->place);
  } else if (optim != nullptr && Rewritten::word(*optim) == "adamw_torch_8bit") {
    its.bound(*optim, "the figures are of bitsandbytes' AdamW in 8 bits, which keeps embeddings' state in 32",
              "torchao-adam");
    its.set("optim", std::string("adamw_8bit"), optim->place);
  } else if (optim != nullptr && Rewritten::word(*optim) == "adamw_torch_4bit") {
    its.bound(*optim, "the figures are of bitsandbytes' AdamW in 8 bits; torchao's has 4", "torchao-adam:4");
    its.set("optim", std::string("adamw_8bit"), optim->place);
  }
  // Checkpoints: with reentrance unless the file says otherwise (normalize_config), and never so under fully_shard.
  const std::optional<TomlKey> checkpoints = its.take("gradient_checkpointing");
  const std::string how = Rewritten::word(checkpoints);
  if (checkpoints && how != "false") {
    its.set("gradient_checkpointing", true, checkpoints->place);
    if (how == "offload" || how == "offload_disk")
      its.bound(*checkpoints, "saved inputs of layers are on the host; the figures are of the device",
                "saved-on-hosts");
    else if (how != "true")
      its.tell(RemarkKind::NotJudged, *checkpoints, "is not modelled");
    if (its.find("gradient_checkpointing_kwargs") == nullptr) draft.set("runtime.switches.use_reentrant", !second);
  }
  if (const std::optional<TomlKey> offload = its.take("activation_offloading");
      offload && Rewritten::word(offload) != "false")
    its.bound(*offload, "what is saved for the backward pass is on the host; the figures are of the device",
              "saved-on-hosts");
  // Attention.
  for (const auto& [name, kernel] : {std::pair{"flash_attention", "flash_attention_2"},
                                     {"sdp_attention", "sdpa"},
                                     {"eager_attention", "eager"},
                                     {"flex_attention", "flex_attention"},
                                     {"xformers_attention", "xformers"}})
    if (const std::optional<TomlKey> key = its.take(name); key && Rewritten::word(key) == "true")
      set_attention(its, *key, kernel);
  const TomlKey* const attention = its.find("attn_implementation");
  const bool flash = attention != nullptr && Rewritten::word(*attention).find("flash") != std::string::npos;
  if (its.on("flash_attn_fuse_mlp") || its.on("flash_attn_fuse_qkv"))
    its.refuse({"flash_attn_fuse_mlp", "flash_attn_fuse_qkv"}, "FlashAttention's own modules are");
  its.no_matter({"flash_attn_fuse_mlp", "flash_attn_fuse_qkv", "flash_attn_rms_norm", "flash_attn_cross_entropy"},
                "asks for nothing");
  if (const std::optional<TomlKey> packs = its.take("sample_packing"); packs && Rewritten::word(packs) == "true")
    pack(its, *packs);
  // Adapters.
  const std::optional<TomlKey> adapter = its.take("adapter");
  const std::string kind = Rewritten::word(adapter);
  if (kind == "qlora" && !its.on("load_in_4bit"))
    its.fail(*adapter, "adapter = qlora: axolotl does not start without load_in_4bit (utils/schemas/peft.py)",
             "set load_in_4bit: true, or adapter: lora");
  if (kind == "lora" || kind == "qlora") {
    its.set("use_peft", true, adapter->place);
    if (its.find("lora_target_modules") == nullptr || its.on("lora_target_linear"))
      if (its.on("lora_target_linear")) its.set("lora_target_modules", std::string("all-linear"));
    if (its.on("load_in_4bit")) {
      its.usual("bnb_4bit_use_double_quant", true);
      its.usual("bnb_4bit_quant_storage", its.find("torch_dtype")->value.value);
    }
    if (its.on("load_in_4bit") || its.on("load_in_8bit")) {
      const bool apart = its.find("fsdp") != nullptr || its.find("fsdp_config") != nullptr;
      // loaders/model.py: norms are narrow again for FlashAttention, and embeddings never became wide.
      draft.set("quantization.prepare", std::string(flash || apart ? "none" : "norms"));
    }
  } else if (adapter && !kind.empty() && kind != "null") {
    its.fail(*adapter, not_modelled(fmt::format("adapter = {}: is not modelled", in_quotes(kind))),
             "lora and qlora are");
  } else {
    keep_embeddings_wide(its, flash);
  }
  (void)its.take("lora_target_linear");
  its.no_matter({"lora_model_dir", "lora_fan_in_fan_out", "peft_init_lora_weights", "merge_lora", "reinit_weights"},
                "of how weights begin");
  take_lora_kernels(its, draft, second);
  for (const std::string_view name : {"model_config", "overrides_of_model_config"}) take_router_loss(its, name);
  its.rename("peft_use_dora", "use_dora");
  its.rename("peft_use_rslora", "use_rslora");
  // Plug-ins.
  if (const std::optional<TomlKey> plugins = its.take("plugins")) {
    const auto* const list = std::get_if<std::vector<TomlValue>>(&plugins->value.value);
    for (const TomlValue& plugin : list == nullptr ? std::vector<TomlValue>{} : *list) {
      const std::string name = scenarios::text(plugin);
      const TomlKey key{"plugins", plugin.place, plugin};
      if (name.find("liger") != std::string::npos) {
        TomlTable config;
        const auto part = [&](const char* theirs, const char* ours) {
          const bool is_on = its.take_on(theirs);
          config.keys.push_back({ours, plugin.place, {is_on, plugin.place}});
        };
        part("liger_cross_entropy", "cross_entropy");
        part("liger_fused_linear_cross_entropy", "fused_linear_cross_entropy");
        part("liger_rms_norm", "rms_norm");
        part("liger_rope", "rope");
        part("liger_glu_activation", "swiglu");
        its.set("use_liger_kernel", true, plugin.place);
        its.set("liger_kernel_config", std::move(config), plugin.place);
        its.refuse({"liger_layer_norm", "liger_use_token_scaling"}, "this part of Liger's is");
      } else if (name.find("cut_cross_entropy") != std::string::npos) {
        its.bound(key, "the figures are of whole logits, which it never has", "chunked-loss");
        (void)its.take("cut_cross_entropy");
      } else {
        its.tell(RemarkKind::NotJudged, key, "is a plug-in that is not modelled");
      }
    }
  }
  for (const std::string_view name : {"context_parallel_size", "sequence_parallel_degree"})
    if (const std::optional<TomlKey> key = its.take(name)) part_rows(its, *key, draft);
  if (const std::optional<TomlKey> key = its.take("tensor_parallel_size"); key && Rewritten::word(key) != "1")
    its.fail(*key, not_modelled(fmt::format("{}: transformers' tensor parallelism is not modelled", its.written(*key))),
             "FSDP, DeepSpeed and plain data parallelism are: leave it out");
  its.refuse({"dp_replicate_size"}, "replicas of shards are");
  its.no_matter({"dp_shard_size", "heads_k_stride", "ring_attn_func"}, "of all ranks, as FSDP shares out by itself");
  its.no_matter({"use_wandb"}, of_data);
  its.refuse({"tiled_mlp", "unfrozen_parameters", "relora", "relora_steps", "torch_compile_backend", "lisa_n_layers",
              "model_quantization_config", "reinforcement_learning", "use_kernels", "chunked_cross_entropy", "fp8",
              "qat", "quantization", "lora_on_cpu", "noisy_embedding_alpha", "multipack_real_batches"},
             "it is");
  settle_evaluation(its);
  its.no_matter_of(
      {"wandb_", "trackio_", "mlflow_", "comet_", "dataset", "hub_", "dataloader_", "plot_", "sample_packing_",
       "test_datasets", "pretraining_", "lr_", "swanlab_", "cosine_", "model_quantization_config_"},
      of_data);
  its.no_matter({"model_type",
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
                 "seed"},
                of_data);
  return std::move(its).done();
}

namespace {

// base_args/model_args.py _init_mixed_precision: what is loaded, and which precision is mixed in. Of fp32, too, it is
// fp16; what is said of either counts over that.
void set_swift_types(Rewritten& its, Draft& draft) {
  its.usual("torch_dtype", std::string("bfloat16"));
  const TomlKey held = *its.find("torch_dtype");
  const std::string type = Rewritten::word(held);
  const bool narrow = type == "bfloat16";
  if (!narrow && type != "float16" && type != "float32")
    its.fail(held, fmt::format("{}: is no type that swift takes", its.written(held)),
             "bfloat16, float16 and float32 are");
  if (const TomlKey* const fp16 = its.find("fp16");
      fp16 != nullptr && its.on("fp16") && narrow && its.find("bf16") == nullptr)
    its.fail(*fp16,
             fmt::format("{}: torch_dtype = bfloat16 switches bf16 on, too, and transformers stops at both",
                         its.written(*fp16)),
             "--torch_dtype float16 asks for fp16");
  if (type == "float32" && its.find("fp16") == nullptr)
    draft.remark(RemarkKind::Assumed, its.written(held), "switches fp16 on, as swift does", held.place);
  const TomlKey* const deepspeed = its.find("deepspeed");
  if (const TomlKey* const bf16 = its.find("bf16");
      bf16 != nullptr && its.off("bf16") && !its.on("fp16") && narrow && deepspeed != nullptr)
    its.tell(RemarkKind::NotExpressed, *bf16,
             not_modelled("weights in bfloat16 under a DeepSpeed engine without bf16 and fp16 are not modelled"));
  its.usual("bf16", narrow);
  its.usual("fp16", !narrow);
}

}  // namespace

// swift/arguments, swift/trainers/arguments.py: `swift sft` and `swift pt`.
std::vector<TomlKey> swift_tuning_arguments(std::vector<TomlKey> given, bool pre_training, Draft& draft) {
  for (TomlKey& key : given) std::ranges::replace(key.name, '-', '_');
  Rewritten its(std::move(given), draft, "--");
  draft.own_defaults = true;
  its.rename("model_id_or_path", "model");
  its.rename("model", "model_name_or_path");
  its.usual("per_device_train_batch_size", std::int64_t{1});
  its.usual("per_device_eval_batch_size", std::int64_t{1});
  its.usual("gradient_checkpointing", true);
  if (its.find("gradient_accumulation_steps") == nullptr) draft.at_least_sequences = 16;
  std::optional<TomlKey> type = its.take("train_type");
  if (const std::optional<TomlKey> now = its.take("tuner_type")) type = now;
  if (const std::optional<TomlKey> old = its.take("sft_type")) type = old;
  const std::string tuner = type ? Rewritten::word(type) : pre_training ? "full" : "lora";
  if (tuner != "full" && tuner != "lora")
    its.fail(*type, not_modelled(fmt::format("{}: is not modelled", its.written(*type))), "full and lora are");
  if (tuner == "lora") {
    its.set("use_peft", true, type ? type->place : Place{});
    its.usual("lora_rank", std::int64_t{8});
    its.usual("lora_alpha", std::int64_t{32});
    its.usual("lora_dropout", 0.05);
    its.usual("target_modules", std::string("all-linear"));
    its.rename("modules_to_save", "lora_modules_to_save");
    its.refuse({"lora_dtype", "lora_bias", "init_weights", "target_regex", "target_parameters"},
               "this form of LoRA is");
  }
  set_swift_types(its, draft);
  if (const std::optional<TomlKey> kernel = its.take("attn_impl")) {
    const std::string name = Rewritten::word(kernel);
    set_attention(its, *kernel, name == "flash_attn" || name == "flash_attention_2" ? "flash_attention_2" : name);
  }
  if (const std::optional<TomlKey> bits = its.take("quant_bits"); bits && Rewritten::word(bits) != "0") {
    const std::string method = Rewritten::word(its.take("quant_method")), many = Rewritten::word(bits);
    if ((!method.empty() && method != "bnb") || (many != "4" && many != "8"))
      its.fail(*bits, not_modelled(fmt::format("{}: is not modelled", its.written(*bits))), "bnb of 4 and 8 bits is");
    its.set(many == "4" ? "load_in_4bit" : "load_in_8bit", true, bits->place);
    if (many == "4") its.usual("bnb_4bit_use_double_quant", true);
    draft.set("quantization.prepare", std::string("none"));
  }
  for (const std::string_view name : {"packing", "padding_free"})
    if (const std::optional<TomlKey> key = its.take(name); key && Rewritten::word(key) == "true") pack(its, *key);
  if (const std::optional<TomlKey> key = its.take("sequence_parallel_size")) part_rows(its, *key, draft);
  // swift/arguments/tuner_args.py: towers and what follows them are frozen unless told.
  draft.trains_tower = its.off("freeze_vit");
  if (draft.learns_from != LearnsFrom::Rows)
    its.no_matter(
        {"loss_type", "beta", "rpo_alpha", "rlhf_type", "ref_model", "ref_adapters", "center_rewards_coefficient"},
        "of how answers are judged");
  its.refuse({"use_galore", "lisa_activated_layers", "optimizer", "loss_type", "freeze_parameters",
              "freeze_parameters_ratio", "trainable_parameters", "tuner_backend", "zero_hpz_partition_size",
              "deepspeed_autotp_size", "resize_vocab", "new_special_tokens", "device_map", "use_logits_to_keep"},
             "it is");
  // swift/config: files that are shipped.
  if (const TomlKey* const preset = its.find("deepspeed")) {
    const std::string name = Rewritten::word(*preset);
    const auto zero = [&](std::string_view more) {
      const std::string text =
          fmt::format(R"({{"bf16": {{"enabled": "auto"}}, "fp16": {{"enabled": "auto"}}, "gradient_clipping": "auto",)"
                      R"( "zero_optimization": {{"overlap_comm": false, "contiguous_gradients": true, {}}}}})",
                      more);
      its.set("deepspeed", parse_json_table(text, draft.file, Automatic::Kept), preset->place);
    };
    constexpr std::string_view buckets =
        R"("allgather_bucket_size": 200000000, "reduce_bucket_size": 200000000, "reduce_scatter": true)";
    constexpr std::string_view third =
        R"("stage": 3, "sub_group_size": 1000000000, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",)"
        R"( "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1000000000,)"
        R"( "stage3_max_reuse_distance": 1000000000)";
    constexpr std::string_view host = R"("offload_optimizer": {"device": "cpu", "pin_memory": true})";
    if (name == "zero1" || name == "zero2")
      zero(fmt::format(R"("stage": {}, {})", name.back(), buckets));
    else if (name == "zero2_offload")
      zero(fmt::format(R"("stage": 2, {}, {})", host, buckets));
    else if (name == "zero3")
      zero(third);
    else if (name == "zero3_offload")
      zero(fmt::format(R"({}, {}, "offload_param": {{"device": "cpu", "pin_memory": true}})", third, host));
  }
  // swift/arguments/sft_args.py: it evaluates as often as it saves, where there are rows to.
  const std::optional<TomlKey> ratio = its.take("split_dataset_ratio");
  const std::string part = ratio ? Rewritten::word(ratio) : "0";
  if ((part != "0" && part != "0.0") || its.find("val_dataset") != nullptr)
    its.usual("eval_strategy", std::string("steps"));
  its.no_matter({"val_dataset",
                 "load_from_cache_file",
                 "use_hf",
                 "system",
                 "loss_scale",
                 "model_author",
                 "model_name",
                 "packing_num_proc",
                 "dataset_shuffle",
                 "train_dataloader_shuffle",
                 "strict",
                 "add_version",
                 "agent_template",
                 "cached_dataset",
                 "model_type",
                 "custom_dataset_info",
                 "columns",
                 "max_epochs",
                 "lazy_tokenize",
                 "truncation_strategy",
                 "create_checkpoint_symlink",
                 "max_new_tokens",
                 "temperature",
                 "load_args",
                 "acc_strategy",
                 "check_model",
                 "safe_serialization",
                 "max_shard_size",
                 "aligner_lr",
                 "vit_lr",
                 "freeze_vit",
                 "freeze_aligner",
                 "freeze_llm",
                 "max_pixels",
                 "external_plugins",
                 "custom_register_path",
                 "callbacks",
                 "metric",
                 "eval_metric",
                 "use_chat_template",
                 "padding_side",
                 "template_backend",
                 "response_prefix",
                 "enable_thinking",
                 "model_kwargs",
                 "adapters",
                 "lorap_lr_ratio",
                 "resume_only_model",
                 "save_only_model",
                 "quant_method",
                 "bnb_4bit_compute_dtype",
                 "merge_lora",
                 "interleave_prob",
                 "stopping_strategy",
                 "shuffle_buffer_size",
                 "add_non_thinking_prefix",
                 "vit_gradient_checkpointing",
                 "local_repo_path",
                 "attn_impl_",
                 "init_strategy"},
                of_data);
  its.no_matter_of({"swanlab_", "eval_use_", "eval_dataset", "eval_limit", "eval_generation", "hub_"}, of_data);
  return std::move(its).done();
}

}  // namespace tidemark::scenarios
