"""What is recorded of sharded trainings: models and settings as in recordings.py, over worlds of many ranks."""

from recordings import SETTINGS, gpt2, gpt_neox, llama, mixtral, olmo2, phi3, qwen3, qwen3_moe

MORE_SETTINGS = {
    "world": 8,
    "rank": 0,
    "shard_group": None,  # ranks that share out parameters together (HSDP); None: all
    "reshard_after_forward": True,  # false, a number of ranks, or None: fully_shard is not told
    "parameters": "fp32",  # of shards; what is computed in is `precision`: bf16 | fp32
    "reduce_dtype": "fp32",
    "micro_batches": 1,
    "sync_each_batch": False,  # set_requires_gradient_sync after every micro-batch, or before the last one only
    "batches": "collated",
}

DEFAULTS = {**SETTINGS, **MORE_SETTINGS, "precision": "bf16", "optimizer": "adamw foreach"}

DEEP = {"num_hidden_layers": 6, "vocab_size": 4096}

# Experts are multiplied by a kernel that an H100 has.
GROUPED = {"capability": "90"}

LORA = {"r": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"], "lora_dropout": 0.1}

RECORDINGS = {
    "llama_8": (llama(), {}),
    "llama_2": (llama(), {"world": 2, "batch": 2}),
    "llama_64": (llama(), {"world": 64}),
    "llama_64_last": (llama(), {"world": 64, "rank": 63}),
    "llama_layers_8": (llama(**DEEP), {"batch": 4}),
    "llama_layers_8_clipped": (llama(**DEEP), {"batch": 2, "clip_grad_norm": 1.0}),
    "llama_layers_4_rank_3": (llama(**DEEP), {"world": 4, "rank": 3, "batch": 2}),
    "llama_layers_16_kept": (llama(**DEEP), {"world": 16, "reshard_after_forward": False}),
    "llama_layers_8_resharded_2": (llama(**DEEP), {"reshard_after_forward": 2, "batch": 2, "clip_grad_norm": 1.0}),
    "llama_layers_16_resharded_4_rank_6": (
        llama(**DEEP), {"world": 16, "rank": 6, "reshard_after_forward": 4, "micro_batches": 2},
    ),
    "llama_layers_16_resharded_8_checkpointed": (
        llama(**DEEP), {"world": 16, "reshard_after_forward": 8, "batch": 4, "checkpointing": "non_reentrant"},
    ),
    "llama_uneven_6_resharded_3": (llama(**DEEP), {"world": 6, "rank": 4, "reshard_after_forward": 3}),
    "llama_hsdp_16_resharded_2": (llama(**DEEP), {"world": 16, "shard_group": 8, "reshard_after_forward": 2}),
    "llama_bf16_resharded_4": (
        llama(**DEEP), {"parameters": "bf16", "reduce_dtype": "bf16", "reshard_after_forward": 4},
    ),
    "llama_layers_8_root_kept": (llama(**DEEP), {"reshard_after_forward": None, "batch": 2}),
    "llama_8_root_kept": (llama(), {"reshard_after_forward": None}),
    "llama_layers_8_prefetched": (llama(**DEEP), {"forward_prefetch": 2, "backward_prefetch": 2, "batch": 2}),
    "llama_layers_8_prefetched_checkpointed": (
        llama(**DEEP), {"forward_prefetch": 1, "backward_prefetch": 3, "batch": 4, "checkpointing": "non_reentrant"},
    ),
    "llama_layers_16_prefetched_resharded_4": (
        llama(**DEEP), {"world": 16, "forward_prefetch": 2, "backward_prefetch": 1, "reshard_after_forward": 4},
    ),
    "llama_layers_8_fused": (llama(**DEEP), {"optimizer": "adamw fused", "batch": 2}),
    "llama_layers_8_for_loop": (llama(**DEEP), {"optimizer": "adamw for-loop"}),
    "llama_layers_8_sgd": (llama(**DEEP), {"optimizer": "sgd foreach"}),
    "llama_layers_8_momentum": (llama(**DEEP), {"optimizer": "sgd_momentum foreach", "sequence": 512}),
    "llama_layers_8_checkpointed": (llama(**DEEP), {"batch": 4, "checkpointing": "non_reentrant"}),
    "llama_layers_8_reentrant": (llama(**DEEP), {"batch": 4, "checkpointing": "reentrant"}),
    "llama_layers_32_checkpointed": (
        llama(**DEEP), {"world": 32, "batch": 4, "checkpointing": "non_reentrant", "clip_grad_norm": 1.0},
    ),
    "llama_lora_8": (llama(**DEEP), {"batch": 2, "adapter": LORA, "clip_grad_norm": 1.0}),
    "llama_lora_bf16_8": (
        llama(**DEEP),
        {"parameters": "bf16", "batch": 4, "checkpointing": "non_reentrant", "adapter": {**LORA, "r": 64}},
    ),
    "llama_layers_8_accumulating": (llama(**DEEP), {"micro_batches": 3}),
    "llama_layers_8_accumulating_each": (llama(**DEEP), {"micro_batches": 3, "sync_each_batch": True}),
    "llama_layers_8_checkpointed_accumulating": (
        llama(**DEEP), {"micro_batches": 2, "checkpointing": "non_reentrant", "batch": 2},
    ),
    "llama_fp32_8": (llama(**DEEP), {"precision": "fp32", "sequence": 512}),
    "llama_bf16_8": (llama(**DEEP), {"parameters": "bf16", "reduce_dtype": "bf16"}),
    "llama_bf16_reduce_fp32_8": (llama(**DEEP), {"parameters": "bf16"}),
    "llama_reduce_bf16_8": (llama(**DEEP), {"reduce_dtype": "bf16"}),
    "llama_reduce_bf16_8_accumulating": (llama(**DEEP), {"reduce_dtype": "bf16", "micro_batches": 2}),
    "llama_eager_8": (llama(**DEEP), {"attention": "eager", "sequence": 512}),
    "llama_uneven_6": (llama(**DEEP), {"world": 6}),
    "llama_uneven_6_last": (llama(**DEEP), {"world": 6, "rank": 5}),
    "llama_uneven_48_last": (llama(**DEEP), {"world": 48, "rank": 47}),
    "llama_hsdp_16": (llama(**DEEP), {"world": 16, "shard_group": 8}),
    "llama_hsdp_16_bf16": (llama(**DEEP), {"world": 16, "shard_group": 4, "reduce_dtype": "bf16"}),
    "llama_hsdp_32_accumulating": (llama(**DEEP), {"world": 32, "shard_group": 8, "micro_batches": 2}),
    "llama_tied_8": (llama(**DEEP, tie_word_embeddings=True), {}),
    "llama_kept_outputs_8": (llama(**DEEP), {"outputs": "kept"}),
    "llama_wide_8": (
        llama(hidden_size=2048, intermediate_size=5632, num_attention_heads=16, head_dim=128, vocab_size=1024),
        {"sequence": 256},
    ),
    "qwen3_8": (qwen3(), {"clip_grad_norm": 1.0}),
    "qwen3_checkpointed_16": (
        qwen3(vocab_size=8192, num_hidden_layers=6), {"world": 16, "batch": 4, "checkpointing": "non_reentrant"},
    ),
    "mixtral_8": (mixtral(**DEEP), {**GROUPED, "batch": 2}),
    "mixtral_8_checkpointed": (
        mixtral(**DEEP), {**GROUPED, "batch": 4, "checkpointing": "non_reentrant", "clip_grad_norm": 1.0},
    ),
    "qwen3_moe_8": (qwen3_moe(), {**GROUPED, "batch": 2}),
    "qwen3_moe_6_last_checkpointed": (
        qwen3_moe(), {**GROUPED, "world": 6, "rank": 5, "batch": 4, "checkpointing": "non_reentrant"},
    ),
    "qwen3_moe_lora_experts_8": (
        qwen3_moe(vocab_size=1024),
        {**GROUPED, "batch": 2, "checkpointing": "non_reentrant",
         "adapter": {"r": 16, "target_modules": "all-linear"}},
    ),
    "gpt2_4": (gpt2(n_layer=4, vocab_size=8192), {"world": 4, "sequence": 512}),
    "gpt2_8_checkpointed": (gpt2(vocab_size=8192), {"batch": 4, "checkpointing": "non_reentrant"}),
    "gpt_neox_8": (gpt_neox(vocab_size=2048), {}),
    "olmo2_8": (olmo2(vocab_size=8192), {"clip_grad_norm": 1.0}),
    "phi3_8": (phi3(vocab_size=8192), {"batch": 2}),
    "phi3_accumulating_24": (phi3(vocab_size=8192), {"world": 24, "micro_batches": 2, "sequence": 777}),
}


def settings_of(name, recordings=RECORDINGS, defaults=DEFAULTS):
    config, chosen = recordings[name]
    if "adapter" in chosen:  # LoraConfig's arguments; others were recorded before there was such a setting
        defaults = {**defaults, "adapter": None}
    if "forward_prefetch" in chosen:  # the same of layers that are gathered ahead
        defaults = {**defaults, "forward_prefetch": 0, "backward_prefetch": 0}
    unknown = set(chosen) - set(defaults)
    assert not unknown, f"{name}: unknown settings {unknown}"
    return dict(config), {**defaults, **chosen}
