"""What is recorded of trainings whose parameters, optimizer or activations lie on the host: who trains (`by`, a module
whose `prepare` and `train_step` it is), the model, and the settings that its own recordings have, with `offload` where
nothing else says what is on the host."""

import flat
import recordings
import sharded
import titan
import zero
from recordings import gpt2, llama, phi3, qwen3
from sharded import DEEP
from zero import RELEASING, SMALL_BUCKETS

# A tensor on the host goes through PyTorch's optimizers one by one unless told.
FULLY_SHARDED = {**sharded.DEFAULTS, "optimizer": "adamw for-loop", "offload": "pinned"}  # pinned | pageable

WIDE = {"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 16, "head_dim": 128, "vocab_size": 1024}

FLAT = {**flat.DEFAULTS, "optimizer": "adamw for-loop", "offload": "pinned"}  # CPUOffload(offload_params=True)
TITAN = {**titan.SETTINGS, "offload": "pinned"}  # training.enable_cpu_offload
SAVED = {**recordings.SETTINGS, "micro_batches": 1, "offload": "pinned"}  # save_on_cpu(pin_memory): pinned | pageable
# Megatron's HybridDeviceOptimizer alone: record_hybrid.py says over what.
HYBRID = {
    "megatron": "0.16.0", "world": 8, "rank": 0, "fraction": 1.0, "overlap": False, "precision_aware": False,
    "pin_gradients": True, "pin_parameters": True, "capability": "80",
}  # fmt: skip
# `cpu_adam` is DeepSpeedCPUAdam; others are PyTorch's optimizers.
ZERO = {**zero.DEFAULTS, "optimizer": "cpu_adam"}
OPTIMIZER = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
OPTIMIZER_PAGEABLE = {"offload_optimizer": {"device": "cpu", "pin_memory": False}}
PARAMETERS = {"offload_param": {"device": "cpu", "pin_memory": True}}
PARAMETERS_PAGEABLE = {"offload_param": {"device": "cpu", "pin_memory": False}}
BUCKETS = SMALL_BUCKETS
STAGE_3 = {**SMALL_BUCKETS, **RELEASING}
NVME = "/tmp/tidemark-nvme"  # nothing is written there
OPTIMIZER_NVME = {
    "offload_optimizer": {"device": "nvme", "nvme_path": NVME, "pin_memory": True, "buffer_count": 4},
}
PARAMETERS_NVME = {
    "offload_param": {"device": "nvme", "nvme_path": NVME, "pin_memory": True, "buffer_count": 5,
                      "buffer_size": 4_000_000, "max_in_cpu": 0},
}  # fmt: skip


def zero_of(stage, ds, config=None, **settings):
    return "record_zero", config or llama(**DEEP), {"stage": stage, "ds": ds, **settings}


# name: (by, config, settings)
RECORDINGS = {
    "fsdp2_8": ("record_sharded", llama(**DEEP), {}),
    "fsdp2_8_pageable": ("record_sharded", llama(**DEEP), {"offload": "pageable"}),
    "fsdp2_2": ("record_sharded", llama(), {"world": 2, "batch": 2}),
    "fsdp2_2_pageable": ("record_sharded", llama(), {"world": 2, "batch": 2, "offload": "pageable"}),
    "fsdp2_64_last": ("record_sharded", llama(**DEEP), {"world": 64, "rank": 63}),
    "fsdp2_48_uneven": ("record_sharded", llama(**DEEP), {"world": 48, "rank": 47}),
    "fsdp2_accumulating_4": ("record_sharded", llama(**DEEP), {"world": 4, "micro_batches": 3}),
    "fsdp2_accumulating_each_4": (
        "record_sharded", llama(**DEEP), {"world": 4, "micro_batches": 3, "sync_each_batch": True},
    ),
    "fsdp2_accumulating_each_4_pageable": (
        "record_sharded", llama(**DEEP),
        {"world": 4, "micro_batches": 2, "sync_each_batch": True, "offload": "pageable"},
    ),
    "fsdp2_hsdp_16": ("record_sharded", llama(**DEEP), {"world": 16, "shard_group": 8}),
    "fsdp2_hsdp_16_accumulating": (
        "record_sharded", llama(**DEEP), {"world": 16, "shard_group": 4, "micro_batches": 2},
    ),
    "fsdp2_bf16_8": ("record_sharded", llama(**DEEP), {"parameters": "bf16", "reduce_dtype": "bf16"}),
    "fsdp2_reduce_bf16_8": ("record_sharded", llama(**DEEP), {"reduce_dtype": "bf16"}),
    "fsdp2_fp32_8": ("record_sharded", llama(**DEEP), {"precision": "fp32", "sequence": 512}),
    "fsdp2_clipped_8": ("record_sharded", llama(**DEEP), {"clip_grad_norm": 1.0, "batch": 2}),
    "fsdp2_clipped_foreach_8": (
        "record_sharded", llama(**DEEP), {"clip_grad_norm": 1.0, "optimizer": "adamw foreach"},
    ),
    "fsdp2_fused_8": ("record_sharded", llama(**DEEP), {"optimizer": "adamw fused", "clip_grad_norm": 1.0}),
    "fsdp2_checkpointed_8": (
        "record_sharded", llama(**DEEP), {"batch": 4, "checkpointing": "non_reentrant", "clip_grad_norm": 1.0},
    ),
    "fsdp2_kept_8": ("record_sharded", llama(**DEEP), {"reshard_after_forward": False}),
    "fsdp2_tied_8": ("record_sharded", llama(**DEEP, tie_word_embeddings=True), {}),
    "fsdp2_qwen3_8": ("record_sharded", qwen3(vocab_size=8192), {"clip_grad_norm": 1.0}),
    "fsdp2_gpt2_4": ("record_sharded", gpt2(n_layer=4, vocab_size=8192), {"world": 4, "sequence": 512}),
    "fsdp2_wide_8": ("record_sharded", llama(**WIDE), {"sequence": 256}),
    "fsdp2_lora_8": ("record_sharded", llama(**DEEP), {"batch": 2, "adapter": sharded.LORA}),
    "zero2_lora_8": zero_of(2, {**BUCKETS, **OPTIMIZER}, batch=2, adapter=sharded.LORA, clip_grad_norm=1.0),
    "zero2_8": zero_of(2, {**BUCKETS, **OPTIMIZER}, batch=2),
    "zero2_8_pageable": zero_of(2, {**BUCKETS, **OPTIMIZER_PAGEABLE}, batch=2),
    "zero2_accumulating_8": zero_of(2, {**BUCKETS, **OPTIMIZER}, micro_batches=3),
    "zero2_accumulating_8_pageable": zero_of(2, {**BUCKETS, **OPTIMIZER_PAGEABLE}, micro_batches=2),
    "zero2_clipped_2": zero_of(2, {**BUCKETS, **OPTIMIZER}, world=2, clip_grad_norm=1.0),
    "zero2_checkpointed_64_last": zero_of(
        2, {**BUCKETS, **OPTIMIZER}, world=64, rank=63, batch=4, checkpointing="non_reentrant",
    ),
    "zero2_fp16_8": zero_of(2, {**BUCKETS, **OPTIMIZER}, precision="fp16", batch=2),
    "zero2_overlapped_8": zero_of(2, {**BUCKETS, **OPTIMIZER, "overlap_comm": True}, batch=2),
    "zero2_torch_adam_8": zero_of(2, {**BUCKETS, **OPTIMIZER}, optimizer="adamw for-loop"),
    "zero2_qwen3_8": zero_of(2, {**BUCKETS, **OPTIMIZER}, qwen3(vocab_size=8192), clip_grad_norm=1.0),
    "zero1_8": zero_of(1, {**BUCKETS, **OPTIMIZER}, batch=2),
    "zero1_accumulating_4": zero_of(1, {**BUCKETS, **OPTIMIZER}, world=4, micro_batches=2),
    "zero3_optimizer_8": zero_of(3, {**STAGE_3, **OPTIMIZER}, batch=2),
    "zero3_optimizer_8_pageable": zero_of(3, {**STAGE_3, **OPTIMIZER_PAGEABLE}, batch=2),
    "zero3_8": zero_of(3, {**STAGE_3, **OPTIMIZER, **PARAMETERS}, batch=2),
    "zero3_8_pageable": zero_of(3, {**STAGE_3, **OPTIMIZER_PAGEABLE, **PARAMETERS_PAGEABLE}, batch=2),
    "zero3_parameters_8": zero_of(3, {**STAGE_3, **PARAMETERS}, batch=2, optimizer="adamw foreach"),
    "zero3_defaults_8": zero_of(3, {**BUCKETS, **OPTIMIZER, **PARAMETERS}, batch=2),
    "zero3_accumulating_4": zero_of(3, {**STAGE_3, **OPTIMIZER, **PARAMETERS}, world=4, micro_batches=2),
    "zero3_accumulating_fp32_4": zero_of(
        3, {**STAGE_3, **OPTIMIZER, **PARAMETERS}, world=4, micro_batches=2, accumulation="fp32",
    ),
    "zero3_clipped_64": zero_of(
        3, {**STAGE_3, **OPTIMIZER, **PARAMETERS}, world=64, clip_grad_norm=1.0, checkpointing="non_reentrant",
    ),
    "zero3_sub_groups_8": zero_of(3, {**STAGE_3, **OPTIMIZER, **PARAMETERS, "sub_group_size": 2_000_000}),
    "zero3_ratio_8": zero_of(
        3,
        {
            **STAGE_3, "sub_group_size": 2_000_000,
            "offload_optimizer": {"device": "cpu", "pin_memory": True, "ratio": 0.4},
        },
    ),
    "zero3_gpt2_4": zero_of(
        3, {**STAGE_3, **OPTIMIZER, **PARAMETERS}, gpt2(n_layer=4, vocab_size=8192), world=4, sequence=512,
    ),
    "zero3_phi3_6_last": zero_of(3, {**STAGE_3, **OPTIMIZER, **PARAMETERS}, phi3(vocab_size=8192), world=6, rank=5),
    "zero3_lora_8": zero_of(3, {**STAGE_3, **OPTIMIZER, **PARAMETERS}, batch=2, adapter=zero.LORA, clip_grad_norm=1.0),
    "zero3_lora_optimizer_8_pageable": zero_of(
        3, {**STAGE_3, **OPTIMIZER_PAGEABLE}, batch=4, checkpointing="reentrant", adapter={**zero.LORA, "r": 64},
    ),
    "zero3_lora_parameters_8": zero_of(
        3, {**STAGE_3, **PARAMETERS_PAGEABLE}, batch=2, optimizer="adamw foreach", adapter=zero.LORA,
    ),
    "zero3_lora_narrow_4": zero_of(
        3, {**STAGE_3, **OPTIMIZER, **PARAMETERS}, world=4, rank=3, micro_batches=2, checkpointing="non_reentrant",
        adapter={**zero.LORA, "r": 64, "autocast_adapter_dtype": False},
    ),
    "zero3_qlora_8": zero_of(
        3, {**STAGE_3, **OPTIMIZER, **PARAMETERS}, batch=2, clip_grad_norm=1.0, adapter=zero.LORA,
        quantization={"format": "nf4", "double_quant": True, "prepare": "all"},
    ),
    "zero3_qlora_optimizer_4_pageable": zero_of(
        3, {**STAGE_3, **OPTIMIZER_PAGEABLE}, world=4, rank=3, batch=4, checkpointing="reentrant",
        adapter={**zero.LORA, "r": 64},
        quantization={"format": "nf4", "double_quant": True, "prepare": "none", "storage": "bf16"},
    ),
    "zero3_nvme_optimizer_8": zero_of(3, {**STAGE_3, **OPTIMIZER_NVME, "sub_group_size": 2_000_000}),
    "zero3_nvme_optimizer_pipelined_8": zero_of(
        3,
        {
            **STAGE_3, "sub_group_size": 2_000_000,
            "offload_optimizer": {
                **OPTIMIZER_NVME["offload_optimizer"], "buffer_count": 12,
                "pipeline_read": True, "pipeline_write": True,
            },
        },
    ),
    "zero3_nvme_8": zero_of(
        3, {**STAGE_3, **OPTIMIZER_NVME, **PARAMETERS_NVME, "sub_group_size": 2_000_000}, world=2,
    ),
    "fsdp_8": ("record_flat", llama(**DEEP), {"batch": 2}),
    "fsdp_accumulating_4": ("record_flat", llama(**DEEP), {"world": 4, "micro_batches": 2, "no_sync": False}),
    "fsdp_clipped_8": ("record_flat", llama(**DEEP), {"clip_grad_norm": 1.0, "autocast": "bf16"}),
    "fsdp_flat_8": ("record_flat", llama(**DEEP), {"use_orig_params": False, "strategy": "shard_grad_op"}),
    "fsdp_lora_8": (
        "record_flat", llama(**DEEP),
        {"batch": 2, "adapter": sharded.LORA, "autocast": "bf16", "use_orig_params": False, "clip_grad_norm": 1.0},
    ),
    "fsdp_lora_reentrant_8": (
        "record_flat", llama(**DEEP),
        {"parameters": "bf16", "reduce_dtype": "bf16", "buffers": "bf16", "batch": 4, "checkpointing": "reentrant",
         "use_orig_params": False, "adapter": {**sharded.LORA, "autocast_adapter_dtype": False}},
    ),
    "fsdp_lora_views_4": (
        "record_flat", llama(**DEEP),
        {"world": 4, "rank": 3, "adapter": sharded.LORA, "autocast": "bf16", "checkpointing": "non_reentrant"},
    ),
    "titan_8": ("record_titan", llama(**DEEP), {"batch": 2}),
    "titan_8_op": ("record_titan", llama(**DEEP), {"batch": 2, "checkpointing": "op"}),
    "titan_16_accumulating": ("record_titan", llama(**DEEP), {"world": 16, "replicate": 2, "micro_batches": 2}),
    "titan_qwen3_8_full": ("record_titan", qwen3(**titan.UNTIED), {"checkpointing": "full"}),
    "saved_llama": ("record_saved", llama(vocab_size=4096), {"precision": "autocast_bf16"}),
    "saved_llama_pageable": ("record_saved", llama(vocab_size=4096), {"offload": "pageable"}),
    "saved_llama_checkpointed": (
        "record_saved", llama(vocab_size=4096), {"batch": 2, "checkpointing": "non_reentrant", "micro_batches": 2},
    ),
    "hybrid_8": ("record_hybrid", llama(**DEEP), {}),
    "hybrid_8_half_overlapped": ("record_hybrid", llama(**DEEP), {"fraction": 0.5, "overlap": True}),
    "hybrid_8_precision_aware": ("record_hybrid", llama(**DEEP), {"precision_aware": True}),
    "hybrid_2_half_precision_aware": (
        "record_hybrid", llama(**DEEP), {"world": 2, "fraction": 0.5, "precision_aware": True, "overlap": True},
    ),
    "hybrid_8_pageable_gradients": ("record_hybrid", llama(**DEEP), {"pin_gradients": False}),
    "saved_gpt2": ("record_saved", gpt2(n_layer=4, vocab_size=8192), {"sequence": 512, "precision": "autocast_bf16"}),
}  # fmt: skip

# What happens on the host is written event by event too: while all is set up, and in the first and the last step.
WITH_EVENTS = (
    "fsdp2_8", "fsdp2_8_pageable", "fsdp2_accumulating_each_4", "fsdp2_clipped_foreach_8",
)  # fmt: skip

DEFAULTS = {
    "record_sharded": FULLY_SHARDED, "record_zero": ZERO, "record_flat": FLAT, "record_titan": TITAN,
    "record_saved": SAVED, "record_hybrid": HYBRID,
}  # fmt: skip


def settings_of(name):
    by, config, chosen = RECORDINGS[name]
    defaults = {**DEFAULTS[by], **{key: None for key in ("adapter", "quantization") if key in chosen}}
    unknown = set(chosen) - set(defaults)
    assert not unknown, f"{name}: unknown settings {unknown}"
    return dict(config), {**defaults, **chosen}
