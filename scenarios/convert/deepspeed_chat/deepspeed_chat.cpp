#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/formats/json_table.hpp"

// DeepSpeedExamples, applications/DeepSpeed-Chat: training/step1_supervised_finetuning/main.py, whose configuration
// dschat/utils/ds_utils.py get_train_ds_config makes.

namespace tidemark::scenarios {
namespace {

const TomlKey* chat_flag(const std::vector<TomlKey>& flags, std::string_view name) {
  const auto found = std::ranges::find(flags, name, &TomlKey::name);
  return found == flags.end() ? nullptr : &*found;
}

constexpr auto chat_aside = std::to_array<std::string_view>(
    {"data_path", "data_split", "sft_only_data_path", "data_output_path", "num_warmup_steps", "local_rank",
     "enable_tensorboard", "tensorboard_path", "add_eot_token", "eot_token", "print_loss", "lora_learning_rate",
     "training_debug_steps"});

}  // namespace

bool is_deepspeed_chat(const std::vector<TomlKey>& flags) {
  const TomlKey* const flag = chat_flag(flags, "deepspeed");
  return flag != nullptr && std::holds_alternative<bool>(flag->value.value) &&
         chat_flag(flags, "model_name_or_path") != nullptr && chat_flag(flags, "max_seq_len") != nullptr &&
         (chat_flag(flags, "data_split") != nullptr || chat_flag(flags, "zero_stage") != nullptr);
}

std::vector<TomlKey> deepspeed_chat_arguments(std::vector<TomlKey> flags, Draft& draft) {
  Given given(std::move(flags), "--", draft);
  draft.own_defaults = true;
  std::vector<TomlKey> made;
  const auto make = [&](std::string_view name, Content content, std::string_view of) {
    const Place its = given.place(of);
    made.push_back({std::string(name), its, {std::move(content), its}});
  };
  if (given.has("num_padding_at_beginning"))
    given.tell(RemarkKind::NotExpressed, "num_padding_at_beginning",
               not_modelled("trains a reward model, which is not modelled"));
  const std::int64_t micro = given.integer("per_device_train_batch_size").value_or(16);
  const std::int64_t evaluated = given.integer("per_device_eval_batch_size").value_or(16);
  const std::string half = given.half_type("dtype", "fp16");
  make("model_name_or_path", given.text("model_name_or_path").value_or(""), "model_name_or_path");
  make("per_device_train_batch_size", micro, "per_device_train_batch_size");
  make("per_device_eval_batch_size", evaluated, "per_device_eval_batch_size");
  make("eval_strategy", std::string("epoch"), "per_device_eval_batch_size");
  make("gradient_accumulation_steps", given.integer("gradient_accumulation_steps").value_or(1),
       "gradient_accumulation_steps");
  make("max_length", given.integer("max_seq_len").value_or(512), "max_seq_len");
  make(half, true, "dtype");
  if (given.flag("gradient_checkpointing").value_or(false))
    make("gradient_checkpointing", true, "gradient_checkpointing");
  const bool offloads = given.flag("offload").value_or(false);
  const std::string device = offloads ? "cpu" : "none";
  const std::string text = fmt::format(
      R"({{"{0}": {{"enabled": true}}, "gradient_clipping": 1.0, "train_micro_batch_size_per_gpu": {1},)"
      R"( "optimizer": {{"type": "Adam", "params": {{"weight_decay": {2}}}}},)"
      R"( "zero_optimization": {{"stage": {3}, "overlap_comm": true, "offload_param": {{"device": "{4}"}},)"
      R"( "offload_optimizer": {{"device": "{4}"}}, "stage3_param_persistence_threshold": 10000,)"
      R"( "stage3_max_live_parameters": 30000000, "stage3_prefetch_bucket_size": 30000000}}}})",
      half, micro, given.number("weight_decay").value_or(0.0), given.integer("zero_stage").value_or(0), device);
  make("deepspeed", parse_json_table(text, draft.file, Automatic::Kept), "deepspeed");
  (void)given.flag("deepspeed");
  if (given.integer("lora_dim").value_or(0) > 0)
    given.tell(RemarkKind::NotExpressed, "lora_dim", not_modelled("DeepSpeed-Chat's own LoRA is not modelled"));
  given.no_matter(std::array<std::string_view, 2>{"lora_module_name", "only_optimize_lora"}, "there is no LoRA");
  if (given.number("dropout").value_or(0) > 0)
    given.tell(RemarkKind::NotJudged, "dropout", "dropout of one's own choosing is not modelled here");
  if (given.flag("compute_fp32_loss").value_or(false))
    given.tell_bounded("compute_fp32_loss", "the figures are of transformers' own loss", "copied-logits");
  draft.set("runtime.switches.use_cache", false);
  draft.remark(RemarkKind::Assumed, "vocabulary",
               "DeepSpeed-Chat makes the embedding's rows the next multiple of 8, which is not counted");
  given.no_matter(chat_aside, "of data, checkpoints and logs");
  for (const TomlKey& key : given.keys())
    if (!given.is_taken(key.name)) made.push_back(key);
  return made;
}

}  // namespace tidemark::scenarios
