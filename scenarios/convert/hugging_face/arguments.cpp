#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/hugging_face/names.hpp"
#include "scenarios/convert/hugging_face/parts.hpp"
#include "scenarios/formats/json_table.hpp"
#include "scenarios/formats/suggestion.hpp"

// transformers 5.23 TrainingArguments, TRL's SFTConfig and ModelConfig as far as scripts share them, accelerate 1.15's
// launch configuration, DeepSpeed 0.19.

namespace tidemark::scenarios {

using namespace hugging_face;

namespace {

void read_batch(Given& given) {
  Draft& draft = given.draft();
  const auto counted = [&](std::string_view name) {
    const auto number = given.integer(name);
    if (number && *number < 1) given.tell(RemarkKind::NotExpressed, name, "takes a number from 1 up");
    return number;
  };
  for (const std::string_view name : {"per_device_train_batch_size", "per_gpu_train_batch_size", "micro_batch_size"})
    if (const auto batch = counted(name)) draft.set("train.micro_batch", *batch, given.place(name));
  if (const auto steps = counted("gradient_accumulation_steps")) {
    if (draft.text("runtime.name") == "deepspeed" && draft.accumulation && *draft.accumulation != *steps)
      draft.remark(
          RemarkKind::Assumed, fmt::format("gradient_accumulation_steps = {}", *steps),
          fmt::format("as the arguments say; DeepSpeed's configuration says {}, and transformers does not start "
                      "while they differ",
                      *draft.accumulation),
          given.place("gradient_accumulation_steps"));
    draft.accumulation = *steps;
  }
  for (const std::string_view name : length_names)
    if (const auto length = counted(name)) draft.set("train.sequence_length", *length, given.place(name));
}

void read_precision(Given& given) {
  Draft& draft = given.draft();
  const bool fp16 = given.flag("fp16").value_or(false), left_open = given.left_to_others("bf16");
  const bool bf16 = left_open ? !fp16 : given.flag("bf16").value_or(false);
  if (left_open && bf16) given.tell(RemarkKind::Assumed, "bf16", "true, as on devices of Ampere and later");
  if (given.left_to_others("fp16") && !bf16)
    given.tell(RemarkKind::NotExpressed, "fp16", "\"auto\" does not say whether: true or false would");
  if (bf16 && fp16) {  // TrainingArguments.__post_init__
    const Place place = given.place("fp16");
    throw InputError({Problem{.file = draft.file,
                              .line = place.line,
                              .column = place.column,
                              .message = "fp16 and bf16 are asked for both, at which transformers stops",
                              .hint = "leave one of them out"}});
  }
  draft.mixed_precision |= bf16 || fp16;
  std::optional<std::string> held;
  for (const std::string_view name : {"torch_dtype", "dtype", "model_dtype"})
    if (const auto type = given.text(name)) {
      if (is_type(*type))
        held = *type;
      else
        given.tell(RemarkKind::NotExpressed, name,
                   "is no type that a model is loaded in here: bfloat16, float16, float32");
    } else if (given.left_to_others(name))
      draft.automatic.emplace("torch_dtype");
  if (bf16 || fp16)
    draft.set("train.precision", std::string(bf16 ? "bf16" : "fp16"), given.place(bf16 ? "bf16" : "fp16"));
  else if (!draft.mixed_precision && (given.has("bf16") || given.has("fp16") || held))
    draft.set("train.precision", std::string("fp32"));
  // PEFT's examples/sft/utils.py: of a base in 4 bits.
  if (const auto storage = given.text("bnb_4bit_quant_storage_dtype");
      storage && !held && is_type(*storage) && given.flag("use_4bit_quantization").value_or(false))
    held = *storage;
  draft.type_said |= held.has_value();
  if (held) set_held_type(draft, *held);
}

void read_recomputation(Given& given) {
  Draft& draft = given.draft();
  for (const std::string_view name : {"gradient_checkpointing", "activation_checkpointing"})
    if (given.flag(name).value_or(false)) draft.set("train.recompute", std::string("full"), given.place(name));
  if (given.flag("gradient_checkpointing").value_or(false))
    draft.trainer_checkpoints = given.place("gradient_checkpointing");
  if (const auto reentrant = given.flag("use_reentrant"); reentrant && draft.find("train.recompute") != nullptr)
    draft.set("runtime.switches.use_reentrant", *reentrant, given.place("use_reentrant"));
  for (const std::string_view name : {"gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"}) {
    Given options(table_or_text(given, name).keys, fmt::format("{}.", name), draft);
    if (const auto reentrant = options.flag("use_reentrant"); reentrant && draft.find("train.recompute") != nullptr)
      draft.set("runtime.switches.use_reentrant", *reentrant, options.place("use_reentrant"));
    options.no_matter(std::array<std::string_view, 3>{"preserve_rng_state", "determinism_check", "early_stop"});
    options.refuse_the_rest("is no option of torch.utils.checkpoint's that is known here");
  }
}

void read_optimizer(Given& given) {
  Draft& draft = given.draft();
  const std::string name = given.text("optim").value_or("adamw_torch_fused");
  const auto its = std::ranges::find(optimizers, name, &OptimizerName::hugging);
  if (its == optimizers.end())
    given.tell(RemarkKind::NotExpressed, "optim", not_modelled("an optimizer that is not modelled yet"));
  else if (!its->ours.empty())
    draft.set("train.optimizer", std::string(its->ours), given.place("optim"));
  // transformers/trainer.py get_optimizer_cls_and_kwargs.
  if (name.starts_with("galore_") && !given.has("optim_target_modules"))
    given.tell(RemarkKind::NotExpressed, "optim", "is refused by transformers without optim_target_modules");
  if (name == "adamw_torch_fused") draft.set("runtime.switches.fused", true, given.place("optim"));
  copy(given, "weight_decay", "runtime.switches.weight_decay");
  copy(given, "max_grad_norm", "runtime.switches.max_grad_norm");
}

// Rows of several sequences. What a row of them takes beside whole sequences is bounded.
void read_packing(Given& given) {
  for (const char* name : {"packing", "padding_free"})
    if (given.flag(name).value_or(false))
      given.tell_bounded(name,
                         "the figures are of whole sequences of that length, which packed ones of 128 tokens and more "
                         "on average fill at most",
                         "packed-rows");
}

// Evaluation is not simulated. Its logits are those of a batch of its own.
void read_evaluation(Given& given) {
  Draft& draft = given.draft();
  const auto says = [&](std::string_view name) {
    const std::optional<std::string> when = given.text(name);
    return when && *when != "no" && *when != "false";
  };
  constexpr std::string_view key = "per_device_eval_batch_size";
  constexpr std::int64_t usual = 8;  // TrainingArguments
  const bool evaluates = says("eval_strategy") || says("evaluation_strategy") ||
                         given.flag("eval_on_start").value_or(false) || given.flag("do_eval").value_or(false);
  const bool pairs = draft.learns_from == LearnsFrom::Pairs || draft.learns_from == LearnsFrom::RankedPairs;
  const std::int64_t answers = pairs ? 2 : 1, batch = product({answers, given.integer(key).value_or(usual)}),
                     trained = product({answers, draft.integer("train.micro_batch").value_or(usual)});
  if (!evaluates) {
    if (given.has(key)) given.tell(RemarkKind::NoMatter, key, "nothing is evaluated");
    return;
  }
  const std::string what = given.has(key) ? fmt::format("{} = {}", key, batch / answers) : std::string(key);
  const Place place = given.place(given.has(key) ? key : says("eval_strategy") ? "eval_strategy" : "do_eval");
  const bool liger = draft.find("runtime.switches.use_liger_kernel") != nullptr;
  if (batch > trained || liger)
    draft.remark_bounded(
        what,
        liger ? "evaluation is not simulated, and makes the logits that Liger's loss spares"
              : fmt::format("evaluation is not simulated, and has {} sequences at once where {} are "
                            "trained",
                            batch, trained),
        fmt::format("{}:{}", liger ? "evaluation-beside-liger" : "evaluation", std::max<std::int64_t>(batch, 1)),
        place);
  else
    draft.remark(RemarkKind::Assumed, what,
                 "evaluation is not modelled: no more sequences at once than are trained, and no gradients", place);
}

// Arguments that scripts add for their data: "train_file_path", "image_folder".
std::vector<std::string_view> names_of_files(const Given& given) {
  constexpr auto of_what = std::to_array<std::string_view>(
      {"train", "eval", "valid", "test", "data", "image", "video", "corpus", "cache", "log", "tokenizer", "prompt"});
  constexpr auto files =
      std::to_array<std::string_view>({"_file", "_files", "_path", "_paths", "_dir", "_folder", "_root"});
  std::vector<std::string_view> names;
  for (const TomlKey& key : given.keys()) {
    const std::string_view name = key.name;
    const bool whats = std::ranges::any_of(of_what, [&](std::string_view part) { return name.starts_with(part); });
    const bool named = std::ranges::any_of(files, [&](std::string_view part) { return name.ends_with(part); });
    if (whats && named && std::holds_alternative<std::string>(key.value.value)) names.push_back(name);
  }
  return names;
}

void read_kernels(Given& given) {
  Draft& draft = given.draft();
  if (const auto attention = given.text("attn_implementation")) {
    if (*attention == "flash_attention_2" || *attention == "flash_attention_3" ||
        attention->starts_with("kernels-community/")) {
      draft.set("train.attention", std::string("flash"), given.place("attn_implementation"));
      if (*attention != "flash_attention_2")
        given.tell(RemarkKind::Assumed, "attn_implementation", "saves what FlashAttention-2 does");
    } else if (*attention == "eager")
      draft.set("train.attention", std::string("unfused"), given.place("attn_implementation"));
    else if (*attention != "sdpa")
      given.tell(RemarkKind::NotExpressed, "attn_implementation",
                 not_modelled("an attention that is not modelled yet"));
  }
  if (given.flag("use_flash_attn").value_or(false))
    draft.set("train.attention", std::string("flash"), given.place("use_flash_attn"));
  if (given.has("chat_template_format") && given.text("chat_template_format") != "none")
    given.tell(RemarkKind::Assumed, "chat_template_format",
               "adds some tokens to the vocabulary, whose rows of the embedding and the head are not counted");
  if (given.flag("torch_compile").value_or(false))
    draft.set("runtime.switches.torch_compile", true, given.place("torch_compile"));
  for (const char* name : {"use_liger_kernel", "use_liger"})
    if (given.flag(name).value_or(false)) draft.set("runtime.switches.use_liger_kernel", true, given.place(name));
  if (const TomlTable config = table_or_text(given, "liger_kernel_config"); !config.keys.empty())
    draft.set("runtime.switches.liger_kernel_config", config, given.place("liger_kernel_config"));
  if (given.number("neftune_noise_alpha").value_or(0) > 0)
    copy(given, "neftune_noise_alpha", "runtime.switches.neftune_noise_alpha");
  if (const auto cache = given.flag("use_cache"))
    draft.set("runtime.switches.use_cache", *cache, given.place("use_cache"));
  copy(given, "ddp_bucket_cap_mb", "runtime.switches.bucket_cap_mb");
  // trainer.py _inner_training_loop, by default: the host looks at each loss.
  if (given.flag("logging_nan_inf_filter").value_or(true))
    draft.set("runtime.switches.logging_nan_inf_filter", true, given.place("logging_nan_inf_filter"));
}

}  // namespace

void read_training_arguments(Given& given, const ShippedModels& models, Draft& draft) {
  draft.trainer = true;
  if (std::ranges::none_of(length_names, [&](std::string_view name) { return given.has(name); }))
    draft.rows_of_data = "max_length";
  for (const char* name : {"model_name_or_path", "model_id", "base_model", "model_name"})
    if (const auto checkpoint = given.text(name); checkpoint && draft.find("model") == nullptr) {
      const std::optional<ShippedModel> shipped = shipped_model(models, *checkpoint);
      if (shipped)
        draft.set("model", shipped->file, given.place(name));
      else
        given.tell(RemarkKind::NotExpressed, name, why_not_shipped(models, *checkpoint));
    }
  read_batch(given);
  read_precision(given);
  read_recomputation(given);
  read_optimizer(given);
  read_adapter(given);
  read_kernels(given);
  read_fsdp(given);
  read_deepspeed_argument(given);
  read_preferences(given);
  read_trl(given);
  read_packing(given);
  read_evaluation(given);
  for (const auto& [name, what, neutral] : refused_arguments)
    given.refuse(name, what, {std::string(neutral), "false", "0"});
  given.no_matter(plain_arguments);
  given.no_matter(names_of_files(given), "names files of data, as it is called");
  given.refuse_the_rest("is none of TrainingArguments that are known here");
}

}  // namespace tidemark::scenarios
