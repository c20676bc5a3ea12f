"""Records the memory of trainings under FullyShardedDataParallel (FSDP1) as record_sharded.py does.

python tests/ground_truth/record_flat.py --all
python tests/ground_truth/record_flat.py NAME...
"""

import contextlib
import sys

import flat
import record_sharded
import sharded
from flat import RECORDINGS  # noqa: F401

OUT = record_sharded.HERE.parent / "golden" / "flat" / "recordings"

# By the function of FullyShardedDataParallel that makes a tensor; the first that is found counts.
MADE_BY = {
    "_use_low_precision_shard": "low_precision_shard",
    "_alloc_padded_unsharded_flat_param": "unsharded_parameters",
    "_post_backward_hook": "reduced_gradients",
    "_init_param_handle_from_module": "parameters",
}

# What the host is asked for: by a part of the line of code, or by the function.
HOST_LINES = {
    "_cpu_grad = torch.zeros_like": "gradients",
    ").pin_memory()": "gradients",
    "_local_shard.pin_memory()": "parameters",
}
HOST_MADE_BY = {
    "made_on_host": "model",
    "_init_param_handle_from_module": "unpinned_parameters",
    "init_flat_param_attributes": "parameters",
    "_unshard": "all_gather_input",
    "_pre_unshard": "all_gather_input",
    "_offload_grad": "gradients",
    "_post_backward_final_callback": "gradients",
}


def settings_of(name):
    return sharded.settings_of(name, flat.RECORDINGS, flat.DEFAULTS)


def made_on_host(model_class, config):
    return model_class(config)


def prepare(config, settings):
    """As accelerate and Trainer wrap models: made on the host, every decoder layer a unit and the model the root."""
    import torch
    import torch.distributed as dist
    import transformers
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import (
        BackwardPrefetch,
        CPUOffload,
        FullyShardedDataParallel,
        MixedPrecision,
        ShardingStrategy,
    )
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from torch.testing._internal.distributed.fake_pg import FakeStore

    import training

    world, group = settings["world"], settings["shard_group"]
    dist.init_process_group("fake", rank=settings["rank"], world_size=world, store=FakeStore())
    meshes = {"device_mesh": init_device_mesh("cuda", (world // group, group))} if group else {}
    model_class = getattr(transformers, config["architectures"][0])
    config = transformers.AutoConfig.for_model(**{k: v for k, v in config.items() if k != "architectures"})
    config._attn_implementation = settings["attention"]
    types = {"bf16": torch.bfloat16, "fp32": torch.float32}
    torch.set_default_dtype(types[settings["parameters"]])
    try:
        model = made_on_host(model_class, config)
    finally:
        torch.set_default_dtype(torch.float32)
    model.train()
    if settings["checkpointing"]:
        reentrant = settings["checkpointing"] == "reentrant"
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    base = model.base_model
    adapted = {}
    if settings.get("adapter"):
        from peft.utils.other import fsdp_auto_wrap_policy

        model = training.adapt(model, settings["adapter"])
        adapted["auto_wrap_policy"] = fsdp_auto_wrap_policy(model)
    layer = type((base.layers if hasattr(base, "layers") else base.h)[0])
    prefetch = settings["backward_prefetch"]
    model = FullyShardedDataParallel(
        model,
        **{"auto_wrap_policy": ModuleWrapPolicy({layer}), **adapted},
        sharding_strategy=ShardingStrategy[
            "_HYBRID_SHARD_ZERO2" if settings["strategy"] == "_hybrid_shard_zero2" else settings["strategy"].upper()
        ],
        mixed_precision=MixedPrecision(
            param_dtype=types[settings["precision"]],
            reduce_dtype=types[settings["reduce_dtype"]],
            buffer_dtype=types[settings["buffers"]],
        ),
        backward_prefetch=BackwardPrefetch[prefetch.upper()] if prefetch else None,
        forward_prefetch=settings["forward_prefetch"],
        limit_all_gathers=settings["limit_all_gathers"],
        sync_module_states=settings["sync_module_states"],
        use_orig_params=settings["use_orig_params"],
        device_id=torch.device("cuda", 0),
        cpu_offload=CPUOffload(offload_params=True) if settings.get("offload") else None,
        **meshes,
    )
    return model, training.build_optimizer(model, settings), training.Batches(vars(config), settings)


def train_step(model, optimizer, batches, settings):
    """As in training.py; the batch and the loss outlive each other as there."""
    import torch

    optimizer.zero_grad(set_to_none=True)
    passes = settings["micro_batches"]
    for micro_batch in range(passes):
        batch = batches()
        with model.no_sync() if settings["no_sync"] and micro_batch + 1 < passes else contextlib.nullcontext():
            with torch.autocast("cuda", dtype=torch.bfloat16) if settings["autocast"] else contextlib.nullcontext():
                if settings["outputs"] == "kept":
                    outputs = model(**batch)
                    loss = outputs.loss
                else:
                    loss = model(**batch).loss
            loss.backward()
    if settings["clip_grad_norm"]:
        model.clip_grad_norm_(settings["clip_grad_norm"])
    optimizer.step()


def streams(model):
    """What the streams are called."""
    names = ("unshard", "post_backward", "pre_unshard", "all_reduce")
    return {getattr(model, f"_{name}_stream").cuda_stream: name for name in names}


if __name__ == "__main__":
    record_sharded.main(sys.modules[__name__])
