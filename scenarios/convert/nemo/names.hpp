#pragma once

#include <array>
#include <string_view>
#include <vector>

// Keys of Megatron-Bridge's ConfigContainer and of NeMo 1's YAML.

namespace tidemark::scenarios {

/// A key, and the flag that says it.
struct BridgeName {
  std::string_view key, flag;
};
inline constexpr std::array bridge_names{
    BridgeName{"sequence_length", "seq-length"},
    BridgeName{"encoder_seq_length", "seq-length"},
    BridgeName{"num_moe_experts", "num-experts"},
    BridgeName{"virtual_pipeline_model_parallel_size", "num-virtual-stages-per-pipeline-rank"},
    BridgeName{"num_layers_in_first_pipeline_stage", "decoder-first-pipeline-num-layers"},
    BridgeName{"num_layers_in_last_pipeline_stage", "decoder-last-pipeline-num-layers"},
    BridgeName{"activations_checkpoint_granularity", "recompute-granularity"},
    BridgeName{"activations_checkpoint_method", "recompute-method"},
    BridgeName{"activations_checkpoint_num_layers", "recompute-num-layers"},
    BridgeName{"grad_reduce_in_fp32", "accumulate-allreduce-grads-in-fp32"},
    BridgeName{"train_iters", "train-iters"},
    BridgeName{"moe_aux_loss_coeff", "moe-aux-loss-coeff"},
    BridgeName{"layernorm_epsilon", "norm-epsilon"},
    BridgeName{"rotary_percentage", "rotary-percent"},
    BridgeName{"init_method_std", "init-method-std"},
    BridgeName{"override_vocab_size", "vocab-size"},
    BridgeName{"qkv_bias", "add-qkv-bias"},
    BridgeName{"ub_tp_comm_overlap", "tp-comm-overlap"},
    BridgeName{"overlap_grad_sync", "overlap-grad-reduce"},
    BridgeName{"overlap_param_sync", "overlap-param-gather"},
    BridgeName{"average_in_collective", "ddp-average-in-collective"},
    BridgeName{"layernorm_zero_centered_gamma", "apply-layernorm-1p"},
};

/// NeMo 1's own, nemo/collections/nlp/models/language_modeling/megatron_gpt_model.py and its configurations: what
/// changes nothing at these values, as TOML writes them; at any other it is not judged. Without values, at any.
struct OfNoMatter {
  std::string_view key;
  std::vector<std::string_view> values = {};
};
[[nodiscard]] const std::vector<OfNoMatter>& nemo_keys();

/// Switches of NeMo 1's that ask for something by false.
inline constexpr std::array<std::string_view, 4> nemo_by_false{"mcore_gpt", "megatron_amp_O2", "transformer_engine",
                                                               "normalize_attention_scores"};

/// Keys that say by false what a flag says.
inline constexpr std::array inverted_names{
    BridgeName{"add_bias_linear", "disable-bias-linear"},
    BridgeName{"bias", "disable-bias-linear"},
    BridgeName{"share_embeddings_and_output_weights", "untie-embeddings-and-output-weights"},
    BridgeName{"bias_dropout_fusion", "no-bias-dropout-fusion"},
    BridgeName{"bias_dropout_add_fusion", "no-bias-dropout-fusion"},
    BridgeName{"masked_softmax_fusion", "no-masked-softmax-fusion"},
    BridgeName{"apply_rope_fusion", "no-rope-fusion"},
    BridgeName{"gradient_accumulation_fusion", "no-gradient-accumulation-fusion"},
    BridgeName{"tp_comm_overlap_ag", "disable-tp-comm-overlap-ag"},
    BridgeName{"tp_comm_overlap_rs", "disable-tp-comm-overlap-rs"},
    BridgeName{"tp_comm_bulk_dgrad", "disable-tp-comm-bulk-dgrad"},
    BridgeName{"tp_comm_bulk_wgrad", "disable-tp-comm-bulk-wgrad"},
    BridgeName{"create_attention_mask", "no-create-attention-mask-in-dataloader"},  // NeMo 2's data modules
};

/// Tables of what is logged, saved and read.
inline constexpr std::array<std::string_view, 15> tables_aside{
    "checkpoint", "logger",     "scheduler", "rng",          "profiling", "exp_manager",      "tokenizer", "hydra",
    "dist",       "validation", "run",       "nsys_profile", "sched",     "s3_checkpointing", "defaults"};

}  // namespace tidemark::scenarios
