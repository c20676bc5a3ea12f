#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/formats/input_error.hpp"

// okoge-kaz/llm-recipes 890d9dd (Swallow's): examples/finetuning.py with words of Megatron-LM's around a model of
// transformers' in half precision, under FullyShardedDataParallel with a unit for each layer (finetuning.py,
// utils/train_utils.py get_policies, get_models.py).

namespace tidemark::scenarios {
namespace {

// Of data, checkpoints, logs, and how far a step goes.
constexpr auto recipes_aside = std::to_array<std::string_view>({"sliding-window-size",
                                                                "train-iters",
                                                                "train-samples",
                                                                "tokenizer-type",
                                                                "tokenizer-model",
                                                                "data-path",
                                                                "train-data-path",
                                                                "valid-data-path",
                                                                "test-data-path",
                                                                "split",
                                                                "lr",
                                                                "min-lr",
                                                                "lr-decay-style",
                                                                "lr-warmup-iters",
                                                                "lr-decay-iters",
                                                                "lr-warmup-fraction",
                                                                "optimizer",
                                                                "adam-beta1",
                                                                "adam-beta2",
                                                                "adam-eps",
                                                                "save-interval",
                                                                "eval-interval",
                                                                "eval-iters",
                                                                "save",
                                                                "load",
                                                                "checkpoint-type",
                                                                "use-mpi",
                                                                "wandb-entity",
                                                                "wandb-project",
                                                                "wandb-name",
                                                                "wandb-id",
                                                                "no-meta-device",
                                                                "use-dist-ckpt",
                                                                "distributed-timeout-minutes",
                                                                "num-workers",
                                                                "seed",
                                                                "continual-pretraining",
                                                                "instruction-tuning",
                                                                "no-save-optimizer-state",
                                                                "hf-transformer-model-dir",
                                                                "instruction-train-data-path",
                                                                "instruction-valid-data-path",
                                                                "epoch",
                                                                "instruction-dataset-size",
                                                                "save-sampler-state",
                                                                "torch-profile",
                                                                "tensorboard-dir",
                                                                "vocab-size",
                                                                "vocab-file",
                                                                "merge-file",
                                                                "exit-duration-in-mins",
                                                                "exit-interval",
                                                                "override-opt-param-scheduler"});

}  // namespace

bool is_llm_recipes(const std::vector<TomlKey>& flags) {
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(flags, [&](const TomlKey& key) { return key.name == name; });
  };
  return has("base-model") && (has("low-cpu-fsdp") || has("fsdp-activation-checkpointing") || has("sharding-strategy"));
}

void read_llm_recipes(Given& given, const ShippedModels& models, Draft& draft) {
  const std::string checkpoint = given.text("base-model").value_or("");
  name_checkpoint(models, checkpoint, "--base-model", given.place("base-model"), draft);
  draft.set("runtime.name", std::string("fsdp"));
  const std::string strategy = given.text("sharding-strategy").value_or("FULL_SHARD");
  draft.set("layout.sharding",
            std::string(strategy == "SHARD_GRAD_OP" ? "zero2"
                        : strategy == "NO_SHARD"    ? "none"
                                                    : "zero3"),
            given.place("sharding-strategy"));
  if (strategy.find("HYBRID") != std::string::npos)
    given.tell(RemarkKind::NotJudged, "sharding-strategy", "the figures are of FULL_SHARD over all devices");
  const bool half = given.flag("bf16").value_or(false), narrow = given.flag("fp16").value_or(false);
  const std::string type = narrow ? "fp16" : half ? "bf16" : "fp32";
  draft.set("train.precision", type, given.place(narrow ? "fp16" : "bf16"));
  draft.type_said = true;
  if (type != "fp32") {
    draft.set("train.master_dtype", type);
    draft.set("runtime.switches.reduce_dtype", std::string("fp32"));
    draft.set("runtime.switches.buffer_dtype", type);
  }
  if (given.flag("mixed-precision").value_or(false)) draft.set("runtime.switches.autocast", true);
  draft.set("runtime.switches.use_cache", false);
  draft.set("runtime.switches.limit_all_gathers", true);
  if (given.flag("low-cpu-fsdp").value_or(false)) draft.set("runtime.switches.sync_module_states", true);
  if (given.flag("fsdp-activation-checkpointing").value_or(false)) {
    draft.set("train.recompute", std::string("full"), given.place("fsdp-activation-checkpointing"));
    draft.set("runtime.switches.use_reentrant", false);
  }
  if (given.flag("fsdp-cpu-offload").value_or(false))
    draft.set("offload.parameters", std::string("cpu"), given.place("fsdp-cpu-offload"));
  draft.set("train.attention", std::string("flash"));
  draft.set("train.sequence_length", given.integer("seq-length").value_or(4096), given.place("seq-length"));
  draft.set("train.micro_batch", given.integer("micro-batch-size").value_or(1), given.place("micro-batch-size"));
  if (const auto all = given.integer("global-batch-size"))
    draft.set("train.global_batch", *all, given.place("global-batch-size"));
  draft.set("runtime.switches.max_grad_norm", given.number("grad-clip-norm").value_or(1.0),
            given.place("grad-clip-norm"));
  if (const auto decay = given.number("weight-decay"))
    draft.set("runtime.switches.weight_decay", *decay, given.place("weight-decay"));
  for (const std::string_view key : {"direct-preference-optimization", "use-freeze-layers", "quantization"})
    if (given.flag(key).value_or(false))
      given.tell(RemarkKind::NotJudged, key, "is not modelled: the figures are of training all weights on rows");
  given.no_matter(recipes_aside);
  given.refuse_the_rest("is no argument of llm-recipes' that is known here");
}

}  // namespace tidemark::scenarios
