#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/formats/suggestion.hpp"

// awsome-distributed-training, 3.test_cases/pytorch/FSDP/src: train.py makes a model of transformers' of its arguments,
// shards it by FSDP2 with parameters in bf16 and reductions in fp32, and trains it with torch.optim.AdamW, every layer
// checkpointed; model_utils/arguments.py has the defaults.

namespace tidemark::scenarios {

bool is_aws_fsdp(const std::vector<TomlKey>& flags) {
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(flags, [&](const TomlKey& key) { return key.name == name; });
  };
  return has("max_context_width") && has("hidden_width") && has("num_heads");
}

void read_aws_fsdp(Given& given, Draft& draft) {
  const auto number = [&](std::string_view name, std::int64_t usual) { return given.integer(name).value_or(usual); };
  const std::string type = given.text("model_type").value_or("gpt_neox");
  if (type.find("llama") == std::string::npos)
    draft.remark(RemarkKind::NotExpressed, fmt::format("--model_type = {}", in_quotes(type)),
                 "is no model of this script's that is read: llama_v2 and llama_v3 are", given.place("model_type"));
  if (draft.find("model") == nullptr) {
    const std::int64_t hidden = number("hidden_width", 768), heads = number("num_heads", 12);
    draft.set("model", std::string("models/llama-2-70b.json"), given.place("hidden_width"));
    for (const auto& [key, value] : {std::pair("hidden_size", hidden),
                                     {"num_hidden_layers", number("num_layers", 12)},
                                     {"num_attention_heads", heads},
                                     {"num_key_value_heads", number("num_key_value_heads", heads)},
                                     {"intermediate_size", number("intermediate_size", 11'008)},
                                     {"vocab_size", number("vocab_size", 50'432)},
                                     {"max_position_embeddings", number("max_context_width", 2048)}})
      draft.set("model_override." + std::string(key), value, given.place("hidden_width"));
    if (!given.has("vocab_size"))
      draft.remark(RemarkKind::Assumed, "vocab_size", "50432, the script's own where it is left out");
  }
  draft.set("train.sequence_length", number("max_context_width", 2048), given.place("max_context_width"));
  draft.set("train.micro_batch", number("train_batch_size", 2), given.place("train_batch_size"));
  draft.set("runtime.name", std::string("fsdp2"));
  draft.set("layout.sharding", std::string("zero3"), given.place("sharding_strategy"));
  draft.set("train.precision", std::string(number("bf16", 1) == 1 ? "bf16" : "fp32"), given.place("bf16"));
  if (number("bf16", 1) == 1) draft.set("runtime.switches.reduce_dtype", std::string("fp32"));
  draft.set("train.recompute", std::string(number("activation_checkpointing", 1) > 0 ? "full" : "none"),
            given.place("activation_checkpointing"));
  if (number("activation_checkpointing", 1) > 0) draft.set("runtime.switches.use_reentrant", false);
  if (number("offload_activations", 0) > 0)
    draft.remark_bounded("--offload_activations",
                         "the figures are without it: what is saved goes to hosts, and comes back one by one",
                         "saved-on-hosts", given.place("offload_activations"));
  if (number("cpu_offload", 0) > 0)
    for (const char* key : {"offload.parameters", "offload.optimizer"})
      draft.set(key, std::string("cpu"), given.place("cpu_offload"));
  if (const std::string kind = given.text("sharding_strategy").value_or("full"); kind != "full")
    draft.remark(RemarkKind::NotJudged, fmt::format("--sharding_strategy = {}", in_quotes(kind)),
                 "the figures are of full sharding", given.place("sharding_strategy"));
  constexpr auto aside = std::to_array<std::string_view>({"tokenizer",
                                                          "checkpoint_freq",
                                                          "validation_freq",
                                                          "max_steps",
                                                          "checkpoint_dir",
                                                          "dataset",
                                                          "dataset_config_name",
                                                          "resume_from_checkpoint",
                                                          "val_batch_size",
                                                          "seed",
                                                          "same_seed",
                                                          "grad_clip",
                                                          "weight_decay",
                                                          "beta1",
                                                          "beta2",
                                                          "logging_freq",
                                                          "tensorboard_dir",
                                                          "peak_tflops_per_gpu",
                                                          "initializer_range",
                                                          "rotary_pct",
                                                          "rotary_emb_base",
                                                          "resid_pdrop",
                                                          "embd_pdrop",
                                                          "attn_pdrop",
                                                          "summary_first_pdrop",
                                                          "activation_loading_horizon",
                                                          "limit_all_gathers",
                                                          "lr",
                                                          "lr_decay_style",
                                                          "lr_decay_iters",
                                                          "min_lr",
                                                          "warmup",
                                                          "plateau",
                                                          "epochs",
                                                          "validation_batches",
                                                          "auto_resume",
                                                          "auto-resume"});
  given.no_matter(aside);
  given.refuse_the_rest("is no argument of this script's");
}

}  // namespace tidemark::scenarios
