"""What is recorded: models by their config.json, and how they are trained."""

import sys

import adapted
import drawn
import families

SETTINGS = {
    "batch": 1,
    "sequence": 1024,
    "precision": "pure_bf16",  # pure_bf16 | fp32 | autocast_bf16, autocast_fp16 (over fp32 parameters)
    "optimizer": "adamw foreach",  # adamw | sgd | sgd_momentum, then foreach | fused | for-loop
    "clip_grad_norm": None,
    "checkpointing": None,  # None | non_reentrant | reentrant, of every decoder layer
    "attention": "sdpa",  # sdpa | eager
    "outputs": "dropped",  # dropped: loss = model(...).loss; kept: outputs = model(...); loss = outputs.loss
    "ddp": None,  # None | views | copies: gradient_as_bucket_view
    "capability": "80",  # the device's compute capability: it chooses SDPA's kernel
}

# use_cache is false in all but one: transformers defaults to true and then copies every layer's keys and values into
# a cache in training too, unless it checkpoints.


def llama(**chosen):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816,
        "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64,
        "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
        "use_cache": False, **chosen,
    }  # fmt: skip


def gpt2(**chosen):
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 768, "n_layer": 6, "n_head": 12,
        "n_positions": 1024, "vocab_size": 50257, "activation_function": "gelu_new", "embd_pdrop": 0.1,
        "attn_pdrop": 0.1, "resid_pdrop": 0.1, "tie_word_embeddings": True, "use_cache": False, **chosen,
    }  # fmt: skip


def no_dropout():
    return {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}


def qwen3(**chosen):
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 128000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": True, "use_sliding_window": False,
        "use_cache": False, **chosen,
    }  # fmt: skip


def qwen3_moe(**chosen):
    return {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 1024,
        "intermediate_size": 3072, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
        "head_dim": 128, "vocab_size": 8192, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False,
        "use_sliding_window": False, "use_cache": False, "num_experts": 32, "num_experts_per_tok": 4,
        "moe_intermediate_size": 512, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
        **chosen,
    }  # fmt: skip


def mixtral(**chosen):
    return {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 1024,
        "intermediate_size": 1792, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 128, "vocab_size": 8192, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0, "hidden_act": "silu", "sliding_window": None, "tie_word_embeddings": False,
        "use_cache": False, "num_local_experts": 8, "num_experts_per_tok": 2, **chosen,
    }  # fmt: skip


def qwen2_moe(**chosen):
    return {
        "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "hidden_size": 1024,
        "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
        "vocab_size": 8192, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "use_sliding_window": False, "use_cache": False,
        "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 512, "norm_topk_prob": False,
        "shared_expert_intermediate_size": 2048, "decoder_sparse_step": 1, "mlp_only_layers": [], "qkv_bias": True,
        **chosen,
    }  # fmt: skip


def deepseek_v2(**chosen):
    return {
        "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 1024,
        "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 16,
        "vocab_size": 8192, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False, "use_cache": False,
        "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "n_routed_experts": 32, "n_shared_experts": 2, "num_experts_per_tok": 4, "moe_intermediate_size": 512,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "norm_topk_prob": False, "routed_scaling_factor": 1.0,
        "scoring_func": "softmax", "topk_method": "greedy", "n_group": 1, "topk_group": 1,
        **chosen,
    }  # fmt: skip


def deepseek_v3(**chosen):
    return deepseek_v2(
        **{
            "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_nextn_predict_layers": 0,
            "q_lora_rank": 384, "n_shared_experts": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
            "scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": 8, "topk_group": 4,
            **chosen,
        }
    )  # fmt: skip


def mistral(**chosen):
    return {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 1024,
        "intermediate_size": 3584, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 128, "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "sliding_window": None, "tie_word_embeddings": False,
        "use_cache": False, **chosen,
    }  # fmt: skip


def gemma2(**chosen):
    return {
        "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_size": 1024,
        "intermediate_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 256, "vocab_size": 64000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 4096,
        "attention_bias": False, "tie_word_embeddings": True, "use_cache": False, **chosen,
    }  # fmt: skip


def gpt_neox(**chosen):
    return {
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 1024,
        "intermediate_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 16, "vocab_size": 50304,
        "max_position_embeddings": 2048, "rotary_pct": 0.25, "rotary_emb_base": 10000, "hidden_act": "gelu",
        "use_parallel_residual": True, "hidden_dropout": 0.0, "attention_dropout": 0.0, "attention_bias": True,
        "layer_norm_eps": 1e-5, "tie_word_embeddings": False, "use_cache": False, **chosen,
    }  # fmt: skip


def gpt_bigcode(**chosen):
    return {
        "architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode", "n_embd": 1024, "n_layer": 4,
        "n_head": 16, "n_inner": 4096, "n_positions": 2048, "vocab_size": 49152, "multi_query": True,
        "activation_function": "gelu_pytorch_tanh", "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1,
        "attention_softmax_in_fp32": True, "scale_attention_softmax_in_fp32": True, "tie_word_embeddings": True,
        "use_cache": False, **chosen,
    }  # fmt: skip


def olmo2(**chosen):
    return {
        "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "hidden_size": 1024, "intermediate_size": 2816,
        "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 32000,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 500000.0, "hidden_act": "silu",
        "attention_bias": False, "tie_word_embeddings": False, "use_cache": False, **chosen,
    }  # fmt: skip


def phi3(**chosen):
    return {
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": 1024, "intermediate_size": 2816,
        "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32064,
        "max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "attention_dropout": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        "pad_token_id": None, "eos_token_id": None, "bos_token_id": None, "tie_word_embeddings": False,
        "use_cache": False, **chosen,
    }  # fmt: skip


SMALL_VOCABULARY = {"vocab_size": 1024}
WIDE = {
    "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 2, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 1024,
}  # fmt: skip

HEADS_OF_100 = {
    **SMALL_VOCABULARY, "hidden_size": 800, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 100,
    "intermediate_size": 1600,
}  # fmt: skip

RECORDINGS = {
    # The loss is the peak: logits' gradient beside the softmax that was saved.
    "llama_gqa_bf16_sdpa": (llama(), {"batch": 2}),
    "llama_gqa_bf16_eager": (llama(), {"batch": 2, "attention": "eager"}),
    "gpt2_bf16_sdpa": (gpt2(), {"batch": 2}),
    "llama_gqa_bf16_checkpointed": (llama(), {"batch": 4, "checkpointing": "non_reentrant"}),
    # Heads that are no multiple of 8, as OpenLLaMA-3B's: scaled_dot_product_attention pads them in 16 bits.
    "llama_heads_of_100_bf16": (llama(**HEADS_OF_100), {"batch": 2}),
    "llama_heads_of_100_fp32": (llama(**HEADS_OF_100), {"precision": "fp32"}),
    # A small vocabulary moves the peak into the layers' backward, many parameters into the optimizer's step.
    "llama_gqa_bf16_layers": (llama(**SMALL_VOCABULARY, num_hidden_layers=6), {"batch": 4, "clip_grad_norm": 1.0}),
    "llama_gqa_bf16_checkpointed_layers": (
        llama(**SMALL_VOCABULARY, num_hidden_layers=8),
        {"batch": 4, "checkpointing": "non_reentrant", "clip_grad_norm": 1.0},
    ),
    "llama_gqa_bf16_reentrant_layers": (
        llama(**SMALL_VOCABULARY, num_hidden_layers=8),
        {"batch": 4, "checkpointing": "reentrant", "optimizer": "sgd_momentum foreach"},
    ),
    "llama_bf16_step_foreach": (llama(**WIDE), {"sequence": 256, "clip_grad_norm": 1.0}),
    "llama_bf16_step_for_loop": (llama(**WIDE), {"sequence": 256, "optimizer": "adamw for-loop"}),
    "llama_bf16_step_fused": (llama(**WIDE), {"sequence": 256, "optimizer": "adamw fused", "clip_grad_norm": 1.0}),
    "llama_mha_fp32_sdpa": (
        llama(vocab_size=2000, num_key_value_heads=16),
        {"batch": 2, "sequence": 512, "precision": "fp32", "optimizer": "adamw for-loop", "clip_grad_norm": 1.0},
    ),
    "llama_mha_autocast_sdpa": (
        llama(num_key_value_heads=16, vocab_size=4096),
        {"batch": 2, "precision": "autocast_bf16", "optimizer": "adamw fused", "clip_grad_norm": 1.0},
    ),
    "llama_gqa_autocast_eager_reentrant": (
        llama(num_hidden_layers=6, vocab_size=4096),
        {"batch": 2, "precision": "autocast_bf16", "attention": "eager", "checkpointing": "reentrant"},
    ),
    "llama_gqa_autocast_kept_cache": (
        llama(use_cache=True),
        {"batch": 2, "sequence": 512, "precision": "autocast_bf16", "outputs": "kept"},
    ),
    "llama_gqa_bf16_tied_long": (
        llama(tie_word_embeddings=True, vocab_size=8192, num_hidden_layers=2),
        {"sequence": 2048, "optimizer": "sgd foreach", "outputs": "kept"},
    ),
    "llama_ddp_views": (llama(vocab_size=4096), {"precision": "autocast_bf16", "ddp": "views", "clip_grad_norm": 1.0}),
    "llama_ddp_copies": (llama(vocab_size=4096), {"precision": "autocast_bf16", "ddp": "copies"}),
    "gpt2_ddp_views_bf16": (gpt2(n_layer=4), {"sequence": 512, "ddp": "views", "optimizer": "adamw fused"}),
    "gpt2_fp32_eager": (
        gpt2(n_layer=4, vocab_size=8192),
        {"batch": 2, "sequence": 512, "precision": "fp32", "attention": "eager"},
    ),
    "gpt2_autocast_no_dropout": (
        gpt2(**no_dropout()),
        {"batch": 2, "precision": "autocast_bf16", "optimizer": "adamw fused"},
    ),
    "gpt2_autocast_checkpointed": (
        gpt2(vocab_size=8192, n_layer=8),
        {"batch": 4, "precision": "autocast_bf16", "checkpointing": "non_reentrant", "clip_grad_norm": 1.0},
    ),
    "gpt2_fp16_scaler": (gpt2(vocab_size=16384), {"batch": 2, "precision": "autocast_fp16", "clip_grad_norm": 1.0}),
    "qwen3_bf16_sdpa": (qwen3(), {"clip_grad_norm": 1.0}),
    "qwen3_bf16_checkpointed": (
        qwen3(vocab_size=8192, num_hidden_layers=6),
        {"batch": 4, "checkpointing": "non_reentrant"},
    ),
    "mistral_bf16_sdpa": (mistral(), {"batch": 1, "sequence": 2048, "clip_grad_norm": 1.0}),
    "gemma2_bf16_eager": (gemma2(), {"attention": "eager"}),
    "gemma2_autocast_checkpointed": (
        gemma2(vocab_size=8192),
        {"batch": 2, "precision": "autocast_bf16", "attention": "eager", "checkpointing": "non_reentrant"},
    ),
    "gpt_neox_bf16_sdpa": (gpt_neox(), {"batch": 2}),
    "gpt_neox_fp32_eager": (
        gpt_neox(vocab_size=2048),
        {"batch": 2, "sequence": 512, "precision": "fp32", "attention": "eager"},
    ),
    "gpt_bigcode_bf16_sdpa": (gpt_bigcode(), {"batch": 2}),
    "gpt_bigcode_bf16_eager": (gpt_bigcode(vocab_size=4096), {"batch": 2, "attention": "eager"}),
    "olmo2_autocast_sdpa": (olmo2(), {"precision": "autocast_bf16", "clip_grad_norm": 1.0}),
    "phi3_bf16_sdpa": (phi3(), {"batch": 2, "clip_grad_norm": 1.0}),
}

# Their whole last step is written too, op by op.
WITH_EVENTS = ("llama_bf16_step_foreach", "gpt2_fp32_eager", "llama_gqa_bf16_tied_long", "llama_gqa_bf16_sdpa")


DRAWN = {drawn.name_of(seed): seed for seed in drawn.SEEDS}
QUANTIZED = adapted.quantized(sys.modules[__name__])
ADAPTED = {**adapted.adapted(sys.modules[__name__]), **QUANTIZED}


def settings_of(name):
    import experts
    import fused
    import optimizers
    import packed

    known = SETTINGS
    if name in DRAWN:
        config, chosen = drawn.job(DRAWN[name])
        known = {**SETTINGS, **drawn.MORE_SETTINGS}
    elif name in optimizers.OPTIMIZERS:
        config, chosen = optimizers.OPTIMIZERS[name]
        known = {**SETTINGS, **optimizers.MORE_SETTINGS}
    elif name in ADAPTED:
        config, chosen = ADAPTED[name]
        known = {**SETTINGS, **(adapted.QUANTIZED_SETTINGS if name in QUANTIZED else adapted.MORE_SETTINGS)}
    elif name in experts.EXPERTS:
        config, chosen = experts.EXPERTS[name]
        known = {**SETTINGS, **experts.MORE_SETTINGS}
    elif name in families.FAMILIES:
        config, chosen = families.FAMILIES[name]
        known = {**SETTINGS, **families.MORE_SETTINGS}
    elif name in packed.PACKED:
        config, chosen = packed.PACKED[name]
        known = {**SETTINGS, **packed.MORE_SETTINGS}
    elif name in fused.FUSED:
        config, chosen = fused.FUSED[name]
        known = {**SETTINGS, **fused.MORE_SETTINGS}
    else:
        config, chosen = RECORDINGS[name]
    unknown = set(chosen) - set(known)
    assert not unknown, f"{name}: unknown settings {unknown}"
    return dict(config), {**known, **chosen}
