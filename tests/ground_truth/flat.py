"""What is recorded of trainings under FullyShardedDataParallel: as in sharded.py, with settings of its own."""

from recordings import SETTINGS, gpt2, gpt_neox, llama, mixtral, olmo2, phi3, qwen3, qwen3_moe
from sharded import DEEP, GROUPED, LORA

MORE_SETTINGS = {
    "world": 8,
    "rank": 0,
    "strategy": "full_shard",  # full_shard | shard_grad_op | hybrid_shard | _hybrid_shard_zero2 | no_shard
    "shard_group": None,  # of the hybrid strategies: ranks that share out parameters together
    "use_orig_params": True,
    "backward_prefetch": "backward_pre",  # backward_pre | backward_post | None
    "forward_prefetch": False,
    "limit_all_gathers": True,
    "sync_module_states": False,
    "parameters": "fp32",  # of shards; what is computed in is `precision`: bf16 | fp32
    "reduce_dtype": "fp32",
    "buffers": "fp32",
    "autocast": None,  # None | bf16: torch.autocast around the forward pass besides, as accelerate has it
    "micro_batches": 1,
    "no_sync": True,  # around all micro-batches of a step but the last
    "batches": "collated",
}

DEFAULTS = {**SETTINGS, **MORE_SETTINGS, "precision": "bf16", "optimizer": "adamw foreach"}

RECORDINGS = {
    "llama_8": (llama(), {}),
    "llama_2": (llama(), {"world": 2, "batch": 2}),
    "llama_64": (llama(), {"world": 64}),
    "llama_64_last": (llama(), {"world": 64, "rank": 63}),
    "llama_layers_8": (llama(**DEEP), {"batch": 4}),
    "llama_layers_8_clipped": (llama(**DEEP), {"batch": 2, "clip_grad_norm": 1.0}),
    "llama_layers_4_rank_3": (llama(**DEEP), {"world": 4, "rank": 3, "batch": 2}),
    "llama_layers_8_flat": (llama(**DEEP), {"use_orig_params": False, "batch": 2, "clip_grad_norm": 1.0}),
    "llama_layers_8_grad_op": (llama(**DEEP), {"strategy": "shard_grad_op"}),
    "llama_layers_16_grad_op_flat": (
        llama(**DEEP), {"world": 16, "strategy": "shard_grad_op", "use_orig_params": False},
    ),
    "llama_layers_8_post": (llama(**DEEP), {"backward_prefetch": "backward_post", "batch": 2}),
    "llama_layers_8_no_prefetch": (llama(**DEEP), {"backward_prefetch": None, "batch": 2}),
    "llama_layers_8_forward_prefetch": (llama(**DEEP), {"forward_prefetch": True}),
    "llama_layers_8_unlimited": (llama(**DEEP), {"limit_all_gathers": False}),
    "llama_layers_8_synced": (llama(**DEEP), {"sync_module_states": True}),
    "llama_layers_8_fused": (llama(**DEEP), {"optimizer": "adamw fused", "batch": 2}),
    "llama_layers_8_sgd": (llama(**DEEP), {"optimizer": "sgd foreach"}),
    "llama_layers_8_checkpointed": (llama(**DEEP), {"batch": 4, "checkpointing": "non_reentrant"}),
    "llama_layers_8_reentrant": (llama(**DEEP), {"batch": 4, "checkpointing": "reentrant"}),
    "llama_layers_32_checkpointed_flat": (
        llama(**DEEP),
        {"world": 32, "batch": 4, "checkpointing": "non_reentrant", "use_orig_params": False, "clip_grad_norm": 1.0},
    ),
    "llama_lora_8": (
        llama(**DEEP), {"batch": 2, "adapter": LORA, "autocast": "bf16", "use_orig_params": False},
    ),
    "llama_lora_reentrant_8": (
        llama(**DEEP),
        {"parameters": "bf16", "reduce_dtype": "bf16", "buffers": "bf16", "batch": 4, "checkpointing": "reentrant",
         "use_orig_params": False, "adapter": {**LORA, "autocast_adapter_dtype": False}},
    ),
    "llama_layers_8_accumulating": (llama(**DEEP), {"micro_batches": 3}),
    "llama_layers_8_accumulating_each": (llama(**DEEP), {"micro_batches": 3, "no_sync": False}),
    "llama_layers_8_grad_op_accumulating": (llama(**DEEP), {"micro_batches": 2, "strategy": "shard_grad_op"}),
    "llama_layers_8_checkpointed_accumulating": (
        llama(**DEEP), {"micro_batches": 2, "checkpointing": "non_reentrant", "batch": 2, "use_orig_params": False},
    ),
    "llama_fp32_8": (llama(**DEEP), {"precision": "fp32", "sequence": 512}),
    "llama_bf16_8": (llama(**DEEP), {"parameters": "bf16", "reduce_dtype": "bf16"}),
    "llama_reduce_bf16_8": (llama(**DEEP), {"reduce_dtype": "bf16"}),
    "llama_accelerate_8": (
        llama(**DEEP),
        {"reduce_dtype": "bf16", "buffers": "bf16", "autocast": "bf16", "sync_module_states": True, "clip_grad_norm": 1.0},
    ),
    "llama_autocast_8": (llama(**DEEP), {"precision": "fp32", "autocast": "bf16", "batch": 2}),
    "llama_uneven_6": (llama(**DEEP), {"world": 6}),
    "llama_uneven_6_last": (llama(**DEEP), {"world": 6, "rank": 5}),
    "llama_uneven_6_flat_last": (llama(**DEEP), {"world": 6, "rank": 5, "use_orig_params": False}),
    "llama_uneven_48_last": (llama(**DEEP), {"world": 48, "rank": 47}),
    "llama_hybrid_16": (llama(**DEEP), {"world": 16, "shard_group": 8, "strategy": "hybrid_shard"}),
    "llama_hybrid_32_zero2": (
        llama(**DEEP),
        {"world": 32, "shard_group": 4, "strategy": "_hybrid_shard_zero2", "reduce_dtype": "bf16", "micro_batches": 2},
    ),
    "llama_no_shard_8": (llama(**DEEP), {"strategy": "no_shard"}),
    "llama_tied_8": (llama(**DEEP, tie_word_embeddings=True), {}),
    "qwen3_8": (qwen3(), {"clip_grad_norm": 1.0}),
    "qwen3_checkpointed_16": (
        qwen3(vocab_size=8192, num_hidden_layers=6), {"world": 16, "batch": 4, "checkpointing": "non_reentrant"},
    ),
    "mixtral_8": (mixtral(**DEEP), {**GROUPED, "batch": 2}),
    "qwen3_moe_8_checkpointed": (
        qwen3_moe(), {**GROUPED, "batch": 4, "checkpointing": "non_reentrant", "clip_grad_norm": 1.0},
    ),
    "gpt2_4": (gpt2(n_layer=4, vocab_size=8192), {"world": 4, "sequence": 512}),
    "gpt2_8_flat": (gpt2(vocab_size=8192), {"batch": 4, "checkpointing": "non_reentrant", "use_orig_params": False}),
    "gpt_neox_8": (gpt_neox(vocab_size=2048), {}),
    "olmo2_8": (olmo2(vocab_size=8192), {"clip_grad_norm": 1.0}),
    "phi3_accumulating_24": (phi3(vocab_size=8192), {"world": 24, "micro_batches": 2, "sequence": 777}),
}
