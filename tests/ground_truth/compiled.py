"""What is recorded of trainings under torch.compile: models and settings as in sharded.py, on one device or sharded."""

from recordings import gpt_neox, llama, olmo2, phi3, qwen3
from sharded import DEFAULTS as OF_SHARDED

DEFAULTS = {
    **OF_SHARDED,
    "world": 1,
    "modules": "transformers",  # transformers | litgpt
    "compile": "model",  # model: torch.compile(model); regional: each layer, as accelerate's compile_regions does
    "parameters": "bf16",
    "reduce_dtype": "bf16",
    "optimizer": "adamw fused",
}

DEEP = {"num_hidden_layers": 6, "vocab_size": 8192}
LITGPT = {"modules": "litgpt", "outputs": "kept"}
SHARDED = {"world": 8}

RECORDINGS = {
    "litgpt_llama": (llama(**DEEP, num_key_value_heads=16, head_dim=64), {**LITGPT}),
    "litgpt_llama_batch_4": (llama(**DEEP, num_key_value_heads=16), {**LITGPT, "batch": 4}),
    "litgpt_llama_grouped": (llama(**DEEP), {**LITGPT, "batch": 2}),
    "litgpt_neox": (gpt_neox(**DEEP), {**LITGPT, "batch": 4}),
    "litgpt_neox_long": (gpt_neox(**DEEP, max_position_embeddings=4096), {**LITGPT, "sequence": 4096}),
    "litgpt_llama_8": (llama(**DEEP, num_key_value_heads=16), {**LITGPT, **SHARDED, "batch": 2}),
    "litgpt_llama_8_kept": (
        llama(**DEEP, num_key_value_heads=16), {**LITGPT, **SHARDED, "reshard_after_forward": False, "batch": 4},
    ),
    "litgpt_neox_8_kept": (gpt_neox(**DEEP), {**LITGPT, **SHARDED, "reshard_after_forward": False, "batch": 4}),
    "regional_llama": (llama(**DEEP), {"compile": "regional", "batch": 4}),
    "regional_llama_checkpointed": (
        llama(**DEEP), {"compile": "regional", "batch": 4, "checkpointing": "non_reentrant"},
    ),
    "regional_qwen3": (qwen3(vocab_size=8192), {"compile": "regional", "batch": 2}),
    "regional_neox": (gpt_neox(**DEEP), {"compile": "regional", "batch": 2}),
    "regional_phi3": (phi3(vocab_size=8192), {"compile": "regional", "batch": 2}),
    "regional_olmo2": (olmo2(vocab_size=8192), {"compile": "regional", "batch": 2}),
    "llama_8": (llama(**DEEP), {**SHARDED, "batch": 4}),
    "llama_8_fp32": (llama(**DEEP), {**SHARDED, "batch": 2, "parameters": "fp32", "reduce_dtype": "fp32"}),
    "llama_8_kept": (llama(**DEEP), {**SHARDED, "batch": 2, "reshard_after_forward": False}),
    "llama_8_checkpointed": (llama(**DEEP), {**SHARDED, "batch": 4, "checkpointing": "non_reentrant"}),
    "regional_llama_8": (llama(**DEEP), {**SHARDED, "compile": "regional", "batch": 4}),
    "regional_qwen3_8": (qwen3(vocab_size=8192), {**SHARDED, "compile": "regional", "batch": 2}),
    "llama": (llama(**DEEP), {"batch": 2}),
}
