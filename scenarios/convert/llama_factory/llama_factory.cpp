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

// LLaMA-Factory: src/llamafactory/hparams (finetuning_args, model_args, data_args), model/adapter.py, model/patcher.py.

namespace tidemark::scenarios {
namespace {

constexpr auto llama_factory_aside = std::to_array<std::string_view>({"dataset_dir",
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
                                                                      "moe_aux_loss_coef"});

class LlamaFactory {
 public:
  LlamaFactory(std::vector<TomlKey> given, Draft& draft) : its_(std::move(given), draft), draft_(draft) {}

  std::vector<TomlKey> arguments() && {
    draft_.own_defaults = draft_.judges_whole = true;
    draft_.starts_all = "llamafactory-cli train";
    (void)its_.take("stage");
    read_type();
    read_adapter();
    read_quantization();
    read_checkpoints_and_attention();
    read_rows_and_kernels();
    pass_over();
    return std::move(its_).done();
  }

 private:
  void read_type() {
    const std::optional<TomlKey> type = its_.take("finetuning_type");
    full_ = Rewritten::word(type) == "full";
    if (type && !full_ && Rewritten::word(type) != "lora")
      its_.fail(*type, not_modelled(fmt::format("finetuning_type = {}: is not modelled", scenarios::text(type->value))),
                "full and lora are");
    // Which types weights are loaded and trained in (model/adapter.py init_adapter).
    pure_ = its_.take_on("pure_bf16");
    compute_ = its_.on("bf16") || pure_ ? "bfloat16" : its_.on("fp16") ? "float16" : "auto";
    if (pure_ || !full_)
      its_.set("torch_dtype", compute_);
    else
      its_.set("torch_dtype", std::string("float32"));
  }

  void read_adapter() {
    if (full_) return;
    its_.set("use_peft", true);
    if (pure_) draft_.set("adapter.dtype", std::string("bf16"));
    its_.usual("lora_rank", std::int64_t{8});
    const auto* const rank = std::get_if<std::int64_t>(&its_.find("lora_rank")->value.value);
    if (rank != nullptr) its_.usual("lora_alpha", product({2, *rank}));
    its_.usual("lora_target", std::string("all"));
    const std::optional<TomlKey> target = its_.take("lora_target");
    const std::string words = Rewritten::word(target);
    its_.set("lora_target_modules", words == "all" ? Content(std::string("all-linear")) : target->value.value,
             target->place);
    its_.rename("additional_target", "lora_modules_to_save");
  }

  void read_quantization() {
    if (const std::optional<TomlKey> bits = its_.take("quantization_bit")) {
      const std::optional<TomlKey> method = its_.take("quantization_method");
      if (const std::string by = Rewritten::word(method); !by.empty() && by != "bnb" && by != "bitsandbytes")
        its_.fail(
            *method,
            not_modelled(fmt::format("quantization_method = {}: is not modelled", scenarios::text(method->value))),
            "bnb is, of 4 and 8 bits");
      const std::string many = Rewritten::word(bits);
      if (many != "4" && many != "8")
        its_.fail(*bits, not_modelled(fmt::format("quantization_bit = {}: is not modelled", many)), "4 and 8 are");
      its_.set(many == "4" ? "load_in_4bit" : "load_in_8bit", true, bits->place);
      if (many == "4") {
        its_.set("bnb_4bit_use_double_quant", !its_.off("double_quantization"));
        its_.rename("quantization_type", "bnb_4bit_quant_type");
        its_.set("bnb_4bit_quant_storage", compute_ == "auto" ? std::string("bfloat16") : compute_);
      }
      draft_.set("quantization.prepare", std::string(its_.on("upcast_layernorm") ? "norms" : "none"));
    } else {
      its_.refuse({"upcast_layernorm"}, "norms in fp32 are");
    }
    its_.no_matter({"upcast_layernorm", "double_quantization", "quantization_method", "quantization_type"},
                   "of a quantized base");
  }

  void read_checkpoints_and_attention() {
    // model/model_utils/checkpointing.py: on unless it is turned off, and with reentrance.
    if (!its_.take_on("disable_gradient_checkpointing")) {
      its_.set("gradient_checkpointing", true);
      if (its_.find("gradient_checkpointing_kwargs") == nullptr)
        draft_.set("runtime.switches.use_reentrant", !its_.off("use_reentrant_gc"));
    } else {
      its_.set("gradient_checkpointing", false);
    }
    (void)its_.take("use_reentrant_gc");
    if (const std::optional<TomlKey> kernel = its_.take("flash_attn")) {
      const std::string name = Rewritten::word(kernel);
      if (name == "fa2" || name == "fa3")
        set_attention(its_, *kernel, name == "fa2" ? "flash_attention_2" : "flash_attention_3");
      else if (name == "disabled" || name == "off")
        set_attention(its_, *kernel, "eager");
      else if (name != "auto" && name != "sdpa")
        its_.tell(RemarkKind::NotJudged, *kernel, "is an attention that is not modelled");
    }
  }

  void read_rows_and_kernels() {
    its_.rename("enable_liger_kernel", "use_liger_kernel");
    its_.usual("cutoff_len", std::int64_t{2048});
    const std::optional<TomlKey> neat = its_.take("neat_packing"), packing = its_.take("packing");
    if (neat && Rewritten::word(neat) == "true")
      pack(its_, *neat);
    else if (packing)
      its_.tell(RemarkKind::NoMatter, *packing, "sequences that are put together are as long, and see each other");
    its_.refuse({"use_unsloth", "use_unsloth_gc"}, "Unsloth's modules are");
    its_.refuse({"use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon", "use_llama_pro"},
                "this way to train is");
    its_.refuse({"shift_attn", "mixture_of_depths", "upcast_lmhead_output", "pissa_init", "resize_vocab", "use_kt",
                 "add_tokens", "new_special_tokens_config"},
                "this change of the model is");
  }

  void pass_over() {
    // hparams/finetuning_args.py: a tower for images is frozen unless told.
    draft_.trains_tower = its_.off("freeze_vision_tower");
    its_.no_matter_of({"wandb_", "swanlab_", "use_swanlab", "ray_",         "export_", "vllm_",  "sglang_",
                       "image_", "video_",   "audio_",      "galore_",      "apollo_", "badam_", "infer_",
                       "pref_",  "freeze_",  "ref_model",   "reward_model", "dpo_",    "kto_",   "simpo_"},
                      "is of something else than the step");
    its_.no_matter(llama_factory_aside, of_data);
  }

  Rewritten its_;
  Draft& draft_;
  bool full_ = false, pure_ = false;
  std::string compute_;  // the type of what is computed
};

}  // namespace

std::vector<TomlKey> llama_factory_arguments(std::vector<TomlKey> given, Draft& draft) {
  return LlamaFactory(std::move(given), draft).arguments();
}

}  // namespace tidemark::scenarios
