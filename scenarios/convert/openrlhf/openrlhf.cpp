#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/json_table.hpp"
#include "scenarios/formats/suggestion.hpp"

// OpenRLHF's openrlhf/cli/train_sft.py (its newest has names by sections, "--ds.zero_stage"; before, "--zero_stage"):
// transformers' models under DeepSpeed, with a configuration that openrlhf/utils/deepspeed/deepspeed_utils.py makes.

namespace tidemark::scenarios {
namespace {

struct Sections {
  std::string_view name, ours;
};
// The names that are read, by section or without one.
constexpr auto of_sections =
    std::to_array<Sections>({{"model.model_name_or_path", "pretrain"},
                             {"train.micro_batch_size", "micro_train_batch_size"},
                             {"train.batch_size", "train_batch_size"},
                             {"data.max_len", "max_len"},
                             {"ds.lora.rank", "lora_rank"},
                             {"ds.lora.alpha", "lora_alpha"},
                             {"ds.lora.dropout", "lora_dropout"},
                             {"ds.lora.target_modules", "target_modules"},
                             {"ds.tensor_parallel_size", "ds_tensor_parallel_size"},
                             {"model.gradient_checkpointing_enable", "gradient_checkpointing"},
                             {"model.gradient_checkpointing_reentrant", "gradient_checkpointing_use_reentrant"},
                             {"model.aux_loss_coef", "aux_loss_coef"},
                             {"adam.weight_decay", "l2"},
                             {"eval.dataset", "eval_dataset"}});
constexpr auto rlhf_sections = std::to_array<std::string_view>(
    {"ckpt.", "logger.", "eval.", "train.", "ds.", "data.", "model.", "adam.", "muon."});
constexpr auto rlhf_aside = std::to_array<std::string_view>({"output_dir",
                                                             "save_path",
                                                             "save_steps",
                                                             "save_hf",
                                                             "save_hf_ckpt",
                                                             "disable_ds",
                                                             "disable_ds_ckpt",
                                                             "logging_steps",
                                                             "eval_steps",
                                                             "steps",
                                                             "path",
                                                             "ckpt_path",
                                                             "max_num",
                                                             "max_ckpt_num",
                                                             "max_mem",
                                                             "max_ckpt_mem",
                                                             "load_enable",
                                                             "load_checkpoint",
                                                             "use_universal_ckpt",
                                                             "use_ds_universal_ckpt",
                                                             "seed",
                                                             "local_rank",
                                                             "disable_fast_tokenizer",
                                                             "dataloader_num_workers",
                                                             "max_epochs",
                                                             "pretrain_mode_enable",
                                                             "pretrain_mode",
                                                             "lr",
                                                             "learning_rate",
                                                             "betas",
                                                             "adam_betas",
                                                             "eps",
                                                             "momentum",
                                                             "lr_scheduler",
                                                             "lr_warmup_ratio",
                                                             "min_lr_ratio",
                                                             "dataset",
                                                             "dataset_probs",
                                                             "dataset_split",
                                                             "split",
                                                             "eval_split",
                                                             "train_split",
                                                             "max_samples",
                                                             "multiturn",
                                                             "input_key",
                                                             "output_key",
                                                             "input_template",
                                                             "apply_chat_template",
                                                             "tokenizer_chat_template",
                                                             "key",
                                                             "org",
                                                             "group",
                                                             "project",
                                                             "run_name",
                                                             "use_wandb",
                                                             "wandb_org",
                                                             "wandb_group",
                                                             "wandb_project",
                                                             "wandb_run_name",
                                                             "use_tensorboard",
                                                             "tensorboard_dir",
                                                             "use_ms",
                                                             "eval_dataset",
                                                             "ring_attn_head_stride",
                                                             "ring_head_stride"});

TomlKey without_section(TomlKey key) {
  std::string& name = key.name;
  for (char& c : name)
    if (c == '-') c = '_';
  for (const auto& [theirs, ours] : of_sections)
    if (name == theirs) {
      name = ours;
      return key;
    }
  for (const std::string_view section : rlhf_sections)
    if (name.starts_with(section)) name.erase(0, section.size());
  if (name.starts_with("wandb.")) name.erase(0, std::string_view("wandb.").size());
  return key;
}

class OpenRlhf {
 public:
  OpenRlhf(std::vector<TomlKey> flags, Draft& draft) : given_(std::move(flags), "--", draft), draft_(draft) {}

  std::vector<TomlKey> arguments() {
    refuse_meshes();
    read_model();
    read_adapter();
    read_engine();
    if (draft_.learns_from != LearnsFrom::Rows)
      given_.no_matter(
          std::to_array<std::string_view>({"beta", "ipo", "ipo_enable", "label_smoothing", "nll_loss_coef",
                                           "chosen_key", "rejected_key", "prompt_key", "ref_pretrain", "ref_offload",
                                           "ref.offload", "ref.model_name_or_path", "compute_fp32_loss", "margin_loss",
                                           "loss", "loss_type", "value_head_prefix"}),
          "of how answers are judged");
    given_.no_matter(rlhf_aside, "of data, checkpoints and logs");
    given_.refuse_the_rest("is no argument of OpenRLHF's that is known here");
    draft_.set("runtime.switches.use_cache", false);  // models/actor.py
    draft_.remark_bounded("OpenRLHF",
                          "the figures are of transformers' own loss; OpenRLHF's log-probabilities are of logits in "
                          "fp32, which it holds until the next micro-batch",
                          "openrlhf", given_.place("pretrain"));
    return std::move(made_);
  }

 private:
  void make(std::string_view name, Content content, std::string_view of) {
    made_.push_back(given_.made(name, std::move(content), of));
  }

  void refuse_meshes() {
    for (const std::string_view key : {"ring_attn_size", "ds_tensor_parallel_size", "zpg"})
      if (given_.integer(key).value_or(1) != 1)
        given_.tell(RemarkKind::NotExpressed, key, not_modelled("is not modelled: OpenRLHF under ZeRO alone is"));
    for (const std::string_view key : {"deepcompile", "full_determinism_enable", "full_determinism"})
      given_.refuse(key, "it is", {"false"});
    if (given_.text("optim").value_or("adam") != "adam")
      given_.tell(RemarkKind::NotExpressed, "optim", not_modelled("DeepSpeed's Muon is not modelled"));
    if (given_.number("aux_loss_coef").value_or(0) > 0)
      given_.tell(RemarkKind::NotJudged, "aux_loss_coef", "the loss of routers is not modelled here");
  }

  void read_model() {
    if (const auto name = given_.text("pretrain")) make("model_name_or_path", *name, "pretrain");
    make("max_length", given_.integer("max_len").value_or(2048), "max_len");
    const std::string attention = given_.text("attn_implementation").value_or("flash_attention_2");
    const bool older = given_.flag("flash_attn").value_or(false);
    make("attn_implementation", older ? std::string("flash_attention_2") : attention, "attn_implementation");
    half_ = given_.half_type("param_dtype", "bf16");
    (void)given_.flag("bf16");
    make("torch_dtype", half_, "param_dtype");
    make(half_, true, "param_dtype");
    if (given_.flag("gradient_checkpointing").value_or(false)) {
      make("gradient_checkpointing", true, "gradient_checkpointing");
      make("use_reentrant", given_.flag("gradient_checkpointing_use_reentrant").value_or(false),
           "gradient_checkpointing");
    }
    if (given_.flag("use_liger_kernel").value_or(false)) make("use_liger_kernel", true, "use_liger_kernel");
    if (given_.flag("packing_samples").value_or(false))
      given_.tell_bounded("packing_samples",
                          "the figures are of whole sequences of that length, which packed ones fill", "packed-rows");
  }

  void read_adapter() {
    const std::int64_t rank = given_.integer("lora_rank").value_or(0);
    if (rank > 0) {
      make("use_peft", true, "lora_rank");
      make("lora_r", rank, "lora_rank");
      make("lora_alpha", given_.integer("lora_alpha").value_or(16), "lora_alpha");
      make("lora_dropout", given_.number("lora_dropout").value_or(0.0), "lora_dropout");
      const TomlValue* const targets = given_.take("target_modules");
      make("lora_target_modules", targets == nullptr ? Content(std::string("all-linear")) : targets->value,
           "target_modules");
    }
    given_.no_matter(std::array<std::string_view, 3>{"lora_alpha", "lora_dropout", "target_modules"},
                     "there is no adapter");
    if (given_.flag("load_in_4bit").value_or(false)) {
      make("load_in_4bit", true, "load_in_4bit");
      make("bnb_4bit_use_double_quant", true, "load_in_4bit");
      draft_.set("quantization.prepare", std::string("norms"));
    }
  }

  // get_train_ds_config: what is "auto" there is DeepSpeed's own default, as nobody fills it in.
  void read_engine() {
    const std::int64_t stage = given_.integer("zero_stage").value_or(2);
    const bool offloads = given_.flag("adam_offload").value_or(false);
    const bool overlaps = given_.flag("overlap_comm").value_or(false);
    const std::string text = fmt::format(
        R"({{"{}": {{"enabled": true}}, "gradient_clipping": {}, "train_batch_size": {},)"
        R"( "train_micro_batch_size_per_gpu": {}, "optimizer": {{"type": "AdamW", "params": {{"weight_decay": {}}}}},)"
        R"( "zero_optimization": {{"stage": {}, "offload_optimizer": {{"device": "{}", "pin_memory": true}}{}{}}}}})",
        half_, given_.number("max_norm").value_or(1.0), given_.integer("train_batch_size").value_or(128),
        given_.integer("micro_train_batch_size").value_or(8), given_.number("l2").value_or(0.0), stage,
        offloads ? "cpu" : "none", overlaps ? R"(, "overlap_comm": true, "contiguous_gradients": true)" : "",
        stage == 3 ? R"(, "reduce_scatter": true)" : "");
    TomlTable engine = parse_json_table(text, draft_.file, Automatic::Kept);
    if (const auto type = given_.text("grad_accum_dtype"); type && *type != "None")
      given_.tell(RemarkKind::NotJudged, "grad_accum_dtype", "another type of summed gradients is not read here");
    make("deepspeed", std::move(engine), "zero_stage");
  }

  Given given_;
  Draft& draft_;
  std::string half_ = "bf16";
  std::vector<TomlKey> made_;
};

}  // namespace

std::vector<TomlKey> openrlhf_arguments(std::vector<TomlKey> flags, Draft& draft) {
  for (TomlKey& flag : flags) flag = without_section(std::move(flag));
  draft.own_defaults = draft.judges_whole = true;
  return OpenRlhf(std::move(flags), draft).arguments();
}

}  // namespace tidemark::scenarios
