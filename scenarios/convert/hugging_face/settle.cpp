#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/hugging_face/parts.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {

using namespace hugging_face;

namespace {

// modeling_utils.py _get_dtype: "auto" is what the checkpoint's config.json says. Without a Trainer beside it a
// ds_config.json that leaves its precision open is taken as bf16.
void settle_automatic_types(Draft& draft, const std::string& checkpoint_type) {
  if (draft.automatic.contains("torch_dtype") && draft.find("train.master_dtype") == nullptr) {
    const std::string type = checkpoint_type.empty() ? "bfloat16" : checkpoint_type;
    set_held_type(draft, type);
    draft.remark(RemarkKind::Assumed, "torch_dtype",
                 checkpoint_type.empty() ? "\"auto\" is the checkpoint's, which its config.json does not say: bfloat16"
                                         : fmt::format("\"auto\" is the checkpoint's: {}", type));
  }
  for (const char* type : {"bf16", "fp16"})
    if (draft.automatic.contains(type) && !draft.trainer && draft.find("train.precision") == nullptr) {
      draft.set("train.precision", std::string(type));
      draft.remark(RemarkKind::Assumed, fmt::format("{}.enabled", type),
                   fmt::format("\"auto\" is what the Trainer's arguments say, which are not given: {}", type));
    }
}

// integrations/deepspeed.py trainer_config_finalize, accelerator.py _prepare_deepspeed: "auto" follows the model's
// width, and the Trainer's own arguments.
void settle_automatic(Draft& draft, std::int64_t hidden) {
  constexpr double prefetched = 0.9;
  constexpr std::int64_t kept = 10;
  const auto set = [&](const char* key, std::int64_t value) {
    if (hidden > 0 && draft.automatic.contains(key)) draft.set(fmt::format("runtime.switches.{}", key), value);
  };
  set("reduce_bucket_size", hidden * hidden);
  set("stage3_prefetch_bucket_size", static_cast<std::int64_t>(prefetched * static_cast<double>(hidden * hidden)));
  set("stage3_param_persistence_threshold", kept * hidden);
  if (draft.automatic.contains("gradient_clipping") && draft.trainer &&
      draft.find("runtime.switches.max_grad_norm") == nullptr)
    draft.set("runtime.switches.gradient_clipping", 1.0);  // TrainingArguments' max_grad_norm
}

// What is trained is fp32, whatever a checkpoint was loaded in: DeepSpeed's optimizers have copies of their own, and
// accelerate makes shards wide where it mixes precisions (utils/fsdp_utils.py fsdp2_prepare_model; accelerator.py
// prepare_model, of what is trained).
void settle_held_type(Draft& draft, const std::string& runtime) {
  if (draft.find("train.master_dtype") == nullptr) return;
  const bool whole = runtime == "fsdp2" || (runtime == "fsdp" && draft.find("adapter.method") == nullptr);
  const bool upcasts =
      whole && draft.mixed_precision && !draft.shards_as_loaded && draft.find("quantization.format") == nullptr;
  if (runtime != "deepspeed" && !upcasts) {
    // accelerator.py autocast: whatever type the model is held in.
    if (runtime == "pytorch" && draft.mixed_precision) draft.set("runtime.switches.autocast", true);
    // Without a MixedPrecisionPolicy gradients are reduced as they are.
    if (runtime == "fsdp2" && !draft.mixed_precision && draft.find("runtime.switches.reduce_dtype") == nullptr)
      draft.set("runtime.switches.reduce_dtype", *draft.text("train.master_dtype"));
    return;
  }
  draft.erase("train.master_dtype");
  draft.remark(RemarkKind::Assumed, "torch_dtype",
               runtime == "deepspeed" ? "what DeepSpeed's optimizers update is fp32 whatever it was loaded in"
                                      : "shards are fp32 where precisions are mixed: accelerate makes them so");
}

// Under FSDP a base of 4 bits is loaded on the host, and TRL prepares nothing of it; adapters get its type, by
// autocast_adapter_dtype = false or cast later (trl/trainer/sft_trainer.py is_sharded_qlora, _is_quantized_model).
void settle_sharded_base(Draft& draft, const std::string& runtime) {
  const TomlValue* const stored = draft.find("quantization.storage_dtype");
  if ((runtime != "fsdp" && runtime != "fsdp2") || stored == nullptr || draft.find("quantization.prepare") != nullptr)
    return;
  draft.set("quantization.prepare", std::string("none"), stored->place);
  if (draft.find("adapter.method") != nullptr && draft.find("adapter.dtype") == nullptr)
    draft.set("adapter.dtype", *draft.text("quantization.storage_dtype"), stored->place);
  draft.remark(RemarkKind::Assumed, "bnb_4bit_quant_storage",
               "loaded on the host under FSDP: TRL leaves norms as they are, and adapters have that type",
               stored->place);
}

// TRL's trainers before 0.26 called prepare_model_for_kbit_training. Since then they leave a quantized base as it is
// loaded and cast what is trained to bf16 (trl/trainer/sft_trainer.py); those of trl/experimental still call it.
void settle_trl_base(Draft& draft, const std::string& runtime) {
  const TomlValue* const format = draft.find("quantization.format");
  const bool experimental =
      draft.lesson.what.find("orpo") != std::string::npos || draft.lesson.what.find("cpo") != std::string::npos;
  if (!draft.trl || experimental || format == nullptr || draft.find("quantization.prepare") != nullptr) return;
  draft.set("quantization.prepare", std::string("none"), format->place);
  if (runtime != "deepspeed" && draft.find("adapter.method") != nullptr && draft.find("adapter.dtype") == nullptr)
    draft.set("adapter.dtype", std::string("bf16"), format->place);
  draft.remark(RemarkKind::Assumed, "TRL",
               "0.26 or later, which leaves a quantized base as it is loaded and has adapters in bf16; before, norms, "
               "embeddings and head were made fp32: quantization.prepare=all adapter.dtype=fp32",
               format->place);
}

// deepspeed/runtime/config.py _batch_assertion.
void check_batch(Draft& draft, std::int64_t micro) {
  const TomlValue* const all = draft.find("train.global_batch");
  if (all == nullptr || !draft.accumulation || draft.find("gpus") == nullptr) return;
  const std::int64_t gpus = draft.integer("gpus").value_or(1), made = product({micro, *draft.accumulation, gpus}),
                     given = draft.integer("train.global_batch").value_or(made);
  if (given == made) return;
  draft.remark(RemarkKind::NotExpressed, fmt::format("train_batch_size = {}", given),
               fmt::format("DeepSpeed stops: {} samples x {} micro-batches x {} GPUs are {}", micro,
                           *draft.accumulation, gpus, made),
               all->place);
}

// litgpt/args.py TrainArgs.gradient_accumulation_iters.
void share_sequences(Draft& draft, std::int64_t micro) {
  const std::int64_t gpus = std::max<std::int64_t>(draft.integer("gpus").value_or(1), 1);
  draft.accumulation = draft.sequences_shared / gpus / micro;
  if (*draft.accumulation < 1)
    throw InputError(Problem{
        .file = draft.file,
        .line = draft.shares_sequences.line,
        .column = draft.shares_sequences.column,
        .message = fmt::format("global_batch_size = {}: LitGPT does not start with less than a micro-batch of {} "
                               "for each of {} devices",
                               draft.sequences_shared, micro, gpus),
        .hint = fmt::format("{} or more", product({micro, gpus}))});
}

// What is not said, as each tool takes it: how long rows are, and how many are in a micro-batch.
void settle_lengths(Draft& draft) {
  if (draft.find("train.sequence_length") == nullptr && draft.trl) {
    draft.set("train.sequence_length", std::int64_t{1024});  // trl/trainer/sft_config.py
    draft.remark(RemarkKind::Assumed, "max_length", "1024, which is TRL's default; --sequence says another");
  }
  if (draft.find("train.sequence_length") == nullptr && !draft.rows_of_data.empty()) {
    constexpr std::int64_t shown = 2048;
    draft.set("train.sequence_length", shown);
    draft.remark(RemarkKind::NotJudged, draft.rows_of_data,
                 fmt::format("is not said, so that rows are as long as the data's: the figures are of {} tokens; "
                             "--sequence says how many there are at most",
                             shown));
    draft.remarks.back().is_length = true;
  }
  if (draft.find("train.micro_batch") == nullptr) {
    draft.set("train.micro_batch", std::int64_t{8});  // TrainingArguments
    draft.remark(RemarkKind::Assumed, "per_device_train_batch_size", "8, which is the default of TrainingArguments");
  }
}

// How many micro-batches are in a step.
void settle_accumulation(Draft& draft) {
  const std::int64_t micro = draft.integer("train.micro_batch").value_or(1);
  if (draft.at_least_sequences > 0 && draft.find("gpus") != nullptr && micro > 0) {
    const std::int64_t each = product({micro, std::max<std::int64_t>(draft.integer("gpus").value_or(1), 1)});
    draft.accumulation = std::max<std::int64_t>((draft.at_least_sequences + each - 1) / each, 1);
  }
  if (draft.sequences_shared > 0 && draft.find("gpus") != nullptr && micro > 0) share_sequences(draft, micro);
  if (draft.accumulation && draft.find("gpus") != nullptr && draft.find("train.global_batch") == nullptr)
    draft.set("train.global_batch", product({micro, *draft.accumulation, draft.integer("gpus").value_or(1)}));
}

void settle_deepspeed(Draft& draft) {
  check_batch(draft, draft.integer("train.micro_batch").value_or(1));
  if (const TomlValue* compiled = draft.find("runtime.switches.torch_compile")) {
    draft.remark(RemarkKind::NotJudged, "torch_compile",
                 not_modelled("under DeepSpeed is not modelled: the figures are without a compiler"), compiled->place);
    draft.erase("runtime.switches.torch_compile");
  }
  // trainer hands its own to the engine where the file says "auto".
  if (const TomlValue* norm = draft.find("runtime.switches.max_grad_norm")) {
    const TomlValue kept = *norm;
    if (draft.find("runtime.switches.gradient_clipping") == nullptr)
      draft.set("runtime.switches.gradient_clipping", kept.value, kept.place);
    draft.erase("runtime.switches.max_grad_norm");
  }
  if (draft.find("runtime.switches.offload_optimizer") != nullptr) draft.erase("runtime.switches.fused");
}

// Liger's functions are not simulated there: without them there are whole logits, and more of each layer is saved.
void settle_liger(Draft& draft, const std::string& runtime) {
  if (const TomlValue* liger = draft.find("runtime.switches.use_liger_kernel");
      liger != nullptr && (runtime == "deepspeed" || draft.learns_from != LearnsFrom::Rows)) {
    draft.remark_bounded("use_liger_kernel",
                         runtime == "deepspeed"
                             ? "the figures under DeepSpeed are without it, which take more"
                             : "the figures of training by preferences are without it, which take more",
                         "liger-kernel", liger->place);
    draft.erase("runtime.switches.use_liger_kernel");
    draft.erase("runtime.switches.liger_kernel_config");
  }
}

// transformers/trainer.py, create_accelerator_and_postprocess.
void check_checkpoints(const Draft& draft) {
  if (draft.trainer && draft.fsdp_checkpoints && draft.trainer_checkpoints)
    throw InputError(Problem{.file = draft.file,
                             .line = draft.trainer_checkpoints->line,
                             .column = draft.trainer_checkpoints->column,
                             .message = "gradient_checkpointing and FSDP's activation_checkpointing are both on, at "
                                        "which transformers stops",
                             .hint = "turn one of them off: under FSDP its own is the one that saves communication"});
}

// transformers before 5; TRL's scripts from 0.28 on, whatever transformers does.
void tell_loaded_type(Draft& draft, const std::string& runtime) {
  const bool loaded_wide = draft.find("train.master_dtype") == nullptr && draft.find("quantization.format") == nullptr;
  if (loaded_wide && !draft.type_said && draft.trainer && (runtime == "pytorch" || !draft.mixed_precision) &&
      runtime != "deepspeed")
    draft.remark(
        RemarkKind::Assumed, "dtype",
        "float32: nothing says in which type the model is loaded, which transformers 5 leaves to the checkpoint");
}

}  // namespace

void settle_hugging_face(Draft& draft, const ModelSays& model) {
  settle_automatic_types(draft, model.dtype);
  settle_automatic(draft, model.hidden);
  if (draft.find("runtime.name") == nullptr) {
    draft.set("runtime.name", std::string("pytorch"));
    if (draft.alone && draft.integer("gpus").value_or(1) > 1)
      draft.remark(
          RemarkKind::Assumed, "DistributedDataParallel",
          "each device has the whole model: neither FSDP nor DeepSpeed is asked for; accelerate's configuration "
          "or a ds_config.json beside the file would");
  }
  const std::string runtime = *draft.text("runtime.name");
  settle_lengths(draft);
  settle_accumulation(draft);
  if (runtime == "deepspeed") settle_deepspeed(draft);
  settle_liger(draft, runtime);
  check_checkpoints(draft);
  if (draft.text("train.optimizer").value_or("adamw") != "adamw") draft.erase("runtime.switches.fused");
  tell_loaded_type(draft, runtime);
  // A reference is loaded as the model is, and DeepSpeed has it in what it computes in.
  const bool narrow = runtime == "deepspeed" || draft.text("train.master_dtype").value_or("fp32") != "fp32";
  settle_held_type(draft, runtime);
  settle_sharded_base(draft, runtime);
  settle_trl_base(draft, runtime);
  if (draft.find("train.precision") == nullptr) draft.set("train.precision", std::string("fp32"));
  settle_preferences(draft, narrow && draft.text("train.precision") != "fp32" ? 2 : 4);
}

}  // namespace tidemark::scenarios
