"""What is recorded: models by their config.json, and how they are trained."""

SETTINGS = {
    "batch": 1,
    "sequence": 1024,
    "precision": "pure_bf16",  # pure_bf16, fp32, autocast_bf16 (over fp32 parameters)
    "optimizer": "adamw foreach",  # adamw | sgd | sgd_momentum, then foreach | fused | for-loop
    "clip_grad_norm": None,
    "checkpointing": None,  # None | non_reentrant | reentrant, of every decoder layer
    "attention": "sdpa",  # sdpa | eager
    "outputs": "dropped",  # dropped: loss = model(...).loss; kept: outputs = model(...); loss = outputs.loss
    "ddp": None,  # None | views | copies
    "capability": "80",  # the fake device's compute capability: it chooses SDPA's kernel
}

# use_cache is false in all but one: transformers defaults to true and then copies every layer's keys and values into
# a cache in training too, unless it checkpoints.
LLAMA_GQA = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False, "use_cache": False,
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "n_embd": 768, "n_layer": 6, "n_head": 12, "n_positions": 1024, "vocab_size": 50257,
    "activation_function": "gelu_new", "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1,
    "tie_word_embeddings": True, "use_cache": False,
}  # fmt: skip

RECORDINGS = {
    "llama_gqa_bf16_sdpa": (LLAMA_GQA, {"batch": 2}),
    "llama_gqa_bf16_eager": (LLAMA_GQA, {"batch": 2, "attention": "eager"}),
    "gpt2_bf16_sdpa": (GPT2, {"batch": 2}),
    "llama_gqa_bf16_checkpointed": (LLAMA_GQA, {"batch": 4, "checkpointing": "non_reentrant"}),
}

# Their whole last step is written too, op by op.
WITH_EVENTS = ()


def settings_of(name):
    config, chosen = RECORDINGS[name]
    unknown = set(chosen) - set(SETTINGS)
    assert not unknown, f"{name}: unknown settings {unknown}"
    return dict(config), {**SETTINGS, **chosen}
