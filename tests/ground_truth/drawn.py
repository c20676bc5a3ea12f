"""Trainings that nobody chose: `job(seed)` says which model and which settings a seed stands for.

Families take turns, so that each comes five or six times; everything else is drawn, from lists in which what is
seldom used stands beside what everybody uses. What transformers or PyTorch refuse is not drawn (Gemma 2 under sdpa, a
sequence beyond learned positions), and nothing else is left out: a job that the prediction gets wrong stays.
"""

import random

SEEDS = range(60)

# Beyond those in recordings.py.
MORE_SETTINGS = {
    "batches": "collated",  # each pass makes token ids, labels and mask anew, as a data collator's go to the device
    "micro_batches": 1,  # forward and backward passes of a step
    "bucket_cap_mb": None,  # of DistributedDataParallel; None: not given
    "weight_decay": 0.1,
    "amsgrad": False,  # of adamw
    "allocator": None,  # PYTORCH_ALLOC_CONF
}

FAMILIES = (
    "llama", "gpt2", "gemma3_text", "mistral", "gpt_bigcode", "qwen3", "gpt_neox", "gemma2", "phi3", "qwen2", "olmo2",
)  # fmt: skip
VOCABULARIES = (1000, 4096, 8191, 16384, 32000, 50257, 65536, 100003, 128256)
LENGTHS = (100, 128, 255, 256, 333, 512, 513, 777, 1000, 1023, 1024, 1536, 2048)
POSITIONS = 2048
MOST_TOKENS = 6144


def name_of(seed):
    return f"drawn_{seed:02}_{FAMILIES[seed % len(FAMILIES)]}"


class Draw:
    """Python promises the sequence of random() for a seed, and of nothing that is made from it."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def one_of(self, values):
        return values[int(self.random.random() * len(values))]

    def happens(self, probability):
        return self.random.random() < probability


def job(seed):
    """(config, settings) of a seed."""
    draw = Draw(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    config = {"gpt2": gpt2, "gpt_bigcode": gpt_bigcode, "gpt_neox": gpt_neox}.get(family, modern)(draw, family)
    config["use_cache"] = draw.happens(0.3)
    return config, settings(draw, config)


def settings(draw, config):
    precision = draw.one_of(("pure_bf16", "pure_bf16", "fp32", "autocast_bf16", "autocast_bf16", "autocast_fp16"))
    optimizer = draw.one_of(("adamw", "adamw", "adamw", "sgd", "sgd_momentum"))
    sequence = draw.one_of(LENGTHS)
    chosen = {
        "sequence": sequence,
        "batch": min(draw.one_of((1, 2, 3, 4, 6)), MOST_TOKENS // sequence),
        "precision": precision,
        "optimizer": f"{optimizer} {draw.one_of(('foreach', 'foreach', 'fused', 'for-loop'))}",
        "clip_grad_norm": draw.one_of((None, 1.0)),
        "checkpointing": draw.one_of((None, None, "non_reentrant", "reentrant")),
        "attention": draw.one_of(("sdpa", "sdpa", "eager")),
        "outputs": draw.one_of(("dropped", "dropped", "kept")),
        "ddp": draw.one_of((None, None, None, None, "views", "copies")),
        "micro_batches": draw.one_of((1, 1, 1, 2, 3)),
        "allocator": draw.one_of(
            (None,) * 8 + ("expandable_segments:True", "roundup_power2_divisions:4", "max_split_size_mb:64")
        ),
    }
    chosen["weight_decay"] = draw.one_of((0.0, 0.1))
    chosen["amsgrad"] = draw.happens(0.2) and optimizer == "adamw"
    chosen["bucket_cap_mb"] = draw.one_of((None, None, 4, 50)) if chosen["ddp"] else None
    if config["model_type"] == "gemma2":
        chosen["attention"] = "eager"  # transformers 5 refuses sdpa, soft-capped or not
    return chosen


def width_of(draw):
    """(heads, width of a head): narrow and wide models, with products that are no powers of two."""
    return draw.one_of((4, 6, 8, 12, 16)), draw.one_of((48, 64, 64, 80, 128))


def gpt2(draw, family):
    heads, width = width_of(draw)
    dropout = draw.one_of((0.0, 0.1))
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": family, "n_embd": heads * width, "n_head": heads,
        "n_layer": draw.one_of((2, 3, 4, 5)), "n_inner": draw.one_of((None, 3 * heads * width)),
        "n_positions": POSITIONS, "vocab_size": draw.one_of(VOCABULARIES),
        "activation_function": draw.one_of(("gelu_new", "gelu_new", "gelu", "gelu_pytorch_tanh")),
        "embd_pdrop": dropout, "attn_pdrop": dropout, "resid_pdrop": dropout,
        "tie_word_embeddings": draw.happens(0.7),
    }  # fmt: skip


def gpt_bigcode(draw, family):
    return {
        **gpt2(draw, family), "architectures": ["GPTBigCodeForCausalLM"], "multi_query": draw.happens(0.7),
        "activation_function": draw.one_of(("gelu_pytorch_tanh", "gelu")),
        "attention_softmax_in_fp32": True, "scale_attention_softmax_in_fp32": True,
    }  # fmt: skip


def gpt_neox(draw, family):
    heads, width = width_of(draw)
    dropout = draw.one_of((0.0, 0.0, 0.1))
    return {
        "architectures": ["GPTNeoXForCausalLM"], "model_type": family, "hidden_size": heads * width,
        "intermediate_size": 4 * heads * width, "num_hidden_layers": draw.one_of((2, 3, 4, 5)),
        "num_attention_heads": heads, "vocab_size": draw.one_of(VOCABULARIES), "max_position_embeddings": POSITIONS,
        "rotary_pct": draw.one_of((0.25, 0.5, 1.0)), "rotary_emb_base": 10000, "hidden_act": "gelu",
        "use_parallel_residual": draw.happens(0.6), "hidden_dropout": dropout, "attention_dropout": dropout,
        "attention_bias": draw.happens(0.7), "tie_word_embeddings": draw.happens(0.3),
    }  # fmt: skip


CLASSES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "olmo2": "Olmo2ForCausalLM",
    "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM",
}  # fmt: skip


def modern(draw, family):
    """Rotary positions, RMS norms and a gated MLP: what most families share, and then their own."""
    heads, width = width_of(draw)
    hidden = heads * width
    layers = draw.one_of((2, 3, 4, 5))
    config = {
        "architectures": [CLASSES[family]], "model_type": family, "hidden_size": hidden,
        "intermediate_size": int(hidden * draw.one_of((2, 2.75, 3.5, 4))) // 16 * 16, "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": draw.one_of([n for n in range(1, heads + 1) if heads % n == 0]),
        "vocab_size": draw.one_of(VOCABULARIES), "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": draw.happens(0.5), "attention_dropout": draw.one_of((0.0, 0.0, 0.0, 0.1)),
    }  # fmt: skip
    window = draw.one_of((None, 64, 200, 512, 4096))
    if family == "llama":
        config |= {"attention_bias": draw.happens(0.3), "mlp_bias": draw.happens(0.3)}
    if family in ("llama", "mistral", "qwen3", "gemma2", "gemma3_text"):
        config["head_dim"] = draw.one_of((width, width, 64, 128, 256))
    if family in ("mistral", "phi3"):
        config["sliding_window"] = window
    if family in ("qwen2", "qwen3") and window:
        # The layers from `max_window_layers` on look through the window.
        config |= {"use_sliding_window": True, "sliding_window": window}
        config["max_window_layers"] = draw.one_of((0, 1, layers))
    if family == "phi3":
        dropout = draw.one_of((0.0, 0.0, 0.1))
        config |= {"original_max_position_embeddings": 4096, "resid_pdrop": dropout, "embd_pdrop": 0.0}
        config |= {"pad_token_id": None, "eos_token_id": None, "bos_token_id": None}
        config["partial_rotary_factor"] = draw.one_of((1.0, 1.0, 0.75))
    if family in ("gemma2", "gemma3_text"):
        config |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": config["head_dim"]}
        config |= {"sliding_window": window or 4096, "final_logit_softcapping": draw.one_of((None, 30.0))}
    if family == "gemma2":
        config["attn_logit_softcapping"] = draw.one_of((None, 50.0))
    if family == "gemma3_text":
        config["sliding_window_pattern"] = draw.one_of((2, 6))
    return config
