"""Trainings under a wrapper that nobody chose: `job(seed)` says who trains, which model, and with which settings.

Wrappers take turns, and so do families, as in drawn.py, whose models these are but for vocabularies, which are smaller.
Everything else is drawn from what the wrapper's own recordings have. What a framework refuses is not drawn; a job that
the prediction gets wrong stays.
"""

import drawn
import flat
import offload
import sharded
import titan
import zero
from recordings import SETTINGS, llama, qwen3

SEEDS = range(100, 160)

# Who trains: the module whose `prepare` and `train_step` it is (record_wrapped.py has its own for plain models).
WRAPPERS = {
    "plain": "record_wrapped", "ddp": "record_wrapped", "fsdp": "record_flat", "fsdp2": "record_sharded",
    "titan": "record_titan", "zero": "record_zero", "saved": "record_saved", "fsdp2_offload": "record_sharded",
    "titan_tensor": "record_titan", "zero_offload": "record_zero",
}  # fmt: skip

PLAIN = {**SETTINGS, **drawn.MORE_SETTINGS, "adapter": None}
VOCABULARIES = (1000, 4096, 8191, 16384, 32000)
LENGTHS = (128, 255, 333, 512, 777, 1024)
WORLDS = (2, 3, 4, 5, 6, 7, 8, 12, 24, 63)
WITH_QKVO = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "olmo2")


def wrapper_of(seed):
    return list(WRAPPERS)[seed % len(WRAPPERS)]


def family_of(seed):
    if wrapper_of(seed).startswith("titan"):
        return ("llama", "qwen3")[seed // len(WRAPPERS) % 2]
    return drawn.FAMILIES[seed % len(drawn.FAMILIES)]


def name_of(seed):
    return f"wrapped_{seed}_{wrapper_of(seed)}_{family_of(seed)}"


def job(seed):
    """(module, config, settings) of a seed."""
    draw, family, wrapper = drawn.Draw(seed), family_of(seed), wrapper_of(seed)
    settings = {
        "plain": plain, "ddp": ddp, "fsdp": fsdp, "fsdp2": fsdp2, "titan": torchtitan, "zero": deepspeed,
        "saved": saved, "fsdp2_offload": fsdp2_offload, "titan_tensor": tensor_parallel, "zero_offload": zero_offload,
    }  # fmt: skip
    config = of_titan(draw, family) if wrapper.startswith("titan") else model(draw, family)
    chosen = settings[wrapper](draw, config)
    chosen["allocator"] = draw.one_of((None, None, "expandable_segments:True"))
    return WRAPPERS[wrapper], config, chosen


def model(draw, family):
    families = {"gpt2": drawn.gpt2, "gpt_bigcode": drawn.gpt_bigcode, "gpt_neox": drawn.gpt_neox}
    config = families.get(family, drawn.modern)(draw, family)
    return {**config, "vocab_size": draw.one_of(VOCABULARIES), "use_cache": draw.happens(0.2)}


def shape(draw, config):
    return {
        "sequence": draw.one_of(LENGTHS),
        "batch": draw.one_of((1, 1, 2, 3)),
        "clip_grad_norm": draw.one_of((None, 1.0)),
        "checkpointing": draw.one_of((None, None, "non_reentrant", "reentrant")),
        "attention": "eager" if config["model_type"] == "gemma2" else draw.one_of(("sdpa", "sdpa", "eager")),
        "outputs": draw.one_of(("dropped", "dropped", "kept")),
        "micro_batches": draw.one_of((1, 1, 2, 3)),
    }


def optimizer(draw):
    return draw.one_of(
        ("adamw foreach", "adamw foreach", "adamw foreach", "adamw fused", "adamw for-loop", "sgd_momentum foreach")
    )


def adapter(draw, config, probability):
    if not draw.happens(probability):
        return None
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"] if config["model_type"] in WITH_QKVO else "all-linear"
    return {
        "r": draw.one_of((8, 16, 64)),
        "target_modules": draw.one_of((targets, "all-linear")),
        "lora_dropout": draw.one_of((0.0, 0.1)),
    }


def plain(draw, config):
    lora = adapter(draw, config, 0.5)
    precisions = ("fp32", "fp32", "pure_bf16", "autocast_bf16")
    return {
        **PLAIN, **shape(draw, config), "optimizer": optimizer(draw), "adapter": lora,
        "precision": draw.one_of(precisions if lora else (*precisions, "autocast_fp16")),
        "weight_decay": draw.one_of((0.0, 0.1)), "amsgrad": False,
    }  # fmt: skip


def ddp(draw, config):
    return {
        **plain(draw, config), "ddp": draw.one_of(("views", "copies")),
        "bucket_cap_mb": draw.one_of((None, None, 4, 50)),
    }  # fmt: skip


def world(draw):
    """Its size, and the rank that is recorded: the first, the last or one between."""
    ranks = draw.one_of(WORLDS)
    return ranks, draw.one_of((0, ranks - 1, ranks // 2))


def group_of(draw, ranks):
    """Ranks that share out parameters together, where others hold the same."""
    return draw.one_of([None] + [n for n in range(2, ranks) if ranks % n == 0])


def fsdp2(draw, config):
    ranks, rank = world(draw)
    precision = draw.one_of(("bf16", "bf16", "fp32"))
    lora = adapter(draw, config, 0.35)
    return {
        **sharded.DEFAULTS, **shape(draw, config), "optimizer": optimizer(draw), "world": ranks, "rank": rank,
        "shard_group": group_of(draw, ranks), "precision": precision,
        "parameters": "fp32" if precision == "fp32" else draw.one_of(("fp32", "fp32", "bf16")),
        "reduce_dtype": draw.one_of(("fp32", "fp32", "bf16")) if precision == "bf16" else "fp32",
        "reshard_after_forward": draw.one_of((True, True, False, None)),
        "sync_each_batch": draw.happens(0.3), "adapter": lora,
    }  # fmt: skip


def fsdp2_offload(draw, config):
    chosen = fsdp2(draw, config)
    return {
        **chosen, "offload": draw.one_of(("pinned", "pageable")), "adapter": None,
        "optimizer": draw.one_of(("adamw for-loop", "adamw foreach", "adamw fused")),
    }  # fmt: skip


def fsdp(draw, config):
    ranks, rank = world(draw)
    group = group_of(draw, ranks)
    strategies = ("hybrid_shard", "_hybrid_shard_zero2") if group else ("full_shard", "full_shard", "shard_grad_op")
    precision = draw.one_of(("bf16", "bf16", "fp32"))
    return {
        **flat.DEFAULTS, **shape(draw, config), "optimizer": optimizer(draw), "world": ranks, "rank": rank,
        "shard_group": group, "strategy": draw.one_of(strategies), "precision": precision,
        "parameters": draw.one_of(("fp32", "fp32", "bf16")) if precision == "bf16" else "fp32",
        "reduce_dtype": draw.one_of(("fp32", "bf16")) if precision == "bf16" else "fp32",
        "use_orig_params": draw.happens(0.5), "forward_prefetch": draw.happens(0.3),
        "backward_prefetch": draw.one_of(("backward_pre", "backward_pre", "backward_post", None)),
        "limit_all_gathers": draw.happens(0.7), "no_sync": draw.happens(0.7),
        "autocast": draw.one_of((None, "bf16")),
    }  # fmt: skip


def deepspeed(draw, config):
    ranks, rank = world(draw)
    stage = draw.one_of((1, 2, 3))
    precision = draw.one_of(("bf16", "bf16", "bf16", "fp16", "fp32"))
    ds = dict(draw.one_of(({}, zero.SMALL_BUCKETS, zero.SMALL_BUCKETS)))
    if stage == 3:
        ds |= draw.one_of(({}, zero.RELEASING, zero.RELEASING))
    ds |= draw.one_of(({}, {}, {"overlap_comm": True}, {"overlap_comm": False}))
    return {
        **zero.DEFAULTS, **shape(draw, config), "world": ranks, "rank": rank, "stage": stage, "precision": precision,
        "accumulation": draw.one_of((None, None, "fp32")) if precision == "bf16" else None, "ds": ds,
        "optimizer": draw.one_of(("adamw foreach", "adamw foreach", "adamw fused", "adamw for-loop")),
        "adapter": adapter(draw, config, 0.3) if precision == "bf16" else None,
    }  # fmt: skip


def zero_offload(draw, config):
    chosen = {**deepspeed(draw, config), "stage": draw.one_of((2, 3)), "precision": "bf16", "accumulation": None}
    moved = [draw.one_of((offload.OPTIMIZER, offload.OPTIMIZER_PAGEABLE))]
    if chosen["stage"] == 3:
        moved.append(draw.one_of(({}, offload.PARAMETERS, offload.PARAMETERS_PAGEABLE)))
    ds = dict(zero.SMALL_BUCKETS)
    if chosen["stage"] == 3:
        ds |= draw.one_of(({}, zero.RELEASING))
    for its in moved:
        ds |= its
    return {**chosen, "ds": ds, "optimizer": draw.one_of(("cpu_adam", "cpu_adam", "adamw for-loop"))}


def saved(draw, config):
    return {
        **offload.SAVED, **shape(draw, config), "clip_grad_norm": None, "outputs": "dropped",
        "optimizer": optimizer(draw), "precision": draw.one_of(("pure_bf16", "autocast_bf16", "fp32")),
        "offload": draw.one_of(("pinned", "pageable")),
    }  # fmt: skip


def of_titan(draw, family):
    """Of sizes that eight ranks can share out, and whose MLP torchtitan's rounding makes."""
    heads, width = draw.one_of((8, 16)), draw.one_of((48, 64, 80, 128))
    sizes = {
        "hidden_size": heads * width, "num_attention_heads": heads, "num_key_value_heads": draw.one_of((4, 8)),
        "intermediate_size": heads * draw.one_of((3 * width, 4 * width)), "head_dim": width,
        "num_hidden_layers": draw.one_of((2, 3, 4, 5)), "vocab_size": draw.one_of((1000, 4096, 8200, 32000)),
    }  # fmt: skip
    return llama(**sizes) if family == "llama" else qwen3(**sizes, tie_word_embeddings=False)


def of_rank(draw, tensor, data):
    replicas = draw.one_of([1, 1] + [n for n in range(2, data) if data % n == 0])
    ranks = tensor * data
    return {
        **titan.SETTINGS, "tensor": tensor, "world": ranks, "rank": draw.one_of((0, ranks - 1, ranks // 2)),
        "replicate": replicas, "sequence": draw.one_of((128, 256, 776, 1024)), "batch": draw.one_of((1, 2, 3)),
        "checkpointing": draw.one_of(("none", "full", "op", "2")), "loss_parallel": draw.happens(0.7),
        "implementation": draw.one_of(("fused", "foreach", "for-loop")), "micro_batches": draw.one_of((1, 1, 2, 3)),
        "precision": draw.one_of(("bf16", "bf16", "fp32")), "reduce_dtype": draw.one_of(("fp32", "fp32", "bf16")),
        "reshard": draw.one_of(("default", "always", "never")),
    }  # fmt: skip


def torchtitan(draw, config):
    return of_rank(draw, draw.one_of((1, 2, 4)), draw.one_of((2, 3, 4, 5, 6, 9)))


def tensor_parallel(draw, config):
    return of_rank(draw, draw.one_of((2, 4)), 1)
