"""Mixtures of experts by transformers' own modules, by name: settings beside those of recordings.py. Experts are
multiplied by PyTorch's grouped kernel, which an H100 has. Checkpointed ones are in sharded.py, flat.py and zero.py: under
StorageLog an interrupted recomputation lets go of its tensors later than without."""

from recordings import mixtral, qwen2_moe, qwen3_moe

SGD = {"optimizer": "sgd foreach"}  # so that the step is not what takes most
SMALL = {"vocab_size": 1024}
LORA = {"r": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"], "lora_dropout": 0.1}
ALL = {"r": 16, "target_modules": "all-linear"}  # of experts: beside their parameters

EXPERTS = {
    "mixtral_bf16_layers": (mixtral(**SMALL, num_hidden_layers=6), {**SGD, "batch": 4, "clip_grad_norm": 1.0}),
    "qwen3_moe_bf16": (qwen3_moe(), {**SGD, "batch": 2}),
    "qwen3_moe_dense_layers": (
        qwen3_moe(**SMALL, decoder_sparse_step=2, num_hidden_layers=6), {**SGD, "batch": 2, "sequence": 777},
    ),
    "qwen3_moe_ddp": (qwen3_moe(**SMALL), {**SGD, "ddp": "views"}),
    "qwen3_moe_lora": (qwen3_moe(**SMALL), {"batch": 2, "adapter": LORA, "clip_grad_norm": 1.0}),
    "mixtral_lora_experts": (
        mixtral(**SMALL),
        {"batch": 2, "precision": "bf16_autocast",
         "adapter": {"r": 8, "target_modules": ["q_proj", "v_proj", "w1", "w2", "w3"]}},
    ),
    "mixtral_lora_down": (
        mixtral(**SMALL), {"adapter": {"r": 8, "target_modules": ["q_proj", "w2"], "autocast_adapter_dtype": False}},
    ),
    "qwen3_moe_lora_experts_ddp": (qwen3_moe(**SMALL), {"ddp": "copies", "adapter": ALL}),
    "qwen2_moe_bf16": (qwen2_moe(), {**SGD, "batch": 2}),
}  # fmt: skip

MORE_SETTINGS = {"capability": "90", "batches": "collated", "adapter": None}
