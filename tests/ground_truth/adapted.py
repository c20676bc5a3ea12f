"""What is recorded of models that PEFT adapts: their config.json, how they are trained, and LoraConfig's arguments."""

import drawn

QKVO = ["q_proj", "k_proj", "v_proj", "o_proj"]


def qwen2(recordings, **chosen):
    config = recordings.llama(vocab_size=8192, **chosen)
    dropped = ("head_dim", "attention_bias", "mlp_bias")
    changed = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False}
    return {**{key: value for key, value in config.items() if key not in dropped}, **changed}


def adapted(recordings):
    """By name; `precision` "bf16_autocast" is autocast over bf16 parameters (bf16 = True of a model loaded so)."""
    r = recordings
    deep = {**r.SMALL_VOCABULARY, "num_hidden_layers": 6}
    return {
        "llama_lora_bf16": (r.llama(), {"batch": 2, "adapter": {"r": 16}, "clip_grad_norm": 1.0}),
        "llama_lora_all_linear": (
            r.llama(**deep),
            {"batch": 4, "adapter": {"r": 8, "target_modules": "all-linear", "lora_dropout": 0.1}},
        ),
        "llama_lora_autocast": (
            r.llama(**deep, tie_word_embeddings=True),
            {"batch": 4, "precision": "autocast_bf16", "adapter": {"r": 16, "target_modules": QKVO}},
        ),
        "llama_lora_step": (
            r.llama(**r.WIDE),
            {"sequence": 128, "adapter": {"r": 256, "target_modules": "all-linear"}, "clip_grad_norm": 1.0},
        ),
        "llama_lora_saved_modules": (
            r.llama(vocab_size=4096),
            {"batch": 2, "precision": "autocast_bf16",
             "adapter": {"r": 8, "modules_to_save": ["embed_tokens", "lm_head"]}},
        ),
        "llama_lora_ddp": (
            r.llama(vocab_size=4096),
            {"precision": "autocast_bf16", "ddp": "copies", "adapter": {"r": 64, "target_modules": QKVO}},
        ),
        "mistral_lora_reentrant": (
            r.mistral(vocab_size=1024, num_hidden_layers=6),
            {"batch": 4, "checkpointing": "reentrant",
             "adapter": {"r": 16, "target_modules": QKVO, "lora_dropout": 0.1}, "clip_grad_norm": 1.0},
        ),
        "mistral_lora_narrow": (
            r.mistral(vocab_size=1024),
            {"batch": 2, "checkpointing": "non_reentrant", "micro_batches": 2,
             "adapter": {"r": 16, "autocast_adapter_dtype": False, "lora_dropout": 0.05}},
        ),
        "qwen2_lora_bf16_autocast": (
            qwen2(r),
            {"batch": 2, "precision": "bf16_autocast", "checkpointing": "reentrant", "optimizer": "adamw fused",
             "adapter": {"r": 16, "target_modules": "all-linear", "lora_dropout": 0.1}, "clip_grad_norm": 1.0},
        ),
        "qwen3_lora_checkpointed": (
            r.qwen3(vocab_size=8192, num_hidden_layers=6),
            {"batch": 4, "checkpointing": "non_reentrant", "adapter": {"r": 32, "target_modules": QKVO}},
        ),
        "gemma2_lora_eager": (
            r.gemma2(vocab_size=8192),
            {"batch": 2, "attention": "eager", "checkpointing": "non_reentrant", "adapter": {"r": 16}},
        ),
        "gpt2_lora_autocast": (
            r.gpt2(vocab_size=8192),
            {"batch": 2, "precision": "autocast_bf16", "optimizer": "adamw for-loop",
             "adapter": {"r": 8, "target_modules": "all-linear", "lora_dropout": 0.1}},
        ),
        "phi3_lora_bf16": (
            r.phi3(vocab_size=8192),
            {"batch": 2, "adapter": {"r": 16, "target_modules": "all-linear"}, "micro_batches": 2},
        ),
        "gpt_neox_lora_bf16": (r.gpt_neox(vocab_size=8192), {"batch": 2, "adapter": {"r": 16}, "outputs": "kept"}),
        "gpt_bigcode_lora_ddp": (
            r.gpt_bigcode(vocab_size=8192),
            {"batch": 2, "ddp": "views", "checkpointing": "reentrant", "adapter": {"r": 16, "lora_dropout": 0.1}},
        ),
        **decomposed(r, deep),
    }  # fmt: skip


def decomposed(r, deep):
    """DoRA."""
    dora = {"r": 16, "use_dora": True}
    return {
        "llama_dora_bf16": (r.llama(), {"batch": 2, "adapter": dora, "clip_grad_norm": 1.0}),
        "llama_dora_autocast": (
            r.llama(**deep, tie_word_embeddings=True),
            {"batch": 4, "precision": "autocast_bf16", "adapter": {**dora, "target_modules": QKVO}},
        ),
        "qwen2_dora_bf16_autocast": (
            qwen2(r),
            {"batch": 2, "precision": "bf16_autocast", "checkpointing": "reentrant", "optimizer": "adamw fused",
             "adapter": {**dora, "target_modules": "all-linear"}, "clip_grad_norm": 1.0},
        ),
        "qwen2_dora_dropout": (
            qwen2(r),
            {"batch": 2, "precision": "bf16_autocast", "checkpointing": "non_reentrant",
             "adapter": {**dora, "target_modules": "all-linear", "lora_dropout": 0.1}},
        ),
    }  # fmt: skip


MORE_SETTINGS = {**drawn.MORE_SETTINGS, "adapter": None}


def quantized(recordings):
    """By name: bitsandbytes' linears under adapters (quantized.py)."""
    r = recordings
    deep = {**r.SMALL_VOCABULARY, "num_hidden_layers": 6}
    lora = {"r": 16, "target_modules": QKVO, "lora_dropout": 0.1}
    nf4 = {"format": "nf4", "double_quant": True, "prepare": "all"}
    int8 = {"format": "int8", "prepare": "all"}
    as_loaded = {"r": 8, "target_modules": "all-linear"}
    return {
        "llama_qlora": (
            r.llama(**deep),
            {"batch": 4, "precision": "bf16_autocast", "checkpointing": "reentrant", "adapter": lora,
             "clip_grad_norm": 1.0, "quantization": nf4},
        ),
        "llama_qlora_as_loaded": (
            r.llama(**deep),
            {"batch": 2, "adapter": as_loaded, "quantization": {"format": "nf4", "double_quant": False, "prepare": "none"}},
        ),
        "qwen2_qlora_fp4": (
            qwen2(r),
            {"batch": 2, "precision": "bf16_autocast", "checkpointing": "non_reentrant", "adapter": lora,
             "quantization": {**nf4, "format": "fp4"}},
        ),
        "mistral_qlora_ddp": (
            r.mistral(vocab_size=1024), {"batch": 2, "ddp": "copies", "adapter": as_loaded, "quantization": nf4},
        ),
        "llama_int8": (
            r.llama(**deep), {"batch": 4, "precision": "bf16_autocast", "adapter": lora, "quantization": int8},
        ),
        "llama_int8_as_loaded": (
            r.llama(**deep),
            {"batch": 4, "checkpointing": "reentrant", "adapter": as_loaded, "clip_grad_norm": 1.0,
             "quantization": {**int8, "prepare": "none"}},
        ),
        "qwen2_int8_checkpointed": (
            qwen2(r),
            {"batch": 4, "precision": "bf16_autocast", "checkpointing": "non_reentrant", "adapter": lora,
             "quantization": int8},
        ),
        "mistral_int8_wide": (
            r.mistral(vocab_size=1024), {"batch": 2, "micro_batches": 2, "adapter": as_loaded, "quantization": int8},
        ),
        # TRL's SFTTrainer from 0.26 on: nothing is prepared, and what is trained is cast.
        "llama_qlora_trl": (
            r.llama(**deep),
            {"batch": 4, "precision": "bf16_autocast", "checkpointing": "non_reentrant", "adapter": {**lora, "cast": "bf16"},
             "clip_grad_norm": 1.0, "quantization": {**nf4, "prepare": "none"}},
        ),
        "qwen2_qlora_trl_wide": (
            qwen2(r),
            {"batch": 2, "precision": "autocast_bf16", "checkpointing": "reentrant", "adapter": {**as_loaded, "cast": "bf16"},
             "clip_grad_norm": 1.0, "quantization": {**nf4, "prepare": "none"}},
        ),
        "llama_int8_trl": (
            r.llama(**deep),
            {"batch": 2, "precision": "bf16_autocast", "adapter": {**as_loaded, "cast": "bf16"},
             "quantization": {**int8, "prepare": "none"}},
        ),
    }  # fmt: skip


QUANTIZED_SETTINGS = {**MORE_SETTINGS, "quantization": None}
