"""Recordings of families that transformers alone builds here: one or two each, of few tokens in the vocabulary, so that
layers reach the peak."""

SIZES = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 16,
    "num_key_value_heads": 4, "vocab_size": 2048, "max_position_embeddings": 4096, "use_cache": False,
    "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None,
}  # fmt: skip


MORE_SETTINGS = {"batches": "collated"}  # ids, labels and a mask, as a data loader gives them


def family(name, class_name, **chosen):
    return {"architectures": [f"{class_name}ForCausalLM"], "model_type": name, **SIZES, **chosen}


def drops(*keys, probability=0.1):
    return {key: probability for key in keys}


FAMILIES = {
    "starcoder2_bf16_sdpa": (
        family(
            "starcoder2", "Starcoder2", intermediate_size=4096, hidden_act="gelu_pytorch_tanh", use_bias=True,
            sliding_window=512, tie_word_embeddings=True,
            **drops("residual_dropout", "embedding_dropout"),
        ),
        {"batch": 2},
    ),
    "starcoder2_autocast_checkpointed": (
        family("starcoder2", "Starcoder2", intermediate_size=4096, tie_word_embeddings=True, num_hidden_layers=6),
        {"batch": 4, "precision": "autocast_bf16", "checkpointing": "non_reentrant"},
    ),
    "olmo_bf16_sdpa": (family("olmo", "Olmo", num_key_value_heads=16), {"batch": 2}),
    "olmo_clipped_bf16_sdpa": (family("olmo", "Olmo", clip_qkv=8.0), {"batch": 2}),
    "olmo_autocast_eager": (family("olmo", "Olmo"), {"precision": "autocast_bf16", "attention": "eager"}),
    "olmo3_bf16_sdpa": (family("olmo3", "Olmo3", sliding_window=512), {"batch": 2}),
    "granite_bf16_sdpa": (
        family(
            "granite", "Granite", embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.015625,
            logits_scaling=8.0, tie_word_embeddings=True,
        ),
        {"batch": 2, "clip_grad_norm": 1.0},
    ),
    "granite_whole_logits": (
        family("granite", "Granite", vocab_size=32000, logits_scaling=8.0),
        {"batch": 2, "checkpointing": "non_reentrant"},
    ),
    "cohere_bf16_sdpa": (family("cohere", "Cohere", tie_word_embeddings=True), {"batch": 2}),
    "cohere_whole_logits": (
        family("cohere", "Cohere", vocab_size=32000, tie_word_embeddings=True),
        {"batch": 2, "checkpointing": "non_reentrant"},
    ),
    "cohere2_bf16_sdpa": (
        family("cohere2", "Cohere2", sliding_window=512, layer_norm_eps=1e-5, tie_word_embeddings=True),
        {"batch": 2},
    ),
    "stablelm_bf16_sdpa": (
        family("stablelm", "StableLm", use_qkv_bias=True, num_key_value_heads=16, partial_rotary_factor=0.25),
        {"batch": 2},
    ),
    "stablelm_parallel_bf16_sdpa": (
        family("stablelm", "StableLm", use_parallel_residual=True, partial_rotary_factor=0.25),
        {"batch": 2},
    ),
    "phi_bf16_sdpa": (
        family(
            "phi", "Phi", intermediate_size=4096, num_key_value_heads=16, partial_rotary_factor=0.5,
            hidden_act="gelu_new", resid_pdrop=0.1, embd_pdrop=0.0,
        ),
        {"batch": 2},
    ),
    "phi_autocast_checkpointed": (
        family("phi", "Phi", intermediate_size=4096, num_key_value_heads=16, num_hidden_layers=6),
        {"batch": 4, "precision": "autocast_bf16", "checkpointing": "non_reentrant"},
    ),
    "glm_bf16_sdpa": (family("glm", "Glm", head_dim=64, attention_bias=True, partial_rotary_factor=0.5), {"batch": 2}),
    "glm4_bf16_sdpa": (
        family("glm4", "Glm4", head_dim=64, attention_bias=True, partial_rotary_factor=0.5),
        {"batch": 2},
    ),
    "smollm3_bf16_sdpa": (family("smollm3", "SmolLM3", tie_word_embeddings=True), {"batch": 2}),
    "seed_oss_bf16_sdpa": (
        family("seed_oss", "SeedOss", head_dim=128, **drops("residual_dropout", "attention_dropout")),
        {"batch": 2},
    ),
    "exaone4_bf16_sdpa": (
        family("exaone4", "Exaone4", sliding_window=512, sliding_window_pattern=4),
        {"batch": 2},
    ),
    "ministral_bf16_sdpa": (
        family(
            "ministral", "Ministral", sliding_window=512, head_dim=64,
            layer_types=["full_attention", "sliding_attention"] * 2,
        ),
        {"batch": 2},
    ),
    "ministral3_bf16_sdpa": (family("ministral3", "Ministral3", head_dim=128, sliding_window=None), {"batch": 2}),
}  # fmt: skip
