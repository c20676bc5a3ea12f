"""What is recorded of trainings under DeepSpeed's ZeRO: models and settings as in recordings.py, over worlds of many
ranks. `ds` is what the ds_config.json has in zero_optimization, but for the stage."""

from recordings import SETTINGS, gpt2, gpt_neox, llama, mixtral, olmo2, phi3, qwen3, qwen3_moe

MORE_SETTINGS = {
    "world": 8,
    "rank": 0,
    "stage": 2,
    "accumulation": None,  # data_types.grad_accum_dtype: bf16 | fp32; None: DeepSpeed's default
    "micro_batches": 1,
    "batches": "collated",
    "zero_init": True,  # of stage 3: the model is made under deepspeed.zero.Init
    "ds": {},
}

DEFAULTS = {**SETTINGS, **MORE_SETTINGS, "precision": "bf16", "optimizer": "adamw foreach"}

DEEP = {"num_hidden_layers": 6, "vocab_size": 4096}
WIDE = {"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 16, "head_dim": 128, "vocab_size": 1024}
SMALL_BUCKETS = {"reduce_bucket_size": 4_000_000, "allgather_bucket_size": 4_000_000}
# So small that models of a few layers let go of what they gathered.
RELEASING = {
    "stage3_prefetch_bucket_size": 2_000_000, "stage3_max_live_parameters": 100_000_000,
    "stage3_max_reuse_distance": 1_000_000, "stage3_param_persistence_threshold": 4096,
}  # fmt: skip

LORA = {"r": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"], "lora_dropout": 0.1}

RECORDINGS = {
    "zero2_llama_8": (llama(**DEEP), {"batch": 2}),
    "zero2_buckets_8": (llama(**DEEP), {"batch": 4, "ds": SMALL_BUCKETS}),
    "zero2_buckets_4_rank_3": (llama(**DEEP), {"world": 4, "rank": 3, "batch": 4, "ds": SMALL_BUCKETS}),
    "zero2_overlapped_8": (llama(**DEEP), {"batch": 2, "ds": {**SMALL_BUCKETS, "overlap_comm": True}}),
    "zero2_not_contiguous_8": (llama(**DEEP), {"batch": 4, "ds": {**SMALL_BUCKETS, "contiguous_gradients": False}}),
    "zero2_all_reduced_8": (llama(**DEEP), {"batch": 4, "ds": {**SMALL_BUCKETS, "reduce_scatter": False}}),
    "zero2_round_robin_8": (llama(**DEEP), {"batch": 4, "ds": {**SMALL_BUCKETS, "round_robin_gradients": True}}),
    "zero2_accumulating_8": (llama(**DEEP), {"micro_batches": 3, "batch": 2, "ds": SMALL_BUCKETS}),
    "zero2_accumulating_fp32_8": (
        llama(**DEEP), {"micro_batches": 2, "batch": 2, "accumulation": "fp32", "ds": SMALL_BUCKETS},
    ),
    "zero2_clipped_2": (llama(**DEEP), {"world": 2, "clip_grad_norm": 1.0, "ds": SMALL_BUCKETS}),
    "zero2_checkpointed_16": (
        llama(**DEEP), {"world": 16, "batch": 4, "checkpointing": "non_reentrant", "ds": SMALL_BUCKETS},
    ),
    "zero2_reentrant_8": (llama(**DEEP), {"batch": 4, "checkpointing": "reentrant", "ds": SMALL_BUCKETS}),
    "zero2_tied_8": (llama(**DEEP, tie_word_embeddings=True), {"batch": 4, "ds": SMALL_BUCKETS}),
    "zero2_fp16_8": (llama(**DEEP), {"batch": 4, "precision": "fp16", "ds": SMALL_BUCKETS}),
    "zero2_fp32_8": (llama(**DEEP), {"precision": "fp32", "sequence": 512, "ds": SMALL_BUCKETS}),
    "zero2_qwen3_64_last": (qwen3(vocab_size=8192), {"world": 64, "rank": 63, "batch": 2, "ds": SMALL_BUCKETS}),
    "zero2_gpt2_4": (gpt2(n_layer=4, vocab_size=8192), {"world": 4, "sequence": 512, "ds": SMALL_BUCKETS}),
    "zero2_wide_8": (llama(**WIDE), {"sequence": 256, "ds": SMALL_BUCKETS}),
    "zero2_wide_2": (llama(**WIDE), {"world": 2, "sequence": 256, "ds": SMALL_BUCKETS, "clip_grad_norm": 1.0}),
    "zero1_wide_4": (llama(**WIDE), {"stage": 1, "world": 4, "sequence": 256, "ds": SMALL_BUCKETS}),
    "zero1_llama_8": (llama(**DEEP), {"stage": 1, "batch": 2}),
    "zero1_buckets_8": (llama(**DEEP), {"stage": 1, "batch": 4, "ds": SMALL_BUCKETS}),
    "zero1_accumulating_8": (llama(**DEEP), {"stage": 1, "batch": 2, "micro_batches": 2, "ds": SMALL_BUCKETS}),
    "zero1_overlapped_4": (
        llama(**DEEP), {"stage": 1, "world": 4, "batch": 2, "ds": {**SMALL_BUCKETS, "overlap_comm": True}},
    ),
    "zero1_olmo2_32": (olmo2(vocab_size=8192), {"stage": 1, "world": 32, "clip_grad_norm": 1.0, "ds": SMALL_BUCKETS}),
    "zero1_fused_8": (llama(**DEEP), {"stage": 1, "optimizer": "adamw fused", "ds": SMALL_BUCKETS}),
    # BF16_Optimizer.
    "zero1_accumulating_fp32_8": (
        llama(**DEEP), {"stage": 1, "batch": 2, "micro_batches": 2, "accumulation": "fp32", "ds": SMALL_BUCKETS},
    ),
    "zero1_accumulating_fp32_clipped_6_last": (
        llama(**WIDE),
        {"stage": 1, "world": 6, "rank": 5, "sequence": 256, "accumulation": "fp32", "clip_grad_norm": 1.0},
    ),
    "zero1_accumulating_fp32_tied_2": (
        llama(**DEEP, tie_word_embeddings=True),
        {"stage": 1, "world": 2, "batch": 4, "checkpointing": "non_reentrant", "accumulation": "fp32",
         "optimizer": "adamw fused"},
    ),
    "zero2_lora_8": (llama(**DEEP), {"batch": 2, "adapter": LORA, "ds": SMALL_BUCKETS}),
    "zero2_lora_clipped_2": (
        llama(**DEEP),
        {"world": 2, "batch": 4, "checkpointing": "reentrant", "clip_grad_norm": 1.0, "micro_batches": 2,
         "adapter": {**LORA, "r": 64}, "ds": {"reduce_bucket_size": 1_000_000, "overlap_comm": True}},
    ),
    "zero1_lora_4": (
        llama(**DEEP),
        {"stage": 1, "world": 4, "rank": 3, "batch": 4, "checkpointing": "non_reentrant", "adapter": LORA},
    ),
    "zero2_qlora_4": (
        llama(**DEEP),
        {"world": 4, "batch": 4, "checkpointing": "reentrant", "adapter": LORA, "ds": SMALL_BUCKETS,
         "quantization": {"format": "nf4", "double_quant": True, "prepare": "all"}},
    ),
    "zero3_lora_8": (llama(**DEEP), {"stage": 3, "batch": 2, "adapter": LORA, "ds": {**SMALL_BUCKETS, **RELEASING}}),
    "zero3_lora_narrow_4": (
        llama(**DEEP),
        {"stage": 3, "world": 4, "rank": 3, "batch": 4, "micro_batches": 2, "clip_grad_norm": 1.0,
         "adapter": {**LORA, "r": 64, "autocast_adapter_dtype": False}, "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_lora_checkpointed_8": (
        llama(**DEEP),
        {"stage": 3, "batch": 4, "checkpointing": "reentrant", "adapter": LORA, "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_lora_not_reentrant_4": (
        llama(**DEEP),
        {"stage": 3, "world": 4, "batch": 4, "checkpointing": "non_reentrant", "adapter": LORA,
         "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_llama_8": (llama(**DEEP), {"stage": 3, "batch": 2}),
    "zero3_released_8": (llama(**DEEP), {"stage": 3, "batch": 4, "ds": {**SMALL_BUCKETS, **RELEASING}}),
    "zero3_not_prefetched_8": (
        llama(**DEEP), {"stage": 3, "batch": 4, "ds": {**SMALL_BUCKETS, **RELEASING, "stage3_prefetch_bucket_size": 0}},
    ),
    "zero3_live_8": (
        llama(**DEEP),
        {"stage": 3, "batch": 4, "ds": {**SMALL_BUCKETS, **RELEASING, "stage3_max_live_parameters": 10_000_000}},
    ),
    "zero3_reuse_8": (
        llama(**DEEP),
        {"stage": 3, "batch": 4, "ds": {**SMALL_BUCKETS, **RELEASING, "stage3_max_reuse_distance": 20_000_000}},
    ),
    "zero3_persistent_8": (
        llama(**DEEP),
        {"stage": 3, "batch": 4, "ds": {**SMALL_BUCKETS, **RELEASING, "stage3_param_persistence_threshold": 600_000}},
    ),
    "zero3_not_overlapped_2": (
        llama(**DEEP), {"stage": 3, "world": 2, "batch": 4, "ds": {**SMALL_BUCKETS, **RELEASING, "overlap_comm": False}},
    ),
    "zero3_accumulating_4": (
        llama(**DEEP), {"stage": 3, "world": 4, "micro_batches": 2, "batch": 2, "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_accumulating_fp32_8": (
        llama(**DEEP),
        {"stage": 3, "micro_batches": 2, "batch": 2, "accumulation": "fp32", "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_checkpointed_16": (
        llama(**DEEP),
        {"stage": 3, "world": 16, "batch": 4, "checkpointing": "non_reentrant", "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_reentrant_8": (
        llama(**DEEP), {"stage": 3, "batch": 4, "checkpointing": "reentrant", "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_sub_groups_8": (
        llama(**WIDE), {"stage": 3, "sequence": 256, "ds": {**SMALL_BUCKETS, **RELEASING, "sub_group_size": 2_000_000}},
    ),
    "zero3_wide_48_last": (
        llama(**WIDE), {"stage": 3, "world": 48, "rank": 47, "sequence": 256, "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_tied_8": (
        llama(**DEEP, tie_word_embeddings=True), {"stage": 3, "batch": 4, "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_qwen3_64": (
        qwen3(vocab_size=8192), {"stage": 3, "world": 64, "clip_grad_norm": 1.0, "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_gpt2_4": (
        gpt2(n_layer=4, vocab_size=8192),
        {"stage": 3, "world": 4, "sequence": 512, "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_phi3_6_last": (
        phi3(vocab_size=8192), {"stage": 3, "world": 6, "rank": 5, "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_hpz_8": (
        llama(**DEEP), {"stage": 3, "batch": 4, "ds": {**SMALL_BUCKETS, **RELEASING, "zero_hpz_partition_size": 4}},
    ),
    "zero3_hpz_accumulating_6_last": (
        llama(**DEEP),
        {"stage": 3, "world": 6, "rank": 5, "micro_batches": 2, "batch": 2,
         "ds": {**SMALL_BUCKETS, **RELEASING, "zero_hpz_partition_size": 3}},
    ),
    "zero3_hpz_checkpointed_16": (
        llama(**WIDE),
        {"stage": 3, "world": 16, "rank": 7, "sequence": 256, "checkpointing": "non_reentrant", "clip_grad_norm": 1.0,
         "ds": {**SMALL_BUCKETS, **RELEASING, "zero_hpz_partition_size": 8}},
    ),
    "zero3_lora_hpz_8": (
        llama(**DEEP),
        {"stage": 3, "batch": 2, "adapter": LORA, "ds": {**SMALL_BUCKETS, **RELEASING, "zero_hpz_partition_size": 4}},
    ),
    "zero3_lora_hpz_accumulating_6_last": (
        llama(**DEEP),
        {"stage": 3, "world": 6, "rank": 5, "batch": 2, "micro_batches": 2, "clip_grad_norm": 1.0,
         "adapter": {**LORA, "r": 64, "autocast_adapter_dtype": False},
         "ds": {**SMALL_BUCKETS, **RELEASING, "zero_hpz_partition_size": 3}},
    ),
    "zero3_lora_hpz_checkpointed_16": (
        llama(**DEEP),
        {"stage": 3, "world": 16, "rank": 7, "batch": 4, "checkpointing": "reentrant", "adapter": LORA,
         "ds": {**SMALL_BUCKETS, **RELEASING, "zero_hpz_partition_size": 8}},
    ),
    "zero3_qlora_8": (
        llama(**DEEP),
        {"stage": 3, "batch": 2, "adapter": LORA, "ds": {**SMALL_BUCKETS, **RELEASING},
         "quantization": {"format": "nf4", "double_quant": True, "prepare": "none", "storage": "bf16"}},
    ),
    "zero3_qlora_checkpointed_4": (
        llama(**DEEP),
        {"stage": 3, "world": 4, "rank": 3, "batch": 4, "checkpointing": "reentrant", "clip_grad_norm": 1.0,
         "adapter": {**LORA, "target_modules": "all-linear"}, "ds": {**SMALL_BUCKETS, **RELEASING},
         "quantization": {"format": "nf4", "double_quant": True, "prepare": "all", "storage": "bf16"}},
    ),
    "zero3_qlora_bytes_6_last": (
        llama(**DEEP),
        {"stage": 3, "world": 6, "rank": 5, "batch": 2, "micro_batches": 2, "checkpointing": "non_reentrant",
         "adapter": {**LORA, "r": 64}, "ds": {**SMALL_BUCKETS, **RELEASING},
         "quantization": {"format": "fp4", "double_quant": False, "prepare": "none"}},
    ),
    "zero3_qlora_hpz_8": (
        llama(**DEEP),
        {"stage": 3, "batch": 2, "micro_batches": 2, "checkpointing": "reentrant", "clip_grad_norm": 1.0, "adapter": LORA,
         "ds": {**SMALL_BUCKETS, **RELEASING, "zero_hpz_partition_size": 4},
         "quantization": {"format": "nf4", "double_quant": True, "prepare": "all"}},
    ),
    "zero3_int8_4": (
        llama(**DEEP),
        {"stage": 3, "world": 4, "rank": 3, "batch": 2, "checkpointing": "reentrant", "adapter": LORA,
         "ds": {**SMALL_BUCKETS, **RELEASING}, "quantization": {"format": "int8", "prepare": "all"}},
    ),
    "zero2_mixtral_8": (mixtral(**DEEP), {"capability": "90", "batch": 2}),
    "zero2_qwen3_moe_8_checkpointed": (
        qwen3_moe(), {"capability": "90", "batch": 4, "checkpointing": "non_reentrant", "ds": SMALL_BUCKETS},
    ),
    "zero2_qwen3_moe_lora_experts_8": (
        qwen3_moe(vocab_size=1024),
        {"capability": "90", "batch": 2, "adapter": {"r": 16, "target_modules": "all-linear"}, "ds": SMALL_BUCKETS},
    ),
    "zero3_mixtral_8": (mixtral(**DEEP), {"capability": "90", "stage": 3, "batch": 2}),
    "zero3_qwen3_moe_8_checkpointed": (
        qwen3_moe(),
        {"capability": "90", "stage": 3, "batch": 4, "checkpointing": "non_reentrant", "ds": {**SMALL_BUCKETS, **RELEASING}},
    ),
    "zero3_gpt_neox_8": (gpt_neox(vocab_size=2048), {"stage": 3, "ds": {**SMALL_BUCKETS, **RELEASING}}),
}


def settings_of(name):
    config, chosen = RECORDINGS[name]
    defaults = {**DEFAULTS, **{key: None for key in ("adapter", "quantization") if key in chosen}}
    unknown = set(chosen) - set(defaults)
    assert not unknown, f"{name}: unknown settings {unknown}"
    return dict(config), {**defaults, **chosen}
