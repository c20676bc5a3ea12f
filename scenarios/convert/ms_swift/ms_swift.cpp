#include <algorithm>
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
#include "scenarios/formats/json_table.hpp"

// ms-swift: swift/arguments, swift/trainers/arguments.py; `swift sft` and `swift pt`.

namespace tidemark::scenarios {
namespace {

constexpr auto swift_aside = std::to_array<std::string_view>({"val_dataset",
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
                                                              "cached_val_dataset",
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
                                                              "init_strategy"});

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

std::vector<TomlKey> with_underscores(std::vector<TomlKey> given) {
  for (TomlKey& key : given) std::ranges::replace(key.name, '-', '_');
  return given;
}

class Swift {
 public:
  Swift(std::vector<TomlKey> given, bool pre_training, Draft& draft)
      : its_(with_underscores(std::move(given)), draft, "--"), draft_(draft), pre_training_(pre_training) {}

  std::vector<TomlKey> arguments() && {
    read_names();
    read_adapter();
    set_swift_types(its_, draft_);
    read_attention_and_quantization();
    read_rows();
    read_preset();
    read_evaluation();
    its_.no_matter(swift_aside, of_data);
    its_.no_matter_of({"swanlab_", "eval_use_", "eval_dataset", "eval_limit", "eval_generation", "hub_"}, of_data);
    return std::move(its_).done();
  }

 private:
  void read_names() {
    draft_.own_defaults = true;
    its_.rename("model_id_or_path", "model");
    its_.rename("model", "model_name_or_path");
    its_.usual("per_device_train_batch_size", std::int64_t{1});
    its_.usual("per_device_eval_batch_size", std::int64_t{1});
    its_.usual("gradient_checkpointing", true);
    if (its_.find("gradient_accumulation_steps") == nullptr) draft_.at_least_sequences = 16;
  }

  void read_adapter() {
    std::optional<TomlKey> type = its_.take("train_type");
    if (const std::optional<TomlKey> now = its_.take("tuner_type")) type = now;
    if (const std::optional<TomlKey> old = its_.take("sft_type")) type = old;
    const std::string tuner = type ? Rewritten::word(type) : pre_training_ ? "full" : "lora";
    if (tuner != "full" && tuner != "lora")
      its_.fail(*type, not_modelled(fmt::format("{}: is not modelled", its_.written(*type))), "full and lora are");
    if (tuner == "lora") {
      its_.set("use_peft", true, type ? type->place : Place{});
      its_.usual("lora_rank", std::int64_t{8});
      its_.usual("lora_alpha", std::int64_t{32});
      its_.usual("lora_dropout", 0.05);
      its_.usual("target_modules", std::string("all-linear"));
      its_.rename("modules_to_save", "lora_modules_to_save");
      its_.refuse({"lora_dtype", "lora_bias", "init_weights", "target_regex", "target_parameters"},
                  "this form of LoRA is");
    }
  }

  void read_attention_and_quantization() {
    if (const std::optional<TomlKey> kernel = its_.take("attn_impl")) {
      const std::string name = Rewritten::word(kernel);
      set_attention(its_, *kernel, name == "flash_attn" || name == "flash_attention_2" ? "flash_attention_2" : name);
    }
    if (const std::optional<TomlKey> bits = its_.take("quant_bits"); bits && Rewritten::word(bits) != "0") {
      const std::string method = Rewritten::word(its_.take("quant_method")), many = Rewritten::word(bits);
      if ((!method.empty() && method != "bnb") || (many != "4" && many != "8"))
        its_.fail(*bits, not_modelled(fmt::format("{}: is not modelled", its_.written(*bits))),
                  "bnb of 4 and 8 bits is");
      its_.set(many == "4" ? "load_in_4bit" : "load_in_8bit", true, bits->place);
      if (many == "4") its_.usual("bnb_4bit_use_double_quant", true);
      draft_.set("quantization.prepare", std::string("none"));
    }
  }

  void read_rows() {
    for (const std::string_view name : {"packing", "padding_free"})
      if (const std::optional<TomlKey> key = its_.take(name); key && Rewritten::word(key) == "true") pack(its_, *key);
    if (const std::optional<TomlKey> key = its_.take("sequence_parallel_size")) part_rows(its_, *key, draft_);
    // swift/arguments/tuner_args.py: towers and what follows them are frozen unless told.
    draft_.trains_tower = its_.off("freeze_vit");
    if (draft_.learns_from != LearnsFrom::Rows)
      its_.no_matter(
          {"loss_type", "beta", "rpo_alpha", "rlhf_type", "ref_model", "ref_adapters", "center_rewards_coefficient"},
          "of how answers are judged");
    its_.refuse({"use_galore", "lisa_activated_layers", "optimizer", "loss_type", "freeze_parameters",
                 "freeze_parameters_ratio", "trainable_parameters", "tuner_backend", "zero_hpz_partition_size",
                 "deepspeed_autotp_size", "resize_vocab", "new_special_tokens", "device_map", "use_logits_to_keep"},
                "it is");
  }

  // swift/config: files that are shipped.
  void read_preset() {
    if (const TomlKey* const preset = its_.find("deepspeed")) {
      const std::string name = Rewritten::word(*preset);
      const auto zero = [&](std::string_view more) {
        const std::string text = fmt::format(
            R"({{"bf16": {{"enabled": "auto"}}, "fp16": {{"enabled": "auto"}}, "gradient_clipping": "auto",)"
            R"( "zero_optimization": {{"overlap_comm": false, "contiguous_gradients": true, {}}}}})",
            more);
        its_.set("deepspeed", parse_json_table(text, draft_.file, Automatic::Kept), preset->place);
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
  }

  // swift/arguments/sft_args.py: it evaluates as often as it saves, where there are rows to.
  void read_evaluation() {
    const std::optional<TomlKey> ratio = its_.take("split_dataset_ratio");
    const std::string part = ratio ? Rewritten::word(ratio) : "0";
    if ((part != "0" && part != "0.0") || its_.find("val_dataset") != nullptr ||
        its_.find("cached_val_dataset") != nullptr)
      its_.usual("eval_strategy", std::string("steps"));
  }

  Rewritten its_;
  Draft& draft_;
  bool pre_training_;
};

}  // namespace

std::vector<TomlKey> swift_tuning_arguments(std::vector<TomlKey> given, bool pre_training, Draft& draft) {
  return Swift(std::move(given), pre_training, draft).arguments();
}

}  // namespace tidemark::scenarios
